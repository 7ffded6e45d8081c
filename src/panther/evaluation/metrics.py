"""Names of metrics: those that tables print, with intervals and comparisons, and what people call them elsewhere.

Metrics of classification, in plain numpy.

Labels are integers 0 ... K-1, probabilities (n, K). Every metric takes `counts` (..., n), how often each sample counts, and gives one number
for each, (...,): a resample of the bootstrap is nothing but other counts, so a thousand of them are one call. Without `counts` each sample
counts once. What is not defined is NaN.

Metrics of predicted numbers, in plain numpy. As in :mod:`panther.evaluation.metrics`, `counts` (..., n) says how often each sample counts.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from panther.errors import suggestion

PRINTED: Mapping[str, tuple[str, ...]] = {  # by the kind of target
    "classification": ("balanced_accuracy", "weighted_f1", "quadratic_kappa", "auroc"),
    "survival": ("c_index", "c_index_uno"),
    "regression": ("pearson", "spearman", "r2", "mae"),
    "labels": ("macro_auroc",),  # and one of each label, see `label_metric`
}
SHOWN: Mapping[str, tuple[str, ...]] = {  # where a study does not say which
    "classification": ("balanced_accuracy", "weighted_f1"),
    "survival": ("c_index",),
    "regression": ("pearson", "r2", "mae"),
    "labels": ("macro_auroc",),
}
JUDGES = {"classification": "classes", "survival": "survival", "regression": "values", "labels": "several labels"}
LOWER_IS_BETTER = ("mae", "rmse", "integrated_brier")
THRESHOLD = ("balanced_accuracy", "weighted_f1", "quadratic_kappa")  # of predicted classes, not of their probabilities
LOWEST = {"r2": -math.inf, "quadratic_kappa": -1.0, "pearson": -1.0, "spearman": -1.0}  # others 0
TITLES = {
    "c_index": "c-index",
    "c_index_uno": "Uno's c-index",
    "balanced_accuracy": "Bal. acc.",
    "weighted_f1": "F1",
    "quadratic_kappa": "Quadratic-weighted kappa",
    "auroc": "AUROC",
    "pearson": "Pearson's r",
    "spearman": "Spearman's rho",
    "r2": "R2",
    "mae": "MAE",
    "macro_auroc": "mean AUROC",
}
ELSEWHERE = {  # the same thing in other packages' words
    **dict.fromkeys(("auc", "roc_auc", "roc-auc", "rocauc", "macro_auc"), "auroc"),
    **dict.fromkeys(("bacc", "bal_acc", "balanced-accuracy", "balanced_acc", "macro_recall"), "balanced_accuracy"),
    **dict.fromkeys(("f1", "f1_score", "f1-score", "f1_weighted", "weighted-f1"), "weighted_f1"),
    **dict.fromkeys(("kappa", "qwk", "cohen_kappa", "cohens_kappa", "quadratic_weighted_kappa"), "quadratic_kappa"),
    **dict.fromkeys(("cindex", "c-index", "ci", "concordance", "concordance_index", "harrell"), "c_index"),
    **dict.fromkeys(("uno", "uno_c_index", "c_index_ipcw", "ipcw"), "c_index_uno"),
    **dict.fromkeys(("r", "pearsonr", "pcc", "correlation"), "pearson"),
    **dict.fromkeys(("rho", "spearmanr", "srcc"), "spearman"),
    **dict.fromkeys(("r2_score", "rsquared", "r_squared"), "r2"),
    **dict.fromkeys(("mean_absolute_error", "l1"), "mae"),
}
UNPRINTED = ("accuracy", "time_auc", "integrated_brier", "rmse")  # in metrics.csv, without an interval
OF_LABEL = "auroc_"


def label_metric(label: str) -> str:
    """Metric of one of several labels."""
    return f"{OF_LABEL}{label}"


def metric_range(name: str) -> tuple[float, float]:
    """Smallest and largest value that a metric can have."""
    return LOWEST.get(name, 0.0), math.inf if name in LOWER_IS_BETTER else 1.0


def metric_title(name: str) -> str:
    """What tables call a metric."""
    return TITLES.get(name) or (f"AUROC {name.removeprefix(OF_LABEL)}" if name.startswith(OF_LABEL) else name)


def metric_problem(name: str, kind: str, labels: Sequence[str] = ()) -> str | None:
    """Why tables cannot print this metric, as the end of a sentence; None where they can. ``labels`` are those of the study."""
    known = [*PRINTED[kind], *(label_metric(label) for label in labels)]
    if name in known:
        return None
    if name in UNPRINTED:
        return f"{name!r} has no interval and stands in metrics.csv only; tables print {', '.join(known)}"
    if any(name in others for others in PRINTED.values()):
        return f"{name!r} does not judge {JUDGES[kind]}; known are {', '.join(known)}"
    return f"there is no {name!r}; {suggestion(name, known, ELSEWHERE)}"


def confusion(
    labels: np.ndarray, predicted: np.ndarray, n_classes: int, counts: np.ndarray | None = None
) -> np.ndarray:
    """Counts (..., K, K): rows are the truth, columns the prediction."""
    counts = np.ones(len(labels), int) if counts is None else counts
    rows = [np.flatnonzero(labels == k) for k in range(n_classes)]
    claims = predicted[:, None] == np.arange(n_classes)  # (n, K)
    return np.stack([counts[..., own] @ claims[own] for own in rows], -2)


def accuracy(table: np.ndarray) -> np.ndarray:
    """Share of correct predictions in a confusion table (..., K, K)."""
    return ratio(_right(table).sum(-1), table.sum((-2, -1)))


def balanced_accuracy(table: np.ndarray) -> np.ndarray:
    r"""Mean recall over the classes that occur: :math:`\frac{1}{K} \sum_k n_{kk} / n_{k\cdot}`."""
    return mean_of_defined(ratio(_right(table), table.sum(-1)))


def weighted_f1(table: np.ndarray) -> np.ndarray:
    r"""F1 of each class, weighted by how often it occurs: :math:`\sum_k \frac{n_{k\cdot}}{n} \frac{2 n_{kk}}{n_{k\cdot} + n_{\cdot k}}`."""
    truth, claimed = table.sum(-1), table.sum(-2)
    f1 = 2 * _right(table) / np.maximum(truth + claimed, 1)
    return ratio(np.vecdot(truth, f1), truth.sum(-1))


def quadratic_kappa(table: np.ndarray) -> np.ndarray:
    r"""Cohen's kappa with quadratic weights: :math:`1 - \sum_{ab} (a-b)^2 n_{ab} / \sum_{ab} (a-b)^2 n_{a\cdot} n_{\cdot b} / n`."""
    grade = np.arange(table.shape[-1])
    weight = (grade[:, None] - grade[None, :]) ** 2
    truth, claimed = table.sum(-1), table.sum(-2)
    expected = truth[..., :, None] * claimed[..., None, :] / np.maximum(truth.sum(-1), 1)[..., None, None]
    return 1 - ratio((weight * table).sum((-2, -1)), (weight * expected).sum((-2, -1)))


def binary_auroc(positive: np.ndarray, score: np.ndarray, counts: np.ndarray | None = None) -> np.ndarray:
    """Probability that a positive outranks a negative, ties count half; NaN where one of them is missing, or a score is NaN."""
    positive = np.asarray(positive, bool)
    counts = np.ones(len(positive)) if counts is None else counts
    negatives = np.flatnonzero(~positive)
    negatives = negatives[np.argsort(score[negatives])]
    below = np.zeros((*counts.shape[:-1], len(negatives) + 1))  # weight of the first 0, 1, 2, ... negatives
    np.cumsum(counts[..., negatives], -1, out=below[..., 1:])
    lower, upto = (np.searchsorted(score[negatives], score[positive], side) for side in ("left", "right"))
    own = counts[..., positive]
    won = np.vecdot(own, below[..., lower] + below[..., upto]) / 2
    unranked = counts[..., np.isnan(score)].any(-1)
    return np.where(unranked, np.nan, ratio(won, own.sum(-1) * below[..., -1]))[()]


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
    """All of the above for one set of predictions."""
    table = confusion(labels, probabilities.argmax(1), probabilities.shape[1], counts)
    return {
        "balanced_accuracy": balanced_accuracy(table),
        "weighted_f1": weighted_f1(table),
        "quadratic_kappa": quadratic_kappa(table),
        "auroc": auroc(labels, probabilities, counts),
        "accuracy": accuracy(table),
    }


def ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """Share of a whole; NaN where there is nothing to share."""
    with np.errstate(invalid="ignore"):
        return part / whole


def mean_of_defined(values: np.ndarray) -> np.ndarray:
    """Mean over the last axis of those that are not NaN, to the last digit what `np.mean` says of them alone; NaN where there are none."""
    undefined = np.isnan(values)
    if not undefined.any():
        return values.mean(-1)
    number = (~undefined).sum(-1)
    packed = np.take_along_axis(values, np.argsort(undefined, -1, kind="stable"), -1)
    mean = np.full(number.shape, np.nan)
    for n in np.unique(number[number > 0]):
        mean[number == n] = packed[number == n, :n].mean(-1)
    return mean[()]


def _right(table: np.ndarray) -> np.ndarray:
    return np.diagonal(table, axis1=-2, axis2=-1)


def value_metrics(truth: np.ndarray, predicted: np.ndarray, counts: np.ndarray | None = None) -> dict[str, np.ndarray]:
    """Pearson's and Spearman's correlation, R2 and the mean absolute error; NaN where one is not defined."""
    counts = np.ones(len(truth)) if counts is None else counts
    return {
        "pearson": pearson(truth, predicted, counts),
        "spearman": spearman(truth, predicted, counts),
        "r2": r_squared(truth, predicted, counts),
        "mae": ratio(counts @ np.abs(truth - predicted), counts.sum(-1)),
    }


def pearson(first: np.ndarray, second: np.ndarray, counts: np.ndarray) -> np.ndarray:
    r"""Correlation (...,): :math:`\frac{\sum_i w_i (x_i - \bar x)(y_i - \bar y)}{\sqrt{\sum_i w_i (x_i - \bar x)^2 \sum_i w_i (y_i - \bar y)^2}}`.

    NaN where one of them does not vary among those who count.
    """
    return _correlation(first, second, counts)


def spearman(first: np.ndarray, second: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Correlation (...,) of the ranks, equal values sharing the mean of theirs."""
    return _correlation(counted_ranks(first, counts), counted_ranks(second, counts), counts)


def counted_ranks(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Mean rank (..., n) of each sample among all, each of which stands there as often as it counts."""
    order = np.argsort(values, kind="stable")
    _, group = np.unique(values, return_inverse=True)
    ends = np.flatnonzero(np.diff(group[order], append=-1))  # last of each group of equal values
    upto = np.cumsum(counts[..., order], -1)[..., ends]  # (..., groups)
    below = np.concatenate([np.zeros((*upto.shape[:-1], 1)), upto[..., :-1]], -1)
    return ((below + upto + 1) / 2)[..., group]


def r_squared(truth: np.ndarray, predicted: np.ndarray, counts: np.ndarray) -> np.ndarray:
    r"""Share of the variance that is explained (...,): :math:`1 - \sum_i w_i (y_i - \hat y_i)^2 / \sum_i w_i (y_i - \bar y)^2`.

    0 is what the mean of those tested would give, who are not known beforehand: a useless model is below it.
    """
    defined = _varies(truth, counts)
    spread = np.where(defined, np.vecdot(counts, _deviations(truth, counts) ** 2), np.nan)
    return (1 - counts @ (truth - predicted) ** 2 / spread)[()]


def root_mean_square_error(truth: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """In the units of the values; NaN where there are none."""
    return np.asarray(np.sqrt(np.mean((truth - predicted) ** 2)) if len(truth) else np.nan)


def _correlation(first: np.ndarray, second: np.ndarray, counts: np.ndarray) -> np.ndarray:
    x, y = _deviations(first, counts), _deviations(second, counts)
    product, a, b = (np.vecdot(counts, values) for values in (x * y, x * x, y * y))
    defined = _varies(first, counts) & _varies(second, counts)
    spread = np.where(defined, np.sqrt(a) * np.sqrt(b), np.nan)
    return np.clip(product / spread, -1.0, 1.0)[()]


def _deviations(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """From the mean of those who count (..., n)."""
    total = counts.sum(-1)
    return values - ratio(np.vecdot(counts, np.broadcast_to(values, counts.shape)), total)[..., None]


def _varies(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Whether those who count differ (...,); rounding must not make a spread of equal numbers."""
    inside = counts > 0
    return np.where(inside, values, -np.inf).max(-1) > np.where(inside, values, np.inf).min(-1)
