"""Two users in one folder, under real numbers: `slides` is shared by them, what holds pickles is refused with its owner's name."""

import json
import os
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest

from faults.lab import Lab, make_cohort, until
from faults.slow_slides import features, start_slides, write_slow_slides
from faults.users import GROUP, User, needs_users

ANNA, BERT = 64001, 64002
EMBED = ("embed", "features", "-p", "p.npy", "-j", 1, "-o", "out.npz")
HOLD = """
from pathlib import Path
from panther.storage.locks import lock
with lock(Path("locks/a.lock")) as got:
    print(got, flush=True)
    input()
"""
TRY = """
import sys
from pathlib import Path
from panther.errors import InputError
from panther.storage.locks import holders, lock, owner, sweep
path = Path("locks/a.lock")
print(*(one.alive for one in holders(path.parent)[0]))
print(owner(path))
try:
    with lock(path) as got:
        print(got)
except InputError as error:
    print(error)
sweep(path.parent)
"""
WRITE = """
from pathlib import Path
from panther.errors import InputError
from panther.storage.atomic import atomic_write, check_writable
try:
    check_writable(Path("a.txt"))
    with atomic_write(Path("a.txt")) as temporary:
        temporary.write_text("new")
except InputError as error:
    print(error)
"""


@pytest.fixture
def shared():
    """A folder that the group of both may write to, which pytest's own are not."""
    needs_users()
    base = Path(tempfile.mkdtemp(prefix="panther-users-"))
    base.chmod(0o755)
    place = base / "shared"
    place.mkdir()
    os.chown(place, -1, GROUP)
    place.chmod(0o2775)
    yield place
    shutil.rmtree(base)


def said(user, script, folder):
    out, _ = user.python(script, folder).communicate()
    return out.splitlines()


@pytest.mark.parametrize("hidden", [False, True], ids=["seen", "hidden"])
def test_the_lock_of_another_user_who_lives_is_not_taken(shared, hidden):
    with User(ANNA, hidden=hidden).python(HOLD, shared) as anna:
        assert anna.stdout.readline() == "True\n"
        alive, owner, got = said(User(BERT, hidden=hidden), TRY, shared)
        pid = json.loads((shared / "locks" / "a.lock").read_text())["pid"]
        anna.communicate("\n")
    assert (alive, got) == ("True", "False")
    assert owner.startswith(f"process {pid} on ")
    assert owner.endswith(f" of user {ANNA}")


@pytest.mark.parametrize(("umask", "age", "taken"), [("002", 0, True), ("077", 0, False), ("077", 10_000, True)])
def test_the_lock_of_another_user_who_died_is_taken_at_once_or_where_it_cannot_be_read_when_it_expires(
    shared, umask, age, taken
):
    (shared / "locks").mkdir()
    (shared / "locks").chmod(0o2777)
    with User(ANNA, umask).python(HOLD, shared) as anna:
        assert anna.stdout.readline() == "True\n"
        anna.kill()
    lock = shared / "locks" / "a.lock"
    os.utime(lock, (lock.stat().st_mtime - age,) * 2)
    assert said(User(BERT), TRY, shared)[-1] == str(taken)
    assert lock.exists() != taken


def test_a_lock_that_only_its_dead_owner_may_remove_is_named_with_the_owner(shared):
    with User(ANNA).python(HOLD, shared) as anna:
        assert anna.stdout.readline() == "True\n"
        anna.kill()
    (shared / "locks").chmod(0o3777)  # as /tmp
    sentence = said(User(BERT), TRY, shared)[-1]
    assert sentence.startswith("locks/a.lock: a process that has died left it (Operation not permitted; ")
    assert f"a.lock belongs to user {ANNA})" in sentence


def test_a_folder_of_locks_that_another_user_may_not_write_to_is_named_with_its_owner(shared):
    with User(ANNA, "022").python(HOLD, shared) as anna:
        assert anna.stdout.readline() == "True\n"
        sentence = said(User(BERT, "022"), TRY, shared)[-1]
        anna.communicate("\n")
    assert sentence.startswith("locks: work cannot be claimed there (Permission denied; ")
    assert f"locks belongs to user {ANNA}); its owner can let the group write" in sentence


def test_the_temporary_file_of_another_user_stays_while_that_process_lives(shared):
    with User(ANNA).python("input()", shared) as anna:
        name = f".a.txt.{os.uname().nodename[:64]}.1.{anna.pid}.part"
        (shared / name).touch()
        User(ANNA).own(shared / name)
        assert said(User(BERT, hidden=True), WRITE, shared) == []
        assert (shared / name).exists()
        anna.communicate("\n")
    shared.chmod(0o3777)  # what the dead left there is not ours to remove, and no reason to fail
    (shared / "a.txt").unlink()
    assert said(User(BERT), WRITE, shared) == []
    assert (shared / name).exists()
    assert (shared / "a.txt").stat().st_mode & 0o777 == 0o664


def test_the_file_of_another_user_where_only_the_owner_may_replace_it_is_refused_before_the_work(shared):
    (shared / "a.txt").write_text("old")
    User(ANNA).own(shared / "a.txt")
    shared.chmod(0o3777)
    (sentence,) = said(User(BERT), WRITE, shared)
    assert sentence == (
        f"a.txt: only its owner may replace a file in this folder; a.txt belongs to user {ANNA}; choose another place."
    )
    shared.chmod(0o755)
    (sentence,) = said(User(BERT), WRITE, shared)
    assert sentence == (
        ".: nothing can be written there (Permission denied; shared belongs to root); choose another place."
    )


@pytest.mark.slow
@pytest.mark.parametrize("hidden", [False, True], ids=["seen", "hidden"])
def test_two_users_share_the_slides_of_a_folder_and_one_goes_on_where_the_other_was_killed(shared, hidden, tally):
    lab = Lab(shared)
    write_slow_slides(shared, 2)
    env = {"HOME": str(shared), "PANTHER_LOCK_LIMIT": "600"}
    anna, bert = ({"under": User(number, hidden=hidden).words} for number in (ANNA, BERT))
    start_slides(lab, "alone", env=env).wait()
    rows = shared / "job"
    first = start_slides(lab, "job", env={**env, "PAUSE": "30"}, **anna)
    until(lambda: list(rows.rglob("rows")) or first.code is not None, "rows")
    second = start_slides(lab, "job", env=env, **bert)
    second.wait()
    assert "S0: passed over, process" in second.text  # as long as she lives it is hers
    assert f"of user {ANNA} is working on it" in second.text
    assert first.kill()
    start_slides(lab, "job", env=env, **bert).wait()
    assert features(lab, "job", 2) == features(lab, "alone", 2)
    assert (rows / "summary.csv").read_text().count(",done,") == 2
    lab.assert_clean()
    tally("`slides` of another user killed (-9) and taken over, in a folder of the group")


@pytest.mark.slow
def test_shards_belong_to_one_user_and_others_are_told_whose_they_are(shared, tally):
    lab = Lab(shared)
    make_cohort(shared / "made", 4, patches=50)
    for path in (shared / "made").iterdir():
        path.rename(shared / path.name)
    env = {"HOME": str(shared)}
    anna, bert = ({"apart": True, "env": env, "under": User(number).words} for number in (ANNA, BERT))
    lab.run(*EMBED, "--shard", "0/2", **anna)  # the other shard is missing: its folder stays
    folder = f"out.npz.shards: shards of user {ANNA} meet there"
    assert folder in lab.run(*EMBED, "--shard", "1/2", code=2, **bert).text
    assert folder in lab.run("merge", "out.npz", code=2, **bert).text
    assert f"belongs to user {ANNA}" in lab.run("status", "out.npz", code=2, **bert).text
    lab.run(*EMBED, "--shard", "1/2", **anna)
    lab.run(*EMBED[:-1], "alone.npz", **bert)
    assert all(
        np.array_equal(np.load(shared / "out.npz")[name], np.load(shared / "alone.npz")[name])
        for name in np.load(shared / "alone.npz").files
    )
    lab.assert_clean()
    tally("shard of another user in the same place, refused")
