r"""Does a second score add to a first one? The likelihood-ratio test of two nested Cox models on patients that neither was trained on.

.. math:: \Lambda = 2 \big( \max_{a,\, b \ge 0} \ell(a s_1 + b s_2) - \max_a\, \ell(a s_1) \big)
          \sim \tfrac12 \chi^2_0 + \tfrac12 \chi^2_1

One-sided: a score that predicts the wrong way round (b < 0) adds nothing, however surely it is wrong. Scores of different folds come from
different models and need not be on one scale of hazard: each fold is a stratum with a baseline hazard of its own, the coefficients are in
common.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import chdtrc

from panther.cohort.targets import Survival
from panther.models.probe_solvers import cox_loss


class Stratum(NamedTuple):
    """Scores (n, k) of the test patients of one fold, and what became of them."""

    scores: np.ndarray
    target: Survival


class LikelihoodRatio(NamedTuple):
    """Twice the gain of the log partial likelihood, and its one-sided p-value with one degree of freedom."""

    statistic: float
    p_value: float


def added_by_second(strata: Sequence[Stratum]) -> LikelihoodRatio:
    """Test whether the second of two scores adds to the first; NaN where nobody has the event."""
    usable = [one for one in strata if one.target.event.any()]
    if not usable:
        return LikelihoodRatio(np.nan, np.nan)
    everybody = np.concatenate([one.scores for one in usable])
    scale = np.where((spread := everybody.std(0)) > 0, spread, 1.0)  # so that coefficients are of the size of 1
    scaled = [one._replace(scores=(one.scores - everybody.mean(0)) / scale) for one in usable]
    both, (_, second) = _largest_likelihood(scaled)
    first, _ = _largest_likelihood([one._replace(scores=one.scores[:, :1]) for one in scaled])
    statistic = 2 * (both - first)
    if second <= 0 or statistic <= 0:
        return LikelihoodRatio(0.0, 1.0)
    return LikelihoodRatio(statistic, float(chdtrc(1, statistic)) / 2)


def _largest_likelihood(strata: Sequence[Stratum]) -> tuple[float, np.ndarray]:
    """Largest log partial likelihood (Breslow ties) of a linear combination of the scores, and its coefficients."""
    from scipy import optimize  # half a second, and only survival with covariates comes here

    def loss(coefficients: np.ndarray) -> tuple[float, np.ndarray]:
        total, slope = 0.0, np.zeros_like(coefficients)
        for scores, target in strata:
            value, gradient = cox_loss((scores @ coefficients)[None], target.time, target.event)
            total, slope = total + float(value[0]), slope + gradient[0] @ scores
        return total, slope

    found = optimize.minimize(
        loss, np.zeros(strata[0].scores.shape[1]), jac=True, method="BFGS", options={"gtol": 1e-7}
    )
    return -float(found.fun), found.x
