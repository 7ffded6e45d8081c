"""A window of 400 pixels: the slide has the whole width."""

from collections.abc import Iterator
from typing import Any

import pytest

from browser.window import Window

WIDTH, HEIGHT = 400, 800


@pytest.fixture(scope="module")
def profile(browser: Any) -> Iterator[Any]:
    person = browser.new_context(viewport={"width": WIDTH, "height": HEIGHT}, reduced_motion="reduce")
    yield person
    person.close()


def test_the_slide_has_the_whole_width_and_its_layers_lie_below_it(window: Window):
    window.open("slide=S0")
    stage, side = (window.page.locator(one).bounding_box() for one in (".stage", ".side"))
    assert stage["width"] == side["width"] == WIDTH
    assert 300 < stage["height"] < HEIGHT
    assert side["y"] >= stage["y"] + stage["height"]
    assert window.page.locator(".slides").is_hidden()


def test_the_list_of_slides_opens_above_the_slide_and_gives_way(window: Window):
    window.open("slide=S0")
    window.page.get_by_role("button", name="Show or hide the list of slides").click()
    window.page.locator(".slide-row", has_text="S1").click()
    window.wait_for_state(slide="S1")
    window.settle()
    assert window.page.locator(".slides").is_hidden()


def test_the_long_title_of_an_axis_is_broken_into_lines(window: Window):
    window.page.goto(f"{window.address}#page=prototypes&prototype=1&column=subtype")
    title = window.page.locator(".chart .xtitle", has_text="share, mean over patients")
    title.wait_for()
    window.until(lambda: (box := title.bounding_box()) and box["x"] >= 0 and box["x"] + box["width"] <= WIDTH)
