"""Tasks on Dask workers: where they run, what they cost, and what is said when workers or the scheduler go away."""

import ctypes
import os
import signal
import threading
import time
from collections import deque
from functools import partial
from pathlib import Path

import pytest

from panther.clusters.executor import GPU, Workers
from panther.clusters.opening import open_cluster
from panther.errors import InputError
from panther.execution import map_slides, open_executor
from panther.workers import reading

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


def noted(name: str, log: Path) -> str:
    time.sleep(0.02)
    with (log / str(os.getpid())).open("a") as file:
        file.write(f"{os.getppid()}\n")
    return name


def damaging(name: str) -> str:
    if name == "bad.h5":
        with reading(name):
            ctypes.string_at(0)  # what a few wrong bytes do to a C library
    if name == "slow.h5":
        with reading(name):
            time.sleep(60)
    return name.upper()


def test_work_is_shared_and_done_by_guarded_processes(cluster, tmp_path):
    with open_cluster(cluster.scheduler_address) as executor:
        results = list(map_slides(partial(noted, log=tmp_path), map(str, range(60)), executor))
        assert [r.value for r in results] == [str(n) for n in range(60)]
        workers = {worker.pid for worker in cluster.workers.values()}
    assert not {int(path.name) for path in tmp_path.iterdir()} & workers
    assert len(list(tmp_path.iterdir())) == 2
    assert not [p for p in tmp_path.iterdir() if _alive(int(p.name))]  # the workers have given them back


def test_a_file_that_crashes_or_stops_its_reader_is_named_and_the_others_go_on(cluster, monkeypatch):
    monkeypatch.setenv("PANTHER_READ_LIMIT", "1")
    names = [*"abc", "bad.h5", *"def", "slow.h5", *"ghi"]
    with open_cluster(cluster.scheduler_address) as executor:
        results = list(map_slides(damaging, names, executor))
        before = {worker.pid for worker in cluster.workers.values()}
    assert "bad.h5: reading this file crashes" in results[3].reason
    assert "slow.h5: one read takes longer than 1 s" in results[7].reason
    assert [r.value for r in results if r.reason is None] == list("ABCDEFGHI")
    assert before == {worker.pid for worker in cluster.workers.values()}  # no Dask worker was harmed


def test_a_large_function_reaches_every_worker(cluster):
    big = os.urandom(2 << 20)
    with open_cluster(cluster.scheduler_address) as executor:
        found = [r.value for r in map_slides(partial(_length, more=big), range(20), executor)]
    assert found == [n + (2 << 20) for n in range(20)]


def _length(number: int, more: bytes) -> int:
    return number + len(more)


def test_a_worker_of_another_version_is_refused(cluster, monkeypatch):
    monkeypatch.setattr("panther.clusters.executor.__version__", "0.0.1")
    with open_cluster(cluster.scheduler_address) as executor, pytest.raises(InputError, match=r"this command 0\.0\.1"):
        list(map_slides(abs, range(3), executor))


def test_work_for_a_gpu_goes_to_who_announces_one_and_other_work_to_the_others():
    team = Workers({"a": 1, "b": 1, "c": 1}, frozenset("b"))
    assert team.placement(1) == {"resources": {GPU: 1}}
    assert team.placement(0) == {"workers": ["a", "c"], "allow_other_workers": True}
    assert Workers({"a": 1, "b": 1}).placement(0) == {}
    assert Workers({"b": 1}, frozenset("b")).placement(0) == {}  # nobody else is there


def test_a_scheduler_that_does_not_answer_or_has_no_workers_is_told_in_a_sentence(monkeypatch):
    from panther.clusters import local, opening

    monkeypatch.setattr(opening, "ANSWER", 0.5)
    monkeypatch.setattr(opening, "FIRST_WORKER", 0.2)
    with pytest.raises(InputError, match="No Dask scheduler answers"), open_executor(cluster="tcp://127.0.0.1:9"):
        pass
    monkeypatch.setattr(local, "cores", lambda: 0)
    with (
        local.local_cluster(0) as empty,
        pytest.raises(InputError, match="has no workers"),
        open_cluster(empty.scheduler_address),
    ):
        pass


@pytest.mark.slow
def test_a_scheduler_that_goes_away_is_told_in_a_sentence(tmp_path):
    from panther.clusters.local import local_cluster

    local = local_cluster(1)
    with open_cluster(local.scheduler_address) as executor:
        results = map_slides(partial(noted, log=tmp_path), map(str, range(10_000)), executor)
        next(results)
        threading.Thread(target=local.close).start()
        with pytest.raises(InputError, match="went away; what was"):
            deque(results)


@pytest.mark.slow
def test_a_task_that_was_unlucky_is_tried_again(tmp_path):
    """Dask gives a task up when three workers in a row die with it in hand; that is no fault of the task."""
    from panther.clusters.local import local_cluster

    with local_cluster(1) as local, open_cluster(local.scheduler_address) as executor:
        done = executor.submit(partial(_patient, log=tmp_path), "x")
        killed: set[int] = set()
        while not done.done() and len(killed) < 5:
            pids = {w.pid for w in local.workers.values() if w.pid} - killed
            if pids and len(list(tmp_path.iterdir())) > len(killed):
                killed |= pids
                os.kill(pids.pop(), signal.SIGKILL)
            time.sleep(0.05)
        (tmp_path / "enough").touch()
        assert done.result(60) == "x"
        assert len(killed) == 5


def _patient(name: str, log: Path) -> str:
    (log / str(os.getpid())).touch()
    while not (log / "enough").exists():
        time.sleep(0.05)
    return name


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
