r"""Prediction sets that hold the truth as often as they say (split conformal prediction), patient by patient.

A class is in the set where its probability is not lower than what calibration patients' true classes got. Patients are exchangeable, their
slides are not: a patient of ten slides counts once, each slide a tenth (hierarchical conformal prediction, Lee, Barber and Willett 2023).
The guarantee is about new patients like those: on average over them, not in each class or hospital, so coverage is reported for those too.
"""

from typing import NamedTuple

import numpy as np

from panther.evaluation.calibration import patient_weights
from panther.evaluation.metrics import ratio

LEVEL = 0.9


def set_threshold(
    labels: np.ndarray, probabilities: np.ndarray, patients: np.ndarray | None = None, level: float = LEVEL
) -> float:
    r"""Lowest probability of a class in the set, from labels and probabilities of patients whom the model was not trained on.

    The scores :math:`s = 1 - p_y` of P patients, each weighing :math:`1 / (P + 1)`, leave :math:`1 / (P + 1)` for the new one, whose score
    may be anything. The threshold is their `level` quantile; with fewer than :math:`1 / (1 - level) - 1` patients it is 0: every class.
    """
    weight, number = patient_weights(np.arange(len(labels)) if patients is None else patients)
    own = probabilities[np.arange(len(labels)), labels]
    order = np.argsort(-own, kind="stable")
    reached = np.cumsum(weight[order]) / (number + 1) >= level - 1e-12
    return float(own[order][reached.argmax()]) if reached.any() else 0.0


def prediction_sets(probabilities: np.ndarray, threshold: float) -> np.ndarray:
    """Which classes (n, K) are in the set; the most probable one always is, so no set is empty."""
    inside = probabilities >= threshold
    inside[np.arange(len(inside)), probabilities.argmax(1)] = True
    return inside


class Coverage(NamedTuple):
    """How often sets hold the truth, and how large they are; (...,) for counts (..., n)."""

    covered: np.ndarray  # share of sets that hold the truth
    size: np.ndarray  # mean number of classes
    single: np.ndarray  # share of sets with one class


def coverage(labels: np.ndarray, sets: np.ndarray, counts: np.ndarray | None = None) -> Coverage:
    """Judge sets (n, K); `counts` (..., n) says how often each sample counts."""
    counts = np.ones(len(labels)) if counts is None else counts
    size = sets.sum(1)
    values = (sets[np.arange(len(labels)), labels], size, size == 1)
    return Coverage(*(ratio(counts @ value, counts.sum(-1)) for value in values))


def residual_width(
    truth: np.ndarray, predicted: np.ndarray, patients: np.ndarray | None = None, level: float = LEVEL
) -> float:
    """Half the width of intervals around predicted values that hold the truth at that level; infinite with too few patients."""
    weight, number = patient_weights(np.arange(len(truth)) if patients is None else patients)
    off = np.abs(truth - predicted)
    order = np.argsort(off, kind="stable")
    reached = np.cumsum(weight[order]) / (number + 1) >= level - 1e-12
    return float(off[order][reached.argmax()]) if reached.any() else float("inf")
