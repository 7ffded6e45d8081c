r"""What a perfect score says. Resampling patients who were all right gives 1 again and again: an interval [1, 1] that knows nothing of the
next patient. How many patients there were does: if the truth were much worse, so many right answers in a row would be very unlikely.
"""

from collections.abc import Sequence

import numpy as np

from panther.evaluation.metric_names import LOWER_IS_BETTER
from panther.evaluation.roots import bracketed_root

PERFECT = 1 - 1e-12  # every metric is best at 1, but errors


def is_perfect(mean: float, metric: str) -> bool:
    """Whether nothing was wrong in any fold."""
    return metric not in LOWER_IS_BETTER and bool(mean >= PERFECT)


def exact_lower(patients: int, level: float = 0.95) -> float:
    r"""Lower end of Clopper and Pearson's two-sided interval when all n were right: :math:`(\alpha / 2)^{1/n}`.

    0.884 for 30 patients, 0.963 for 100.
    """
    return float(((1 - level) / 2) ** (1 / patients)) if patients else 0.0


def exact_lower_balanced(patients: Sequence[int], level: float = 0.95) -> float:
    r"""The same for the mean recall of K classes with :math:`n_k` patients each.

    The smallest :math:`\frac{1}{K} \sum_k p_k` among all recalls that explain such a result, :math:`\prod_k p_k^{n_k} \ge \alpha / 2`. By
    Lagrange it has :math:`p_k = \min(1, \lambda n_k)`: the smallest classes may be the worst. With one class it is :func:`exact_lower`, with
    K of one size that of their :math:`n K` patients.
    """
    counts = np.asarray(patients, np.float64)
    if len(counts) == 0 or counts.min() < 1:
        return 0.0
    log_alpha = np.log((1 - level) / 2)

    def excess(log_scale: float) -> float:
        return float(counts @ np.minimum(0.0, log_scale + np.log(counts))) - log_alpha

    # at the lower end all classes share one recall or less, at the upper all are 1
    low = log_alpha / counts.sum() - np.log(counts).max() - 1
    while excess(low) > 0:
        low -= 1
    scale = np.exp(bracketed_root(excess, low, -np.log(counts).min() + 1e-9, 1e-13))
    return float(np.minimum(1.0, scale * counts).mean())


def exact_bounds(labels: np.ndarray, patients: np.ndarray, level: float = 0.95) -> dict[str, float]:
    """Bounds of the metrics that have one, for predictions that were all right: patients count, not their slides."""
    classes = [len(set(patients[labels == k])) for k in np.unique(labels)]
    return {
        "accuracy": exact_lower(len(set(patients)), level),
        "balanced_accuracy": exact_lower_balanced(classes, level),
    }
