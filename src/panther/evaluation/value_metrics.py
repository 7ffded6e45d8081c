r"""Metrics of predicted numbers, in plain numpy. As in :mod:`panther.evaluation.metrics`, `counts` (..., n) says how often each sample counts."""

import numpy as np

from panther.evaluation.metrics import ratio


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
