"""What the viewer keeps: made once, replaced when its files change, bounded however many slides are looked at."""

import gc
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from panther.engine import open_executor
from panther.errors import InputError
from panther.store import version_of
from panther.viewer.contents import Contents, find_contents
from panther.viewer.kept import Kept
from panther.viewer.workbench import MAPS, OPEN_SLIDES, Workbench


def fail() -> None:
    raise InputError("no")


def test_what_fails_is_not_kept_and_leaves_nothing_behind():
    kept = Kept(4)
    for number in range(100):
        with pytest.raises(InputError):
            kept.get(number, fail)
    assert (len(kept), kept._making) == (0, {})
    assert kept.get(7, lambda: "yes") == "yes"


def test_a_value_is_made_once_however_many_ask_and_its_failure_is_theirs_too():
    kept, made, go_on = Kept(4), [], threading.Event()

    def make() -> None:
        made.append(1)
        go_on.wait(30)
        raise InputError("damaged")

    def ask(_: int) -> str:
        try:
            kept.get("key", make)
        except InputError as error:
            return str(error)
        return ""

    with ThreadPoolExecutor(8) as threads:
        asked = [threads.submit(ask, number) for number in range(8)]
        while not made:
            pass
        go_on.set()
        said = [one.result(60) for one in asked]
    assert set(said) == {"damaged"}
    assert len(made) < 8  # those that came too late look again, the others do not


def test_another_version_replaces_the_value_and_forgets_the_old_one():
    forgotten = []
    kept = Kept(4, forgotten.append)
    assert kept.get("a", lambda: "old", version=1) == "old"
    assert kept.get("a", lambda: "new", version=1) == "old"
    assert kept.get("a", lambda: "new", version=2) == "new"
    assert (forgotten, len(kept)) == (["old"], 1)
    kept.drop("a")
    kept.drop("a")
    assert forgotten == ["old", "new"]


def test_values_are_bounded_by_what_they_weigh_and_the_last_one_stays():
    forgotten = []
    kept = Kept(10, forgotten.append, weigh=int)
    for number in (4, 5, 3):
        kept.get(number, lambda number=number: number)
    assert forgotten == [4]
    kept.get(3, fail)
    kept.get(99, lambda: 99)
    assert (forgotten, len(kept)) == ([4, 5, 3], 1)
    kept.clear()
    assert (len(kept), kept._weight) == (0, 0)


def many_slides(cohort_folder: Path, count: int) -> Contents:
    """The same slide under many names."""
    for number in range(count):
        for folder, ending in (("slides", "tif"), ("features", "h5")):
            os.link(cohort_folder / folder / f"S0.{ending}", cohort_folder / folder / f"M{number:04d}.{ending}")
    return find_contents(cohort_folder)


def visit_all(bench: Workbench, names: list[str]) -> None:
    for name in names:
        bench.patches(name)
        with bench.image(name) as slide:
            slide.read_region(0, 0, 0, 256, 256)


def test_what_is_kept_of_many_slides_is_bounded(cohort_folder, monkeypatch):
    contents = many_slides(cohort_folder, 3 * OPEN_SLIDES)
    bench = Workbench(contents)
    handles = psutil.Process().num_fds()
    visit_all(bench, list(contents.slides)[: 3 * OPEN_SLIDES])
    assert len(bench._images) == OPEN_SLIDES
    assert psutil.Process().num_fds() <= handles + 3 * OPEN_SLIDES
    assert bench._patches._weight <= MAPS
    bench.close()
    assert len(bench._images) == 0


def test_a_slide_that_is_forgotten_while_it_is_read_is_closed_by_its_reader(cohort_folder):
    bench = Workbench(many_slides(cohort_folder, OPEN_SLIDES + 2))
    with bench.image("M0000") as slide:
        for number in range(1, OPEN_SLIDES + 2):  # nobody waits for M0000
            with bench.image(f"M{number:04d}"):
                pass
        assert slide.read_region(0, 0, 0, 8, 8).shape == (8, 8, 3)
    with bench.image("M0000") as again:
        assert again is not slide


@pytest.mark.slow
def test_memory_is_flat_over_a_thousand_slides(cohort_folder):
    contents = many_slides(cohort_folder, 1000)
    names = list(contents.slides)[:1000]
    with open_executor(1) as executor:
        bench, here = Workbench(contents, None, executor), psutil.Process()
        visit_all(bench, names[:200])
        gc.collect()
        before = here.memory_info().rss
        visit_all(bench, names[200:])
        gc.collect()
        grown = here.memory_info().rss - before
        print(f"{before / 2**20:.0f} MiB after 200 slides, {grown / 2**20:+.1f} MiB after 1,000")
        assert grown < 64 * 2**20


def test_a_version_tells_files_that_are_not_there(tmp_path):
    file = tmp_path / "a"
    assert version_of([file]) == (None,)
    file.write_text("x")
    first = version_of([file])
    file.write_text("xy")
    assert first != version_of([file])
