"""The cohort page by mouse and by keyboard: a lasso compares two groups, a click opens the slide."""

import h5py
import numpy as np
import pandas as pd
import pytest
import torch

import panther
from panther.storage.prototypes import save_prototypes

HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def browsed_cohort(tmp_path_factory):
    """Sixteen slides without images; half are mostly the first prototype, half mostly the second, all have some of the third."""
    folder = tmp_path_factory.mktemp("planted")
    rng = np.random.default_rng(0)
    centres = 10 * np.eye(3, 8, dtype=np.float32)
    (folder / "features").mkdir()
    rows = []
    for number in range(16):
        share = 0.6 + 0.01 * number if number < 8 else 0.1 + 0.01 * number
        counts = np.round(60 * np.array([share, 0.8 - share, 0.2])).astype(int)
        kinds = np.repeat(np.arange(3), counts)
        with h5py.File(folder / "features" / f"S{number:02d}.h5", "w") as file:
            file["features"] = centres[kinds] + rng.normal(scale=0.3, size=(len(kinds), 8)).astype(np.float32)
            file["coords"] = 256 * np.stack([np.arange(len(kinds)) % 8, np.arange(len(kinds)) // 8], 1)
            file["coords"].attrs.update(patch_size=256, patch_size_level0=256, patch_level=0)
        kind, age = "first" if number < 8 else HOSTILE, 30 + 3 * number
        rows.append({"slide_id": f"S{number:02d}", "case_id": f"P{number:02d}", "kind": kind, "age": age})
    pd.DataFrame(rows).to_csv(folder / "cohort.csv", index=False)
    save_prototypes(panther.Prototypes(torch.from_numpy(centres)), folder / "prototypes.safetensors")
    (folder / "names.yaml").write_text("C0: stroma\nC1: tumour\nC2: mucin\n")
    return folder


def open_cohort(window, state=""):
    window.page.goto(f"{window.address}#page=cohort&{state}")
    window.page.wait_for_selector(".points-key")


def drag(page, corners):
    """A lasso around corners, in parts of the canvas."""
    box = page.locator(".points-over").bounding_box()
    places = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in corners]
    page.mouse.move(*places[0])
    page.mouse.down()
    for place in places[1:]:
        page.mouse.move(*place, steps=3)
    page.mouse.up()


RIGHT = [(0.5, 0.02), (0.99, 0.02), (0.99, 0.98), (0.5, 0.98), (0.5, 0.05)]


def test_a_lasso_compares_two_groups_and_a_link_shows_them_again(window):
    open_cohort(window)
    page = window.page
    drag(page, RIGHT)
    page.wait_for_selector(".cohort-sentence")
    text = page.locator(".cohort-sentence").inner_text()
    assert text.startswith("2 of 3 prototypes differ")
    assert "C0 stroma" in text
    assert "C1 tumour" in text
    assert "C2 mucin" not in text
    drag(page, [(0.01, 0.96), (0.06, 0.96), (0.06, 0.99), (0.01, 0.99)])  # around nothing: beside the axes
    assert "a" in window.state()
    page.locator(".cohort-result", has_text="A: 8 patients, B: 8 patients").wait_for()
    page.locator(".cohort-result", has_text="p is only descriptive").wait_for()
    page.wait_for_selector(".cohort-result .js-plotly-plot .point")
    page.reload()
    page.locator(".cohort-sentence", has_text=text).wait_for()
    page.wait_for_selector(".points-key")
    page.keyboard.down("Shift")
    drag(page, [(0.01, 0.01), (0.45, 0.01), (0.45, 0.99), (0.01, 0.99)])
    page.keyboard.up("Shift")
    page.wait_for_function("new URLSearchParams(location.hash.slice(1)).has('b')")
    page.locator(".cohort-group.b", has_text="chosen (8)").wait_for()
    page.get_by_role("button", name="Clear groups").click()
    page.wait_for_selector(".cohort-result", state="hidden")
    window.until(lambda: "a" not in window.state())


def test_pointing_names_a_slide_and_a_click_opens_it(window):
    open_cohort(window)
    page = window.page
    page.locator(".points-over").focus()
    page.keyboard.press("ArrowLeft")
    tip = page.locator(".points-tip")
    name = tip.locator("div").first.inner_text()
    box = tip.bounding_box()
    page.mouse.move(5, 5)
    page.mouse.move(box["x"] - 14, box["y"] + 10)  # the tip stands beside its point
    page.locator("tr.marked td:first-child", has_text=name).wait_for()
    assert tip.locator("div").first.inner_text() == name
    page.mouse.click(box["x"] - 14, box["y"] + 10)
    window.wait_for_state(page="slide", slide=name)


def test_groups_filter_and_table_work_by_keyboard(window):
    open_cohort(window, "colour=column:kind")
    page = window.page
    assert HOSTILE in page.locator(".points-legend").inner_text()  # as it was written
    page.get_by_label("Group A: kind").focus()
    page.get_by_label("Group A: kind").select_option("first")
    page.locator(".cohort-sentence", has_text="C0 stroma").wait_for()
    assert "p is only descriptive" not in page.locator(".cohort-result").inner_text()
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Group A: kind"
    page.get_by_label("Filter slides").fill("first")
    page.locator(".cohort-table .table-count", has_text="8 of 16").wait_for()
    page.get_by_role("button", name="age", exact=True).press("Enter")
    page.locator("th[aria-sort=descending]", has_text="age").wait_for()
    page.locator(".cohort-table tbody tr[tabindex='0']").press("ArrowDown")
    window.until(lambda: page.evaluate("document.activeElement.firstChild.textContent") == "S06")
    page.keyboard.press("Enter")
    window.wait_for_state(page="slide", slide="S06")
