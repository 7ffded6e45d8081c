"""A Dask cluster whose workers and whose scheduler are killed, or stopped: the bytes of one process alone."""

import random
import signal
import time
from collections.abc import Iterator

import psutil
import pytest

from faults.dask_processes import DaskProcesses
from faults.lab import Lab, make_cohort, until

pytest.importorskip("distributed")
pytestmark = pytest.mark.slow

EMBED = ("embed", "features", "-p", "p.npy", "--set", "steps=40", "-o", "out.npz")


@pytest.fixture
def lab(tmp_path):
    return Lab(make_cohort(tmp_path / "lab", 24))


@pytest.fixture
def dask(tmp_path) -> Iterator[DaskProcesses]:
    processes = DaskProcesses(tmp_path / "dask", 3)
    yield processes
    processes.end()


def test_workers_are_killed_at_random(lab, dask):
    alone, chance, killed = lab.undisturbed(*EMBED), random.Random(3), 0
    while killed < 20:
        command = lab.start(*EMBED, "-j", dask.address)
        until(lambda c=command: lab.others(c) or c.code is not None, "work on the cluster")
        while killed < 20 and command.code is None:
            time.sleep(chance.uniform(0, 4))
            victims = dask.workers()
            if victims and command.code is None:
                try:
                    chance.choice(victims).send_signal(signal.SIGKILL)
                    killed += 1
                except psutil.NoSuchProcess:
                    continue
        if command.wait(0, 1) == 1:  # what cost two guarded processes their lives is named
            assert "died" in command.text, command.text
            lab.run(*EMBED, "-j", dask.address)
        assert lab.digest("out.npz") == alone
        (lab.folder / "out.npz").unlink()
    lab.assert_clean()


def test_the_scheduler_is_killed_and_started_again(lab, dask):
    alone, chance = lab.undisturbed(*EMBED), random.Random(4)
    for _ in range(3):
        command = lab.start(*EMBED, "-j", dask.address)
        until(lambda c=command: lab.others(c) or c.code is not None, "work on the cluster")
        time.sleep(chance.uniform(0, 1))
        dask.kill_scheduler()
        if command.wait(0, 2) == 2:
            assert "scheduler" in command.text, command.text
        dask.start_again()
        lab.run(*EMBED, "-j", dask.address)
        assert lab.digest("out.npz") == alone
        (lab.folder / "out.npz").unlink()
    lab.assert_clean()
