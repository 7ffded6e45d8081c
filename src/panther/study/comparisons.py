"""One row of a study's table against another, on the same patients of the same folds."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from panther.cohort.targets import Classes
from panther.evaluation.intervals import Difference, Resampled, differences, sign_test
from panther.evaluation.metrics import THRESHOLD, mean_of_defined
from panther.study.evaluations import WHERE, Evaluation, Group, Members
from panther.study.parts import NOT_NAMED
from panther.study.tables import told_apart, varying_factors

FEW = 10  # patients predicted otherwise, below which resamples of them are too coarse for a p-value
Resamples = Mapping[Members, Resampled]  # metrics of each side, on resamples of its patients


@dataclass(frozen=True)
class Pair:
    """A cell and the cell of the reference method, with the folds and seeds that both have."""

    key: Group
    against: Group
    sides: tuple[Members, Members]
    reference: str = ""  # what the other is called, as no other row is


def pairs_against(groups: Mapping[Group, Members], reference: str) -> list[Pair]:
    """Every cell against the reference method, on the same patients of the same folds."""
    pairs = []
    varying = varying_factors(pd.DataFrame(list(groups), columns=WHERE))
    for key, members in groups.items():
        against = _reference_of(key, groups, reference)
        if against is not None and against != key and (sides := aligned(members, groups[against]))[0]:
            cell = dict(zip(WHERE, against, strict=True))
            pairs.append(Pair(key, against, sides, f"{cell['method']}{told_apart(cell, varying)}"))
    return pairs


def _reference_of(key: Group, groups: Iterable[Group], method: str) -> Group | None:
    """Cell of the reference method most like this one: same training size and part, then encoder, head, loss, C.

    Cells of two encoders are not compared, unless one of them is of given vectors, which belong to no encoder.
    """
    fixed = (5, 6, 7)
    like = [g for g in groups if g[1] == method and all(g[i] == key[i] for i in fixed)]
    same = [g for g in like if g[0] == key[0] or NOT_NAMED in (g[0], key[0])]
    return max(same, key=lambda g: tuple(g[i] == key[i] for i in (0, 2, 3, 4)), default=None)


def aligned(first: Members, second: Members) -> tuple[Members, Members]:
    """Folds and seeds that both have, in one order, and of these the samples that both have."""
    a, b = ({(one.trained.fold, one.trained.cell.seed): one for one in side} for side in (first, second))
    pairs = [_of_both(a[k], b[k]) for k in a if k in b]
    return tuple(one for one, _ in pairs if one.ids), tuple(two for _, two in pairs if two.ids)


def _of_both(one: Evaluation, two: Evaluation) -> tuple[Evaluation, Evaluation]:
    if one.ids == two.ids:
        return one, two
    where = {name: row for row, name in enumerate(two.ids)}
    rows = np.array([row for row, name in enumerate(one.ids) if name in where], np.int64)
    return one.of(rows), two.of(np.array([where[one.ids[row]] for row in rows], np.int64))


def paired_differences(sides: tuple[Members, Members], resampled: Resamples) -> dict[str, Difference]:
    """Difference of every metric, on the same resamples.

    Where fewer than ten patients are predicted otherwise, the p-value of a metric of predicted classes is at least McNemar's exact one.
    """
    found = differences(resampled[sides[0]], resampled[sides[1]])
    if not (exact := _mcnemar(*sides)):
        return found
    return {name: replace(d, p_value=max(d.p_value, exact)) if name in THRESHOLD else d for name, d in found.items()}


def _mcnemar(first: Members, second: Members) -> float | None:
    """Exact p-value where few patients are predicted otherwise; each counts once, whatever slides, seeds and models predict it."""
    won: dict[str, int] = {}
    for one, two in zip(first, second, strict=True):
        if not isinstance(one.target, Classes):
            return None
        truth = one.target.columns()["label"]
        predicted = (side.task.columns(side.prediction)["predicted"] for side in (one, two))
        for patient, label, a, b in zip(one.patients, truth, *predicted, strict=True):
            if a != b:
                won[patient] = won.get(patient, 0) + (a == label) - (b == label)
    if len(won) >= FEW:
        return None
    return sign_test(sum(n > 0 for n in won.values()), sum(n < 0 for n in won.values()))


def compared(pair: Pair, resampled: Resamples) -> Iterable[dict[str, Any]]:
    """One row per metric: the difference, its interval and p-value."""
    for name, d in paired_differences(pair.sides, resampled).items():
        yield {
            **dict(zip(WHERE, pair.key, strict=True)),
            "reference": pair.reference,
            "metric": name,
            "difference": d.value,
            "ci_low": d.low,
            "ci_high": d.high,
            "p_value": d.p_value,
        }


def mean_over(found: Sequence[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Mean of each metric over the folds or seeds that define it."""
    return {name: mean_of_defined(np.stack([one[name] for one in found], -1)) for name in found[0]}
