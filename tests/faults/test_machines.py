"""Processes that believe to be on other machines, with other clocks: claims are judged by the file server's clock alone."""

import random
import signal
import time

import pytest

from faults.lab import Lab, make_cohort, until
from faults.machines import CLOCKS, HOLD, LIMIT, TRY, python_on

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("holder", ["early", "late"])
def test_a_lock_of_a_machine_whose_clock_is_wrong(tmp_path, machine, holder, tally):
    def python(script, name, *words):
        return python_on(machine(name), script, tmp_path, *words)

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
