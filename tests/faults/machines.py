"""Processes that believe to be on other machines, each with a name and a clock of its own (see `machine.c`)."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from faults.lab import SOURCE

CLOCKS = {"early": -3 * 3600, "right": 0, "late": 86400}  # seconds
LIMIT = 10.0  # seconds without a sign of life
HOLD = """
import sys, time
from pathlib import Path
from panther.storage.locks import lock
with lock(Path("a.lock")) as got:
    print(got, flush=True)
    time.sleep(600)
"""
TRY = """
import time
from pathlib import Path
from panther.storage.locks import lock, owner
print(int(time.time()))
print(owner(Path("a.lock")))
end = time.monotonic() + float(__import__("sys").argv[1])
while time.monotonic() < end:
    with lock(Path("a.lock")) as got:
        if got:
            print("taken", flush=True)
            break
    time.sleep(0.1)
"""


def machines(folder: Path) -> Callable[[str], dict[str, str]]:
    """Environment of a process on a machine of that name; what makes it so is built in ``folder``."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("the library that changes a process's clock cannot be built here")
    library, source = folder / "machine.so", Path(__file__).with_name("machine.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O", "-o", library, source, "-ldl"], check=True)
    shared = {"LD_PRELOAD": str(library), "PYTHONPATH": str(SOURCE), "PANTHER_LOCK_LIMIT": str(LIMIT)}
    return lambda name: {**shared, "MACHINE_NAME": name, "MACHINE_SKEW": str(CLOCKS[name])}


def python_on(machine: dict[str, str], script: str, folder: Path, *words: str) -> "subprocess.Popen[str]":
    """Have a machine run a script in a folder."""
    return subprocess.Popen(
        [sys.executable, "-c", script, *words],
        cwd=folder, env={**os.environ, **machine}, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
