"""From predictions to tables: every number of every fold, intervals over patients, comparisons between methods."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from panther.cohort.targets import Classes, Target
from panther.evaluation.intervals import Measure, bootstrap, paired_bootstrap, wilcoxon
from panther.evaluation.perfect_scores import exact_bounds, is_perfect
from panther.execution import HERE, Work, map_all
from panther.models.tasks import Task, load_task
from panther.storage.tables import is_missing
from panther.study.cache import load_predictions
from panther.study.file import Study
from panther.study.population import Population
from panther.study.results import GROUP, Results
from panther.study.training import StudyRun, Trained


@dataclass(frozen=True, eq=False)
class _Evaluation:
    """Predictions of one cell for one part of one fold."""

    trained: Trained
    part: str
    subgroup: str
    task: Task[Any]
    prediction: dict[str, np.ndarray]
    target: Target
    ids: tuple[str, ...]
    patients: tuple[str, ...]
    reference: Any  # training predictions and target

    def group(self) -> tuple[Any, ...]:
        """Row of the summary this belongs to."""
        columns = self.trained.cell.columns()
        return (*(columns[name] for name in GROUP), self.part, self.subgroup)


def evaluate(run: StudyRun, *, work: Work = HERE) -> Results:
    """Judge all predictions of a study."""
    study = run.study
    evaluations = [one for trained in run.trained for one in _evaluations(trained, run.population, study.evaluate_by)]
    rows = []
    for one in evaluations:
        where = {
            **one.trained.cell.columns(),
            "fold": one.trained.fold,
            "part": one.part,
            "subgroup": one.subgroup,
            "n": len(one.ids),
        }
        found = one.task.metrics(one.prediction, one.target, one.reference if not one.subgroup else None)
        found |= one.task.judge(one.prediction, one.target, one.reference)
        rows += [{**where, "metric": name, "value": value} for name, value in found.items()]
    metrics = pd.DataFrame(rows)
    tested = [one for one in evaluations if one.part not in ("train", "val")]
    groups: dict[tuple[Any, ...], list[_Evaluation]] = {}
    for one in tested:
        groups.setdefault(one.group(), []).append(one)
    intervals = _intervals(groups, study.bootstrap, work)
    summary = _summary(metrics, intervals, groups)
    comparisons = _comparisons(study, groups, work)
    return Results(metrics, _predictions(tested), summary, comparisons, run)


def _evaluations(trained: Trained, population: Population, evaluate_by: str | None) -> Iterable[_Evaluation]:
    about, parts = load_predictions(trained.predictions)
    task = load_task(about["task"])
    patient = dict(zip(population.ids, population.patients, strict=True))
    training = None
    for part, arrays in parts.items():
        ids = tuple(str(name) for name in arrays.pop("ids"))
        target = population.target.take(population.rows(ids))
        training = training or (arrays, target)
        whole = _Evaluation(trained, part, "", task, arrays, target, ids, tuple(patient[i] for i in ids), training)
        yield whole
        if evaluate_by is not None and part not in ("train", "val"):
            yield from _subgroups(whole, population.table[evaluate_by].reindex(ids))


def _subgroups(whole: _Evaluation, values: pd.Series) -> Iterable[_Evaluation]:
    known = values.fillna("").astype(str)  # an external table need not have the column
    for value in sorted(set(known[~is_missing(known)])):
        rows = np.flatnonzero((known == value).to_numpy())
        yield replace(
            whole,
            subgroup=value,
            prediction={name: array[rows] for name, array in whole.prediction.items()},
            target=whole.target.take(rows),
            ids=tuple(whole.ids[i] for i in rows),
            patients=tuple(whole.patients[i] for i in rows),
        )


def _measure(members: Sequence[_Evaluation]) -> tuple[Measure, np.ndarray]:
    """Metrics averaged over folds and seeds as a function of rows, rows being all predictions one after the other."""
    owner = np.concatenate([np.full(len(one.ids), number) for number, one in enumerate(members)])
    start = np.cumsum([0, *(len(one.ids) for one in members)])

    def on(rows: np.ndarray) -> dict[str, float]:
        found = []
        for number, one in enumerate(members):
            mine = rows[owner[rows] == number] - start[number]
            if len(mine):
                found.append(_metrics_of(one, mine))
        return {name: _mean([f[name] for f in found]) for name in found[0]}

    return on, np.concatenate([np.array(one.patients) for one in members])


def _mean(values: list[float]) -> float:
    """Mean of those that are defined."""
    known = [value for value in values if not np.isnan(value)]
    return float(np.mean(known)) if known else np.nan


def _metrics_of(one: _Evaluation, rows: np.ndarray) -> dict[str, float]:
    chosen = {name: values[rows] for name, values in one.prediction.items()}
    target = one.target.take(rows)
    # a resample may lack events or classes: that metric is then not defined there, and left out of the interval
    return one.task.judge(chosen, target, one.reference)


def _interval(members: list[_Evaluation], number: int) -> dict[str, tuple[float, float]]:
    measure, patients = _measure(members)
    return {name: (i.low, i.high) for name, i in bootstrap(measure, patients, number).items()}


def _intervals(
    groups: dict[tuple[Any, ...], list[_Evaluation]], number: int, work: Work
) -> dict[tuple[Any, ...], dict[str, tuple[float, float]]]:
    if not number:
        return {}
    keys = list(groups)
    function = partial(_interval, number=number)
    found = map_all(function, [groups[key] for key in keys], "confidence intervals", work)
    return dict(zip(keys, found, strict=True))


def _summary(
    metrics: pd.DataFrame,
    intervals: dict[tuple[Any, ...], dict[str, tuple[float, float]]],
    groups: dict[tuple[Any, ...], list[_Evaluation]],
) -> pd.DataFrame:
    tested = metrics[~metrics["part"].isin(["train", "val"])]
    keys = [*GROUP, "part", "subgroup"]
    table = tested.groupby([*keys, "metric"], sort=False)["value"].agg(["mean", "std", "count"]).reset_index()
    owners = [tuple(row[k] for k in keys) for _, row in table.iterrows()]
    limits = [
        intervals.get(key, {}).get(name, (np.nan, np.nan)) for key, name in zip(owners, table["metric"], strict=True)
    ]
    table["ci_low"], table["ci_high"] = [low for low, _ in limits], [high for _, high in limits]
    table["patients"] = [len({p for one in groups[key] for p in one.patients}) for key in owners]
    table["exact_low"] = [
        _exact_bound(groups[key], name) if is_perfect(mean) else np.nan
        for key, name, mean in zip(owners, table["metric"], table["mean"], strict=True)
    ]
    return table


def _exact_bound(members: list[_Evaluation], metric: str) -> float:
    """Bound of a perfect score, where the metric has one."""
    known = [(one.target, one.patients) for one in members if isinstance(one.target, Classes)]
    if not known:
        return np.nan
    labels = np.concatenate([np.array(target.names)[target.labels] for target, _ in known])
    return exact_bounds(labels, np.concatenate([np.array(patients) for _, patients in known])).get(metric, np.nan)


def _comparisons(study: Study, groups: dict[tuple[Any, ...], list[_Evaluation]], work: Work) -> pd.DataFrame:
    """Every cell against the reference method, on the same patients of the same folds."""
    reference = study.reference or study.methods[0].title
    pairs = []
    for key, members in groups.items():
        against = _reference_of(key, groups, reference)
        if against is not None and against != key:
            pairs.append((key, against, *_aligned(members, groups[against])))
    rows = []
    function = partial(_compare, number=study.bootstrap)
    differences = map_all(function, [p[2:] for p in pairs], "comparisons", work)
    for (key, against, *_), found in zip(pairs, differences, strict=True):
        for metric, values in found.items():
            where = dict(zip([*GROUP, "part", "subgroup"], key, strict=True))
            rows.append({**where, "reference": f"{against[1]} + {against[2]}", "metric": metric, **values})
    return pd.DataFrame(rows)


def _reference_of(key: tuple[Any, ...], groups: Iterable[tuple[Any, ...]], method: str) -> tuple[Any, ...] | None:
    """Cell of the reference method most like this one: same encoder, training size and part, then head, loss, C."""
    fixed = (0, 5, 6, 7)
    like = [g for g in groups if g[1] == method and all(g[i] == key[i] for i in fixed)]
    return max(like, key=lambda g: tuple(g[i] == key[i] for i in (2, 3, 4)), default=None)


def _aligned(first: list[_Evaluation], second: list[_Evaluation]) -> tuple[list[_Evaluation], list[_Evaluation]]:
    """Folds that both have, in one order."""
    a, b = ({(one.trained.fold, one.trained.cell.seed): one for one in side} for side in (first, second))
    both = [k for k in a if k in b and a[k].ids == b[k].ids]
    return [a[k] for k in both], [b[k] for k in both]


def _by_fold(members: list[_Evaluation]) -> list[dict[str, float]]:
    """Metrics of each fold, the mean of its seeds: seeds of a fold share its patients, they are no further evidence."""
    folds: dict[int, list[dict[str, float]]] = {}
    for one in members:
        folds.setdefault(one.trained.fold, []).append(_metrics_of(one, np.arange(len(one.ids))))
    return [{name: _mean([seed[name] for seed in seeds]) for name in seeds[0]} for seeds in folds.values()]


def _compare(pair: tuple[list[_Evaluation], list[_Evaluation]], number: int) -> dict[str, dict[str, float]]:
    (one, patients), (other, _) = _measure(pair[0]), _measure(pair[1])
    by_fold = [_by_fold(side) for side in pair]
    found = {}
    for name, d in paired_bootstrap(one, other, patients, max(number, 1)).items():
        folds = [[f[name] for f in side] for side in by_fold]
        p = wilcoxon(*folds) if len(folds[0]) > 1 else np.nan
        found[name] = {
            "difference": d.value,
            "ci_low": d.low,
            "ci_high": d.high,
            "p_bootstrap": d.p_value,
            "p_wilcoxon": p,
        }
    return found


def _predictions(tested: list[_Evaluation]) -> pd.DataFrame:
    tables = []
    for one in tested:
        if one.subgroup:
            continue
        columns: dict[str, Any] = {**one.trained.cell.columns(), "fold": one.trained.fold, "part": one.part}
        columns |= {"sample": list(one.ids), "patient": list(one.patients)}
        if isinstance(one.target, Classes):
            columns["label"] = [one.target.names[k] for k in one.target.labels]
            names = one.task.names  # type: ignore[attr-defined]
            columns |= {f"probability_{n}": one.prediction["probabilities"][:, k] for k, n in enumerate(names)}
        else:
            columns |= {"time": one.target.time, "event": one.target.event, "risk": one.prediction["risk"]}
        tables.append(pd.DataFrame(columns))
    return pd.concat(tables, ignore_index=True)
