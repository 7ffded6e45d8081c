"""A Dask cluster of two workers, real processes, shared by the tests that do not harm it."""

from contextlib import contextmanager

import pytest


@contextmanager
def dask_workers(count):
    """Dask workers of one thread each, started again by their nannies when they die."""
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=count, threads_per_worker=1, dashboard_address=":0", silence_logs=50, memory_limit=0, host="127.0.0.1"
    ) as local:
        yield local


@pytest.fixture(scope="session")
def cluster():
    pytest.importorskip("distributed")
    with dask_workers(2) as local:
        yield local
