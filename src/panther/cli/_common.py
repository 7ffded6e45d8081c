"""What commands share: workers and devices, checks, and the way results and failures are printed."""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import typer

from panther.progress import track as track

SMALL_JOB = 500e6  # bytes of features
MOST_ON_GPU, EACH_ON_GPU = 15, 1e9  # processes, unless somebody asks for more, and bytes of its memory for each
MANY_CORES = 8


def reading(encoder_name: str | None, mixed: bool) -> Any:
    """What the user says about the feature files."""
    from panther.storage.bags import Reading

    return Reading(encoder_name, mixed)


def columns(slide: str | None, patient: str | None, site: str | None = None) -> Any:
    """Names of columns of the clinical table, where they are not the usual ones."""
    from panther.storage.clinical import Columns

    return Columns(slide, patient, site)


def suitable_workers(workers: int, refs: Iterable[Any], device: str = "cpu") -> int:
    """Where the number is left to us: a small job stays in this process, because starting workers takes longer than the work.

    A GPU is fed by as many processes as there are cores; of many cores one is for this process, which collects what they send.
    """
    if workers:
        return workers
    if sum(path.stat().st_size for ref in refs for path in ref.files if path.exists()) < SMALL_JOB:
        return 1
    return 0 if device == "cpu" else _feeding(device)


def _feeding(device: str) -> int:
    """Processes that feed a GPU; each has a context and a slide of its own there."""
    import torch

    from panther.machine import cores

    most = min(MOST_ON_GPU, cores() - (cores() >= MANY_CORES))
    if torch.device(device).type == "cuda":  # others do not say what is free
        most = min(most, int(torch.cuda.mem_get_info(device)[0] / EACH_ON_GPU))
    return max(1, most)


@contextmanager
def open_work(workers: int | str, refs: Iterable[Any] | None, device: str = "cpu") -> Iterator[Any]:
    """Workers of a cluster, or as many of this machine as suit these bags (None: one per core), with a device and a progress bar."""
    from panther.engine import Work, open_executor, parse_workers

    workers = parse_workers(workers)
    if isinstance(workers, int):
        device = checked_device(device)
        workers = workers if refs is None else suitable_workers(workers, refs, device)
    with open_executor(workers) as executor:
        if isinstance(workers, str):
            device = cluster_device(executor, device)
            executor = executor.for_work(gpu=device != "cpu")
        yield Work(executor, device, track)


def cluster_device(pool: Any, device: str) -> str:
    """Where the workers of a cluster compute: on the GPUs that they announce, else on their CPUs."""
    from panther.errors import InputError

    if device == "auto" and pool.has_gpus:
        typer.echo("Computing on the workers that announce a GPU; --device cpu uses the others.", err=True)
    if device != "auto" and device.partition(":")[0] == "cuda" and not pool.has_gpus:
        raise InputError(
            f"device: found {device}, but no worker of {pool.address} announces a GPU (dask worker ... --resources GPU=1)"
        )
    return ("cuda" if pool.has_gpus else "cpu") if device == "auto" else device


def checked_device(device: str) -> str:
    """Device to compute on, refused before the work if it is not there; `auto` is a GPU that is there, which is said, else the CPU."""
    if device == "cpu":
        return device
    import torch

    from panther.errors import InputError

    if device == "auto" and not torch.cuda.is_available():
        return "cpu"
    used = "cuda" if device == "auto" else device
    try:
        torch.zeros(1, device=used).item()  # `meta` is a device that holds no numbers
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        if device == "auto":  # a card that is there but full, or broken
            typer.echo(f"Computing on the CPU, because the GPU cannot be used ({reason}).", err=True)
            return "cpu"
        raise InputError(f"The device {device!r} cannot be used here ({reason}); try `device=cpu`.") from error
    if device == "auto":
        typer.echo(f"Computing on the GPU ({torch.cuda.get_device_name()}); --device cpu leaves it alone.", err=True)
    return used


def report(
    result: Mapping[str, Any],
    lines: Iterable[str],
    failures: Mapping[str, str],
    *,
    as_json: bool,
    notes: Iterable[str] = (),
) -> None:
    """Print what was done, then what failed; exit code 1 if anything did."""
    notes = list(notes)
    if as_json:
        typer.echo(json.dumps({**result, "notes": notes, "failures": dict(failures)}, indent=2, default=str))
    else:
        for line in lines:
            typer.echo(line)
        for note in notes:
            typer.echo(f"Note: {note}", err=True)
        for sentence in list(failures.values())[:20]:
            typer.echo(f"Failed: {sentence}", err=True)
        if len(failures) > 20:
            typer.echo(f"... and {len(failures) - 20} more; --json lists all.", err=True)
    if failures:
        raise typer.Exit(1)
