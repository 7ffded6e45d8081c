"""Two users in one folder, under real numbers."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from faults.lab import Lab, until
from faults.slow_slides import features, start_slides, write_slow_slides
from faults.users import GROUP, User, needs_users

ANNA, BERT = 64001, 64002
WRITE = """
from pathlib import Path
from panther.errors import InputError
from panther.store import atomic_write, check_writable
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
    assert "only its owner" in sentence
    assert str(ANNA) in sentence
    shared.chmod(0o755)
    (sentence,) = said(User(BERT), WRITE, shared)
    assert "Permission denied" in sentence
    assert "belongs to root" in sentence


@pytest.mark.slow
@pytest.mark.parametrize("hidden", [False, True], ids=["seen", "hidden"])
def test_two_users_at_the_same_slides_of_a_folder_lose_nothing(shared, hidden, tally):
    lab = Lab(shared)
    write_slow_slides(shared, 2)
    env = {"HOME": str(shared)}
    anna, bert = ({"under": User(number, hidden=hidden).words} for number in (ANNA, BERT))
    start_slides(lab, "alone", env=env).wait()
    rows = shared / "job"
    first = start_slides(lab, "job", env={**env, "PAUSE": "1"}, **anna)
    until(lambda: list(rows.rglob("*_patches.h5")) or first.code is not None, "patches")
    second = start_slides(lab, "job", env=env, **bert)
    second.wait()
    first.wait()
    assert features(lab, "job", 2) == features(lab, "alone", 2)
    assert (rows / "summary.csv").read_text().count(",done,") == 2
    lab.assert_clean()
    tally("`slides` of two users at once, in a folder of the group")
