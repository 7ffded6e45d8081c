"""The cache of the viewer: values are made once, replaced when their files change, and bounded for any number of slides."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from panther.errors import InputError
from panther.viewer.contents import Contents, find_contents
from panther.viewer.workbench import MAPS, OPEN_SLIDES, LruCache, Workbench


def fail() -> None:
    raise InputError("no")


def test_values_are_replaced_by_version_and_bounded_by_weight_and_errors_are_not_kept():
    cache = LruCache(10, weigh=int)
    for _ in range(100):
        with pytest.raises(InputError):
            cache.get(7, fail)
    assert (len(cache), cache.get(7, lambda: 4, version=1)) == (0, 4)
    assert cache.get(7, lambda: 3, version=1) == 4
    assert cache.get(7, lambda: 3, version=2) == 3
    cache.get(8, lambda: 5)
    cache.get(9, lambda: 6)  # 7 and 8 go, the value used last stays whatever it weighs
    assert len(cache) == 1
    cache.get(9, fail)
    cache.get(99, lambda: 99)
    cache.drop(9)
    assert len(cache) == 1
    cache.clear()
    assert (len(cache), cache._weight) == (0, 0)


def test_a_value_is_made_once_for_many_threads_and_all_of_them_get_its_error():
    cache, made, go_on = LruCache(4), [], threading.Event()

    def make() -> None:
        made.append(1)
        go_on.wait(30)
        raise InputError("damaged")

    def ask(_: int) -> str:
        with pytest.raises(InputError) as caught:
            cache.get("key", make)
        return str(caught.value)

    with ThreadPoolExecutor(8) as threads:
        answers = [threads.submit(ask, number) for number in range(8)]
        while not made:
            pass
        go_on.set()
        assert {one.result(60) for one in answers} == {"damaged"}
    assert len(made) < 8  # those that came too late try again, the others do not


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


def test_memory_of_many_slides_is_bounded(cohort_folder, monkeypatch):
    contents = many_slides(cohort_folder, 3 * OPEN_SLIDES)
    bench = Workbench(contents)
    handles = psutil.Process().num_fds()
    visit_all(bench, list(contents.slides)[: 3 * OPEN_SLIDES])
    assert len(bench._images) == OPEN_SLIDES
    assert psutil.Process().num_fds() <= handles + 3 * OPEN_SLIDES
    assert bench._patches._weight <= MAPS
    bench.close()
    assert len(bench._images) == 0


def test_a_slide_that_is_evicted_while_it_is_read_stays_open_until_then(cohort_folder):
    bench = Workbench(many_slides(cohort_folder, OPEN_SLIDES + 2))
    with bench.image("M0000") as slide:
        for number in range(1, OPEN_SLIDES + 2):  # M0000 is evicted
            with bench.image(f"M{number:04d}"):
                pass
        assert slide.read_region(0, 0, 0, 8, 8).shape == (8, 8, 3)
    with bench.image("M0000") as again:
        assert again is not slide
