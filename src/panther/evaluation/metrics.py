r"""Metrics of classification, in plain numpy so that a bootstrap of thousands takes seconds.

Labels are integers 0 ... K-1, probabilities (n, K).
"""

import numpy as np
from scipy.stats import rankdata


def confusion(labels: np.ndarray, predicted: np.ndarray, n_classes: int) -> np.ndarray:
    """Counts (K, K): rows are the truth, columns the prediction."""
    return np.bincount(labels * n_classes + predicted, minlength=n_classes**2).reshape(n_classes, n_classes)


def accuracy(table: np.ndarray) -> float:
    """Share of correct predictions in a confusion table."""
    return _ratio(float(np.trace(table)), float(table.sum()))


def balanced_accuracy(table: np.ndarray) -> float:
    r"""Mean recall over the classes that occur: :math:`\frac{1}{K} \sum_k n_{kk} / n_{k\cdot}`."""
    truth = table.sum(1)
    present = truth > 0
    return float(np.mean(np.diag(table)[present] / truth[present])) if present.any() else np.nan


def weighted_f1(table: np.ndarray) -> float:
    r"""F1 of each class, weighted by how often it occurs: :math:`\sum_k \frac{n_{k\cdot}}{n} \frac{2 n_{kk}}{n_{k\cdot} + n_{\cdot k}}`."""
    truth, claimed = table.sum(1), table.sum(0)
    f1 = 2 * np.diag(table) / np.maximum(truth + claimed, 1)
    return _ratio(float(truth @ f1), float(truth.sum()))


def quadratic_kappa(table: np.ndarray) -> float:
    r"""Cohen's kappa with quadratic weights: :math:`1 - \sum_{ab} (a-b)^2 n_{ab} / \sum_{ab} (a-b)^2 n_{a\cdot} n_{\cdot b} / n`."""
    grade = np.arange(len(table))
    weight = (grade[:, None] - grade[None, :]) ** 2
    expected = np.outer(table.sum(1), table.sum(0)) / max(table.sum(), 1)
    return 1 - _ratio(float((weight * table).sum()), float((weight * expected).sum()))


def binary_auroc(positive: np.ndarray, score: np.ndarray) -> float:
    """Probability that a positive outranks a negative, ties count half; NaN where one of them is missing."""
    positive = np.asarray(positive, bool)
    n_positive = int(positive.sum())
    n_negative = len(positive) - n_positive
    if n_positive == 0 or n_negative == 0:
        return np.nan
    ranks = rankdata(score)
    return float((ranks[positive].sum() - n_positive * (n_positive + 1) / 2) / (n_positive * n_negative))


def auroc(labels: np.ndarray, probabilities: np.ndarray) -> float:
    """AUROC: of class 1 for two classes, otherwise one against the rest, averaged over the classes that occur."""
    n_classes = probabilities.shape[1]
    if n_classes == 2:
        return binary_auroc(labels == 1, probabilities[:, 1])
    each = [binary_auroc(labels == k, probabilities[:, k]) for k in range(n_classes) if (labels == k).any()]
    return float(np.mean(each)) if each else np.nan


def classification_metrics(labels: np.ndarray, probabilities: np.ndarray) -> dict[str, float]:
    """All of the above for one set of predictions; NaN where a metric is not defined."""
    table = confusion(labels, probabilities.argmax(1), probabilities.shape[1])
    return {
        "balanced_accuracy": balanced_accuracy(table),
        "weighted_f1": weighted_f1(table),
        "quadratic_kappa": quadratic_kappa(table),
        "auroc": auroc(labels, probabilities),
        "accuracy": accuracy(table),
    }


def _ratio(numerator: float, denominator: float) -> float:
    return numerator / denominator if denominator else np.nan
