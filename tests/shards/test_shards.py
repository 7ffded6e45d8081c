"""Several processes that share a command: the bytes of one, nothing done twice, nothing lost."""

import json
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from panther.errors import InputError
from panther.execution import map_slides
from panther.prototypes import KMeansSettings
from panther.shards import Session, SessionOverError, Shard, SharedExecutor, session_folder
from panther.shards.identity import describe
from panther.types import Prototypes


@pytest.mark.parametrize("text", ["3/3", "1", "-1/3", "a/b", "1/0", "0.5/2", ""])
def test_a_shard_that_is_none_is_refused(text):
    with pytest.raises(InputError, match="i/n"):
        Shard.parse(text)


def test_a_slurm_array_tells_its_tasks():
    found = {"SLURM_ARRAY_TASK_ID": "7", "SLURM_ARRAY_TASK_MIN": "5", "SLURM_ARRAY_TASK_COUNT": "4"}
    assert Shard.parse("auto", found) == Shard(2, 4)
    with pytest.raises(InputError, match="SLURM"):
        Shard.parse("auto", {})


def test_every_item_is_somebodys_and_one_begins_with_ones_own():
    items = list(range(10))
    assert Shard(1, 3).order(items) == [1, 4, 7, 2, 5, 8, 0, 3, 6, 9]
    assert sorted(Shard(2, 4).order(items)) == items


def test_equal_work_has_equal_names_and_other_work_has_others():
    def of(**changes):
        about = {"centroids": torch.eye(3), "settings": {"seed": 1}, "encoder": "uni"} | changes
        return json.dumps(describe((Prototypes(**about), KMeansSettings(3), Path("a"), {"b", "a"}, np.arange(3))))

    assert of() == of()
    assert of() != of(centroids=torch.eye(3) * 2)
    assert of() != of(settings={"seed": 2})


def square(value: int) -> int:
    if value == 5:
        raise InputError("5: too large.")
    return value * value


def test_shards_in_turn_compute_each_item_once_and_all_have_the_whole(tmp_path):
    counted: list[int] = []

    def count(value: int) -> int:
        counted.append(value)
        return square(value)

    for index in range(3):
        executor = SharedExecutor(Session(tmp_path / "s", {"a": 1}), Shard(index, 3), None)
        results = list(map_slides(count, range(7), executor))
        assert [one.value for one in results] == [0, 1, 4, 9, 16, None, 36]
        assert results[5].reason == "5: too large."
        executor.finish()
    assert sorted(counted) == list(range(7))
    # what failed is tried again by the next run, and nothing else is
    executor = SharedExecutor(Session(tmp_path / "s", {"a": 1}), Shard(0, 1), None)
    list(map_slides(count, range(7), executor))
    assert counted[7:] == [5]


def test_a_session_whose_shards_have_all_ended_is_removed(tmp_path):
    for index in range(2):
        executor = SharedExecutor(Session(tmp_path / "s", {}), Shard(index, 2), None)
        list(map_slides(square, range(3), executor))
        assert (tmp_path / "s").exists()
        executor.finish()
    assert not (tmp_path / "s").exists()


def test_another_request_begins_anew_and_somebody_elses_folder_is_refused(tmp_path):
    first = Session(tmp_path / "s", {"seed": 1})
    first.keep("x", [1])
    assert Session(tmp_path / "s", {"seed": 1}).has("x")
    assert not Session(tmp_path / "s", {"seed": 2}).has("x")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.doc").write_text("mine")
    with pytest.raises(InputError, match="somebody else"):
        Session(tmp_path / "other", {})


def test_parts_of_another_user_are_not_opened(tmp_path):
    session = Session(tmp_path / "s", {})
    session.keep("x", [1])
    (tmp_path / "s" / "results" / "x").chmod(0o666)
    with pytest.raises(InputError, match="anybody may write"):
        session.read("x")


def test_merging_refuses_while_parts_are_missing(tmp_path):
    session = Session(tmp_path / "s", {})
    reader = SharedExecutor(session, Shard(0, 1), None, only_read=True)
    with pytest.raises(InputError, match="3 of 3 parts are not done"):
        list(map_slides(square, range(3), reader))
    list(map_slides(square, range(3), SharedExecutor(session, Shard(0, 2), None)))
    assert [one.value for one in map_slides(square, range(3), reader)] == [0, 1, 4]


def test_many_small_items_are_claimed_several_at_a_time(tmp_path):
    executor = SharedExecutor(Session(tmp_path / "s", {}), Shard(0, 2), None)
    assert [one.value for one in map_slides(str, range(1201), executor)] == [str(i) for i in range(1201)]
    assert len(list((tmp_path / "s" / "results").iterdir())) <= 500


SLOW = """
import sys, time
from pathlib import Path
from panther.execution import map_slides
from panther.shards import Session, Shard, SharedExecutor
folder, index = Path(sys.argv[1]), int(sys.argv[2])
def work(item):
    with open(folder / "log", "a") as log:
        log.write(f"{item} {index}\\n")
    time.sleep(0.3)
    return item * 10
(folder / f"here-{index}").touch()
while not (folder / "here-0").exists() or not (folder / "here-1").exists():
    time.sleep(0.01)
executor = SharedExecutor(Session(folder / "s", {}), Shard(index, 2), None)
print(sum(one.value for one in map_slides(work, range(8), executor)), flush=True)
"""


def start(folder: Path, index: int) -> "subprocess.Popen[str]":
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    return subprocess.Popen(
        [sys.executable, "-c", SLOW, str(folder), str(index)], stdout=subprocess.PIPE, text=True, env=environment
    )


def test_two_processes_share_the_work_and_one_survives_the_other(tmp_path):
    first, second = start(tmp_path, 0), start(tmp_path, 1)
    try:
        log = tmp_path / "log"
        deadline = time.time() + 120
        while not log.exists() or len({line.split()[1] for line in log.read_text().splitlines()}) < 2:
            assert time.time() < deadline
            time.sleep(0.02)
        os.kill(second.pid, signal.SIGKILL)
        second.wait()
        assert first.communicate(timeout=120)[0].strip() == "280"
    finally:
        for process in (first, second):
            process.kill()
            process.communicate()
    done = [line.split() for line in log.read_text().splitlines()]
    again = [item for item, _ in done if [i for i, _ in done].count(item) > 1]
    assert {item for item, _ in done} == set(map(str, range(8)))
    assert len(set(again)) <= 1  # what the killed one had in hand


def test_the_folder_lies_beside_the_output():
    assert session_folder(Path("a/out.h5ad")) == Path("a/out.h5ad.shards")
    assert pickle.loads(pickle.dumps(Shard(0, 2))) == Shard(0, 2)


def test_a_folder_is_removed_by_the_last_to_leave_and_not_under_a_shard_that_was_started_twice(tmp_path):
    def shard(index):
        return SharedExecutor(Session(tmp_path / "s", {}), Shard(index, 2), None)

    twice, first, second = shard(0), shard(0), shard(1)
    for executor in (first, second):
        list(map_slides(square, range(3), executor))
        executor.finish()
    assert [one.value for one in map_slides(square, range(3), twice)] == [0, 1, 4]
    twice.finish()
    assert not (tmp_path / "s").exists()


def test_a_shard_that_comes_back_after_the_others_have_ended_is_told_so_and_leaves_nothing(tmp_path):
    late = Session(tmp_path / "s", {})  # not at work, as far as the others can see
    executor = SharedExecutor(Session(tmp_path / "s", {}), Shard(0, 1), None)
    list(map_slides(square, range(3), executor))
    executor.finish()
    for again in (False, True):
        if again:
            Session(tmp_path / "s", {})  # the same request has begun anew
        with pytest.raises(SessionOverError, match="the other shards have ended"):
            late.keep("x", [1])
        assert (tmp_path / "s").exists() == again


def test_the_first_result_stays(tmp_path):
    session = Session(tmp_path / "s", {})
    session.keep("x", ["good"])
    session.keep("x", ["bad"], [("x", "x: the disk is full.")])
    assert session.read("x") == ["good"]
    assert not (tmp_path / "s" / "failed").exists()


def test_a_shard_that_is_run_again_tries_what_failed_even_where_another_one_was_killed(tmp_path):
    counted: list[int] = []

    def count(value: int) -> int:
        counted.append(value)
        return square(value)

    for _ in range(2):
        executor = SharedExecutor(Session(tmp_path / "s", {}), Shard(0, 2), None)  # the other one never comes
        list(map_slides(count, range(7), executor))
        executor.finish()
    assert counted == [0, 2, 4, 6, 1, 3, 5, 5]


def test_what_a_process_left_that_was_killed_while_it_began_blocks_nobody(tmp_path):
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / ".made-by-panther.txt.host.123.part").touch()
    (tmp_path / "s" / "begin.lock.host.123.part").touch()
    Session(tmp_path / "s", {}).keep("x", [1])


def test_a_damaged_part_is_named(tmp_path):
    session = Session(tmp_path / "s", {})
    session.keep("x", [1])
    (tmp_path / "s" / "results" / "x").write_bytes(b"nonsense")
    with pytest.raises(InputError, match=r"results/x: this part of the work is damaged"):
        session.read("x")
