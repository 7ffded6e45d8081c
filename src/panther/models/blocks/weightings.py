"""Weightings of the blocks of an embedding that a probe tries by inner cross-validation, and how likely each is beforehand."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from panther.cohort.covariates import COVARIATES

# Chosen by the protocol of docs/decisions/0009: cautious, because a few dozen patients tell little about weights
LARGEST_SHARE = 0.7  # of the block that a weighting favours
EQUAL_PRIOR = 0.5  # prior probability of equal weights
SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)  # of an embedding, where covariates stand beside it
NOTHING_ADDED = 0.5  # prior probability that an embedding adds nothing to them
OPTIONAL = "+"  # begins the name of what a method has beside its own numbers
NOT_NEEDED = 0.9  # prior probability that all of that is left out; docs/decisions/0020


class Weighting(NamedTuple):
    """Shares (B,) of the blocks in the variance that a probe sees, and their prior probability."""

    shares: np.ndarray
    prior: float


def block_weightings(names: Sequence[str]) -> list[Weighting]:
    """Weightings to try. Of the statistics of an embedding: equal ones first, then each alone, then each with most of the variance.

    Covariates are not one statistic among others: first they stand alone, then beside an embedding whose statistics weigh alike, by shares.
    Nor are optional blocks: first come the weightings without them, then those with one of them, then those with all.
    """
    if COVARIATES in names:
        own = np.array([name == COVARIATES for name in names])
        beside = [np.where(own, 1 - share, share / (len(names) - 1)) for share in SHARES]
        return [Weighting(own.astype(np.float64), NOTHING_ADDED), *_alike(beside, 1 - NOTHING_ADDED)]
    optional = [name for name in names if name.startswith(OPTIONAL)]
    if 0 < len(optional) < len(names):
        return _with_optional(names, optional)
    return _of_statistics(np.ones(len(names), bool))


def _with_optional(names: Sequence[str], optional: Sequence[str]) -> list[Weighting]:
    """Weightings without optional blocks, which have most of the prior: a block has to earn its share."""
    own = [name not in optional for name in names]
    asked = [[name == one for name in names] for one in optional]
    asked += [[name in optional for name in names]] if len(optional) > 1 else []
    found = [Weighting(w.shares, w.prior * NOT_NEEDED) for w in _of_statistics(np.array(own))]
    for used in asked:
        tried = [w for w in _of_statistics(np.array(own) | used) if w.shares[used].any()]
        total = sum(w.prior for w in tried) * len(asked) / (1 - NOT_NEEDED)
        found += [Weighting(w.shares, w.prior / total) for w in tried]
    return found


def _of_statistics(used: np.ndarray) -> list[Weighting]:
    """Weightings of some of the blocks (B,): equal ones first, then each alone, then each with most of the variance."""
    alone = np.eye(len(used))[used]
    equal = used / used.sum()
    if len(alone) == 1:
        return [Weighting(equal, 1.0)]
    most = alone * LARGEST_SHARE + (used - alone) * (1 - LARGEST_SHARE) / (len(alone) - 1)
    return [Weighting(equal, EQUAL_PRIOR), *_alike([*alone, *most], 1 - EQUAL_PRIOR)]


def _alike(shares: Sequence[np.ndarray], prior: float) -> list[Weighting]:
    return [Weighting(one, prior / len(shares)) for one in shares]
