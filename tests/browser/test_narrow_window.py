"""A window of 400 pixels: nothing is cut off, and the slide has the whole width."""

from collections.abc import Iterator
from typing import Any

import pytest

from browser.window import Window

WIDTH, HEIGHT = 400, 800
# controls that reach out of the window or of what cuts them off, where nothing can be scrolled to see them
CUT_OFF = """() => {
  const reached = (node) => {
    const box = node.getBoundingClientRect();
    let [left, right] = [0, innerWidth];
    for (let up = node.parentElement; up; up = up.parentElement) {
      const { overflowX } = getComputedStyle(up);
      if (overflowX === "visible") continue;
      if (overflowX !== "hidden" && up.scrollWidth > up.clientWidth + 1 && up.id !== "page") return true;
      const frame = up.getBoundingClientRect();
      [left, right] = [Math.max(left, frame.left), Math.min(right, frame.right)];
    }
    return box.left >= left - 1 && box.right <= right + 1;
  };
  const controls = [...document.querySelectorAll("a, button, select, input, textarea, h1, h2")];
  const seen = controls.filter((node) => node.checkVisibility() && !node.matches(".skip"));
  return seen.filter((node) => !reached(node)).map((node) => node.outerHTML.slice(0, 80));
}"""


@pytest.fixture(scope="module")
def profile(browser: Any) -> Iterator[Any]:
    person = browser.new_context(viewport={"width": WIDTH, "height": HEIGHT}, reduced_motion="reduce")
    yield person
    person.close()


@pytest.mark.parametrize(
    ("state", "there"),
    [
        ("slide=S0", ".legend li"),
        ("slide=S0&patch=5", ".patch .facts strong"),
        ("page=prototypes", ".card img"),
        ("page=prototypes&prototype=1", ".strip img"),
        ("page=cohort", ".points-stage canvas"),
        ("page=compare&slide=S0&slide2=S1", ".pane + .pane .key button"),
        ("page=study", "#page > *"),
    ],
)
def test_nothing_is_cut_off_or_wider_than_the_window(window: Window, state: str, there: str):
    window.page.goto(f"{window.address}#{state}")
    window.page.locator(there).first.wait_for(state="attached")
    wide = window.page.evaluate("() => [document.documentElement, page].map((node) => node.scrollWidth)")
    assert max(wide) <= WIDTH
    assert window.page.evaluate(CUT_OFF) == []


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
    box = title.bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= WIDTH
