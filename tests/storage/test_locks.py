"""Locks between processes: one owner at a time, and none that outlives its owner."""

import errno
import json
import os
import threading
import time
from pathlib import Path

import psutil
import pytest

from panther.errors import InputError
from panther.storage import locks
from panther.storage.locks import hold, holders, lock, owner


def no_links(*_):
    raise OSError(errno.EPERM, "no links here")


def as_over_sftp(function):
    """The same function where the server cannot say that a name is there already: it only refuses."""

    def called(*words, **options):
        try:
            return function(*words, **options)
        except FileExistsError as error:
            raise PermissionError(errno.EPERM, "Operation not permitted") from error

    return called


@pytest.fixture(params=["links", "no links", "over SFTP"])
def path(request, tmp_path, monkeypatch):
    """A place for a lock, on file systems with and without hard links, and on one that tells little."""
    if request.param == "no links":
        monkeypatch.setattr(os, "link", no_links)
    if request.param == "over SFTP":
        monkeypatch.setattr(os, "link", as_over_sftp(os.link))
        monkeypatch.setattr(Path, "open", as_over_sftp(Path.open))
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
        before = psutil.boot_time()
        start = psutil.Process.create_time
        # the system tells when it was started, and when a process was, in the clock that was set
        monkeypatch.setattr(psutil, "boot_time", lambda: before + 3600)
        monkeypatch.setattr(psutil.Process, "create_time", lambda self: start(self) + 3600)
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


def test_a_lock_that_was_made_although_the_answer_was_lost_is_held_and_given_back(tmp_path, monkeypatch):
    """NFS asks once more where an answer was lost, and hears that the name is there."""
    link = os.link

    def twice(*names):
        link(*names)
        link(*names)

    monkeypatch.setattr(os, "link", twice)
    with lock(tmp_path / "a.lock") as got:
        assert got
        assert [file.name for file in tmp_path.iterdir()] == ["a.lock"]
    assert not list(tmp_path.iterdir())


def test_signs_of_life_are_dated_by_the_file_server_also_where_a_time_that_is_set_is_this_machines(path, monkeypatch):
    set_time, wrong = os.utime, time.time() - 3 * 3600
    monkeypatch.setattr(os, "utime", lambda file, times=None: set_time(file, times or (wrong, wrong)))
    with lock(path, 0.2) as got:
        assert got
        os.utime(path, (wrong - 3600,) * 2)
        end = time.monotonic() + 60
        while path.stat().st_mtime < wrong - 1800:
            assert time.monotonic() < end, "no sign of life"
            time.sleep(0.01)
        assert path.stat().st_mtime > wrong + 3600
        assert owner(path).startswith(f"process {os.getpid()} on")
