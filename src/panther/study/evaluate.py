"""From predictions to tables: every number of every fold, intervals over patients, comparisons between methods."""

from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from panther.cohort.covariates import fit_covariates
from panther.cohort.targets import Classes
from panther.engine import HERE, Work, map_all
from panther.evaluation.intervals import (
    Interval,
    Resampled,
    best_of,
    exact_bounds,
    intervals,
    is_perfect,
    over_folds,
    resample,
)
from panther.evaluation.metrics import LOWER_IS_BETTER, metric_range
from panther.study.added.gains import gain_pairs, gains
from panther.study.comparisons import Pair, Resamples, compared, mean_over, pairs_against
from panther.study.evaluations import WHERE, Evaluation, Group, Members, evaluations, subgroups
from panther.study.results import Results
from panther.study.retrieval import judge_retrieval
from panther.study.spatial.judge import shuffle_pairs, shuffle_table
from panther.study.spatial.plan import reads_places
from panther.study.sureness.judge import judge_sureness
from panther.study.training import StudyRun


def evaluate(run: StudyRun, *, work: Work = HERE) -> Results:
    """Judge all predictions of a study."""
    study = run.study
    groups_by = subgroups(study, run.population)
    found = [one for trained in run.trained for one in evaluations(trained, run.population, groups_by)]
    metrics = _metrics(found)
    tested = [one for one in found if one.part not in ("train", "val")]
    groups: dict[Group, Members] = {}
    for one in tested:
        groups[one.group()] = (*groups.get(one.group(), ()), one)
    real = {key: own for key, own in groups.items() if not own[0].trained.cell.permuted}
    pairs, beside, shuffled = pairs_against(real, study.reference_row), gain_pairs(real), _shuffled(run, real)
    every = (*pairs, *beside, *shuffled)
    sides = dict.fromkeys([*groups.values(), *(side for pair in every for side in pair.sides)])  # each once
    function = partial(_resampled, number=study.bootstrap)
    resampled = dict(zip(sides, map_all(function, list(sides), "confidence intervals", work), strict=True))
    comparisons = pd.DataFrame([row for pair in pairs for row in compared(pair, resampled)])
    added = pd.DataFrame(gains(beside, resampled, _baseline(run)))
    sureness = judge_sureness(found, run.population, study.bootstrap, work, study.sets_by_class)
    summary, predictions = _summary(metrics, groups, resampled), _predictions(tested)
    unmoved = [row.title for row in study.rows if not reads_places(row, study.rows)] if study.shuffles else []
    survives = shuffle_table(groups, shuffled, unmoved, resampled)
    return Results(metrics, predictions, summary, comparisons, run, added, sureness, judge_retrieval(run), survives)


def _shuffled(run: StudyRun, groups: dict[Group, Members]) -> list[Pair]:
    """Rows as they are and on shuffled tissue."""
    found = [one for trained in run.shuffled for one in evaluations(trained, run.population, {})]
    return shuffle_pairs(groups, found)


def _baseline(run: StudyRun) -> str:
    """How numbers enter the model of covariates alone."""
    known, specs = run.population, run.study.covariates
    if not specs:
        return "linear"
    fitted, _ = fit_covariates(known.table.head(known.of_study), specs, known.of_study)
    return "spline" if any(one.spline for one in fitted.columns) else "linear"


def _metrics(evaluations: Iterable[Evaluation]) -> pd.DataFrame:
    rows: list[dict[str, Any]] = []
    for one in evaluations:
        where = {**one.trained.cell.columns(), "fold": one.trained.fold, "part": one.part}
        where |= {"subgroup": one.subgroup, "by": one.by}
        found = one.task.metrics(one.prediction, one.target, one.reference if not one.subgroup else None)
        found |= {name: float(value) for name, value in one.judge().items()}
        rows += [{**where, "n": len(one.ids), "metric": name, "value": value} for name, value in found.items()]
    return pd.DataFrame(rows)


def _resampled(members: Members, number: int) -> Resampled:
    """Metrics averaged over folds and seeds, on resamples of all their patients."""
    ends = np.cumsum([len(one.ids) for one in members])[:-1]

    def measure(counts: np.ndarray) -> dict[str, np.ndarray]:
        return mean_over([one.judge(part) for one, part in zip(members, np.split(counts, ends, axis=-1), strict=True)])

    found = resample(measure, np.concatenate([np.array(one.patients) for one in members]), number)
    patients, tested = {name for one in members for name in one.patients}, [len(set(one.patients)) for one in members]
    if members[0].part != "test" or max(tested) == len(patients):  # models of several folds, one set of patients
        return found
    return over_folds(found, len(patients), float(np.mean(tested)))


def _summary(metrics: pd.DataFrame, groups: dict[Group, Members], resampled: Resamples) -> pd.DataFrame:
    tested = metrics[~metrics["part"].isin(["train", "val"])]
    table = tested.groupby([*WHERE, "metric"], sort=False)["value"].agg(["mean", "std", "count"]).reset_index()
    owners = [tuple(row[k] for k in WHERE) for _, row in table.iterrows()]
    limits = {key: intervals(resampled[members]) for key, members in groups.items()}
    found = [limits[key].get(name) for key, name in zip(owners, table["metric"], strict=True)]
    table[["ci_low", "ci_high"]] = [_ends(i, name) for i, name in zip(found, table["metric"], strict=True)]
    table = _add_selection(
        table,
        owners,
        {key: resampled[members] for key, members in groups.items() if not members[0].trained.cell.permuted},
    )
    table["patients"] = [len({p for one in groups[key] for p in one.patients}) for key in owners]
    table["exact_low"] = [
        _exact_bound(groups[key], name) if is_perfect(mean, name) else np.nan
        for key, name, mean in zip(owners, table["metric"], table["mean"], strict=True)
    ]
    return table


def _ends(interval: Interval | None, metric: str) -> tuple[float, float]:
    """Ends of an interval, inside the range of the metric."""
    return tuple(np.clip([interval.low, interval.high], *metric_range(metric))) if interval else (np.nan, np.nan)


def _add_selection(table: pd.DataFrame, owners: list[Group], resampled: dict[Group, Resampled]) -> pd.DataFrame:
    """Of how many rows the best of each test was chosen, and its score and interval corrected for that; only in rows of everybody."""
    columns = ["of_rows", "selected", "selected_low", "selected_high"]
    table[columns] = np.nan
    candidates = np.array([owner in resampled for owner in owners])  # rows on permuted labels are none
    for _, own in table[(table["subgroup"] == "") & candidates].groupby(["part", "metric"]):
        metric = str(own["metric"].iloc[0])
        rows = [resampled[owners[n]] for n in own.index if metric in resampled[owners[n]].whole]
        if len(rows) > 1 and not own["mean"].isna().all():
            found = best_of(rows, metric, lower=metric in LOWER_IS_BETTER)
            for name, value in zip(columns, (len(rows), found.value, *_ends(found, metric)), strict=True):
                table.loc[own.index, name] = value
    return table


def _exact_bound(members: Members, metric: str) -> float:
    """Bound of a perfect score, where the metric has one."""
    known = [(one.target, one.patients) for one in members if isinstance(one.target, Classes)]
    if not known:
        return np.nan
    labels = np.concatenate([np.array(target.names)[target.labels] for target, _ in known])
    return exact_bounds(labels, np.concatenate([np.array(patients) for _, patients in known])).get(metric, np.nan)


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
