"""What a c-index is made of, patient by patient: the pairs that a risk puts the wrong way round."""

import numpy as np

from panther.evaluation.survival_metrics import PAIRS, TIED


def wrong_pairs(time: np.ndarray, event: np.ndarray, risk: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of every patient: comparable pairs (n,) that it is part of, as the earlier or the later one, and how many of them are wrong (n,).

    Comparable is what :func:`panther.evaluation.survival_metrics.comparable_pairs` calls so; equal risks are half wrong. Twice
    the c-index's pairs are counted, each with both of its patients.
    """
    wrong, number = np.zeros(len(time)), np.zeros(len(time))
    index = np.flatnonzero(event)
    for block in np.array_split(index, max(1, len(index) * len(time) // PAIRS)):
        i = block[:, None]
        later = (time[i] < time) | ((time[i] == time) & ~event)  # (b, n)
        off = later * np.where(np.abs(risk - risk[i]) <= TIED, 0.5, risk[i] < risk)
        for total, pairs in ((number, later), (wrong, off)):
            total += pairs.sum(0)
            total[block] += pairs.sum(1)
    return wrong, number
