"""What slides add to covariates: every embedding beside them against covariates alone, on the same patients."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from panther.cohort.covariates import COVARIATES
from panther.cohort.targets import Survival
from panther.study.added.likelihood_ratio import LikelihoodRatio, Stratum, added_by_second
from panther.study.comparisons import Pair, Resamples, compared, pairs_against
from panther.study.evaluations import Group, Members
from panther.study.rows import reads_covariates

RISK = "risk"  # what survival models predict


def gain_pairs(groups: Mapping[Group, Members]) -> list[Pair]:
    """Every row that reads covariates beside an embedding, and covariates alone."""
    both = {key: own for key, own in groups.items() if reads_covariates(own[0].trained.cell.method)}
    return [pair for pair in pairs_against(groups, COVARIATES) if pair.key in both]


def gains(pairs: Iterable[Pair], resampled: Resamples, baseline: str) -> list[dict[str, Any]]:
    """One row per metric: covariates alone, with the slide, the gain and its interval; survival also has the likelihood-ratio test."""
    rows = []
    for pair in pairs:
        test = _likelihood_ratio(*pair.sides)
        both, alone = (resampled[side].whole for side in pair.sides)
        for row in compared(pair, resampled):
            scores = {"covariates": alone[row["metric"]], "with_slide": both[row["metric"]]}
            rows.append(
                {
                    **row,
                    **scores,
                    "baseline": baseline,
                    "likelihood_ratio": test.statistic,
                    "p_likelihood_ratio": test.p_value,
                }
            )
    return rows


def _likelihood_ratio(both: Members, alone: Members) -> LikelihoodRatio:
    """Whether the risk with the slide adds to that of covariates alone.

    Models of several folds were trained on each other's test patients: the ratio over all of them has no known distribution, and no p-value.
    """
    if not isinstance(both[0].target, Survival):
        return LikelihoodRatio(np.nan, np.nan)
    if both[0].part == "test":
        folds = sorted({one.trained.fold for one in both})
        sides = [[[one for one in side if one.trained.fold == fold] for side in (alone, both)] for fold in folds]
    else:  # the models of all folds predict the same external patients, who count once
        sides = [[list(alone), list(both)]]
    found = added_by_second([_stratum(*side) for side in sides])
    return found._replace(p_value=np.nan) if len(sides) > 1 else found


def _stratum(alone: Sequence[Any], both: Sequence[Any]) -> Stratum:
    """Mean risks of the same patients over seeds (and over the folds' models, of external patients)."""
    scores = [np.mean([one.prediction[RISK] for one in side], axis=0) for side in (alone, both)]
    return Stratum(np.column_stack(scores), both[0].target)
