"""What --cluster says, and where the workers of a cluster compute."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer


@contextmanager
def open_cluster(cluster: str | None, workers: int = 0) -> Iterator[Any]:
    """Executor of a cluster; None where none is asked for."""
    if cluster is None:
        yield None
        return
    from panther.engine import open_executor

    with open_executor(workers, cluster_of(cluster)) as executor:
        yield executor


def cluster_of(text: str | None) -> Any:
    """What --cluster says: an address, or the options of a file for SLURM."""
    if text is None or not text.startswith("slurm"):
        return text
    from panther.cluster import SlurmOptions
    from panther.errors import InputError
    from panther.storage.plain_yaml import read_yaml

    keys, path = "cores, memory, walltime", Path(text.removeprefix("slurm").removeprefix(":"))
    if path == Path():
        raise InputError(f"SLURM must be told what to give: --cluster slurm:OPTIONS.yaml, a file with {keys}.")
    return SlurmOptions.parse(read_yaml(path, "file of options for SLURM", keys), str(path))


def device_on(executor: Any, device: str) -> str:
    """Where the workers of a cluster compute: on the GPUs that they announce, else on their CPUs."""
    from panther.errors import InputError

    if device == "auto" and executor.has_gpus:
        typer.echo("Computing on the workers that announce a GPU; --device cpu uses the others.", err=True)
    if device != "auto" and device.partition(":")[0] == "cuda" and not executor.has_gpus:
        raise InputError(
            f"No worker of {executor.address} announces a GPU; start one per GPU with `dask worker ... --resources GPU=1`, or take `device=cpu`."
        )
    return ("cuda" if executor.has_gpus else "cpu") if device == "auto" else device
