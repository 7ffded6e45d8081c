"""Every chart in both renderers: users' texts are shown literally, and Plotly accepts the dictionary."""

import inspect
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import plotly.graph_objects as go
import pytest
import torch
from matplotlib.text import Text

from panther.charts import prototypes, results
from panther.charts.chart import Chart
from panther.charts.display_names import column_titles
from panther.charts.style import save
from panther.charts.to_matplotlib import draw
from panther.errors import InputError
from panther.evaluation.survival_metrics import kaplan_meier
from panther.prototypes.compare import compare
from panther.types import Prototypes

BROKEN = r"$\nope$ <b>"  # matplotlib refuses it as a formula, Plotly reads it as markup
NAMES, COLOURS = [f"C0 {BROKEN}", "C1"], ["#0072B2", "#E69F00"]
NUMBERS = np.random.default_rng(0).random((9, 2))
CURVE = kaplan_meier(np.array([1.0, 2, 3]), np.array([True, False, True]))
GROUP = prototypes.Group(BROKEN, 4, (0.5, np.nan), (0.4, np.nan), (0.6, np.nan))
TESTS = prototypes.Tests(BROKEN, (0.01, np.nan))


def choice() -> SimpleNamespace:
    about = {"held_out": -1.0, "held_out_error": 0.1, "come_back": 2.0, "come_back_spread": 0.5, "explained": 0.5}
    candidates = [SimpleNamespace(n_prototypes=n, stability_seeds=0.9, stability_halves=0.8, **about) for n in (2, 4)]
    return SimpleNamespace(candidates=candidates, still_rising=False, sufficient=2, supported=True, recommended=2)


def comparison() -> Chart:
    first, second = (Prototypes(torch.eye(8)[k : k + 3], encoder="e") for k in (0, 1))
    return prototypes.comparison(compare(first, second), BROKEN, "b")


CHARTS: dict[str, Callable[[], Chart]] = {
    "shares": lambda: prototypes.shares(NAMES, [0.2, 0.8], COLOURS, "share", [0.1, np.nan], [0.3, np.nan]),
    "group_shares": lambda: prototypes.group_shares(NAMES, [GROUP, GROUP], TESTS, BROKEN),
    "correlations": lambda: prototypes.correlations(NAMES, [0.3, np.nan], TESTS, BROKEN),
    "relation": lambda: prototypes.relation("neighbours", NAMES, np.array([[9.0, -9], [np.nan, 1]])),
    "relation_unknown": lambda: prototypes.relation("cooccurrence", NAMES, np.full((2, 2), np.nan)),
    "relation_of_shares": lambda: prototypes.relation("borders", NAMES, np.array([[np.nan, 1.0], [0.4, np.nan]])),
    "contributions": lambda: prototypes.contributions(NAMES, {BROKEN: [1, 2], "mu": [2, 1]}, COLOURS),
    "contribution_swarm": lambda: prototypes.contribution_swarm(NAMES, NUMBERS - 0.5, COLOURS),
    "class_table": lambda: prototypes.class_table(
        np.array([[3, 1], [0, 0]]), np.array([0, -1]), NAMES, (BROKEN, "b"), COLOURS, "labels"
    ),
    "comparison": comparison,
    "stacked": lambda: results.stacked([BROKEN, "b"], ["x", "y"], np.array([[1, 2], [3, 0]]), "samples"),
    "observed_and_predicted": lambda: results.observed_and_predicted(
        NUMBERS[:, 0], NUMBERS[:, 1], [BROKEN, *"abcdefgh"], list("abcdefghi"), BROKEN
    ),
    "histogram": lambda: results.histogram(np.arange(40.0), BROKEN),
    "forest": lambda: results.forest(
        [results.Estimate(n, 0.5, 0.4, np.nan, [0.4, 0.6]) for n in NAMES], "AUROC", 0.5, ["C1"]
    ),
    "learning_curves": lambda: results.learning_curves([[{"epoch": 0, "train_loss": 1.0, "val_loss": 2.0}]]),
    "confusion": lambda: results.confusion(np.array([[3, 1], [0, 0]]), NAMES),
    "roc": lambda: results.roc({BROKEN: (np.array([0, 0.5, 1]), np.array([0, 0.8, 1]))}),
    "weights_heatmap": lambda: results.weights_heatmap(NUMBERS[:3], ["a", "b", "c"], NAMES),
    "weights_boxes": lambda: results.weights_boxes(NUMBERS, list("abcabcabc"), NAMES),
    "scatter": lambda: results.scatter(NUMBERS[:3], ["a", "b", "c"], [BROKEN, "y", "y"], ("PC 1", "PC 2")),
    "scatter_by_number": lambda: results.scatter(
        NUMBERS[:3], ["a", "b", "c"], np.array([1.0, 2, 3]), ("PC 1", "PC 2"), BROKEN
    ),
    "survival_curves": lambda: results.survival_curves({BROKEN: CURVE, "low": CURVE}),
    "reliability_curves": lambda: results.reliability_curves(
        {"raw": results.Reliability(*NUMBERS[:4].T, *NUMBERS[:4].T)}, BROKEN
    ),
}
PLAIN = ("learning_curves",)  # without users' texts


def test_every_chart_is_in_the_list() -> None:
    made = {
        name
        for room in (prototypes, results)
        for name, value in vars(room).items()
        if inspect.isfunction(value) and value.__module__ == room.__name__ and not name.startswith("_")
        if inspect.signature(value).return_annotation is Chart
    }
    assert made - {"panel"} == set(CHARTS) - {"scatter_by_number", "relation_unknown", "relation_of_shares"}


@pytest.mark.parametrize("name", CHARTS)
def test_matplotlib_writes_users_texts_literally(name: str, tmp_path: Path) -> None:
    figure = CHARTS[name]().figure()
    figure.draw_without_rendering()
    assert name in PLAIN or any(BROKEN[:7] in text.get_text() for text in figure.findobj(Text))
    save(figure, tmp_path / "chart.png")
    assert (tmp_path / "chart.png").stat().st_size > 1000


@pytest.mark.parametrize("name", CHARTS)
def test_plotly_accepts_the_dictionary_without_users_markup(name: str) -> None:
    found = CHARTS[name]().plotly()
    go.Figure(found)  # refuses what Plotly does not know
    text = json.dumps(found, allow_nan=False)
    assert BROKEN.replace("\\", "\\\\") not in text
    assert name in PLAIN or "&lt;b" in text
    assert found["layout"]["height"] >= 80


def test_the_charts_of_choosing_c_mark_the_recommended_one() -> None:
    charts = prototypes.choice_of_c(choice())
    assert [chart.references[0].x for chart in charts] == [2, 2, 2]
    draw([charts]).draw_without_rendering()
    for chart in charts:
        go.Figure(chart.plotly())
        assert chart.x.ticks == [2, 3, 4]  # whole numbers


def test_the_largest_groups_are_drawn_in_the_tables_order() -> None:
    groups = [prototypes.Group(f"g{n}", n, (0.5,), (0.4,), (0.6,)) for n in (1, 9, 2, 8, 3, 7, 4, 6)]
    found = prototypes.group_shares(["C0"], groups, None, "site")
    assert [mark.name for mark in found.marks] == [f"g{n} (n = {n})" for n in (9, 8, 3, 7, 4, 6)]
    assert found.title == "site, the 6 largest of 8 groups"


def test_p_values_stand_beside_their_rows_in_both() -> None:
    found = prototypes.group_shares(NAMES, [GROUP], prototypes.Tests("Mann-Whitney", (0.0004, 0.2)), "site")
    assert found.row_notes is not None
    assert list(found.row_notes.texts) == ["< 0.001", "0.200"]
    notes = {note["y"]: note["text"] for note in found.plotly()["layout"]["annotations"][:2]}
    assert notes == {0: "<b>&lt; 0.001</b>", 1: "0.200"}
    assert {"< 0.001", "0.200"} <= {text.get_text() for text in found.figure().axes[0].texts}


@pytest.mark.parametrize("width", [330, 860])
def test_the_legend_of_survival_lies_above_the_curves(width: int) -> None:
    chart = results.survival_curves({f"group {k}": CURVE for k in range(3)})
    figure = replace(chart, size=(width, 400), title="title").figure()
    figure.draw_without_rendering()
    ax = figure.axes[0]
    legend, title = ax.get_legend().get_window_extent(), ax.title.get_window_extent()
    top = max(ax._left_title.get_window_extent().y0, title.y0)
    assert ax.get_window_extent().y1 <= legend.y0 + 1 < legend.y1 <= top + 3
    assert chart.plotly()["layout"]["legend"]["y"] > 1


def test_prototypes_of_one_class_stand_together() -> None:
    counts, chosen = np.array([[1, 9], [8, 2], [0, 0], [9, 1]]), np.array([1, 0, -1, 0])
    found = prototypes.class_table(counts, chosen, list("abcd"), ("x", "y"), ["#000000"] * 4)
    assert found.y.names == ["d", "b", "a", "c"]
    heat = found.marks[0]
    assert heat.framed == [(0, 0), (1, 0), (2, 1)]
    np.testing.assert_allclose(heat.values, [[0.9, 0.1], [0.8, 0.2], [0.1, 0.9], [0, 0]])


def test_a_picture_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"chart\.jpg"):
        save(CHARTS["shares"]().figure(), tmp_path / "chart.jpg")


def test_clinical_columns_have_readable_titles_unless_two_would_be_alike():
    names = [
        "os_survival_days",
        "os_censorship",
        "OS.time",
        "DFI",
        "survival_months",
        "tissue_source_site",
        "days",
        "grade",
    ]
    titles = ["Overall survival (days)", "Overall survival, censored", "Overall survival, time", "Disease-free interval, event",
              "Survival (months)", "Site", "days", "grade"]  # fmt: skip
    assert list(column_titles(names).values()) == titles
    assert column_titles(["center", "hospital"]) == {"center": "center", "hospital": "hospital"}
