r"""Agreement of prototypes and tissue classes, from counts alone: :math:`n_{ck}` patches of prototype c and class k.

Counts of slides add up, so a cohort needs no more memory than a slide.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata

from panther.evaluation.metrics import binary_auroc

UNKNOWN = -1  # a patch without a class, a prototype without patches


@dataclass(frozen=True)
class ClassScore:
    """One class: patches of prototypes of the class, against patches of the class; None for a division by 0."""

    precision: float | None
    recall: float | None
    f1: float | None
    patches: int  # that are of the class


@dataclass(frozen=True)
class Agreement:
    """Agreement of the classes of the prototypes with those of the patches."""

    accuracy: float | None  # share of patches of the class of their prototype
    per_class: tuple[ClassScore, ...]
    table: np.ndarray  # (K, K) patches: rows their class, columns their prototype's
    ari: float | None  # of the partition into prototypes, whatever their names; finer parts cost
    ami: float | None
    ari_named: float | None  # of the partition into named classes
    ami_named: float | None


@dataclass(frozen=True)
class TumourMatch:
    """One slide: agreement of the posterior of the tumour prototype with the probability of the classes."""

    prototype: int  # of the largest pi among the tumour's
    weight: float  # its pi
    auroc: float | None  # its posterior finding the positive patches (probability at least 1/2)
    spearman: float | None  # rank correlation of posterior and probability
    # overlap of patches above 1/2 in both; AUROC also counts tiny posteriors
    dice: float | None
    auroc_all: float | None  # the same for the sum over all tumour prototypes
    spearman_all: float | None
    dice_all: float | None
    positive: float  # share of positive patches


def tissue_of(probabilities: np.ndarray) -> np.ndarray:
    """Most probable class (N,) of rows (N, K), the first of equal ones; UNKNOWN for rows of NaN."""
    known = np.isfinite(probabilities).all(1)
    return np.where(known, np.nan_to_num(probabilities).argmax(1), UNKNOWN)


def contingency(prototype: np.ndarray, tissue: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Counts (C, K) of patches by prototype (N,) and class (N,); unknown classes are left out."""
    known = tissue != UNKNOWN
    flat = prototype[known].astype(np.int64) * shape[1] + tissue[known]
    return np.bincount(flat, minlength=shape[0] * shape[1]).reshape(shape)


def majority(counts: np.ndarray) -> np.ndarray:
    """Commonest class of each prototype (C,), the first of equal ones; UNKNOWN where it has no patches."""
    return np.where(counts.sum(1) > 0, counts.argmax(1), UNKNOWN)


def agreement(counts: np.ndarray, labels: np.ndarray) -> Agreement:
    """Agreement of counts (C, K) with classes given to the prototypes, (C,); patches of an unnamed prototype are wrong."""
    n_classes = counts.shape[1]
    named = np.zeros((n_classes + 1, n_classes), np.int64)  # the last row collects the unnamed
    np.add.at(named, labels, counts)  # UNKNOWN is the last
    table = named[:-1].T  # (K, K)
    total, hits = counts.sum(), np.diag(table)
    truth, claimed = counts.sum(0), table.sum(0)
    scores = [
        ClassScore(ratio(hit, assigned), ratio(hit, true), ratio(2 * hit, true + assigned), int(true))
        for hit, true, assigned in zip(hits, truth, claimed, strict=True)
    ]
    return Agreement(
        ratio(hits.sum(), total), tuple(scores), table, adjusted_rand(counts), adjusted_information(counts),
        adjusted_rand(named), adjusted_information(named),
    )  # fmt: skip


def left_out_accuracy(counts: Sequence[np.ndarray]) -> float | None:
    """Share of patches of the class of their prototype, where prototypes are named by the patches of the other slides only."""
    total = np.sum(counts, 0)
    if len(counts) < 2:
        return None
    hits = sum(float(np.trace(agreement(part, majority(total - part)).table)) for part in counts)
    return ratio(hits, total.sum())


def adjusted_rand(counts: np.ndarray) -> float | None:
    r"""Adjusted Rand index of a table: pairs kept together by both partitions, 0 by chance and 1 at best.

    .. math:: \frac{\sum_{ck} \binom{n_{ck}}{2} - E}{\frac12 (A + B) - E},\quad E = A B / \binom{n}{2}
    """

    def pairs(n: np.ndarray) -> float:
        return float((n * (n - 1.0) / 2).sum())

    if counts.sum() < 2:
        return None
    both, first, second = pairs(counts), pairs(counts.sum(1)), pairs(counts.sum(0))
    expected = first * second / pairs(counts.sum())
    best = (first + second) / 2
    return 1.0 if best == expected else (both - expected) / (best - expected)


def adjusted_information(counts: np.ndarray) -> float | None:
    r"""Adjusted mutual information of a table, :math:`(I - E[I]) / (\frac12 (H_1 + H_2) - E[I])`: 0 by chance and 1 at best."""
    from sklearn.metrics import mutual_info_score
    from sklearn.metrics.cluster import expected_mutual_information

    counts = counts[counts.sum(1) > 0][:, counts.sum(0) > 0]
    total = int(counts.sum())
    if total < 2:
        return None
    if 1 in counts.shape:
        return float(counts.shape == (1, 1))  # one part against several has no information
    shared = float(mutual_info_score(None, None, contingency=counts))
    expected = float(expected_mutual_information(counts.astype(np.int64), total))
    room = (_entropy(counts.sum(1)) + _entropy(counts.sum(0))) / 2 - expected
    return (shared - expected) / room if room > 1e-12 else 1.0  # every patch is a part, in both


def match_tumour(
    rows: np.ndarray, weights: np.ndarray, probability: np.ndarray, tumour: Sequence[int]
) -> TumourMatch | None:
    """Compare shares (N, C) of the tumour's prototypes with the probability (N,) that a patch is tumour; NaN is unknown.

    None where no prototype is of the tumour.
    """
    if not tumour:
        return None
    prototype = max(tumour, key=lambda c: float(weights[c]))
    known = np.isfinite(probability)
    truth, score, total = probability[known], rows[known, prototype], rows[known][:, list(tumour)].sum(1)
    positive = ratio((truth >= 0.5).sum(), len(truth)) or 0.0
    scores = (*_scores(truth, score), *_scores(truth, total))
    return TumourMatch(prototype, float(weights[prototype]), *scores, positive)


def _scores(truth: np.ndarray, score: np.ndarray) -> tuple[float | None, float | None, float | None]:
    """AUROC, Spearman's correlation and Dice's coefficient of a score (N,) against a probability (N,)."""
    positive = truth >= 0.5
    auroc = float(binary_auroc(positive, score))
    return auroc if np.isfinite(auroc) else None, rank_correlation(score, truth), overlap(positive, score >= 0.5)


def rank_correlation(first: np.ndarray, second: np.ndarray) -> float | None:
    """Spearman's correlation, ties at their mean rank; None where one of them is constant."""
    if len(first) < 2 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return None
    return float(np.corrcoef(rankdata(first), rankdata(second))[0, 1])


def overlap(first: np.ndarray, second: np.ndarray) -> float | None:
    r"""Dice's coefficient of two masks, :math:`2 |A \cap B| / (|A| + |B|)`; None where both are empty."""
    return ratio(2 * int((first & second).sum()), int(first.sum()) + int(second.sum()))


def _entropy(counts: np.ndarray) -> float:
    share = counts[counts > 0] / counts.sum()
    return float(-(share * np.log(share)).sum())


def ratio(part: float, whole: float) -> float | None:
    """Part of a whole; None where that is 0, because JSON has no NaN."""
    return float(part / whole) if whole else None


def format_number(value: float | None) -> str:
    """Three digits, or a dash."""
    return "-" if value is None else f"{value:.3f}"
