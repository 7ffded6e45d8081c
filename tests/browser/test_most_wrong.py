"""The study page: the most wrong patient first, its slide one click away."""

import pandas as pd
import pytest

from report.studies import EVIL


@pytest.fixture(scope="module")
def browsed_cohort(class_study):
    return class_study.parent


def test_the_most_wrong_patient_is_first_and_its_slide_one_click_away(window, class_study):
    page = window.page
    page.goto(f"{window.address}#page=study")
    first = page.locator(".study-list tbody tr").first
    first.wait_for()
    page.locator(".study-results .js-plotly-plot").wait_for()
    page.get_by_label("Judged by").select_option("DeepSets + probe")
    window.wait_for_state(method="DeepSets + probe")
    table = pd.read_parquet(class_study / "predictions.parquet")
    rows = table[(table["part"] == "test") & (table["method"] == "deepsets")]
    of_truth = rows.apply(lambda row: row[f"probability_{row['label']}"], axis=1)
    worst = of_truth.groupby(rows["sample"]).mean().idxmin()  # over the seeds
    window.until(lambda: first.locator("td").first.inner_text() == worst)
    assert EVIL in page.locator(".study-list").inner_text()  # as text: a script would have been a complaint
    page.locator(".study-list tbody tr").nth(1).focus()
    page.keyboard.press("Enter")
    second = page.locator(".study-list tbody tr").nth(1).locator("td").first.inner_text()
    window.wait_for_state(patient=second)
    page.locator(".study-one h3", has_text=second).wait_for()
    cell = page.locator(".study-matrix button:not(:disabled)").first
    cell.click()
    page.wait_for_function("() => document.querySelector('.study-matrix [aria-pressed=true]')")
    count = page.locator(".study-list .table-count")
    window.until(lambda: count.inner_text() == cell.inner_text())  # the patients of this cell
    cell.click()
    page.get_by_role("button", name=worst, exact=True).click()  # among the five worst
    window.wait_for_state(patient=worst)
    first.get_by_role("link").first.click()
    window.wait_for_state(page="slide", slide=f"{worst}-0")


def test_a_row_is_not_replaced_under_the_pointer(window, class_study):
    """A redraw between press and release, as a little scrolling or a chart that settles asked for, would lose the click."""
    page = window.page
    page.goto(f"{window.address}#page=study")
    link = page.locator(".study-list tbody tr").first.get_by_role("link").first
    slide = link.inner_text()
    page.locator(".study-results .js-plotly-plot").wait_for()
    link.scroll_into_view_if_needed()
    box = link.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.evaluate(
        """async () => {
            const list = document.querySelector(".study-list .table-scroll");
            list.dispatchEvent(new Event("scroll"));
            list.style.height = `${list.clientHeight - 1}px`;
            for (let frame = 0; frame < 3; frame++) await new Promise(requestAnimationFrame);
        }"""
    )
    page.mouse.up()
    window.wait_for_state(page="slide", slide=slide)
