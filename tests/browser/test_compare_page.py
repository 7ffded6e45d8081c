"""The page of two slides side by side."""

import numpy as np
import pytest


def test_one_slide_on_both_sides_moves_exactly_together(window):
    window.open("page=compare&slide=S0&style=fill&slide2=S0&layers2=none", sides=2)
    place = window.spot(420, 480)
    before = window.colour(420, 480, side=0), window.colour(420, 480, side=1)
    assert not np.allclose(*before, atol=10)  # a layer lies on the left only
    window.page.mouse.move(*place)
    window.page.mouse.wheel(0, -300)
    window.until(lambda: window.views()[0][2] > 0.6)
    window.settle(2)
    left, right = window.views()
    assert left == right
    assert window.state()["slide2"] == "S0"


def test_other_slides_move_by_their_share_and_can_be_unlinked(window):
    window.open("page=compare&slide=S0&slide2=S5", sides=2)
    window.page.locator(".deepzoom").nth(1).focus()
    window.page.keyboard.press("+")
    window.page.keyboard.press("ArrowRight")
    window.settle(2)
    (x, y, zoom), (x2, y2, zoom2) = window.views()
    address = window.page.url.split("#")[0]
    sizes = [window.page.request.get(f"{address}api/slides/{name}").json() for name in ("S0", "S5")]
    assert x / sizes[0]["width"] == pytest.approx(x2 / sizes[1]["width"])
    assert y / sizes[0]["height"] == pytest.approx(y2 / sizes[1]["height"])
    window.page.get_by_role("button", name="Linked").click()
    window.page.locator(".deepzoom").nth(1).focus()
    window.page.keyboard.press("0")
    window.settle(2)
    assert window.views()[0] == (x, y, zoom)
    assert window.views()[1][2] < zoom2
    window.wait_for_state(link="off")


def test_another_slide_is_chosen_by_its_name(window):
    window.open("page=compare&slide=S0&slide2=S1", sides=2)
    name = window.page.get_by_role("combobox", name="Slide on the right")
    name.fill("S2")
    name.press("Enter")
    window.wait_for_state(slide2="S2")
    name.fill("no such slide")
    name.press("Enter")
    window.settle(2)
    assert name.input_value() == "S2"


def test_a_side_leaves_out_unknown_prototypes_and_its_posterior_begins_with_the_isolated_one(window):
    window.open("page=compare&slide=S0&slide2=S1&shown=77&shown2=1", sides=2)
    window.page.locator(".message span").first.wait_for()
    text = window.page.locator(".message span").all_inner_texts()
    assert text == ["This link refers to C77, which does not exist (C0 to C2 do); all are shown."]
    right = window.page.get_by_role("region", name="The right side")
    right.locator("[data-what=layer]").select_option("posterior")
    window.wait_for_state(prototype2="1")
    assert right.locator("[data-what=prototype]").input_value() == "1"
