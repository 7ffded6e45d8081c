"""Two machines on a folder of the network (sshfs) of which each remembers names and times of files for 20 seconds; their clocks are a day apart.

What is mounted so can do hard links, with which claims are made in one step; without them it takes two. A name that is there already is
refused without saying so, and times that are set are those of the machine.
"""

import json
import multiprocessing
import os
import signal
from pathlib import Path

import pytest

from faults.lab import Lab, make_cohort, until
from faults.machines import HOLD, LIMIT, TRY, python_on
from faults.network import needs_network, open_network
from faults.slow_slides import features, path_to_encoder, start_slides, write_slow_slides
from panther.storage.files import read_bytes, remove_tree
from panther.storage.locks import lock

pytestmark = pytest.mark.slow

EARLY, LATE = "early", "late"
COMMANDS = {
    "embed": ("embed", "features", "-p", "p.npy", "--set", "steps=60", "-j", 1, "-o", "out.npz"),
    "prototypes": ("prototypes", "features", "-C", 3, "--passes", 4, "-j", 1, "-o", "out.safetensors"),
}
ROUNDS = 50
PATIENT = {"PANTHER_LOCK_LIMIT": "600"}  # of commands that nobody kills, on a machine that may be slow


@pytest.fixture
def network(tmp_path, machine, request):
    needs_network()
    options = getattr(request, "param", ())
    with open_network(tmp_path / "net", {name: machine(name) for name in (EARLY, LATE)}, *options) as network:
        yield network


@pytest.fixture
def labs(network):
    """The folder where it lies, and on either machine."""
    return Lab(network.served), Lab(network.seen_by[EARLY]), Lab(network.seen_by[LATE])


def assert_clean(labs):
    for lab in labs:
        until(lambda lab=lab: not lab.others(), f"the end of {lab.others()}")
    labs[0].assert_clean()


def claim_often(folder, barrier, got):
    """Claim the same things as another, who is at the last step of it at the same moment."""
    link, mine, met = os.link, [], []

    def link_at_the_same_moment(source, target):
        if target not in met:
            met.append(target)
            barrier.wait()
        link(source, target)

    os.link = link_at_the_same_moment  # in a process of its own
    for number in range(ROUNDS):
        with lock(folder / f"{number}.lock") as taken:
            mine.append(taken)
            barrier.wait()
    got.put(mine)


@pytest.mark.parametrize("network", [(), ("disable_hardlink",)], ids=["links", "no links"], indirect=True)
def test_of_two_that_claim_at_the_same_moment_one_has_it(network):
    context = multiprocessing.get_context("fork")
    barrier, got = context.Barrier(2, timeout=60), context.Queue()
    both = [context.Process(target=claim_often, args=(folder, barrier, got)) for folder in network.seen_by.values()]
    for one in both:
        one.start()
    for one in both:
        one.join()
    assert [one.exitcode for one in both] == [0, 0]
    assert all(first != second for first, second in zip(got.get(), got.get(), strict=True))
    assert not list(network.served.iterdir())


@pytest.mark.parametrize(("holder", "other"), [(EARLY, LATE), (LATE, EARLY)])
def test_a_claim_is_taken_over_from_the_dead_and_never_from_the_living(network, machine, holder, other, tally):
    def python(script, name, *words):
        return python_on(machine(name), script, network.seen_by[name], *words)

    with python(HOLD, holder) as held:
        try:
            assert held.stdout.readline() == "True\n"
            assert os.stat(network.served / "a.lock").st_nlink == 1  # the other name is gone by now
            with python(TRY, other, str(2 * LIMIT)) as waiting:
                _, owner, taken = (*waiting.communicate()[0].split("\n"), "")[:3]
            assert owner == f"process {held.pid} on {holder}"
            assert taken == ""
        finally:
            held.kill()
    with python(TRY, other, "120") as waiting:
        assert waiting.communicate()[0].endswith("taken\n")
    tally("claim on a folder of the network, of a machine whose clock is hours off", 2)


def test_a_file_that_has_replaced_a_shorter_one_is_read_whole(network):
    early, late = network.seen_by[EARLY] / "a", network.seen_by[LATE] / "a"
    early.write_bytes(b"short")
    assert late.stat().st_size == 5  # and this is remembered
    early.with_name("b").write_bytes(b"much longer")
    early.with_name("b").replace(early)
    assert read_bytes(late) == b"much longer"


def test_a_folder_is_removed_with_what_another_machine_has_just_put_there(network):
    early, late = network.seen_by[EARLY] / "a", network.seen_by[LATE] / "a"
    early.mkdir()
    (early / "1").touch()
    assert [path.name for path in late.iterdir()] == ["1"]  # and this is remembered
    (early / "2").touch()
    remove_tree(late)
    assert not list(network.served.iterdir())


def alone(lab, words):
    """Bytes of one process that nobody shares with, where the folder lies."""
    output = f"alone{Path(words[-1]).suffix}"
    lab.run(*words[:-1], output)
    return (lab.folder / output).read_bytes()


@pytest.mark.parametrize("command", COMMANDS)
def test_shards_on_two_machines_give_the_bytes_of_one_process(labs, machine, command, tally):
    served, *both = labs
    make_cohort(served.folder, 6)
    words = COMMANDS[command]
    expected = alone(served, words)
    shards = [
        lab.start(*words, "--shard", f"{index}/2", apart=True, env={**machine(lab.folder.name), **PATIENT})
        for index, lab in enumerate(both)
    ]
    for shard in shards:
        shard.wait()
    assert (served.folder / words[-1]).read_bytes() == expected
    assert_clean(labs)
    tally(f"`{command}` in two shards on a folder of the network")


def stop_with_a_claim(shard, claims):
    """Stop a shard at a moment at which it has something in hand."""

    def stopped():
        assert shard.code is None, shard.text
        shard.send(signal.SIGSTOP)
        if list(claims.glob("*.lock")):
            return True
        shard.send(signal.SIGCONT)
        return False

    until(stopped, "a claim")


def test_what_a_killed_shard_had_in_hand_is_seen_and_taken_over_on_the_other_machine(labs, machine, tally):
    served, early, late = labs
    make_cohort(served.folder, 6)
    words = COMMANDS["embed"]
    expected = alone(served, words)
    first = early.start(*words, "--shard", "0/2", apart=True, env=machine(EARLY))
    stop_with_a_claim(first, served.folder / "out.npz.shards" / "claims")
    told = late.run("status", "out.npz", "--json", apart=True, env={**machine(LATE), **PATIENT})
    (work,) = json.loads(told.log.read_text())["work"]
    assert [(one["host"], one["pid"]) for one in work["at_work"]] == [(EARLY, first.pid)]
    assert first.pid in [one["pid"] for step in work["steps"] for one in step["running"]]
    assert first.kill()
    late.run(*words, "--shard", "1/2", apart=True, env=machine(LATE))  # waits until the claim has expired
    late.run(*words, "--shard", "0/2", apart=True, env=machine(LATE))
    assert (served.folder / "out.npz").read_bytes() == expected
    assert_clean(labs)
    tally("shard of `embed` killed (-9) on a folder of the network, taken over by another machine")


def slides_on(lab, machine, *words, **env):
    """Start `slides` on a machine."""
    name = lab.folder.name
    environment = {**machine(name), **path_to_encoder(lab.folder), **env}
    return start_slides(lab, "job", *words, env=environment)


def assert_all_done(served):
    assert features(served, "job") == features(served, "alone")
    assert (served.folder / "job" / "summary.csv").read_text().count(",done,") == 4


def test_slides_by_two_machines_give_the_bytes_of_one_process_and_none_is_left_out(labs, machine, tally):
    served, early, late = labs
    write_slow_slides(served.folder)
    start_slides(served, "alone", env={"PAUSE": "0"}).wait()
    both = [slides_on(lab, machine, "--shard", f"{index}/2", **PATIENT) for index, lab in enumerate((early, late))]
    for one in both:
        one.wait()
    assert_all_done(served)
    assert_clean(labs)
    tally("`slides` by two machines on a folder of the network")


def test_the_slide_of_a_killed_machine_is_seen_and_taken_over(labs, machine, tally):
    served, early, late = labs
    write_slow_slides(served.folder)
    start_slides(served, "alone", env={"PAUSE": "0"}).wait()
    killed = slides_on(early, machine, PAUSE="15", **PATIENT)  # ten times for a slide, and once before the first
    until(lambda: list((served.folder / "job").rglob("rows")) or killed.code is not None, "rows")
    told = late.run("status", "job", "--json", apart=True, env={**machine(LATE), **PATIENT})
    (work,) = json.loads(told.log.read_text())["work"]
    running = [one for step in work["steps"] for one in step["running"]]
    assert [(one["item"], one["host"], one["pid"]) for one in running] == [("S0", EARLY, killed.pid)]
    assert killed.kill()
    second = slides_on(late, machine, PAUSE="0", **PATIENT)
    second.wait()  # the other three: nobody there can know yet that the other machine is dead
    assert "S0: passed over, process" in second.text

    def taken_over():
        again = slides_on(late, machine, PAUSE="0")
        again.wait()
        return "passed over" not in again.text

    until(taken_over, "the end of the claim")
    assert_all_done(served)
    assert_clean(labs)
    tally("`slides` killed (-9) on a folder of the network, taken over by another machine")
