"""Every page, light and dark, wide and narrow: contrast of text and names of controls as WCAG 2.1 AA asks, and nothing cut off."""

from pathlib import Path

import pytest

from browser.window import Window, new_profile

PAGES = {
    "start": ("page=start", ".start dl"),
    "slide": ("slide=S0", ".legend li"),
    "annotations": ("slide=S1", ".annotation-editor"),
    "patch": ("slide=S0&patch=5", ".patch .facts strong"),
    "gallery": ("page=prototypes", ".card img"),
    "prototype": ("page=prototypes&prototype=1", ".strip img"),
    "cohort": ("page=cohort", ".points-stage canvas"),
    "compare": ("page=compare&slide=S0&slide2=S1", ".pane + .pane .key button"),
    "study": ("page=study", "#page > *"),
}
CHECK, CUT_OFF = ((Path(__file__).parent / name).read_text() for name in ("accessible.js", "cut_off.js"))


@pytest.fixture(scope="module", params=[("light", 1440, 900), ("dark", 390, 844)], ids=["light-1440", "dark-390"])
def profile(request, browser):
    scheme, width, height = request.param
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=scheme, reduced_motion="reduce"
    )
    yield context
    context.close()


@pytest.mark.parametrize("name", PAGES)
def test_text_is_read_and_controls_have_names(window: Window, name: str):
    state, there = PAGES[name]
    window.page.goto(f"{window.address}#{state}")
    window.complete()
    if name == "annotations":
        window.page.keyboard.press("p")
        window.page.locator(".deepzoom").click(position={"x": 60, "y": 60})
    window.page.locator(there).first.wait_for(state="attached")
    window.complete()
    assert window.page.evaluate(CHECK) == []
    assert window.page.evaluate(CUT_OFF) == []
    wide = window.page.evaluate("() => [document.documentElement, page].map((node) => node.scrollWidth)")
    assert max(wide) <= window.page.viewport_size["width"]


def test_the_check_finds_what_is_wrong(browser):
    context = new_profile(browser)
    page = context.new_page()
    page.set_content(
        "<title>x</title><p style='color:#999;background:#fff'>pale</p><button></button><img src='x'><i id=a></i><i id=a></i>"
    )
    found = " ".join(page.evaluate(CHECK))
    context.close()
    for problem in ("contrast 2.8", "no name: <button>", "no alt", "two of #a", "no language"):
        assert problem in found
