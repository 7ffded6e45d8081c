"""Locks between processes: one owner at a time, and none that outlives its owner."""

import errno
import json
import os
import threading
import time

import pytest

from panther.errors import InputError
from panther.storage import locks
from panther.storage.locks import hold, holders, lock, owner


@pytest.fixture(params=["links", "no links"])
def path(request, tmp_path, monkeypatch):
    """A place for a lock, on file systems with and without hard links."""

    def refused(*_):
        raise OSError(errno.EPERM, "no links here")

    if request.param == "no links":
        monkeypatch.setattr(os, "link", refused)
    return tmp_path / "folder" / "lock"


def test_a_lock_has_one_owner_and_is_given_back(path):
    with lock(path) as got:
        assert got
        with lock(path) as again:
            assert not again
        assert owner(path).startswith(f"process {os.getpid()} on")
    assert not path.exists()
    assert not list(path.parent.iterdir())


def test_a_held_lock_refuses_the_next_in_a_sentence_until_it_is_closed(path):
    held = hold(path)
    with pytest.raises(
        InputError, match=rf"another run is writing there \(process {os.getpid()} on .* after 10 minutes"
    ):
        hold(path)
    held.close()
    hold(path).close()


@pytest.mark.parametrize(
    ("content", "age", "free"),
    [
        ({"host": "elsewhere", "pid": 1, "started": 0.0}, 10, False),
        ({"host": "elsewhere", "pid": 1, "started": 0.0}, 10_000, True),
        ({"host": locks.host_name(), "pid": 2**22 + 1, "started": 0.0}, 10, True),  # a process that does not run
        (None, 10, False),  # empty: its owner may be writing it
        (None, 10_000, True),
    ],
)
def test_a_lock_expires_with_its_owner(path, content, age, free):
    path.parent.mkdir()
    path.write_text("" if content is None else json.dumps(content))
    os.utime(path, (time.time() - age,) * 2)
    with lock(path) as got:
        assert got == free
    assert path.exists() != free


def test_whoever_looks_sees_who_is_there_since_when_and_who_has_died(tmp_path):
    lost = {"host": locks.host_name(), "pid": 2**22 + 1, "started": 0.0, "since": 5.0}
    with lock(tmp_path / "here.lock"):
        (tmp_path / "lost.lock").write_text(json.dumps(lost))
        (tmp_path / "torn.lock").write_text('{"pid"')
        before = sorted(path.name for path in tmp_path.iterdir())
        (mine, dead), now = holders(tmp_path)
        assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert (mine.name, mine.pid, mine.alive) == ("here", os.getpid(), True)
    assert abs(mine.since - time.time()) < 60
    assert mine.since <= now
    assert (dead.name, dead.since, dead.alive) == ("lost", 5.0, False)
    assert holders(tmp_path / "nothing")[0] == []


def test_an_owner_is_alive_also_after_the_clock_of_its_machine_was_set(path, monkeypatch):
    with lock(path) as got:
        assert got
        before = locks.psutil.boot_time()
        start = locks.psutil.Process.create_time
        # the system tells when it was started, and when a process was, in the clock that was set
        monkeypatch.setattr(locks.psutil, "boot_time", lambda: before + 3600)
        monkeypatch.setattr(locks.psutil.Process, "create_time", lambda self: start(self) + 3600)
        with lock(path) as again:
            assert not again


def test_threads_of_one_process_take_turns_and_leave_nothing(path):
    """A file that two of them shared on the way would become the lock of one with the words of the other: held for ever."""
    inside, most = [], []

    def work(number: int) -> None:
        for _ in range(100):
            with lock(path) as mine:
                if mine:
                    inside.append(number)
                    most.append(len(inside))
                    inside.remove(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert set(most) == {1}
    assert list(path.parent.iterdir()) == []
    with lock(path) as mine:
        assert mine


def test_a_lock_that_was_held_aside_while_it_was_given_back_does_not_stay(path):
    """Somebody who thought the owner dead took the lock away, sees that it is alive, and puts it back: just too late."""
    aside = path.with_name(f"{path.name}.stale-1.elsewhere.1.part")

    def put_back() -> None:
        path.write_text(aside.read_text())
        aside.unlink()

    with lock(path) as mine:
        assert mine
        path.rename(aside)
        late = threading.Timer(0.2, put_back)
        late.start()
    late.join()
    assert list(path.parent.iterdir()) == []
