"""Worker processes: one that dies, hangs or cannot begin costs an item at most; scripts, fork servers and parents that end."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from panther.engine import ProcessPool, map_slides, open_executor
from panther.errors import InputError
from panther.machine import reading


def misbehave(number: int) -> int:
    """Odd numbers cost the worker its life, each in its own way."""
    if number == 3:
        os.kill(os.getpid(), signal.SIGSEGV)
    if number == 5:
        with reading():
            os.kill(os.getpid(), signal.SIGBUS)
    if number == 7:
        with reading():
            time.sleep(600)
    return number


@pytest.mark.parametrize("workers", [1, 2])
def test_an_item_that_kills_or_blocks_its_worker_is_named_and_the_rest_goes_on(workers, monkeypatch):
    monkeypatch.setenv("PANTHER_READ_LIMIT", "1")
    with open_executor(workers) as executor:
        outcomes = list(map_slides(misbehave, range(10), executor))
    assert [o.value for o in outcomes] == [0, 1, 2, None, 4, None, 6, None, 8, 9]
    assert [o.reason.partition(":")[0] for o in outcomes if o.reason] == ["3", "5", "7"]
    assert "SIGSEGV" in outcomes[3].reason
    assert "SIGBUS" in outcomes[5].reason
    assert "PANTHER_READ_LIMIT" in outcomes[7].reason


def die_once(marker: str) -> str:
    """As a worker does that was killed for the memory of its neighbours."""
    if not Path(marker).exists():
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return marker


def test_an_item_whose_worker_was_killed_once_is_tried_again_alone(tmp_path):
    marker = str(tmp_path / "tried")
    with open_executor(2) as executor:
        (outcome,) = map_slides(die_once, [marker], executor)
    assert outcome.value == marker


class Heavy:
    """A function that says when it is unpacked."""

    def __init__(self, log: Path, plus: int) -> None:
        self.log, self.plus = log, plus

    def __setstate__(self, state: dict) -> None:
        self.__dict__.update(state)
        with self.log.open("a") as lines:
            lines.write(f"{os.getpid()}\n")

    def __call__(self, number: int) -> int:
        if number == 3 and self.plus == 100 and len(self.log.read_text().splitlines()) == 1:
            os._exit(1)  # its worker is replaced, and gets the function again
        return number + self.plus


def test_a_function_is_sent_to_each_worker_once_and_to_one_that_takes_its_place(tmp_path):
    with open_executor(1) as pool:
        for name, plus, unpacked in [("a", 10, 1), ("b", 20, 1), ("c", 100, 2)]:
            heavy = Heavy(tmp_path / name, plus)
            assert [r.value for r in map_slides(heavy, range(5), pool)] == [plus + n for n in range(5)]
            assert len((tmp_path / name).read_text().splitlines()) == unpacked


def test_workers_that_cannot_even_begin_end_the_command():
    pool = ProcessPool(2, os._exit, (3,))
    with pytest.raises(InputError, match="worker processes"):
        list(map_slides(abs, range(3), pool))
    pool.close()


UNGUARDED = """
from panther.engine import map_slides, open_executor
with open_executor(2) as pool:
    print([result.value for result in map_slides(abs, [-1, -2], pool)])
"""


def test_a_script_without_a_main_guard_gets_one_message(tmp_path):
    """Workers import the script: what every user of multiprocessing forgets once, and Python tells in a hundred lines."""
    script = tmp_path / "mine.py"
    script.write_text(UNGUARDED)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 1
    assert 'if __name__ == "__main__":' in done.stderr.splitlines()[-1]
    assert "bootstrapping" not in done.stderr


def test_a_script_from_standard_input_is_named_as_the_cause(tmp_path):
    done = subprocess.run(
        [sys.executable, "-"], input=UNGUARDED, capture_output=True, text=True, check=False, timeout=100, cwd=tmp_path
    )
    assert done.returncode == 1
    assert "standard input" in done.stderr.splitlines()[-1]
    assert "memory" not in done.stderr


PARENT = """
import ctypes, os, signal, time
from pathlib import Path
from panther.engine import open_executor
from panther.machine import reading

def loop(name):
    Path(name).write_text(str(os.getpid()))
    with reading():
        ctypes.PyDLL(None).pause()  # a C function that keeps the interpreter's lock, as HDF5 does: no Python thread runs meanwhile

if __name__ == "__main__":
    with open_executor(2) as pool:
        for name in "ab":
            pool.schedule(loop, name)
        while not all(Path(name).exists() and Path(name).read_text() for name in "ab"):
            time.sleep(0.01)
        print(*(Path(name).read_text() for name in "ab"), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
def test_workers_end_with_a_parent_that_was_killed_even_where_they_loop_in_a_library(tmp_path, monkeypatch):
    monkeypatch.setenv("PANTHER_READ_LIMIT", "2")
    (tmp_path / "parent.py").write_text(PARENT)
    done = subprocess.run(
        [sys.executable, "parent.py"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120
    )
    workers = [int(pid) for pid in done.stdout.split()]
    assert workers, done.stderr
    end = time.monotonic() + 30
    while any(psutil.pid_exists(pid) for pid in workers) and time.monotonic() < end:
        time.sleep(0.05)
    assert not [pid for pid in workers if psutil.pid_exists(pid)]
