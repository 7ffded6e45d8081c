r"""Is it worth acting on a prediction? Decision curves (Vickers and Elkin 2006).

Who acts from probability t on says that one missed case weighs as much as :math:`(1 - t) / t` needless actions. The net benefit counts cases
found minus needless actions at that price, per patient, and compares with acting on everybody and on nobody (0).
"""

import numpy as np

from panther.evaluation.metrics import ratio

THRESHOLDS = np.arange(1, 100) / 100


def net_benefit(
    positive: np.ndarray,
    probability: np.ndarray,
    thresholds: np.ndarray = THRESHOLDS,
    counts: np.ndarray | None = None,
) -> np.ndarray:
    r"""Net benefit :math:`\frac{TP}{n} - \frac{FP}{n} \frac{t}{1 - t}` at each threshold, (..., T)."""
    counts = np.ones(len(positive)) if counts is None else counts
    acted = probability[:, None] >= thresholds  # (n, T)
    found, needless = (counts @ (acted & own[:, None]) for own in (positive, ~positive))
    total = counts.sum(-1)[..., None]
    return ratio(found, total) - ratio(needless, total) * thresholds / (1 - thresholds)


def benefit_of_all(
    positive: np.ndarray, thresholds: np.ndarray = THRESHOLDS, counts: np.ndarray | None = None
) -> np.ndarray:
    """Net benefit of acting on everybody."""
    return net_benefit(positive, np.ones(len(positive)), thresholds, counts)


def useful_range(benefit: np.ndarray, of_all: np.ndarray, thresholds: np.ndarray = THRESHOLDS) -> list[float]:
    """Thresholds at which the model is worth more than acting on everybody or on nobody."""
    return [float(t) for t in thresholds[benefit > np.maximum(of_all, 0.0) + 1e-12]]
