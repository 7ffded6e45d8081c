"""The address holds the state of the page, and shows the same to everyone who opens it."""

import numpy as np
import pytest

from browser.window import Window, new_profile


def test_a_colleague_sees_the_same(window, browser, shown):
    window.open("slide=S1")
    window.page.mouse.move(*window.spot(500, 700))
    window.page.mouse.wheel(0, -400)
    window.page.click("[data-prototype='0']")
    window.page.click("[data-layer=grid] input")
    window.settle()
    window.wait_for_state(shown="0")
    window.page.wait_for_function(
        "zoom => Math.abs(new URLSearchParams(location.hash.slice(1)).get('zoom') - zoom) < 1e-3",
        arg=window.views()[0][2],
    )
    here = window.views()[0]
    other = new_profile(browser)
    with Window(other, shown.address) as colleague:
        colleague.open(window.page.url.split("#")[1])
        assert colleague.views()[0] == pytest.approx(here, rel=1e-3)
        for place in ((500, 700), (420, 480), (520, 800)):
            assert np.allclose(colleague.colour(*place), window.colour(*place), atol=3)
        assert colleague.page.locator("[data-prototype='0']").get_attribute("aria-pressed") == "true"
        assert colleague.complaints == []
    other.close()


def test_a_broken_address_shows_the_slide(window):
    wrong = "slide=S0&x=NaN&y=&zoom=-3&layers=nothing,prototypes&opacity=900&shown=a,,99&patch=-1&prototype=x"
    for state in (wrong, "page=none&zoom=1e99"):
        window.open(state)
        assert window.page.locator("h1").inner_text() == "S0"
        assert all(np.isfinite(window.views()[0]))


ABSENT = "This link refers to C77, which does not exist (C0 to C2 do);"


@pytest.mark.parametrize(
    ("state", "alone", "text"),
    [
        ("slide=S0&shown=77", [], f"{ABSENT} all are shown."),
        ("slide=S0&shown=1,77", ["1"], f"{ABSENT} the others that it names are shown."),
        ("slide=S0&layers=posterior&prototype=77", [], f"{ABSENT} the posterior is that of C0."),
        ("slide=S0&prototype=77", [], None),
    ],
)
def test_an_unknown_prototype_is_left_out_with_a_message(window, state, alone, text):
    window.open(state)
    window.until(lambda: window.page.locator(".message span").all_inner_texts() == ([text] if text else []))
    pressed = window.page.locator("[data-prototype][aria-pressed=true]")
    window.until(lambda: [one.get_attribute("data-prototype") for one in pressed.all()] == alone)
    assert window.page.locator(".legend .away").count() == (2 if alone else 0)
    window.until(lambda: window.state().get("shown", "") == ",".join(alone))


def test_an_unknown_slide_is_named_as_text(window):
    window.page.goto(f"{window.address}#slide=%3Cscript%3Ealert(1)%3C%2Fscript%3E")
    sentence = window.page.locator(".sentence")
    sentence.wait_for(state="visible")
    assert "<script>" in sentence.inner_text()  # as text
