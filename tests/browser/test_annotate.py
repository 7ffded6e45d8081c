"""Annotations drawn on the slide page."""

import json

CORNERS = (300, 300), (700, 650)
HOSTILE = "<img src=x onerror=alert(1)>"


def draw(window, tool, *places):
    window.page.get_by_role("button", name=tool, exact=True).click()
    window.page.mouse.move(*window.spot(*places[0]))
    window.page.mouse.down()
    for place in places[1:]:
        window.page.mouse.move(*window.spot(*place), steps=4)
    window.page.mouse.up()


def test_a_pathologist_draws_measures_comments_and_takes_it_back(window, browsed_cohort):
    window.open("slide=S0&layers=none")
    view = window.views()[0]
    draw(window, "Rectangle", *CORNERS)
    row = window.page.locator(".annotations li")
    row.first.wait_for()
    assert "mm²" in row.inner_text()
    area = float(row.locator("button span.faint").inner_text().split()[0])
    assert abs(area - 400 * 350 * 0.25 / 1e6) < 0.002
    assert window.views()[0] == view  # drawing does not move the slide
    window.page.get_by_label("Class").fill("Ignore*")
    window.page.get_by_label("Class").blur()
    window.page.locator(".annotations .name:text('Ignore*')").wait_for()
    window.page.get_by_label("Comment").fill(HOSTILE)
    window.page.get_by_label("Comment").blur()
    window.page.locator(f".annotations .name:text('{HOSTILE}')").wait_for()
    assert window.page.locator(".annotations img").count() == 0
    draw(window, "Measure", (200, 200), (600, 200))
    row.nth(1).wait_for()
    assert "200 µm" in row.nth(1).inner_text()
    window.page.keyboard.press("v")
    draw(window, "Pen", (800, 300), (1000, 320), (900, 500))
    row.nth(2).wait_for()
    file = browsed_cohort / "annotations" / "S0.geojson"
    kinds = [feature["geometry"]["type"] for feature in json.loads(file.read_text())["features"]]
    assert kinds == ["Polygon", "LineString", "Polygon"]
    window.page.get_by_role("button", name="Undo").click()
    row.nth(2).wait_for(state="detached")
    window.open("slide=S1")
    window.open("slide=S0&layers=none")  # still there
    row.nth(1).wait_for()
    window.page.mouse.click(*window.spot(300, 400))  # on its border
    assert window.page.get_by_label("Class").input_value() == "Ignore*"
    window.page.locator(".deepzoom").focus()
    window.page.keyboard.press("Delete")
    row.nth(1).wait_for(state="detached")
