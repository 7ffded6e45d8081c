"""A study that resamples nobody invents no intervals and no p-values, and says so; one with few resamples says that they are few."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from panther.evaluation.intervals import about_resamples, differences, intervals, resample
from panther.report.checks import checks
from panther.report.material import gather
from panther.report.page import build_page, render_tab
from report.studies import run
from study.generated import generate


def test_of_no_resamples_there_are_no_intervals_and_no_p_values():
    one, other = (resample(lambda c, v=v: {"mean": c @ np.arange(4.0) / v}, list("abcd"), 0) for v in (4, 8))
    assert one.whole == {"mean": 1.5}
    assert np.isnan([intervals(one)["mean"].low, intervals(one)["mean"].high]).all()
    found = differences(one, other)["mean"]
    assert found.value == 0.75
    assert found.resamples == 0
    assert np.isnan([found.low, found.high, found.p_value]).all()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("none")
    generate(folder, patients=36, patches=12)
    table = pd.read_csv(folder / "table.csv", dtype=str)
    table.assign(age=40 + table["case_id"].str[1:].astype(int) % 30).to_csv(folder / "table.csv", index=False)
    methods = ["mean", "deepsets"]
    return run(folder, task={"survival": "dss"}, methods=methods, heads=["probe"], covariates=["age"], bootstrap=0)


def test_tables_of_a_study_without_resamples_have_neither(folder):
    for name in ("comparisons", "gains"):
        table = pd.read_csv(folder / f"{name}.csv")
        assert table[["ci_low", "ci_high", "p_value"]].isna().all(axis=None)
        assert table["difference"].notna().any()
    assert pd.read_csv(folder / "summary.csv")[["ci_low", "ci_high"]].isna().all(axis=None)
    assert "[" not in (folder / "table.md").read_text()


def test_its_report_says_that_there_are_none(folder):
    material = gather(folder)
    assert about_resamples(0) in [check.sentence for check in checks(material)]
    assert about_resamples(0) in material.run.record["notes"]
    page = build_page(material)
    assert "lines: 95 % interval" not in page
    assert "There are no intervals, because no patients were resampled." in page
    best = material.run.best()["row"].iloc[0]
    compared = material.run.comparisons.assign(row=best)  # whatever is best: as if it were not the reference
    shown = render_tab(replace(material, run=replace(material.run, comparisons=compared)), "Summary", absent=[])
    assert "not tested, because no patients were resampled" in " ".join(shown.split())
    assert "significant" not in shown


@pytest.mark.parametrize(("number", "said"), [(5, "`bootstrap: 5`"), (99, "rough"), (100, None), (1000, None)])
def test_few_resamples_are_told(number, said):
    assert (said or "") in (about_resamples(number) or "")
    assert (about_resamples(number) is None) == (said is None)


def test_the_report_tells_that_intervals_are_rough(classes):
    assert about_resamples(20) in [check.sentence for check in checks(gather(classes))]
