"""Processes that believe to be on other machines, with other clocks: claims are judged by the file server's clock alone."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from faults.lab import SOURCE, Lab, make_cohort, until

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
CLOCKS = {"early": -3 * 3600, "right": 0, "late": 86400}  # seconds
LIMIT = 10.0  # seconds without a sign of life


@pytest.fixture(scope="session")
def machine(tmp_path_factory):
    """Environment of a process on a machine of that name."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("the library that changes a process's clock cannot be built here")
    library = tmp_path_factory.mktemp("machine") / "machine.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O", "-o", library, HERE / "machine.c", "-ldl"], check=True)
    shared = {"LD_PRELOAD": str(library), "PYTHONPATH": str(SOURCE), "PANTHER_LOCK_LIMIT": str(LIMIT)}
    return lambda name: {**shared, "MACHINE_NAME": name, "MACHINE_SKEW": str(CLOCKS[name])}


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


@pytest.mark.parametrize("holder", ["early", "late"])
def test_a_lock_of_a_machine_whose_clock_is_wrong(tmp_path, machine, holder, tally):
    def python(script, name, *words):
        command = [sys.executable, "-c", script, *words]
        return subprocess.Popen(
            command, cwd=tmp_path, env={**os.environ, **machine(name)}, stdout=subprocess.PIPE, text=True
        )

    with python(HOLD, holder) as held:
        try:
            assert held.stdout.readline() == "True\n"
            with python(TRY, "right", str(2 * LIMIT)) as other:  # alive: it is not taken, however long one waits
                now, owner, taken = (*other.communicate()[0].split("\n"), "")[:3]
            assert abs(int(now) - time.time()) < 600
            assert owner == f"process {held.pid} on {holder}"
            assert taken == ""
        finally:
            held.send_signal(signal.SIGKILL)
    with python(TRY, "right", "60") as other:  # dead, as nobody on another machine can know: it expires
        assert other.communicate()[0].endswith("taken\n")
    tally("lock of a machine whose clock is hours off", 2)


def test_shards_on_machines_with_other_clocks_one_of_which_dies(tmp_path, machine, tally):
    lab = Lab(make_cohort(tmp_path / "lab", 12))
    words = ("embed", "features", "-p", "p.npy", "--set", "steps=100", "-j", 1, "-o")
    lab.run(*words, "alone.npz")
    shards = [
        lab.start(*words, "out.npz", "--shard", f"{index}/3", apart=True, env=machine(name))
        for index, name in enumerate(CLOCKS)
    ]
    claims = lab.folder / "out.npz.shards" / "claims"
    until(lambda: list(claims.glob("*.lock")), "a claim")
    victim = random.Random(1).choice(shards)
    killed = victim.kill()
    for index, shard in enumerate(shards):
        if shard.wait(0, -signal.SIGKILL):
            lab.run(*words, "out.npz", "--shard", f"{index}/3", apart=True, env=machine("late"))
    assert (lab.folder / "out.npz").read_bytes() == (lab.folder / "alone.npz").read_bytes()
    lab.assert_clean()
    tally("shard killed on one of three machines whose clocks are hours apart", int(killed))
