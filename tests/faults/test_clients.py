"""Workers, the command itself, or all of them are killed, and the command is run again; no orphaned processes."""

import random
import re
import signal
import time

import pytest

from faults.lab import Lab, kill_workers, make_cohort, until

EMBED = ("embed", "features", "-p", "p.npy", "-j", 2, "--set", "steps=1000", "-o", "out.npz")


@pytest.fixture
def lab(tmp_path):
    return Lab(make_cohort(tmp_path / "lab", 12))


@pytest.mark.slow
def test_a_command_is_killed_again_and_again(lab):
    alone, chance, killed = lab.undisturbed(*EMBED), random.Random(7), 0
    while killed < 8:
        command = lab.start(*EMBED)
        until(lambda c=command: lab.others(c) or c.code is not None, "workers")
        time.sleep(chance.uniform(0, 1))
        if command.kill():
            killed += 1
            until(lambda: not lab.others(), f"the end of {lab.others()}")
        else:
            command.wait()
            (lab.folder / "out.npz").unlink()
    lab.run(*EMBED)
    assert lab.digest("out.npz") == alone
    lab.assert_clean()


@pytest.mark.slow
def test_the_fork_server_and_all_workers_are_killed(lab):
    """The fork server and all the others of a command, whatever they are, but not the command."""
    alone = lab.undisturbed(*EMBED)
    command = lab.start(*EMBED)
    until(lambda: len(lab.others(command)) >= 3 or command.code is not None, "workers and their server")
    killed = 0
    for process in lab.others(command):
        process.send_signal(signal.SIGKILL)
        killed += 1
    assert killed >= 3
    if command.wait(0, 1, 2):
        lab.run(*EMBED)
    assert lab.digest("out.npz") == alone
    lab.assert_clean()


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 5))])
def test_workers_are_killed_at_random(lab, seed):
    """The command goes on, names an item whose worker was killed twice, or gives up where all were killed twice before any result."""
    alone = lab.undisturbed(*EMBED)
    command = lab.start(*EMBED)
    until(lambda: len(lab.others(command)) >= 4 or command.code is not None, "workers, their server and tracker")
    assert kill_workers(lab, command, 4, random.Random(seed), 0.3)
    if command.wait(0, 1, 2):
        assert re.search(r"SIGKILL|worker processes were killed|All workers expired", command.text), command.text
        lab.run(*EMBED)
    lab.assert_clean()
    assert lab.digest("out.npz") == alone
