"""Metrics: one table of their names, titles and ranges, and those of classes and of numbers in plain numpy.

Labels are integers 0 ... K-1, probabilities (n, K). Every metric takes `counts` (..., n), the frequencies of the samples (1 by default), and
has shape (...,): a bootstrap resample is given by its counts, so that a thousand resamples are one call. Undefined metrics are NaN.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_args

import numpy as np

from panther.cohort.targets import Kind


@dataclass(frozen=True)
class Metric:
    """Properties of a metric."""

    kind: str  # of the target
    title: str = ""
    is_shown: bool = False  # by default
    lowest: float = 0.0
    chance: float | None = None  # score of a guess, where it is the same for all test sets
    is_error: bool = False  # lower is better
    of_classes: bool = False  # of predicted classes, not of their probabilities
    is_printed: bool = True  # with an interval and comparisons; others are in metrics.csv only


METRICS: Mapping[str, Metric] = {
    "balanced_accuracy": Metric("classification", "Bal. acc.", True, of_classes=True),
    "weighted_f1": Metric("classification", "F1", True, of_classes=True),
    "quadratic_kappa": Metric("classification", "Quadratic-weighted kappa", lowest=-1.0, chance=0.0, of_classes=True),
    "auroc": Metric("classification", "AUROC", chance=0.5),
    "accuracy": Metric("classification", is_printed=False),
    "c_index": Metric("survival", "c-index", True, chance=0.5),
    "c_index_uno": Metric("survival", "Uno's c-index", chance=0.5),
    "time_auc": Metric("survival", is_printed=False),
    "integrated_brier": Metric("survival", is_error=True, is_printed=False),
    "pearson": Metric("regression", "Pearson's r", True, -1.0, 0.0),
    "spearman": Metric("regression", "Spearman's rho", False, -1.0, 0.0),
    "r2": Metric("regression", "R2", True, -math.inf, 0.0),
    "mae": Metric("regression", "MAE", True, is_error=True),
    "rmse": Metric("regression", is_error=True, is_printed=False),
    "macro_auroc": Metric("labels", "mean AUROC", True, chance=0.5),  # and one of each label, see `label_metric`
}
PRINTED: dict[str, tuple[str, ...]] = {
    kind: tuple(n for n, m in METRICS.items() if m.kind == kind and m.is_printed) for kind in get_args(Kind)
}
SHOWN = {kind: tuple(name for name in names if METRICS[name].is_shown) for kind, names in PRINTED.items()}
LOWER_IS_BETTER = tuple(name for name, metric in METRICS.items() if metric.is_error)
THRESHOLD = tuple(name for name, metric in METRICS.items() if metric.of_classes)
OF_LABEL = "auroc_"


def label_metric(label: str) -> str:
    """Metric of one of several labels."""
    return f"{OF_LABEL}{label}"


def metric_range(name: str) -> tuple[float, float]:
    """Smallest and largest value of a metric."""
    metric = METRICS.get(name, Metric(""))
    return metric.lowest, math.inf if metric.is_error else 1.0


def metric_title(name: str) -> str:
    """Title of a metric in tables."""
    if name.startswith(OF_LABEL):
        return f"AUROC {name.removeprefix(OF_LABEL)}"
    return METRICS.get(name, Metric("")).title or name


def confusion(
    labels: np.ndarray, predicted: np.ndarray, n_classes: int, counts: np.ndarray | None = None
) -> np.ndarray:
    """Counts (..., K, K): rows are the truth, columns the prediction."""
    counts = np.ones(len(labels), int) if counts is None else counts
    rows = [np.flatnonzero(labels == k) for k in range(n_classes)]
    is_predicted = predicted[:, None] == np.arange(n_classes)  # (n, K)
    return np.stack([counts[..., members] @ is_predicted[members] for members in rows], -2)


def accuracy(table: np.ndarray) -> np.ndarray:
    """Share of correct predictions of a confusion matrix (..., K, K)."""
    return ratio(_correct(table).sum(-1), table.sum((-2, -1)))


def balanced_accuracy(table: np.ndarray) -> np.ndarray:
    r"""Mean recall over the classes that occur: :math:`\frac{1}{K} \sum_k n_{kk} / n_{k\cdot}`."""
    return mean_of_defined(ratio(_correct(table), table.sum(-1)))


def weighted_f1(table: np.ndarray) -> np.ndarray:
    r"""F1 of each class, weighted by how often it occurs: :math:`\sum_k \frac{n_{k\cdot}}{n} \frac{2 n_{kk}}{n_{k\cdot} + n_{\cdot k}}`."""
    truth, predicted = table.sum(-1), table.sum(-2)
    f1 = 2 * _correct(table) / np.maximum(truth + predicted, 1)
    return ratio(np.vecdot(truth, f1), truth.sum(-1))


def quadratic_kappa(table: np.ndarray) -> np.ndarray:
    r"""Cohen's kappa with quadratic weights: :math:`1 - \sum_{ab} (a-b)^2 n_{ab} / \sum_{ab} (a-b)^2 n_{a\cdot} n_{\cdot b} / n`."""
    grade = np.arange(table.shape[-1])
    weight = (grade[:, None] - grade[None, :]) ** 2
    truth, predicted = table.sum(-1), table.sum(-2)
    expected = truth[..., :, None] * predicted[..., None, :] / np.maximum(truth.sum(-1), 1)[..., None, None]
    return 1 - ratio((weight * table).sum((-2, -1)), (weight * expected).sum((-2, -1)))


def binary_auroc(positive: np.ndarray, score: np.ndarray, counts: np.ndarray | None = None) -> np.ndarray:
    """Probability that a positive has a larger score than a negative, ties count half; NaN without both, or with a NaN score."""
    positive = np.asarray(positive, bool)
    counts = np.ones(len(positive)) if counts is None else counts
    negatives = np.flatnonzero(~positive)
    negatives = negatives[np.argsort(score[negatives])]
    below = np.zeros((*counts.shape[:-1], len(negatives) + 1))  # weight of the first 0, 1, 2, ... negatives
    np.cumsum(counts[..., negatives], -1, out=below[..., 1:])
    lower, upto = (np.searchsorted(score[negatives], score[positive], side) for side in ("left", "right"))
    weights = counts[..., positive]
    won = np.vecdot(weights, below[..., lower] + below[..., upto]) / 2
    unranked = counts[..., np.isnan(score)].any(-1)
    return np.where(unranked, np.nan, ratio(won, weights.sum(-1) * below[..., -1]))[()]


def auroc(labels: np.ndarray, probabilities: np.ndarray, counts: np.ndarray | None = None) -> np.ndarray:
    """AUROC: of class 1 for two classes, otherwise one against the rest, averaged over the classes that occur."""
    n_classes = probabilities.shape[1]
    if n_classes == 2:
        return binary_auroc(labels == 1, probabilities[:, 1], counts)
    each = [binary_auroc(labels == k, probabilities[:, k], counts) for k in range(n_classes)]
    return mean_of_defined(np.stack(each, -1))


def classification_metrics(
    labels: np.ndarray, probabilities: np.ndarray, counts: np.ndarray | None = None
) -> dict[str, np.ndarray]:
    """All metrics of classes."""
    table = confusion(labels, probabilities.argmax(1), probabilities.shape[1], counts)
    return {
        "balanced_accuracy": balanced_accuracy(table),
        "weighted_f1": weighted_f1(table),
        "quadratic_kappa": quadratic_kappa(table),
        "auroc": auroc(labels, probabilities, counts),
        "accuracy": accuracy(table),
    }


def ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """Quotient; NaN for 0 / 0."""
    with np.errstate(invalid="ignore"):
        return part / whole


def mean_of_defined(values: np.ndarray) -> np.ndarray:
    """Mean over the last axis without NaN, equal to `np.mean` of the others to the last digit; NaN where there are none."""
    undefined = np.isnan(values)
    if not undefined.any():
        return values.mean(-1)
    number = (~undefined).sum(-1)
    packed = np.take_along_axis(values, np.argsort(undefined, -1, kind="stable"), -1)
    mean = np.full(number.shape, np.nan)
    for n in np.unique(number[number > 0]):
        mean[number == n] = packed[number == n, :n].mean(-1)
    return mean[()]


def _correct(table: np.ndarray) -> np.ndarray:
    return np.diagonal(table, axis1=-2, axis2=-1)


def value_metrics(truth: np.ndarray, predicted: np.ndarray, counts: np.ndarray | None = None) -> dict[str, np.ndarray]:
    """Pearson's and Spearman's correlation, R2 and the mean absolute error."""
    counts = np.ones(len(truth)) if counts is None else counts
    return {
        "pearson": pearson(truth, predicted, counts),
        "spearman": spearman(truth, predicted, counts),
        "r2": r_squared(truth, predicted, counts),
        "mae": ratio(counts @ np.abs(truth - predicted), counts.sum(-1)),
    }


def pearson(first: np.ndarray, second: np.ndarray, counts: np.ndarray) -> np.ndarray:
    r"""Correlation (...,): :math:`\frac{\sum_i w_i (x_i - \bar x)(y_i - \bar y)}{\sqrt{\sum_i w_i (x_i - \bar x)^2 \sum_i w_i (y_i - \bar y)^2}}`.

    NaN where one of them is constant.
    """
    x, y = _deviations(first, counts), _deviations(second, counts)
    product, a, b = (np.vecdot(counts, values) for values in (x * y, x * x, y * y))
    defined = _varies(first, counts) & _varies(second, counts)
    spread = np.where(defined, np.sqrt(a) * np.sqrt(b), np.nan)
    return np.clip(product / spread, -1.0, 1.0)[()]


def spearman(first: np.ndarray, second: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Correlation (...,) of the ranks; ties have their mean rank."""
    return pearson(counted_ranks(first, counts), counted_ranks(second, counts), counts)


def counted_ranks(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Mean rank (..., n) of each sample, where samples are repeated by their counts."""
    order = np.argsort(values, kind="stable")
    _, group = np.unique(values, return_inverse=True)
    ends = np.flatnonzero(np.diff(group[order], append=-1))  # last of each group of equal values
    upto = np.cumsum(counts[..., order], -1)[..., ends]  # (..., groups)
    below = np.concatenate([np.zeros((*upto.shape[:-1], 1)), upto[..., :-1]], -1)
    return ((below + upto + 1) / 2)[..., group]


def r_squared(truth: np.ndarray, predicted: np.ndarray, counts: np.ndarray) -> np.ndarray:
    r"""Explained share of the variance (...,): :math:`1 - \sum_i w_i (y_i - \hat y_i)^2 / \sum_i w_i (y_i - \bar y)^2`.

    0 is the score of the mean of the test values, which is unknown in practice: useless models are below 0.
    """
    defined = _varies(truth, counts)
    spread = np.where(defined, np.vecdot(counts, _deviations(truth, counts) ** 2), np.nan)
    return (1 - counts @ (truth - predicted) ** 2 / spread)[()]


def _deviations(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Deviations from the weighted mean (..., n)."""
    total = counts.sum(-1)
    return values - ratio(np.vecdot(counts, np.broadcast_to(values, counts.shape)), total)[..., None]


def _varies(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Whether values with positive counts differ (...,); a variance of equal values may be above 0 by rounding."""
    inside = counts > 0
    return np.where(inside, values, -np.inf).max(-1) > np.where(inside, values, np.inf).min(-1)
