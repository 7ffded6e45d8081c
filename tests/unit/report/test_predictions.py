"""Curves, calibration and tables of the report."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

from panther.aggregators import aggregators
from panther.charts.display_names import endpoint_title, method_title
from panther.charts.prototypes import relation, shares
from panther.charts.results import survival_curves, weights_boxes, weights_heatmap
from panther.cohort.targets import Survival
from panther.errors import InputError
from panther.evaluation.survival_metrics import kaplan_meier, log_rank, round_times
from panther.explain.kaplan_meier import Patients, compare, draw_curves, write_curves
from panther.mil import networks
from panther.report.data import load_run
from panther.report.material import gather
from panther.report.page import build_page, render_tab
from panther.report.sections import SECTIONS, predictions
from panther.report.sections.predictions import risk_verdict
from report.studies import plots, run
from study.generated import generate


def followed(seed: int, n: int = 60) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return np.round(rng.exponential(900, n)), rng.random(n) < 0.6


def test_times_are_round_and_few() -> None:
    assert round_times(3023) == [0, 500, 1000, 1500, 2000, 2500, 3000]
    for last in (0.9, 10, 0):
        times = round_times(last)
        assert len(times) <= 8
        assert times[0] == 0
        assert times[-1] <= last


def test_numbers_at_risk_stand_below_the_curves_in_their_colours() -> None:
    groups = {name: followed(seed) for seed, name in enumerate(("low risk", "high risk"))}
    found = survival_curves({name: kaplan_meier(*values) for name, values in groups.items()}).plotly()
    rows = [trace for trace in found["data"] if trace["mode"] == "text"]
    lines = [trace for trace in found["data"] if trace.get("name") in groups]
    assert [row["textfont"]["color"] for row in rows] == [line["line"]["color"] for line in lines]
    for row, (time, _) in zip(rows, groups.values(), strict=True):
        assert row["x"] == found["layout"]["xaxis"]["tickvals"]
        assert row["text"] == [f"{int((time >= t).sum()):,}" for t in row["x"]]
    above, below = found["layout"]["yaxis"]["domain"], found["layout"]["yaxis2"]["domain"]
    assert 0 == below[0] < below[1] < above[0] < above[1] == 1


def test_kaplan_meier_files_and_picture_tell_who_was_at_risk(tmp_path: Path) -> None:
    pi = np.repeat([[0.1], [0.2], [0.3]], 20, 0)
    write_curves(compare(Patients(tuple(map(str, range(60))), pi, Survival(*followed(0)), ())), tmp_path)
    told = json.loads((tmp_path / "km.json").read_text())["prototypes"][0]["groups"]
    assert all(group["at_risk"][:2] == [20, 20] for group in told)
    assert all(sum(group["events_at"]) == group["events"] for group in told)
    figure = draw_curves(json.loads((tmp_path / "km.json").read_text())["prototypes"])
    figure.draw_without_rendering()
    numbers = [text for text in figure.axes[0].texts if text.get_text().isdigit()]
    assert [text.get_text() for text in numbers if text.xy[0] == 0] == ["20"] * 3
    label = figure.get_supxlabel() and figure._supxlabel.get_window_extent()
    assert all(text.get_window_extent().y0 >= label.y1 - 1 for text in numbers)  # nothing lies on the axis' name


def test_the_legend_has_the_area_under_each_curve(classes: Path) -> None:
    run = load_run(classes)
    found = plots(build_page(gather(classes)))["roc-test"]
    areas = dict(re.fullmatch(r"(.*): AUC ([\d.]+)", trace["name"]).groups() for trace in found["data"][1:])
    assert set(areas) == set(run.rows)
    for name, area in areas.items():
        mine = run.predictions[(run.predictions["row"] == name) & (run.predictions["part"] == "test")]
        positive = run.classes[1]
        truth = roc_auc_score(mine["label"] == positive, mine[f"probability_{positive}"])
        assert float(area) == pytest.approx(truth, abs=6e-4)


@pytest.mark.parametrize("count", [4, 64])
def test_every_prototype_has_its_label(count: int) -> None:
    names, weights = [f"C{c}" for c in range(count)], np.full((3, count), 1 / count)
    charts = {
        "yaxis": weights_heatmap(weights, ["a", "b", "c"], names),
        "xaxis": weights_boxes(weights, ["x", "x", "y"], names),
        "xaxis yaxis": relation("neighbours", names, np.zeros((count, count))),
        " yaxis": shares(names, weights[0].tolist(), ["#000000"] * count, "share"),
    }
    for axes, chart in charts.items():
        layout = chart.plotly()["layout"]
        figure = chart.figure()
        for axis in axes.split():
            assert (layout[axis]["tickvals"], layout[axis]["ticktext"]) == (list(range(count)), names)
            drawn = getattr(figure.axes[0], axis).get_ticklabels()
            assert [label.get_text() for label in drawn] == names


def test_every_method_has_one_title() -> None:
    entries = [*aggregators, *networks]
    titles = [entry.metadata.title for entry in entries]
    assert len(set(titles)) == len(titles)
    assert [title.lower() for title in titles] == [entry.name for entry in entries]
    # labels of the user stay
    typed = ("abmil", "ot (epsilon 0.05)", "deepsets + probe", "PANTHER All", "ot by hand")
    assert [*map(method_title, typed)] == [
        "ABMIL",
        "OT (epsilon 0.05)",
        "DeepSets + probe",
        "PANTHER All",
        "ot by hand",
    ]


def test_methods_and_endpoints_have_their_titles_in_the_report(classes: Path, survival: Path) -> None:
    assert all(not re.search(r"\b(panther|deepsets) \+", text) for text in load_run(classes).rows)
    page = build_page(gather(classes))
    assert "DeepSets + probe" in page
    assert "deepsets + probe" not in page
    assert "pip install 'panther-wsi[report]==" in page.replace("&#x27;", "'")
    page = build_page(gather(survival))
    assert "Can disease-specific survival (DSS) be predicted" in page
    assert plots(page)["follow-up"]["layout"]["yaxis"]["title"]["text"] == "disease-specific survival (DSS)"
    assert endpoint_title("os") == "overall survival (OS)"
    assert endpoint_title(None, "months") == "survival (months)"
    assert endpoint_title("xyz") == "survival (xyz)"


def test_the_guide_lists_every_tab_in_its_order():
    guide = (Path(__file__).parents[3] / "docs" / "how-to" / "report.md").read_text()
    table = guide.split("| tab |")[1].split("\n\n")[0]
    assert re.findall(r"^\| ([A-Z][^|]*?) \|", table, re.MULTILINE) == list(SECTIONS)


def log_rank_at(hazard):
    """Log-rank test of two groups of equal size, the second with ``hazard`` times the hazard of the first."""
    group = np.arange(80) % 2
    time = np.random.default_rng(0).exponential(100 / np.where(group == 1, hazard, 1.0))
    return log_rank(time, np.ones(80, bool), group)


def test_events_are_counted_against_those_expected():
    time, event, group = np.array([1.0, 2, 3, 4]), np.array([True, True, False, True]), np.array([1, 0, 1, 0])
    found = log_rank(time, event, group)
    np.testing.assert_array_equal(found.observed, [2, 1])
    np.testing.assert_allclose(found.expected, [2 / 4 + 2 / 3 + 1, 2 / 4 + 1 / 3])


@pytest.mark.parametrize(("hazard", "direction"), [(4.0, "worse survival"), (0.25, "better survival, contrary to")])
def test_the_verdict_on_risk_groups_has_the_direction_of_the_test(hazard, direction):
    verdict = risk_verdict(log_rank_at(hazard), once=True)
    assert direction in verdict
    assert verdict.endswith("log-rank p < 0.001.")
    untested = risk_verdict(log_rank_at(hazard), once=False)
    assert direction in untested
    assert "p <" not in untested
    assert risk_verdict(log_rank_at(1.05), once=True).endswith(", not significant.")


def test_inverted_risks_are_reported(survival, monkeypatch):
    material = gather(survival)
    run = load_run(survival)
    inverted = run.predictions.assign(risk=run.predictions["time"], event=True)  # long survival is called high-risk
    monkeypatch.setattr(predictions, "risk_groups", lambda risk, _: (risk > np.median(risk)).astype(int))
    shown = render_tab(replace(material, run=replace(run, predictions=inverted)), "Curves")
    assert "contrary to the prediction" in shown
    assert "as predicted" not in shown


def test_the_tab_uncertainty_draws_the_tables(classes):
    run, shown = load_run(classes), render_tab(gather(classes), "Uncertainty")
    best = run.best()["row"].iloc[0]
    table = run.sureness["reliability"].query("part == 'test' and probabilities == 'calibrated' and `class` == 'low'")
    drawn = next(trace for trace in plots(shown)["reliability-test-0"]["data"] if trace.get("name") == "calibrated")
    assert drawn["y"] == pytest.approx(table[table["row"] == best]["observed"].tolist())
    for coverage in run.sureness["prediction_sets"].query("by == 'all'")["coverage"]:
        assert f"{coverage:.3f}" in shown
    assert "test patients of the other folds" in shown
    assert "Lowest coverage of the best method by site" in shown


def test_runs_without_tables_of_uncertainty_have_no_such_tab_and_a_damaged_one_is_named(survival, classes, tmp_path):
    folder = shutil.copytree(classes, tmp_path / "run")
    (folder / "calibration.parquet").write_bytes(b"not a table")
    with pytest.raises(InputError, match=r"calibration\.parquet"):
        load_run(folder)
    for name in ("calibration", "reliability", "prediction_sets"):
        (folder / f"{name}.parquet").unlink()
    assert render_tab(gather(survival), "Uncertainty") == render_tab(gather(folder), "Uncertainty") == ""


@pytest.fixture(scope="module")
def several(tmp_path_factory):
    """Three folds, two seeds, two numbers of prototypes."""
    folder = tmp_path_factory.mktemp("several")
    generate(folder, patients=36, patches=12)
    changes = {"methods": ["protocounts", "panther"], "heads": ["probe"], "n_prototypes": [2, 4], "seeds": [1, 2]}
    return run(folder, task={"label": "subtype"}, metrics=["balanced_accuracy", "quadratic_kappa"], **changes)


def test_spreads_over_seeds_are_labelled_and_the_reference_is_one_of_the_rows(several, classes):
    assert set(load_run(several).comparisons["reference"]) <= set(load_run(several).rows)
    table = pd.read_csv(several / "comparisons.csv")
    compared = table[table["method"] == "panther"]  # each with the reference of as many prototypes
    assert (compared["reference"] == "protocounts + probe [C " + compared["n_prototypes"].astype(str) + "]").all()
    assert set(table["reference"]) == {"protocounts + probe [C 2]", "protocounts + probe [C 4]"}
    shown = render_tab(gather(several), "Results")
    assert "(± over folds and seeds)" in shown
    assert "(± over folds)" not in shown
    assert ">3 x 2<" in shown
    shown = render_tab(gather(classes), "Results")
    assert "(± over folds)" in shown
    assert "(± over folds and seeds)" not in shown
