"""A read that crashes or never ends costs one error, also in a process that is no worker."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from panther.errors import InputError
from panther.machine import READ_LIMIT, reading
from panther.storage.isolated import call_isolated


def hang(path):
    with reading():
        ctypes.PyDLL(None).sleep(600)  # in C, and with Python's lock


def crash(path):
    with reading():
        ctypes.string_at(0)


def refuse(path):
    raise InputError(f"{path}: refused")


def process_and_folder(path):
    return os.getpid(), os.getcwd()


@pytest.fixture
def short_limit(monkeypatch):
    monkeypatch.setenv(READ_LIMIT, "1")


@pytest.mark.parametrize("fault", [hang, crash])
def test_a_read_that_crashes_or_never_ends_is_an_error_that_names_the_file(short_limit, fault, tmp_path, monkeypatch):
    begin = time.monotonic()
    with pytest.raises(InputError, match=r"bad\.h5ad"):
        call_isolated(fault, Path("bad.h5ad"))
    assert time.monotonic() - begin < 60
    monkeypatch.chdir(tmp_path)  # the next one works, in the folder of now
    first = call_isolated(process_and_folder, None)
    with pytest.raises(InputError, match="refused"):
        call_isolated(refuse, Path("x"))
    assert call_isolated(process_and_folder, None) == first == (first[0], str(tmp_path))  # in the same process
    assert first[0] != os.getpid()


def test_ctrl_c_ends_a_read_that_hangs_and_leaves_no_process_behind(tmp_path):
    script = tmp_path / "script.py"  # without a guard, which worker processes would need
    script.write_text(
        "import signal\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # also where this session ignores it\n"
        "from storage import test_isolated as t\n"
        "print(t.call_isolated(t.process_and_folder, None)[0], flush=True)\n"
        "t.call_isolated(t.hang, 'x')\n"
    )
    process = subprocess.Popen(
        [sys.executable, script],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    helper = int(process.stdout.readline())
    time.sleep(0.5)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    _, err = process.communicate(timeout=20)
    assert "KeyboardInterrupt" in err
    with pytest.raises(ProcessLookupError):
        os.kill(helper, 0)
