"""The shuffle test: how much of each score survives when patches lie at each other's places, on the same patients."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from panther.study.comparisons import Pair, Resamples, aligned, paired_differences
from panther.study.evaluations import WHERE, Evaluation, Group, Members
from panther.study.spatial.words import in_words


def shuffle_pairs(groups: Mapping[Group, Members], shuffled: Iterable[Evaluation]) -> list[Pair]:
    """Every row that was also trained and tested on shuffled tissue, and that, in the folds and shuffles that both have."""
    others: dict[tuple[Group, int], Members] = {}
    for one in shuffled:
        key = one.group(), one.trained.shuffle
        others[key] = (*others.get(key, ()), one)
    found: dict[Group, tuple[Members, Members]] = {}
    for (key, _), members in others.items():
        if key in groups:
            sides, more = found.get(key, ((), ())), aligned(groups[key], members)
            found[key] = (*sides[0], *more[0]), (*sides[1], *more[1])
    return [Pair(key, key, sides) for key, sides in found.items() if sides[0]]


def shuffle_table(
    groups: Mapping[Group, Members], pairs: Iterable[Pair], unmoved: Iterable[str], resampled: Resamples
) -> pd.DataFrame:
    """One row per metric of every row of the summary (subgroups left out): the score, that on shuffled tissue, and what is lost.

    ``unmoved`` are the methods whose numbers do not depend on where patches lie, and which were therefore not trained again.
    """
    rows: list[dict[str, Any]] = []
    found = {pair.key: pair.sides for pair in pairs}
    for key, members in groups.items():
        where = dict(zip(WHERE, key, strict=True))
        if where.pop("subgroup") or where.pop("by"):
            continue
        if key in found:
            rows += _of_both(where, *found[key], resampled)
        elif where["method"] in unmoved:
            rows += _of_one(where, members, resampled)
    table = pd.DataFrame(rows)
    return table if table.empty else table.assign(words=[in_words(row) for _, row in table.iterrows()])


def _of_both(where: Mapping[str, Any], as_it_is: Members, shuffled: Members, resampled: Resamples) -> list[dict]:
    repeats = len({one.trained.shuffle for one in shuffled})
    scores = [resampled[side].whole for side in (as_it_is, shuffled)]
    return [
        {
            **where,
            "metric": metric,
            "score": scores[0][metric],
            "shuffled": scores[1][metric],
            "difference": d.value,
            "ci_low": d.low,
            "ci_high": d.high,
            "p_value": d.p_value,
            "shuffles": repeats,
        }
        for metric, d in paired_differences((as_it_is, shuffled), resampled).items()
    ]


def _of_one(where: Mapping[str, Any], members: Members, resampled: Resamples) -> list[dict]:
    same = {"difference": 0.0, "ci_low": 0.0, "ci_high": 0.0, "p_value": np.nan, "shuffles": 0}
    return [
        {**where, "metric": metric, "score": score, "shuffled": score, **same}
        for metric, score in resampled[members].whole.items()
    ]
