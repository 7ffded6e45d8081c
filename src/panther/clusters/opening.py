"""From what the user says about a cluster to an executor."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from panther.clusters.executor import DaskTeam
from panther.clusters.local import local_cluster
from panther.clusters.slurm import SlurmOptions, slurm_cluster
from panther.errors import InputError

LOCAL = "local"
ANSWER = 10  # seconds that a scheduler has to answer
FIRST_WORKER = 60  # seconds that a scheduler may be without any worker


@contextmanager
def open_cluster(where: "str | SlurmOptions", workers: int = 0) -> Iterator[DaskTeam]:
    """Executor on a Dask cluster: at the address of a scheduler, ``local`` (``workers`` processes here), or of SLURM's jobs."""
    try:
        import distributed  # noqa: F401
    except ImportError as error:
        raise InputError("`cluster=` needs Dask; install it with: pip install 'panther-wsi[cluster]'.") from error
    with _quiet():
        if isinstance(where, SlurmOptions):
            with slurm_cluster(where) as cluster, _client(cluster, "SLURM's jobs", cluster.scheduler_address) as client:
                yield from _executor(client, cluster.scheduler_address, where.most_tasks, where.gpus > 0)
        elif where == LOCAL:
            with local_cluster(workers) as cluster, _client(cluster, LOCAL, cluster.scheduler_address) as client:
                yield from _executor(client, "this machine")
        else:
            with _client(where, where, where) as client:
                _await_workers(client, where)
                yield from _executor(client, where)


def _executor(client: Any, address: str, expected: int = 0, gpus: bool = False) -> Iterator[DaskTeam]:
    executor = DaskTeam(client, address, expected=expected, will_have_gpus=gpus)
    try:
        yield executor
    finally:
        executor.shutdown()


@contextmanager
def _client(where: Any, name: str, address: str) -> Iterator[Any]:
    from distributed import Client

    try:
        client = Client(where, timeout=ANSWER, set_as_default=False)
    except (OSError, ValueError) as error:
        raise InputError(
            f"No Dask scheduler answers at {name}; start one with `dask scheduler` and workers with `dask worker {address}`. "
            "`cluster=local` starts both on this machine."
        ) from error
    try:
        yield client
    finally:
        with suppress(Exception):  # of a scheduler that is gone
            client.close(timeout=5)


def _await_workers(client: Any, address: str) -> None:
    try:
        client.wait_for_workers(1, timeout=FIRST_WORKER)
    except TimeoutError as error:
        raise InputError(
            f"The Dask scheduler at {address} has no workers; start some with `dask worker {address}` on machines that see the files."
        ) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """What Dask logs about connections that end is no news, unless one asks for all of it."""
    logger = logging.getLogger("distributed")
    before = logger.level
    if not logging.getLogger("panther").isEnabledFor(logging.DEBUG):
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)
