"""Worker processes killed at random moments: the command goes on, and writes the bytes of an undisturbed one."""

import random
import re

import pytest

from faults.lab import Lab, kill_workers, make_cohort

EMBED = ("embed", "features", "-p", "p.npy", "-j", 2, "--set", "steps=40")


@pytest.fixture
def lab(tmp_path):
    return Lab(make_cohort(tmp_path / "lab", 16))


def whole(lab, words, output, command):
    """The command has done everything, or named what cost two workers their lives, and then the same command again does it."""
    if command.wait(0, 1) == 1:
        assert re.search(r"Failed: .*was killed \(signal 9, SIGKILL\)", command.text), command.text
        lab.run(*words, "-o", output)
    lab.assert_clean()
    return lab.digest(output)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 5))])
def test_workers_of_a_pool(lab, seed, tally):
    lab.run(*EMBED, "-o", "out.npz")
    alone = lab.digest("out.npz")
    (lab.folder / "out.npz").unlink()
    command = lab.start(*EMBED, "-o", "out.npz")
    killed = kill_workers(lab, command, 4, random.Random(seed), 0.3)
    assert killed
    assert whole(lab, EMBED, "out.npz", command) == alone
    tally("worker of a pool killed (-9)", killed)
