"""One row of a study's table against another, on the same patients of the same folds."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from panther.evaluation.intervals import Resampled, differences, wilcoxon
from panther.evaluation.metrics import mean_of_defined
from panther.study.evaluations import WHERE, Evaluation, Group, Members
from panther.study.parts import NOT_NAMED
from panther.study.tables import told_apart, varying_factors

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


def _by_fold(members: Members) -> list[dict[str, np.ndarray]]:
    """Metrics of each fold, the mean of its seeds: seeds of a fold share its patients, they are no further evidence."""
    folds: dict[int, list[dict[str, np.ndarray]]] = {}
    for one in members:
        folds.setdefault(one.trained.fold, []).append(one.judge())
    return [mean_over(seeds) for seeds in folds.values()]


def compared(pair: Pair, resampled: Resamples) -> Iterable[dict[str, Any]]:
    """One row per metric: the difference, its interval, and both tests."""
    first, second = pair.sides
    by_fold = _by_fold(first), _by_fold(second)
    for name, d in differences(resampled[first], resampled[second]).items():
        folds = [[float(f[name]) for f in side] for side in by_fold]
        yield {
            **dict(zip(WHERE, pair.key, strict=True)),
            "reference": pair.reference,
            "metric": name,
            "difference": d.value,
            "ci_low": d.low,
            "ci_high": d.high,
            "p_bootstrap": d.p_value,
            "p_wilcoxon": wilcoxon(*folds) if len(folds[0]) > 1 else np.nan,
        }


def mean_over(found: Sequence[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Mean of each metric over the folds or seeds that define it."""
    return {name: mean_of_defined(np.stack([one[name] for one in found], -1)) for name in found[0]}
