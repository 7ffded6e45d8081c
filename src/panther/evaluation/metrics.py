r"""Metrics of classification, in plain numpy.

Labels are integers 0 ... K-1, probabilities (n, K). Every metric takes `counts` (..., n), how often each sample counts, and gives one number
for each, (...,): a resample of the bootstrap is nothing but other counts, so a thousand of them are one call. Without `counts` each sample
counts once. What is not defined is NaN.
"""

import numpy as np


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
