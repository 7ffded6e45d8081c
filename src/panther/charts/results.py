"""Charts of a study's results: intervals, curves, scatter plots and reliability."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from panther.charts.chart import Axis, Bars, Boxes, Chart, Heat, Line, Points, Reference
from panther.charts.style import BLUE, FAINT, MARKERS, ORANGE, group_colour

MOST_GROUPS = 8  # more cannot be told apart; the smaller ones become "other"
LOOKS = {"raw": (FAINT, "dash", "circle"), "calibrated": (BLUE, "solid", "square")}
WORDS = {"raw": "as the model gave them", "calibrated": "calibrated"}


def stacked(rows: Sequence[str], groups: Sequence[str], counts: np.ndarray, title: str) -> Chart:
    """Bars (rows) divided into groups; ``counts`` (rows, groups)."""
    bars = [Bars(counts[:, k], group_colour(k), name, text=True) for k, name in enumerate(groups)]
    return Chart(bars, Axis(title), Axis(names=rows), size=(860, 110 + 32 * len(rows)))


def histogram(values: np.ndarray, title: str, bins: int = 30) -> Chart:
    """How often each size occurs."""
    count, edges = np.histogram(values, bins=bins)
    middle, width = (edges[1:] + edges[:-1]) / 2, float(edges[1] - edges[0])
    bars = Bars(count, at=middle, width=0.94 * width, vertical=True)
    return Chart([bars], Axis(title), Axis("samples"), size=(860, 260))


def counts(values: np.ndarray, rows: Sequence[str], columns: Sequence[str], what: str) -> Chart:
    """How many of each row are in each column."""
    heat = Heat(values, (0, max(1, int(values.max(initial=0)))), what, text=[[str(n) for n in row] for row in values])
    return Chart([heat], Axis(names=columns), Axis(names=rows), size=(860, 110 + 24 * len(rows)))


class Estimate(NamedTuple):
    """A mean with its interval, and what it is the mean of."""

    name: str
    mean: float
    low: float
    high: float
    folds: Sequence[float]


def forest(
    rows: Sequence[Estimate],
    metric: str,
    chance: float | None = None,
    marked: Sequence[str] = (),
    called: str = "chance",
) -> Chart:
    """Mean and interval of each method, every fold as a ring, and a line at what is ``called`` chance; ``marked`` are drawn in another colour."""
    folds = [(value, y, row.name) for y, row in enumerate(rows) for value in row.folds]
    labels = [f"{name}, one fold: {value:.3f}" for value, _, name in folds]
    rings = Points(
        [x for x, _, _ in folds], [y for _, y, _ in folds], FAINT, "one fold", size=7, hollow=True, labels=labels
    )
    means = [
        _means(
            rows,
            [y for y, row in enumerate(rows) if row.name not in marked],
            BLUE,
            "mean and 95 % interval over patients",
        ),
        _means(rows, [y for y, row in enumerate(rows) if row.name in marked], ORANGE, "best mean and its interval"),
    ]
    lines = [] if chance is None else [Reference(chance, called)]
    size = (860, 110 + 30 * len(rows))
    marks = [rings, *(points for points in means if len(points.x))]
    return Chart(marks, Axis(metric), Axis(names=[row.name for row in rows]), size=size, references=lines)


def _means(rows: Sequence[Estimate], at: Sequence[int], colour: str, name: str) -> Points:
    own = [rows[y] for y in at]
    low, high = [row.low for row in own], [row.high for row in own]
    labels = [f"{row.name}: {row.mean:.3f}" for row in own]
    return Points([row.mean for row in own], at, colour, name, "square", 10, low=low, high=high, labels=labels)


def learning_curves(histories: Sequence[Sequence[Mapping[str, float]]]) -> Chart:
    """Loss over epochs, one line per fold; dashed on validation."""
    lines = [
        Line(
            [row["epoch"] + 1 for row in history],
            [row[field] for row in history],
            group_colour(fold),
            f"fold {fold + 1}, {part}",
            "solid" if part == "training" else "dash",
        )
        for fold, history in enumerate(histories)
        for field, part in (("train_loss", "training"), ("val_loss", "validation"))
        if history and field in history[0]
    ]
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
        lines.append(Line(false, true, group_colour(number), label, ("solid", "dash", "dot")[number // 2 % 3]))
    x, y = Axis("false positive rate", (-0.01, 1.01)), Axis("true positive rate", (-0.01, 1.02))
    return Chart(lines, x, y, size=(760, 420))


def observed_and_predicted(
    observed: np.ndarray, predicted: np.ndarray, groups: Sequence[str], units: Sequence[str], what: str
) -> Chart:
    """What was measured (x) and what was predicted (y), coloured and shaped by group; right is on the dotted line."""
    low, high = min(observed.min(), predicted.min()), max(observed.max(), predicted.max())
    line = Line([low, high], [low, high], FAINT, "as observed", "dot", 1)
    points = [
        Points(
            observed[rows],
            predicted[rows],
            colour,
            name,
            MARKERS[k % len(MARKERS)],
            labels=[f"{units[i]}: observed {observed[i]:,.4g}, predicted {predicted[i]:,.4g}" for i in rows],
            keys=[units[i] for i in rows],
        )
        for k, (name, rows, colour) in enumerate(_groups(groups))
    ]
    return Chart([line, *points], Axis(f"{what}, observed"), Axis(f"{what}, predicted"), size=(760, 480))


def weights_heatmap(weights: np.ndarray, units: Sequence[str], prototypes: Sequence[str]) -> Chart:
    """Share (n, C) of each prototype (rows) in each slide or patient (columns), in the order given."""
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


def scatter(position: np.ndarray, units: Sequence[str], groups: Sequence[str], axes: tuple[str, str]) -> Chart:
    """Slides or patients as points (n, 2), coloured and shaped by group."""
    points = [
        Points(
            position[rows, 0],
            position[rows, 1],
            colour,
            name,
            MARKERS[k % len(MARKERS)],
            labels=[units[i] for i in rows],
            keys=[units[i] for i in rows],
        )
        for k, (name, rows, colour) in enumerate(_groups(groups))
    ]
    return Chart(points, Axis(axes[0]), Axis(axes[1]), size=(860, 480))


def scatter_by_number(
    position: np.ndarray, units: Sequence[str], values: np.ndarray, title: str, axes: tuple[str, str]
) -> Chart:
    """Slides or patients as points, coloured by a number."""
    points = Points(position[:, 0], position[:, 1], labels=units, keys=units, numbers=(title, values))
    return Chart([points], Axis(axes[0]), Axis(axes[1]), size=(860, 480))


def _groups(groups: Sequence[str]) -> list[tuple[str, list[int], str]]:
    """Name, rows and colour of the most frequent groups, and of `other`, which holds the rest."""
    names, frequency = np.unique(np.array([str(g) for g in groups]), return_counts=True)
    kept = sorted(names[np.argsort(-frequency, kind="stable")][:MOST_GROUPS].tolist())
    shown = [*kept, "other"] if len(names) > len(kept) else kept
    member = np.array([g if g in kept else "other" for g in groups])
    quiet = ("other", "not known")
    return [
        (name, np.flatnonzero(member == name).tolist(), FAINT if name in quiet else group_colour(k))
        for k, name in enumerate(shown)
    ]


class Promises(NamedTuple):
    """Bins of a reliability curve."""

    predicted: np.ndarray
    observed: np.ndarray
    low: np.ndarray
    high: np.ndarray


def reliability_curves(curves: Mapping[str, Promises], what: str) -> Chart:
    """Observed frequency against predicted probability, `raw` and `calibrated`; the diagonal is perfect calibration."""
    lines = [Line([0, 1], [0, 1], ORANGE, "every promise kept", "dot", 1.5)]
    for name, curve in curves.items():
        colour, dash, marker = LOOKS[name]
        # percentiles of a skewed share need not hold the share itself
        ends = {"low": np.minimum(curve.low, curve.observed), "high": np.maximum(curve.high, curve.observed)}
        limits = ends if np.isfinite(curve.low).all() else {}
        lines.append(
            Line(curve.predicted, curve.observed, colour, WORDS[name], dash, 2, marker, **limits)  # type: ignore[arg-type]
        )
    x, y = Axis(f"probability of {what}", (-0.02, 1.02)), Axis("how often it was true", (-0.02, 1.02))
    return Chart(lines, x, y, size=(620, 460))
