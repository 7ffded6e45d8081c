r"""Prediction sets that hold the truth as often as they say (split conformal prediction), patient by patient.

A class is in the set where its probability is not lower than what calibration patients' true classes got. Patients are exchangeable, their
slides are not: a patient of ten slides counts once, each slide a tenth (hierarchical conformal prediction, Lee, Barber and Willett 2023).
The guarantee is about new patients like those: on average over them, not in each hospital nor, without :func:`class_thresholds`, in each class,
so coverage is reported for those too.
"""

import numpy as np

from panther.evaluation.calibration import patient_weights

LEVEL = 0.9


def set_threshold(
    labels: np.ndarray, probabilities: np.ndarray, patients: np.ndarray | None = None, level: float = LEVEL
) -> float:
    r"""Lowest probability of a class in the set, from labels and probabilities of patients whom the model was not trained on.

    The scores :math:`s = 1 - p_y` of P patients, each weighing :math:`1 / (P + 1)`, leave :math:`1 / (P + 1)` for the new one, whose score
    may be anything. The threshold is their `level` quantile; with fewer than :math:`1 / (1 - level) - 1` patients it is 0: every class.
    """
    scores = 1 - probabilities[np.arange(len(labels)), labels]
    return max(0.0, 1 - _quantile(scores, patients, level))


def class_thresholds(
    labels: np.ndarray, probabilities: np.ndarray, patients: np.ndarray | None = None, level: float = LEVEL
) -> tuple[float, ...]:
    """The same for each class from its calibration patients alone (Mondrian): sets then hold each class at that level."""
    members = [np.flatnonzero(labels == k) for k in range(probabilities.shape[1])]
    return tuple(
        set_threshold(labels[own], probabilities[own], None if patients is None else patients[own], level)
        for own in members
    )


def prediction_sets(probabilities: np.ndarray, threshold: float | tuple[float, ...]) -> np.ndarray:
    """Which classes (n, K) are in the set; the most probable one always is, so no set is empty."""
    inside = 1 - probabilities <= 1 - np.asarray(threshold) + 1e-12  # a calibration patient's own class is inside
    inside[np.arange(len(inside)), probabilities.argmax(1)] = True
    return inside


def hold_the_truth(labels: np.ndarray, sets: np.ndarray) -> np.ndarray:
    """Which sets (n, K) hold the true class, (n,)."""
    return np.asarray(sets[np.arange(len(labels)), labels])


def residual_width(
    truth: np.ndarray, predicted: np.ndarray, patients: np.ndarray | None = None, level: float = LEVEL
) -> float:
    """Half the width of intervals around predicted values that hold the truth at that level; infinite with too few patients."""
    return _quantile(np.abs(truth - predicted), patients, level)


def _quantile(scores: np.ndarray, patients: np.ndarray | None, level: float) -> float:
    """Score that a new patient's stays below at that level; infinite where there are too few patients to say."""
    weight, number = patient_weights(np.arange(len(scores)) if patients is None else patients)
    order = np.argsort(scores, kind="stable")
    reached = np.cumsum(weight[order]) / (number + 1) >= level - 1e-12
    return float(scores[order][reached.argmax()]) if reached.any() else float("inf")
