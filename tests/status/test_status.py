"""How far work is, seen from outside: counts, speeds and ends; the dead, the damaged and the strange."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from cli.running import Runner, strict_json
from panther.errors import InputError
from panther.execution import map_slides
from panther.progress import Item, Noted, Plan, WorkRecord, items_of
from panther.shards import Session, Shard, SharedExecutor, session_folder
from panther.slides import Job, SlideRef, run_job
from panther.status import look_at
from panther.status.measure import Seen, measure
from panther.storage.locks import Holder, lock


@pytest.fixture
def panther(monkeypatch, capsys):
    return Runner(monkeypatch, capsys)


def holder(name: str, *, alive: bool = True, since: float = 0.0) -> Holder:
    return Holder(name, "node", 7, since, since, alive)


def test_what_is_done_running_lost_failed_and_left_adds_up_and_tells_the_end():
    plan = Plan(("patches", "features"), items_of(["a", "b", "c", "d", "e", "f"]))
    noted = [Noted("patches", name, 100.0, None, 50) for name in "abcde"]
    noted += [Noted("features", "a", 1100.0, 100.0, 50), Noted("features", "b", 1200.0, 100.0, 50)]
    held = [holder("c"), holder("d", alive=False)]
    seen = Seen(
        noted,
        held,
        {"f": "f: torn.", "a": "a: an older failure."},
        [holder("w")],
        1200.0,
        dict.fromkeys("abcde", 50),
        {"c": 20},
    )
    patches, features = measure(plan, seen, ("features",))
    assert (patches.total, patches.done, patches.left, dict(patches.failed)) == (6, 5, 0, {"f": "f: torn."})
    assert (features.total, features.done, len(features.running), features.left) == (5, 2, 1, 2)
    assert [hand.item for hand in features.lost] == ["d"]
    assert features.running[0].patches == 20
    assert patches.rate is None  # what had been done before says nothing of speed
    # 120 patches since the first slide was begun, 200 seconds ago; 130 are left
    assert features.rate == pytest.approx(0.6)
    assert features.seconds_left == pytest.approx(130 / 0.6)


def test_nobody_at_work_means_no_end_in_sight():
    plan = Plan(("features",), items_of("ab"))
    (step,) = measure(plan, Seen([Noted("features", "a", 5.0, 1.0, 3)], [holder("b", alive=False)], {}, [], 10.0))
    assert (step.rate, step.seconds_left, step.left) == (None, None, 1)


@dataclass(frozen=True)
class Fragile:
    """A step that fails on slides called bad for as long as a file is there, and writes down every attempt."""

    folder: Path
    name: str = "tissue"

    def done(self, files):
        return (self.folder / f"{files.slide.name}.done").exists()

    def run(self, files):
        with (self.folder / "attempts").open("a") as attempts:
            attempts.write(files.slide.name + "\n")
        if files.slide.name == "bad" and (self.folder / "broken").exists():
            raise InputError("bad: torn.")
        (self.folder / f"{files.slide.name}.done").touch()

    def about(self, files):
        return {"patches": 3}

    def attempts(self, slide: str) -> int:
        return (self.folder / "attempts").read_text().split().count(slide)


class Shards:
    """Shards of a job over three slides, one after the other."""

    def __init__(self, folder: Path) -> None:
        self.job, self.step = Job(folder / "job"), Fragile(folder)
        self.refs = [SlideRef(folder / f"{name}.svs", name) for name in ("bad", "good", "later")]
        (folder / "broken").touch()

    def run(self, shard: str, *, to_the_end: bool = True) -> dict[str, str]:
        record = WorkRecord(self.job.progress, "key", shard)
        record.forget_failures()
        record.begin("slides", Plan(("tissue",), items_of(ref.name for ref in self.refs)))
        with record.at_work():
            report = run_job(Shard.parse(shard).order(self.refs), [self.step], self.job, record=record)
        if to_the_end:
            record.finish()
        return report.failures


def test_a_slide_that_failed_in_one_shard_is_not_tried_by_the_others_but_by_a_rerun(tmp_path):
    shards = Shards(tmp_path)
    assert shards.run("0/2") == {"bad": "bad: torn."}
    (step,) = look_at(shards.job.folder)[0].steps
    assert (step.done, step.left, dict(step.failed)) == (2, 0, {"bad": "bad: torn."})
    assert shards.run("1/2") == {"bad": "bad: torn."}  # whoever ends last lists it, too
    assert shards.step.attempts("bad") == 1
    assert not shards.job.progress.exists()
    assert look_at(shards.job.folder)[0].failed == {"bad": "bad: torn."}  # from summary.csv
    (tmp_path / "broken").unlink()
    assert shards.run("0/2") == {}
    assert shards.step.attempts("bad") == 2
    assert shards.run("1/2") == {}


def test_a_shard_that_was_killed_tries_again_what_it_saw_fail(tmp_path):
    shards = Shards(tmp_path)
    shards.run("0/2", to_the_end=False)
    shards.run("0/2", to_the_end=False)
    assert shards.step.attempts("bad") == 2
    shards.run("0/3", to_the_end=False)  # another number of shards is another round
    assert shards.step.attempts("bad") == 3
    assert shards.step.attempts("good") == 1


HOLD = """
import sys, time
from pathlib import Path
from panther.storage.locks import lock
with lock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_process_that_is_killed_is_shown_as_lost(tmp_path, panther):
    record = WorkRecord(Job(tmp_path).progress, "key")
    record.begin("slides", Plan(("tissue",), items_of(["a", "b"])))
    path = Job(tmp_path).locks / "a.lock"
    process = subprocess.Popen([sys.executable, "-c", HOLD, path], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    with lock(Job(tmp_path).locks / "b.lock"):
        (step,) = look_at(tmp_path)[0].steps
        assert {hand.item for hand in step.running} == {"a", "b"}
        assert process.pid in {hand.pid for hand in step.running}
        process.send_signal(signal.SIGKILL)
        process.communicate()
        (step,) = look_at(tmp_path)[0].steps
        assert [hand.item for hand in step.lost] == ["a"]
    said, _ = panther("status", tmp_path)
    assert f"Lost: a (tissue), in the hands of process {process.pid}" in said
    assert "stopped: nobody is at work" in said


def test_damaged_and_half_written_records_are_no_reason_to_fail(tmp_path, panther):
    record = WorkRecord(Job(tmp_path).progress, "key")
    record.begin("slides", Plan(("tissue",), items_of(["a", "b"])))
    record.note("tissue", "a", 1.0, 0)
    record.fail("b", "b: torn.")
    for kind, name in (("plans", "other.json"), ("failed", "x.json"), ("at-work", "y.lock")):
        (record.folder / kind).mkdir(exist_ok=True)
        (record.folder / kind / name).write_text('{"key": "key", "st')
    with next((record.folder / "noted").iterdir()).open("a") as lines:
        lines.write('\n["key", "tissue", "b", "yesterday", [], 1]\n[[], 1, 2, 3, 4, 5]\n7\n["key", "tissue", "b"')
    found = strict_json(panther("status", tmp_path, "--json", code=1)[0])
    (step,) = found["work"][0]["steps"]
    assert (step["done"], step["left"], step["failed"]) == (1, 0, {"b": "b: torn."})


def test_nothing_is_written_where_one_only_looks(tmp_path):
    shards = Shards(tmp_path)
    shards.run("0/2")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    look_at(shards.job.folder)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("make", [lambda p: None, Path.mkdir, lambda p: (p / "cache").mkdir(parents=True)])
def test_no_folder_and_somebody_elses_are_refused(make, tmp_path, panther):
    make(tmp_path / "place")
    said = panther("status", tmp_path / "place", code=2)[1]
    assert "no such folder" in said or "no work that can be looked at" in said


def double(x):
    if x == 3:
        raise InputError("3: torn.")
    return 2 * x


def test_shards_tell_how_far_their_walks_are(tmp_path, panther):
    output = tmp_path / "out.h5ad"
    session = Session(session_folder(output), {"asked": "double"}, ["embed", "features"])
    executor = SharedExecutor(session, Shard(0, 2), None)
    track = executor.naming(lambda items, what, total: items)
    walk = iter(track(map_slides(double, list(range(5)), executor), "doubling", 5))
    next(walk), next(walk)
    (work,) = look_at(output)
    (step,) = work.steps
    assert (step.name, step.total) == ("doubling", 5)
    assert step.done >= 2
    assert [one.pid for one in work.at_work] == [os.getpid()]
    list(walk)
    session.leave()
    said, failed = panther("status", output, code=1)
    assert "shards of panther embed features, nobody is at work" in said
    assert "3: torn." in failed
    assert look_at(session.folder)[0].steps[0].done == 4
    executor.finish()
    assert look_at(session.folder)[0].notes == ("1 of 2 shards have come to their end.",)
    np.save(tmp_path / "whole.npy", np.zeros(2))
    assert "No shards work on this file" in panther("status", tmp_path / "whole.npy")[1]


def test_a_study_tells_its_jobs_and_after_its_end_what_it_came_to(tmp_path):
    record = WorkRecord(tmp_path / "cache" / "progress", "key")
    items = (Item("cache/a.npz", "panther + probe, fold 0"), Item("cache/b.npz", "panther + probe, fold 1"))
    record.begin("models", Plan(("models",), items, "jobs"))
    (tmp_path / "cache" / "a.npz").touch()
    with record.at_work():
        (work,) = look_at(tmp_path)
        assert (work.steps[0].done, work.steps[0].left, work.working, work.ended) == (1, 1, True, False)
    record.fail("cache/b.npz", "panther + probe, fold 1: torn.")
    (work,) = look_at(tmp_path)
    assert work.failed == {"panther + probe, fold 1": "panther + probe, fold 1: torn."}
    record.finish()
    assert not record.folder.exists()
    (tmp_path / "study.json").write_text("{}")
    (tmp_path / "run.json").write_text(json.dumps({"trained": [{}, {}], "failures": {"models: x": "x: torn."}}))
    (work,) = look_at(tmp_path)
    assert (work.steps[0].done, work.steps[0].total, work.ended) == (2, 3, True)
