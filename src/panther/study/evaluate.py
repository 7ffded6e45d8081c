"""From predictions to tables: every number of every fold, intervals over patients, comparisons between methods."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from panther.cohort.targets import Classes
from panther.evaluation.intervals import Interval, Resampled, differences, intervals, resample, wilcoxon
from panther.evaluation.metrics import mean_of_defined
from panther.evaluation.perfect_scores import exact_bounds, is_perfect
from panther.execution import HERE, Work, map_all
from panther.study.evaluations import WHERE, Evaluation, Group, Members, evaluations
from panther.study.parts import NOT_NAMED
from panther.study.results import Results
from panther.study.training import StudyRun


def evaluate(run: StudyRun, *, work: Work = HERE) -> Results:
    """Judge all predictions of a study."""
    study = run.study
    found = [one for trained in run.trained for one in evaluations(trained, run.population, study.evaluate_by)]
    metrics = _metrics(found)
    tested = [one for one in found if one.part not in ("train", "val")]
    groups: dict[Group, Members] = {}
    for one in tested:
        groups[one.group()] = (*groups.get(one.group(), ()), one)
    pairs = _pairs(groups, study.reference_row)
    sides = dict.fromkeys([*groups.values(), *(side for pair in pairs for side in pair.sides)])  # each once
    function = partial(_resampled, number=max(study.bootstrap, 1))
    resampled = dict(zip(sides, map_all(function, list(sides), "confidence intervals", work), strict=True))
    limits = {key: intervals(resampled[members]) for key, members in groups.items()} if study.bootstrap else {}
    comparisons = pd.DataFrame([row for pair in pairs for row in _compared(pair, resampled)])
    return Results(metrics, _predictions(tested), _summary(metrics, limits, groups), comparisons, run)


def _metrics(evaluations: Iterable[Evaluation]) -> pd.DataFrame:
    rows: list[dict[str, Any]] = []
    for one in evaluations:
        where = {**one.trained.cell.columns(), "fold": one.trained.fold, "part": one.part, "subgroup": one.subgroup}
        found = one.task.metrics(one.prediction, one.target, one.reference if not one.subgroup else None)
        found |= {name: float(value) for name, value in one.judge().items()}
        rows += [{**where, "n": len(one.ids), "metric": name, "value": value} for name, value in found.items()]
    return pd.DataFrame(rows)


def _resampled(members: Members, number: int) -> Resampled:
    """Metrics averaged over folds and seeds, on resamples of all their patients."""
    ends = np.cumsum([len(one.ids) for one in members])[:-1]

    def measure(counts: np.ndarray) -> dict[str, np.ndarray]:
        return _mean([one.judge(part) for one, part in zip(members, np.split(counts, ends, axis=-1), strict=True)])

    return resample(measure, np.concatenate([np.array(one.patients) for one in members]), number)


def _mean(found: Sequence[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Mean of each metric over the folds or seeds that define it."""
    return {name: mean_of_defined(np.stack([one[name] for one in found], -1)) for name in found[0]}


def _summary(
    metrics: pd.DataFrame, limits: dict[Group, dict[str, Interval]], groups: dict[Group, Members]
) -> pd.DataFrame:
    tested = metrics[~metrics["part"].isin(["train", "val"])]
    table = tested.groupby([*WHERE, "metric"], sort=False)["value"].agg(["mean", "std", "count"]).reset_index()
    owners = [tuple(row[k] for k in WHERE) for _, row in table.iterrows()]
    found = [limits.get(key, {}).get(name) for key, name in zip(owners, table["metric"], strict=True)]
    table["ci_low"], table["ci_high"] = ([getattr(i, end, np.nan) for i in found] for end in ("low", "high"))
    table["patients"] = [len({p for one in groups[key] for p in one.patients}) for key in owners]
    table["exact_low"] = [
        _exact_bound(groups[key], name) if is_perfect(mean, name) else np.nan
        for key, name, mean in zip(owners, table["metric"], table["mean"], strict=True)
    ]
    return table


def _exact_bound(members: Members, metric: str) -> float:
    """Bound of a perfect score, where the metric has one."""
    known = [(one.target, one.patients) for one in members if isinstance(one.target, Classes)]
    if not known:
        return np.nan
    labels = np.concatenate([np.array(target.names)[target.labels] for target, _ in known])
    return exact_bounds(labels, np.concatenate([np.array(patients) for _, patients in known])).get(metric, np.nan)


@dataclass(frozen=True)
class _Pair:
    """A cell and the cell of the reference method, with the folds and seeds that both have."""

    key: Group
    against: Group
    sides: tuple[Members, Members]


def _pairs(groups: dict[Group, Members], reference: str) -> list[_Pair]:
    """Every cell against the reference method, on the same patients of the same folds."""
    pairs = []
    for key, members in groups.items():
        against = _reference_of(key, groups, reference)
        if against is not None and against != key and (sides := _aligned(members, groups[against]))[0]:
            pairs.append(_Pair(key, against, sides))
    return pairs


def _reference_of(key: Group, groups: Iterable[Group], method: str) -> Group | None:
    """Cell of the reference method most like this one: same training size and part, then encoder, head, loss, C.

    Cells of two encoders are not compared, unless one of them is of given vectors, which belong to no encoder.
    """
    fixed = (5, 6, 7)
    like = [g for g in groups if g[1] == method and all(g[i] == key[i] for i in fixed)]
    same = [g for g in like if g[0] == key[0] or NOT_NAMED in (g[0], key[0])]
    return max(same, key=lambda g: tuple(g[i] == key[i] for i in (0, 2, 3, 4)), default=None)


def _aligned(first: Members, second: Members) -> tuple[Members, Members]:
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
    return [_mean(seeds) for seeds in folds.values()]


def _compared(pair: _Pair, resampled: dict[Members, Resampled]) -> Iterable[dict[str, Any]]:
    """One row per metric: the difference, its interval, and both tests."""
    first, second = pair.sides
    by_fold = _by_fold(first), _by_fold(second)
    for name, d in differences(resampled[first], resampled[second]).items():
        folds = [[float(f[name]) for f in side] for side in by_fold]
        yield {
            **dict(zip(WHERE, pair.key, strict=True)),
            "reference": f"{pair.against[1]} + {pair.against[2]}",
            "metric": name,
            "difference": d.value,
            "ci_low": d.low,
            "ci_high": d.high,
            "p_bootstrap": d.p_value,
            "p_wilcoxon": wilcoxon(*folds) if len(folds[0]) > 1 else np.nan,
        }


def _predictions(tested: list[Evaluation]) -> pd.DataFrame:
    tables = []
    for one in tested:
        if one.subgroup:
            continue
        columns: dict[str, Any] = {**one.trained.cell.columns(), "fold": one.trained.fold, "part": one.part}
        columns |= {"sample": list(one.ids), "patient": list(one.patients)}
        columns |= {**one.target.columns(), **one.task.columns(one.prediction)}
        tables.append(pd.DataFrame(columns))
    return pd.concat(tables, ignore_index=True)
