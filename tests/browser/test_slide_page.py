"""The slide page: the picture, layers above it, and one patch."""

import re

import numpy as np
import pytest

from explain.known_regions import COLOURS

STROMA, NEST, GLASS = (630, 870), (450, 510), (1200, 60)  # middles of patches of C0 and C1, and a place without patches
OPACITY = 0.6


def close(found, expected, apart=14):
    """JPEG and rounding change colours a little."""
    return np.abs(np.asarray(found, float) - np.asarray(expected, float)).max() <= apart


def rgb(text):
    return np.array([int(text[i : i + 2], 16) for i in (1, 3, 5)])


@pytest.fixture
def colours(window):
    """Colours of the prototypes, as the page's legend has them."""
    layers = window.page.request.get(window.page.url.split("#")[0] + "api/slides/S0").json()["layers"]
    return [rgb(one["colour"]) for one in next(layer for layer in layers if layer["id"] == "prototypes")["classes"]]


@pytest.fixture
def window(window):
    window.open("slide=S0&layers=prototypes&opacity=60&style=fill&ground=colour")
    return window


def mixed(below, above):
    return (1 - OPACITY) * np.asarray(below) + OPACITY * np.asarray(above)


def test_a_slide_opens_with_its_prototypes_above_it(window, colours):
    assert close(window.colour(*STROMA), mixed(COLOURS[1], colours[0]))
    assert close(window.colour(*NEST), mixed(COLOURS[2], colours[1]))
    assert close(window.colour(*GLASS), COLOURS[0])
    assert window.page.locator(".legend li").count() == 3
    assert "stroma" in window.page.locator(".legend").inner_text()


def test_layers_are_switched_and_a_prototype_is_isolated(window, colours):
    window.page.click("[data-layer=prototypes] input[type=checkbox]")
    window.settle()
    assert close(window.colour(*STROMA), COLOURS[1])
    window.page.click("[data-layer=prototypes] input[type=checkbox]")
    window.page.click("[data-prototype='1']")
    window.settle()
    assert close(window.colour(*STROMA), COLOURS[1])  # C0 is not shown
    assert close(window.colour(*NEST), mixed(COLOURS[2], colours[1]))
    window.wait_for_state(shown="1")
    window.page.click("[data-prototype='0']", modifiers=["Shift"])
    window.settle()
    assert close(window.colour(*STROMA), mixed(COLOURS[1], colours[0]))
    window.wait_for_state(shown="0,1")


def test_far_out_regions_lie_on_grey_and_from_10x_on_they_are_outlines(window, colours):
    window.open("slide=S0&zoom=0.2&x=750&y=565")
    grey = 255 - 0.4 * (255 - COLOURS[1] @ np.array([0.299, 0.587, 0.114]))
    assert close(window.colour(*STROMA), 0.45 * grey + 0.55 * colours[0])
    window.page.locator(".deepzoom").focus()
    window.page.keyboard.down(" ")
    window.until(lambda: close(window.colour(*STROMA), COLOURS[1]))  # the slide alone while the key is held
    window.page.keyboard.up(" ")
    window.open("slide=S0&zoom=1&x=600&y=700")
    assert close(window.colour(*STROMA), COLOURS[1])
    window.page.get_by_label("Regions").select_option("lens")
    window.wait_for_state(style="lens")
    window.page.mouse.move(*window.spot(*STROMA))
    window.settle()
    assert close(window.colour(*STROMA), mixed(COLOURS[1], colours[0]))


def test_the_posterior_has_a_threshold(window):
    window.open("slide=S0&layers=posterior&prototype=1")
    assert not close(window.colour(*NEST), COLOURS[2])
    window.page.get_by_label("Threshold: smallest value shown").fill("0.5")
    window.settle()
    assert close(window.colour(*STROMA), COLOURS[1])
    assert not close(window.colour(*NEST), COLOURS[2])
    window.wait_for_state(low="0.5")


def test_the_posterior_begins_with_the_isolated_prototype(window):
    window.page.click("[data-prototype='1']")
    window.page.click("[data-layer=posterior] input[type=checkbox]")
    window.wait_for_state(prototype="1", shown="1")
    chosen = window.page.locator("[data-layer=posterior] select")
    assert chosen.input_value() == "1"
    chosen.select_option("2")  # an explicit choice stays
    window.wait_for_state(prototype="2")
    window.open("slide=S0&layers=posterior&shown=1")
    assert chosen.input_value() == "1"


def test_wheel_and_drag_keep_the_place_under_the_pointer(window):
    place = window.spot(*NEST)
    before = window.views()[0]
    window.page.mouse.move(*place)
    window.page.mouse.wheel(0, -300)
    window.until(lambda: window.views()[0][2] > 1.5 * before[2])
    window.settle()
    assert np.allclose(window.spot(*NEST), place, atol=1.5)
    window.page.mouse.down()
    window.page.mouse.move(place[0] + 90, place[1] - 40, steps=3)
    window.page.mouse.up()
    window.until(lambda: np.allclose(window.spot(*NEST), (place[0] + 90, place[1] - 40), atol=1.5))
    assert not window.state().get("patch")  # a drag chooses nothing


def test_tiles_meet_without_seams_and_layers_lie_on_their_patches(window, colours):
    """At a crooked zoom, over the border of four tiles, and at the border between two patches."""
    window.open("slide=S0&x=512&y=512&zoom=1.37&layers=none")
    strip = [window.colour(512 + step, 690) for step in np.arange(-3, 3, 0.25)]
    assert all(close(one, COLOURS[1]) for one in strip)
    window.open("slide=S0&x=630&y=840&zoom=3.3&layers=grid,prototypes&opacity=5,100&style=fill")
    assert close(window.colour(630, 860), colours[0], 20)
    assert not close(window.colour(659.9, 870), window.colour(640, 870), 2)  # the border of a patch, at 660


def test_the_tooltip_needs_no_request(window):
    asked = []
    window.page.on("request", lambda request: asked.append(request.url))
    window.page.mouse.move(*window.spot(*NEST))
    tooltip = window.page.locator(".tooltip")
    tooltip.wait_for(state="visible")
    text = tooltip.inner_text()
    assert "C1 tumour nest" in text
    x, y, x_um, y_um = (int(number) for number in re.findall(r"\d+", text.split("posterior 1.00")[1]))
    assert (x, y) == pytest.approx(NEST, abs=3)  # a pixel of the screen is some of the slide
    assert (x_um, y_um) == pytest.approx((x / 2, y / 2), abs=1)
    window.page.mouse.move(*window.spot(*GLASS))
    tooltip.wait_for(state="hidden")
    assert asked == []


def test_slides_without_an_image_lie_on_a_blank_canvas(window, colours):
    window.page.get_by_label("Find a slide").fill("s5")
    window.until(lambda: window.page.locator(".slide-row").count() == 1)
    window.page.keyboard.press("Enter")
    window.page.wait_for_selector("h1:text-is('S5')")
    window.settle()
    assert "no image" in window.page.locator(".slide-row").inner_text()
    about = window.page.request.get(window.page.url.split("#")[0] + "api/slides/S5").json()
    x, y = (np.array(NEST) - about["origin"]).tolist()  # on the canvas, which begins at the first patches
    window.page.mouse.move(*window.spot(x, y))
    window.page.locator(".tooltip").wait_for(state="visible")
    text = window.page.locator(".tooltip").inner_text()
    assert "C1 tumour nest" in text
    assert [int(number) for number in re.findall(r"\d+", text.split("1.00")[1])[:2]] == pytest.approx(NEST, abs=3)
    assert close(window.colour(x, y), mixed((255, 255, 255), colours[1]))


def test_failing_tiles_are_reported_once_and_not_requested_again_at_once(window):
    asked = []

    def refuse(route):
        asked.append(route.request.url)
        route.fulfill(status=422, json={"error": "S2.tif: it is damaged."})

    window.page.route("**/tiles/S2/**", refuse)
    window.open("slide=S2")
    for key in ("+", "+", "-", "ArrowLeft", "ArrowUp", "0"):
        window.page.keyboard.press(key)
        window.settle()
    assert 0 < len(asked) <= 6  # as many as were under way when the first one failed
    window.until(lambda: window.page.locator(".message span").all_inner_texts() == ["S2.tif: it is damaged."])
    window.complaints.clear()  # the browser's own, of the refusals


def test_the_neighbours_of_an_isolated_prototype_are_listed(window):
    window.page.click("[data-prototype='1']")
    rows = window.page.locator(".borders tbody tr")
    rows.first.wait_for()
    assert "stroma" in rows.first.inner_text()
    assert "tumour nest" in window.page.locator(".borders").get_attribute("aria-label")
