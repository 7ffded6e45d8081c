"""Calibration of probabilities, and prediction sets. Of the samples predicted at 0.8, eight of ten should have the label.

Labels are integers 0 ... K-1, probabilities (n, K); `counts` (..., n) are the frequencies of the samples, as in
:mod:`panther.evaluation.metrics`, so that a thousand resamples are one call.

Prediction sets contain the true class at their level (split conformal prediction). A class is in the set if its probability is not lower
than the threshold from the true classes of calibration patients. Patients are exchangeable, slides of a patient are not: each of ten slides
counts a tenth (hierarchical conformal prediction, Lee, Barber and Willett 2023). Coverage is guaranteed on average over patients of the same
population, not in each hospital nor, without :func:`class_thresholds`, in each class; it is reported for those too.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import softmax

from panther.evaluation.metrics import ratio

BINS = 10
TINY = 1e-12  # lower bound of probabilities in logarithms
WIDEST = 1e3  # temperatures lie between its inverse and this


class Reliability(NamedTuple):
    """A reliability curve; empty bins are NaN."""

    predicted: np.ndarray  # (..., bins), mean probability
    observed: np.ndarray  # (..., bins), frequency of the label
    weight: np.ndarray  # (..., bins), samples


def bin_of(probability: np.ndarray) -> np.ndarray:
    """Bin of equal width (n,) of each probability; edges belong to the lower bin."""
    return np.searchsorted(np.linspace(0, 1, BINS + 1)[1:-1], probability)


def reliability(probability: np.ndarray, came_true: np.ndarray, counts: np.ndarray | None = None) -> Reliability:
    """Predicted against observed frequencies, in bins of equal width."""
    counts = np.ones(len(probability)) if counts is None else counts
    member = bin_of(probability)[:, None] == np.arange(BINS)  # (n, bins)
    # three sums in one product: as fast as one for a thousand resamples
    sums = counts @ np.concatenate(
        [member * values[:, None] for values in (np.ones(len(member)), probability, came_true)], 1
    )
    weight, predicted, observed = np.split(sums, 3, axis=-1)
    return Reliability(ratio(predicted, weight), ratio(observed, weight), weight)


def calibration_error(curve: Reliability) -> np.ndarray:
    r"""Expected calibration error: :math:`\sum_b \frac{n_b}{n} |\bar p_b - \bar y_b|`, 0 where all frequencies are as predicted."""
    gap = np.where(curve.weight > 0, np.abs(curve.predicted - curve.observed), 0.0)
    return ratio(np.vecdot(gap, curve.weight), curve.weight.sum(-1))


def confidence(labels: np.ndarray, probabilities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Probability of the predicted class (n,), and whether it is correct (n,)."""
    predicted = probabilities.argmax(1)
    return probabilities[np.arange(len(predicted)), predicted], predicted == labels


def brier(labels: np.ndarray, probabilities: np.ndarray, counts: np.ndarray | None = None) -> np.ndarray:
    r"""Brier score :math:`\frac{1}{2n} \sum_{nk} (p_{nk} - [y_n = k])^2`: 0 is perfect, 1 the worst; of two classes :math:`(p - y)^2`."""
    loss = np.square(probabilities - np.eye(probabilities.shape[1])[labels]).sum(1) / 2
    return _mean(loss, counts)


def log_loss(labels: np.ndarray, probabilities: np.ndarray, counts: np.ndarray | None = None) -> np.ndarray:
    r"""Cross-entropy :math:`-\frac{1}{n} \sum_n \log p_{n y_n}`."""
    return _mean(-np.log(np.maximum(probabilities[np.arange(len(labels)), labels], TINY)), counts)


def calibration_metrics(
    labels: np.ndarray, probabilities: np.ndarray, counts: np.ndarray | None = None
) -> dict[str, np.ndarray]:
    """Calibration error of the predicted class's probability, Brier score and log loss; lower is better."""
    return {
        "ece": calibration_error(reliability(*confidence(labels, probabilities), counts)),
        "brier": brier(labels, probabilities, counts),
        "log_loss": log_loss(labels, probabilities, counts),
    }


def error_by_chance(probabilities: np.ndarray, draws: int = 200, seed: int = 0) -> np.ndarray:
    """Calibration errors (draws,) of a perfectly calibrated model on a sample of this size.

    Labels are drawn from the probabilities of the predicted classes. Because bins are small, the error is above 0 for every model, the more
    so in small cohorts.
    """
    predicted = probabilities.max(1)
    came_true = np.random.default_rng(seed).random((draws, len(predicted))) < predicted
    curve = reliability(predicted, predicted)
    member = bin_of(predicted)[:, None] == np.arange(BINS)
    observed = ratio(came_true.astype(np.float64) @ member, curve.weight)  # (draws, bins)
    return calibration_error(Reliability(curve.predicted, observed, curve.weight))


def fit_temperature(
    labels: np.ndarray, probabilities: np.ndarray, patients: np.ndarray | None = None, *, smoothed: bool = True
) -> float:
    r"""Temperature :math:`T` that makes :math:`p_k^{1/T} / \sum_j p_j^{1/T}` fit held-out labels best; above 1 the model was overconfident.

    The cross-entropy is convex in :math:`1 / T`, so its derivative has one root. Patients have equal weights, shared by their slides. If
    all predictions are correct, the optimum is 0, a model without uncertainty; ``smoothed`` labels (Platt 1999, one pseudo-patient of
    each class) prevent this: :math:`n` patients allow a probability of at most :math:`(n + 1) / (n + K)`.
    """
    from scipy.optimize import brentq

    n_classes = probabilities.shape[1]
    weight, number = patient_weights(np.arange(len(labels)) if patients is None else patients)
    share = n_classes / (number + n_classes) if smoothed else 0.0
    target = (1 - share) * np.eye(n_classes)[labels] + share / n_classes  # (n, K)
    logits = np.log(np.maximum(probabilities, TINY))
    wanted = weight @ (target * logits).sum(1)

    def slope(log_inverse: float) -> float:
        expected = (softmax(np.exp(log_inverse) * logits, axis=1) * logits).sum(1)
        return float(weight @ expected - wanted)

    low, high = -np.log(WIDEST), np.log(WIDEST)
    if slope(low) >= 0:  # no better than chance
        return WIDEST
    if slope(high) <= 0:
        return 1 / WIDEST
    return float(np.exp(-brentq(slope, low, high, xtol=1e-10)))


def tempered(probabilities: np.ndarray, temperature: float) -> np.ndarray:
    """Probabilities (n, K) at another temperature; the order in a row is preserved."""
    return np.asarray(softmax(np.log(np.maximum(probabilities, TINY)) / temperature, axis=1))


def patient_weights(patients: np.ndarray) -> tuple[np.ndarray, int]:
    """Weight of each sample (n,), 1 per patient, shared by the slides, and the number of patients."""
    names, member = np.unique(np.asarray(patients).astype(str), return_inverse=True)
    return 1 / np.bincount(member)[member], len(names)


def _mean(values: np.ndarray, counts: np.ndarray | None) -> np.ndarray:
    counts = np.ones(len(values)) if counts is None else counts
    return ratio(counts @ values, counts.sum(-1))


LEVEL = 0.9


def set_threshold(labels: np.ndarray, probabilities: np.ndarray, patients: np.ndarray | None = None) -> float:
    r"""Lowest probability of a class in the set, from labels and probabilities of patients that the model was not trained on.

    The scores :math:`s = 1 - p_y` of P patients have weights :math:`1 / (P + 1)`, and so has the unknown score of the new patient. The
    threshold is their 90 % quantile; with fewer than 9 patients it is 0: every class.
    """
    scores = 1 - probabilities[np.arange(len(labels)), labels]
    return max(0.0, 1 - _quantile(scores, patients))


def class_thresholds(
    labels: np.ndarray, probabilities: np.ndarray, patients: np.ndarray | None = None
) -> tuple[float, ...]:
    """Threshold of each class from its calibration patients (Mondrian): sets then have their coverage in each class."""
    members = [np.flatnonzero(labels == k) for k in range(probabilities.shape[1])]
    return tuple(
        set_threshold(labels[rows], probabilities[rows], None if patients is None else patients[rows])
        for rows in members
    )


def prediction_sets(probabilities: np.ndarray, threshold: float | tuple[float, ...]) -> np.ndarray:
    """Classes (n, K) in the set; the most probable one always is, so no set is empty."""
    inside = 1 - probabilities <= 1 - np.asarray(threshold) + 1e-12  # the threshold itself is inside
    inside[np.arange(len(inside)), probabilities.argmax(1)] = True
    return inside


def covers(labels: np.ndarray, sets: np.ndarray) -> np.ndarray:
    """Whether each set (n, K) contains the true class, (n,)."""
    return np.asarray(sets[np.arange(len(labels)), labels])


def residual_width(truth: np.ndarray, predicted: np.ndarray, patients: np.ndarray | None = None) -> float:
    """Half the width of prediction intervals with this coverage; infinite with too few patients."""
    return _quantile(np.abs(truth - predicted), patients)


def _quantile(scores: np.ndarray, patients: np.ndarray | None) -> float:
    """Conformal quantile of scores; infinite with too few patients."""
    weight, number = patient_weights(np.arange(len(scores)) if patients is None else patients)
    order = np.argsort(scores, kind="stable")
    reached = np.cumsum(weight[order]) / (number + 1) >= LEVEL - 1e-12
    return float(scores[order][reached.argmax()]) if reached.any() else float("inf")
