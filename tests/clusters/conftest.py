"""A Dask cluster of two workers, real processes, shared by the tests that do not harm it."""

import pytest


@pytest.fixture(scope="session")
def cluster():
    pytest.importorskip("distributed")
    from panther.clusters.local import local_cluster

    with local_cluster(2) as local:
        yield local
