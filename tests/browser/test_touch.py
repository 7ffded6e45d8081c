"""A finger on a tablet chooses points, moves the slide, and draws on it."""

import pytest

from browser.window import Window


@pytest.fixture
def touched(browser, shown):
    """A window of a tablet, and a function that draws a finger along places."""
    context = browser.new_context(viewport={"width": 1100, "height": 700}, reduced_motion="reduce", has_touch=True)
    with Window(context, shown.address) as window:
        session = context.new_cdp_session(window.page)

        def finger(*places):
            for number, (x, y) in enumerate(places):
                kind = "touchMove" if number else "touchStart"
                session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [{"x": x, "y": y}]})
            session.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})

        yield window, finger
        assert window.complaints == []
    context.close()


def test_a_finger_moves_the_slide_and_draws_on_it(touched, browsed_cohort):
    window, finger = touched
    window.open("slide=S0&layers=none")
    before = window.views()[0]
    x, y = window.spot(600, 600)
    finger((x, y), (x - 30, y - 10), (x - 60, y - 20))
    window.until(lambda: window.views()[0][0] - before[0] == pytest.approx(60 / before[2], rel=0.05))
    after = window.views()[0]
    assert after[1] - before[1] == pytest.approx(20 / before[2], rel=0.05)
    window.page.get_by_role(
        "button", name="Rectangle", exact=True
    ).click()  # Chromium swallows a tap soon after a fling
    window.page.locator("[aria-label=Rectangle][aria-pressed=true]").wait_for()
    finger(window.spot(400, 400), window.spot(500, 500), window.spot(700, 650))
    window.page.locator(".annotations li").first.wait_for()
    assert window.views()[0] == after  # drawing does not move the slide
    assert (browsed_cohort / "annotations" / "S0.geojson").exists()


def test_a_finger_chooses_points(touched):
    window, finger = touched
    window.page.goto(f"{window.address}#page=cohort")
    window.page.wait_for_selector(".points-key")
    box = window.page.locator(".points-over").bounding_box()
    corners = [(0.02, 0.02), (0.98, 0.02), (0.98, 0.98), (0.02, 0.98), (0.02, 0.05)]
    finger(*((box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in corners))
    window.page.wait_for_function("new URLSearchParams(location.hash.slice(1)).has('a')")
