"""Tasks on Dask workers: where they run, what they cost, and what is said when workers or the scheduler go away."""

import ctypes
import os
import threading
import time
from collections import deque
from functools import partial
from pathlib import Path

import pytest

from clusters.conftest import dask_workers
from panther.cluster import GPU, open_cluster, placement
from panther.engine import map_slides, open_executor
from panther.errors import InputError
from panther.machine import reading

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


def noted(name: str, log: Path) -> str:
    time.sleep(0.02)
    with (log / str(os.getpid())).open("a") as file:
        file.write(f"{os.getppid()}\n")
    return name


def damaging(name: str) -> str:
    if name == "bad.h5":
        with reading():
            ctypes.string_at(0)  # what a few wrong bytes do to a C library
    if name == "slow.h5":
        with reading():
            time.sleep(60)
    return name.upper()


def test_work_is_shared_by_the_workers(cluster, tmp_path):
    with open_cluster(cluster.scheduler_address) as pool:
        results = list(map_slides(partial(noted, log=tmp_path), map(str, range(60)), pool))
        assert [r.value for r in results] == [str(n) for n in range(60)]
    assert {int(path.name) for path in tmp_path.iterdir()} == {worker.pid for worker in cluster.workers.values()}


@pytest.mark.slow
def test_a_file_that_crashes_or_blocks_every_worker_is_named_and_the_others_go_on(monkeypatch):
    monkeypatch.setenv("PANTHER_READ_LIMIT", "1")
    names = [*"abc", "bad.h5", *"def", "slow.h5", *"ghi"]
    with dask_workers(2) as cluster, open_cluster(cluster.scheduler_address) as pool:
        results = list(map_slides(damaging, names, pool))
    assert [r.reason.partition(":")[0] for r in results if r.reason] == ["bad.h5", "slow.h5"]
    assert [r.value for r in results if r.reason is None] == list("ABCDEFGHI")


def test_a_large_function_reaches_every_worker(cluster):
    big = os.urandom(2 << 20)
    with open_cluster(cluster.scheduler_address) as executor:
        actual = [r.value for r in map_slides(partial(_length, more=big), range(20), executor)]
    assert actual == [n + (2 << 20) for n in range(20)]


def _length(number: int, more: bytes) -> int:
    return number + len(more)


def test_a_worker_of_another_version_is_refused(cluster, monkeypatch):
    monkeypatch.setattr("panther.cluster.__version__", "0.0.1")
    with open_cluster(cluster.scheduler_address) as executor, pytest.raises(InputError, match=r"0\.0\.1"):
        list(map_slides(abs, range(3), executor))


def test_work_for_a_gpu_goes_to_workers_with_one_and_other_work_to_the_others():
    team = {"a": 1, "b": 1, "c": 1}
    assert placement(team, {"b"}, 1) == {"resources": {GPU: 1}}
    assert placement(team, {"b"}, 0) == {"workers": ["a", "c"], "allow_other_workers": True}
    assert placement({"a": 1, "b": 1}, (), 0) == {}
    assert placement({"b": 1}, {"b"}, 0) == {}  # nobody else is there


def test_a_scheduler_that_does_not_answer_or_has_no_workers_is_named(monkeypatch):
    from panther import cluster

    monkeypatch.setattr(cluster, "ANSWER", 0.5)
    monkeypatch.setattr(cluster, "FIRST_WORKER", 0.2)
    with pytest.raises(InputError, match=r"tcp://127.0.0.1:9: no Dask scheduler"), open_executor("tcp://127.0.0.1:9"):
        pass
    with dask_workers(0) as empty, pytest.raises(InputError, match="no workers"), open_cluster(empty.scheduler_address):
        pass


@pytest.mark.slow
def test_loss_of_the_scheduler_is_reported(tmp_path):
    with dask_workers(1) as local, open_cluster(local.scheduler_address) as executor:
        results = map_slides(partial(noted, log=tmp_path), map(str, range(10_000)), executor)
        next(results)
        threading.Thread(target=local.close).start()
        with pytest.raises(InputError, match="went away"):
            deque(results)
