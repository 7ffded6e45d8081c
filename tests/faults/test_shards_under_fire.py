"""Shards that are killed, stopped, doubled and begun anew: each result is the bytes of one process alone, and nothing is left behind."""

import os
import random
import signal
import time

import pytest

from faults.lab import Lab, make_cohort, until

STUDY = """
name: s
table: cohort.csv
features: {own: features}
task: {label: subtype}
heads: [probe]
methods: [panther, deepsets]
n_prototypes: [2]
splits: {scheme: kfold, k: 2}
bootstrap: 20
"""
COMMANDS = {
    "embed": ("embed", "features", "-p", "p.npy", "--set", "steps=60", "-j", 1),
    "prototypes": ("prototypes", "features", "-C", 3, "--sample", 5000, "--passes", 6, "-j", 1),
    "run": ("run", "s.yaml", "-j", 1),
}
OUTPUTS = {"embed": "out.npz", "prototypes": "out.safetensors", "run": "out"}
TABLES = ("summary.csv", "metrics.csv", "comparisons.csv", "predictions.csv")


@pytest.fixture
def lab(tmp_path):
    lab = Lab(make_cohort(tmp_path / "lab", 12))
    (lab.folder / "s.yaml").write_text(STUDY)
    return lab


def content(lab, command, output):
    """Hash of what a command has written."""
    names = (
        [output]
        if command != "run"
        else [f"{output}/{name}" for name in TABLES if (lab.folder / output / name).exists()]
    )
    assert all((lab.folder / name).exists() for name in names)
    assert names
    (lab.folder / "compared").mkdir(exist_ok=True)
    for number, name in enumerate(names):
        os.replace(lab.folder / name, lab.folder / "compared" / str(number))
    return lab.digest("compared")


def alone(lab, command):
    output = OUTPUTS[command].replace("out", "alone")
    lab.run(*COMMANDS[command], "-o", output)
    return content(lab, command, output)


def results(lab, command):
    """Parts that shards have done."""
    return len(list((lab.folder / f"{OUTPUTS[command]}.shards" / "results").glob("[0-9a-f]*")))


@pytest.mark.parametrize(
    ("command", "kills"),
    [
        ("embed", 3),
        pytest.param("embed", 20, marks=pytest.mark.slow),
        pytest.param("prototypes", 20, marks=pytest.mark.slow),
        pytest.param("run", 20, marks=pytest.mark.slow),
    ],
)
def test_shards_are_killed_and_started_again(lab, command, kills, tally):
    expected, chance, count = alone(lab, command), random.Random(kills), 3 if kills > 3 else 2
    meeting = lab.folder / f"{OUTPUTS[command]}.shards"

    def start(index):
        return lab.start(*COMMANDS[command], "-o", OUTPUTS[command], "--shard", f"{index}/{count}")

    shards = {index: start(index) for index in range(count)}
    killed = 0
    while killed < kills:
        await_parts(lab, command, results(lab, command) + chance.randint(0, 2), shards)
        time.sleep(chance.uniform(0, 0.2))
        alive = [index for index, shard in shards.items() if shard.code is None]
        if not alive:  # all has been done; once more from the beginning
            for shard in shards.values():
                shard.wait(0, -signal.SIGKILL)
            finish(lab, command, shards)
            shards = {index: start(index) for index in range(count)}
            continue
        victim = chance.choice(alive)
        killed += shards[victim].kill()
        if chance.random() < 0.8 and meeting.exists():  # some never come back
            shards[victim] = start(victim)
    for shard in shards.values():
        shard.wait(0, -signal.SIGKILL)
    finish(lab, command, shards)
    assert content(lab, command, OUTPUTS[command]) == expected
    lab.assert_clean()
    tally(f"shard of `{command}` killed (-9)", killed)


def await_parts(lab, command, goal, shards):
    """Wait until so many parts are done, or all shards have ended."""
    until(lambda: results(lab, command) >= goal or all(one.code is not None for one in shards.values()), "work")


def finish(lab, command, shards):
    """What a user does whose shards have all ended: those that died once more, until the work is done."""
    meeting, count = lab.folder / f"{OUTPUTS[command]}.shards", len(shards)
    while meeting.exists():
        again = [index for index, shard in shards.items() if shard.code != 0] or list(shards)
        for index in again:
            shards[index] = lab.run(*COMMANDS[command], "-o", OUTPUTS[command], "--shard", f"{index}/{count}")


def claimed(lab, shard):
    """Whether a shard has claimed a part."""
    claims = (lab.folder / f"{OUTPUTS['embed']}.shards" / "claims").glob("*.lock")
    return any(f'"pid": {shard.pid},' in path.read_text() for path in claims if path.exists())


QUICK = {"PANTHER_LOCK_LIMIT": "2"}  # seconds


def embed(lab, shard, **options):
    return lab.start(*COMMANDS["embed"], "-o", "out.npz", "--shard", shard, env=QUICK, **options)


def test_a_shard_that_was_stopped_comes_back_after_its_claim_was_taken_over(lab, tally):
    expected = alone(lab, "embed")
    stopped = embed(lab, "0/2", apart=True)  # or the server that it shares with the other waits for it
    until(lambda: claimed(lab, stopped), "a claim")
    stopped.send(signal.SIGSTOP)
    embed(lab, "1/2").wait()  # also what the other has in hand
    assert content(lab, "embed", "out.npz") == expected
    stopped.send(signal.SIGCONT)
    stopped.wait()
    assert content(lab, "embed", "out.npz") == expected
    lab.assert_clean()
    tally("shard stopped (SIGSTOP) and back after its claim was taken over")


@pytest.mark.slow
def test_a_shard_that_was_stopped_comes_back_after_everything_is_over(lab, tally):
    expected = alone(lab, "embed")
    stopped = embed(lab, "0/2", apart=True)  # or the server that it shares with the other waits for it
    until(lambda: claimed(lab, stopped), "a claim")
    stopped.send(signal.SIGSTOP)
    for shard in ("1/2", "0/2"):  # another takes its place
        embed(lab, shard).wait()
    assert not (lab.folder / "out.npz.shards").exists()
    stopped.send(signal.SIGCONT)
    stopped.wait()
    assert "the other shards have ended" in stopped.text
    assert content(lab, "embed", "out.npz") == expected
    lab.assert_clean()
    tally("shard stopped (SIGSTOP) and back after all the others have ended")


@pytest.mark.parametrize(
    "starts", [("0/2", "0/2", "1/2"), pytest.param(("0/3", "1/2", "0/2", "2/3", "1/3"), marks=pytest.mark.slow)]
)
def test_the_same_shards_are_started_by_two_at_once(lab, starts, tally):
    expected = alone(lab, "embed")
    for shard in [embed(lab, shard) for shard in starts]:
        shard.wait()
    assert content(lab, "embed", "out.npz") == expected
    lab.assert_clean()
    tally("the same shards started twice at once")


@pytest.mark.slow
def test_shards_that_were_told_to_end_give_back_their_claims(lab, tally):
    """As SLURM does at the wall-time: SIGTERM, and SIGKILL half a minute later."""
    expected = alone(lab, "embed")
    words = (*COMMANDS["embed"], "-o", "out.npz", "--shard")
    told = lab.start(*words, "0/2", apart=True)
    until(lambda: results(lab, "embed"), "a part")
    told.send(signal.SIGTERM)
    told.wait(128 + signal.SIGTERM)
    assert "stopped" in told.text
    assert not list((lab.folder / "out.npz.shards").rglob("*.lock"))
    lab.run(*words, "1/2")
    lab.run(*words, "0/2")
    assert content(lab, "embed", "out.npz") == expected
    lab.assert_clean()
    tally("shard told to end (SIGTERM), as at the wall-time")
