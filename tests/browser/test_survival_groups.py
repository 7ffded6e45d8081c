"""The study page of a survival study: from a Kaplan-Meier group to its patients and their slides."""

import pytest

from report.studies import run
from study.generated import generate
from viewer.small_study import QUICK


@pytest.fixture(scope="module")
def browsed_cohort(tmp_path_factory):
    folder = tmp_path_factory.mktemp("survival")
    generate(folder, patients=24, patches=16)
    run(folder, task={"survival": "dss"}, **QUICK)
    return folder


def test_a_kaplan_meier_group_lists_its_patients_who_open_their_slides(window):
    page = window.page
    page.goto(f"{window.address}#page=study")
    page.locator(".study-matrix .js-plotly-plot .scatterlayer .trace").nth(1).wait_for()
    group = page.get_by_role("button", name="high risk")
    count = group.inner_text().split("n = ")[1].split(",")[0]
    group.click()
    page.wait_for_function("() => document.querySelector('.study-matrix [aria-pressed=true]')")
    window.until(lambda: page.locator(".study-list .table-count").inner_text() == count)
    page.locator(".study-list tbody tr").first.get_by_role("link").first.click()
    window.wait_for_state(page="slide")
