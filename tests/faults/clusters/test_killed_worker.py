"""The bytes of one process, also where a worker of the cluster is killed half way."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest

from panther.engine import SESSION, Work, open_executor


def write_bags(folder: Path) -> None:
    rng = np.random.default_rng(0)
    folder.mkdir()
    for i in range(40):
        np.save(folder / f"s{i:02d}.npy", rng.normal(size=(400, 16)).astype("f4"))


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_cluster_with_a_worker_killed_half_way_gives_the_same_bytes(tmp_path, cluster, monkeypatch):
    from panther.prototypes import KMeansSettings, fit_bags
    from panther.storage.bags import list_bags
    from panther.storage.prototypes import save_prototypes
    from panther.verbs.embed import embed_cohort

    write_bags(tmp_path / "bags")
    refs = list_bags(tmp_path / "bags").refs
    settings = KMeansSettings(4, sample=2000, restarts=2, passes=2)
    results = {}
    before = {worker.pid for worker in cluster.workers.values()}
    for where, address in (("here", 1), ("cluster", cluster.scheduler_address)):
        with open_executor(address) as executor:
            fitted = fit_bags(refs, settings, work=Work(executor))
            save_prototypes(fitted.prototypes, tmp_path / where)
        if where == "cluster":
            monkeypatch.setattr(SESSION, "track", kill_one(cluster))
        table = embed_cohort(refs, fitted.prototypes, workers=address)
        results[where] = ((tmp_path / where).read_bytes(), np.asarray(table.vectors).tobytes(), table.observations)
        assert not fitted.failures
        assert not table.failures
    assert results["here"] == results["cluster"]
    assert before != {worker.pid for worker in cluster.workers.values()}  # one did die


def kill_one(cluster):
    """A progress bar that kills a worker process once a few slides are done."""

    def track(items, what, total):
        for number, item in enumerate(items):
            if number == 5:
                os.kill(next(iter(cluster.workers.values())).pid, signal.SIGKILL)
            yield item

    return track
