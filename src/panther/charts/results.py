"""Charts of a study's results: intervals, curves, scatter plots and reliability."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from panther.charts.chart import AtRisk, Axis, Bars, Boxes, Chart, Dash, Heat, Line, Points, Reference
from panther.charts.style import BLUE, FAINT, MARKERS, ORANGE, group_colour
from panther.evaluation.survival_metrics import KaplanMeier, number_at_risk, round_times

MOST_GROUPS = 8  # more cannot be distinguished; the smaller ones become "other"
DASHES: tuple[Dash, ...] = ("solid", "dash", "dot")
Look = tuple[str, Dash]  # colour and dash of a curve
LOOKS: dict[str, tuple[str, Dash, str]] = {"raw": (FAINT, "dash", "circle"), "calibrated": (BLUE, "solid", "square")}


def stacked(rows: Sequence[str], groups: Sequence[str], counts: np.ndarray, title: str) -> Chart:
    """Bars (rows) divided into groups; ``counts`` (rows, groups)."""
    bars = [Bars(counts[:, k], group_colour(k), name, text=True) for k, name in enumerate(groups)]
    return Chart(
        bars, Axis(title), Axis(names=rows), size=(860, 110 + min(32, 12 + 400 // max(len(rows), 1)) * len(rows))
    )


def histogram(values: np.ndarray, title: str, bins: int = 30) -> Chart:
    """Histogram of sizes."""
    count, edges = np.histogram(values, bins=bins)
    middle, width = (edges[1:] + edges[:-1]) / 2, float(edges[1] - edges[0])
    bars = Bars(count, at=middle, width=0.94 * width, vertical=True)
    return Chart([bars], Axis(title), Axis("samples"), size=(860, 260))


class Estimate(NamedTuple):
    """A mean with its interval, and the values that it is the mean of."""

    name: str
    mean: float
    low: float
    high: float
    folds: Sequence[float]


def forest(
    rows: Sequence[Estimate],
    metric: str,
    chance: float | None = None,
    best: Sequence[str] = (),
    called: str = "chance",
    rings: tuple[str, str] = ("one fold", FAINT),
    squares: str = "mean and 95 % interval over patients",
) -> Chart:
    """Mean and interval of each method as squares, every fold as a ring, and a line at the level ``called`` chance."""
    folds = [(value, y, f"{row.name}, {rings[0]}: {value:.3f}") for y, row in enumerate(rows) for value in row.folds]
    x, y, notes = zip(*folds, strict=True) if folds else ((), (), ())
    marks = [Points(x, y, rings[1], rings[0], size=7 if rings[1] == FAINT else 11, hollow=True, labels=notes)]
    for is_best, colour, name in ((False, BLUE, squares), (True, ORANGE, "best mean and its interval")):
        if at := [y for y, row in enumerate(rows) if (row.name in best) == is_best]:
            _, mean, low, high, _ = zip(*(rows[y] for y in at), strict=True)
            labels = [f"{rows[y].name}: {rows[y].mean:.3f}" for y in at]
            marks.append(Points(mean, at, colour, name, "square", 10, low=low, high=high, labels=labels))
    lines = [] if chance is None else [Reference(chance, called)]
    size = (860, 110 + 30 * len(rows))
    return Chart(marks, Axis(metric), Axis(names=[row.name for row in rows]), size=size, references=lines)


def learning_curves(histories: Sequence[Sequence[Mapping[str, float]]]) -> Chart:
    """Loss over epochs, one line per fold; dashed on validation."""
    looks: dict[str, tuple[str, Dash]] = {"train_loss": ("training", "solid"), "val_loss": ("validation", "dash")}
    lines = [
        Line([row["epoch"] + 1 for row in history], [row[field] for row in history], group_colour(fold), f"fold {fold + 1}, {part}", dash)
        for fold, history in enumerate(histories)
        for field, (part, dash) in looks.items()
        if history and field in history[0]
    ]  # fmt: skip
    return Chart(lines, Axis("epoch"), Axis("loss"), size=(860, 340))


def confusion(matrix: np.ndarray, names: Sequence[str]) -> Chart:
    """Rows are the truth; colour is the share of the row, the number counts slides or patients."""
    total = matrix.sum(1, keepdims=True)
    share = np.divide(matrix, total, out=np.zeros(matrix.shape), where=total > 0)
    text = [[f"{n}\n{s:.0%}" for n, s in zip(*pair, strict=True)] for pair in zip(matrix, share, strict=True)]
    heat = Heat(share, (0, 1), "share of\nthe truth", text=text, percent=True)
    side = min(760, 190 + 62 * len(names))
    return Chart([heat], Axis("predicted", names=names), Axis("truth", names=names), size=(side + 100, side))


def roc(curves: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> Chart:
    """Receiver operating characteristic: (false positive rate, true positive rate) by name, the area under each in the legend."""
    lines = [Line([0, 1], [0, 1], FAINT, "chance", "dot", 1)]
    for number, (name, (false, true)) in enumerate(curves.items()):
        label = f"{name}: AUC {np.trapezoid(true, false):.3f}"
        lines.append(Line(false, true, group_colour(number), label, DASHES[number // 2 % 3]))
    x, y = Axis("false positive rate", (-0.01, 1.01)), Axis("true positive rate", (-0.01, 1.02))
    return Chart(lines, x, y, size=(760, 420))


def observed_and_predicted(
    observed: np.ndarray, predicted: np.ndarray, groups: Sequence[str], units: Sequence[str], title: str
) -> Chart:
    """Observed (x) and predicted (y) values, coloured and shaped by group; right is on the dotted line."""
    ends = [min(observed.min(), predicted.min()), max(observed.max(), predicted.max())]
    labels = [
        f"{unit}: observed {x:,.4g}, predicted {y:,.4g}" for unit, x, y in zip(units, observed, predicted, strict=True)
    ]
    points = _grouped_points(observed, predicted, groups, units, labels)
    x, y = Axis(f"{title}, observed"), Axis(f"{title}, predicted")
    return Chart([Line(ends, ends, FAINT, "as observed", "dot", 1), *points], x, y, size=(760, 480))


def weights_heatmap(weights: np.ndarray, units: Sequence[str], prototypes: Sequence[str]) -> Chart:
    """Share (n, C) of each prototype (rows) in each slide or patient (columns), in this order."""
    few = len(units) <= 40
    heat = Heat(weights.T, (0, float(weights.max(initial=0))), "π")
    size = (860, 130 + 22 * len(prototypes) + (50 if few else 0))
    return Chart([heat], Axis("samples", names=units, hidden=not few), Axis(names=prototypes), size=size)


def weights_boxes(weights: np.ndarray, groups: Sequence[str], prototypes: Sequence[str]) -> Chart:
    """Distribution of each prototype's share, one box per group: the middle half, and whiskers over the middle 90 %."""
    # the five numbers of each box, not all values: a page of ten thousand slides stays small
    boxes = [
        Boxes(np.quantile(weights[rows], [0.05, 0.25, 0.5, 0.75, 0.95], axis=0), colour, name)
        for name, rows, colour in _groups(groups)
    ]
    return Chart(boxes, Axis(names=prototypes), Axis("π", (0, None)), size=(860, 380))


def scatter(
    position: np.ndarray,
    units: Sequence[str],
    values: Sequence[str] | np.ndarray,
    axes: tuple[str, str],
    title: str = "",
) -> Chart:
    """Slides or patients as points (n, 2), coloured and shaped by group, or coloured by a number called ``title``."""
    x, y = position.T
    if isinstance(values, np.ndarray):
        points = [Points(x, y, labels=units, keys=units, numbers=(title, values))]
    else:
        points = _grouped_points(x, y, values, units, units)
    return Chart(points, Axis(axes[0]), Axis(axes[1]), size=(860, 480))


def _grouped_points(
    x: np.ndarray, y: np.ndarray, groups: Sequence[str], units: Sequence[str], labels: Sequence[str]
) -> list[Points]:
    return [
        Points(
            x[rows], y[rows], colour, name, MARKERS[k % len(MARKERS)],
            labels=[labels[i] for i in rows], keys=[units[i] for i in rows],
        )
        for k, (name, rows, colour) in enumerate(_groups(groups))
    ]  # fmt: skip


def _groups(groups: Sequence[str]) -> list[tuple[str, list[int], str]]:
    """Name, rows and colour of the most frequent groups, and of `other`, which holds the rest."""
    names, frequency = np.unique(np.array([str(g) for g in groups]), return_counts=True)
    kept = sorted(names[np.argsort(-frequency, kind="stable")][:MOST_GROUPS].tolist())
    shown = [*kept, "other"] if len(names) > len(kept) else kept
    member = np.array([g if g in kept else "other" for g in groups])
    return [
        (name, np.flatnonzero(member == name).tolist(), FAINT if name in ("other", "not known") else group_colour(k))
        for k, name in enumerate(shown)
    ]


class Reliability(NamedTuple):
    """Bins of a reliability curve."""

    predicted: np.ndarray
    observed: np.ndarray
    low: np.ndarray
    high: np.ndarray


def reliability_curves(curves: Mapping[str, Reliability], label: str) -> Chart:
    """Observed frequency against predicted probability, `raw` and `calibrated`; the diagonal is perfect calibration."""
    lines = [Line([0, 1], [0, 1], ORANGE, "perfect calibration", "dot", 1.5)]
    for name, curve in curves.items():
        colour, dash, marker = LOOKS[name]
        low = high = None
        if np.isfinite(curve.low).all():  # percentiles of a skewed share need not include the share itself
            low, high = np.minimum(curve.low, curve.observed), np.maximum(curve.high, curve.observed)
        lines.append(Line(curve.predicted, curve.observed, colour, name, dash, 2, marker, low=low, high=high))
    x, y = Axis(f"probability of {label}", (-0.02, 1.02)), Axis("observed frequency", (-0.02, 1.02))
    return Chart(lines, x, y, size=(620, 460))


def survival_curves(
    curves: Mapping[str, KaplanMeier],
    unit: str = "",
    title: str = "share without the event",
    looks: Sequence[Look] | None = None,
    ticks: Sequence[float] | None = None,
) -> Chart:
    """Kaplan-Meier curves with their 95 % bands, a tick at each censored time, and how many were still at risk.

    The latter two only where the counts are known.
    """
    looks = looks or [(group_colour(number), DASHES[number % 3]) for number in range(len(curves))]
    last = max((float(km.time[-1]) for km in curves.values() if len(km.time)), default=1.0)
    ticks = round_times(last) if ticks is None else ticks
    marks, at_risk = [], []
    for (name, km), look in zip(curves.items(), looks, strict=True):
        marks.append(_curve(name, km, look))
        if len(km.at_risk) and km.at_risk[0] > 0:
            at_risk.append(AtRisk(name, number_at_risk(km, np.array(ticks)).tolist(), look[0]))
    return Chart(
        marks,
        Axis(with_unit("time", unit), limits=(0, None), ticks=ticks),
        Axis(title, limits=(0, 1.05)),
        size=(860, 400),
        at_risk=at_risk,
    )


def with_unit(title: str, unit: str) -> str:
    """Title of an axis, alone where the unit is not known."""
    return f"{title} ({unit})" if unit else title


def panel(chart: Chart, title: str, note: str) -> Chart:
    """Return a chart as one of many: title and note above it, axes named outside."""
    x, y = replace(chart.x, title=""), replace(chart.y, title="")
    return replace(chart, title=f"{title}\n{note}", x=x, y=y, size=(340, 410))


def _curve(name: str, km: KaplanMeier, look: Look) -> Line:
    """Curve from time 0 on, where all are alive."""
    curves = [km.time, km.survival, km.low, km.high]
    if len(km.time) == 0 or km.time[0] > 0:
        curves = [np.insert(values, 0, first) for values, first in zip(curves, (0.0, 1.0, 1.0, 1.0), strict=True)]
    time, y, low, high = curves
    # patients no longer at risk at the next time who had no event were censored
    censored = km.at_risk - km.events - np.append(km.at_risk[1:], 0) > 0
    ticks = (km.time[censored], km.survival[censored]) if censored.any() else None
    return Line(time, y, look[0], name, look[1], 2.5, step=True, low=low, high=high, ticks=ticks)
