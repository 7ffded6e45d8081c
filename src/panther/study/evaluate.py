"""From predictions to tables: every number of every fold, intervals over patients, comparisons between methods."""

from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from panther.cohort.covariates import fit_covariates
from panther.cohort.targets import Classes
from panther.engine import LOCAL, Work, map_all
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
from panther.evaluation.metrics import LOWER_IS_BETTER, mean_of_defined, metric_range
from panther.study.evaluations import (
    WHERE,
    Evaluation,
    Group,
    Members,
    Resamples,
    compared,
    evaluations,
    gain_pairs,
    gains,
    pairs_against,
    shuffle_pairs,
    shuffle_table,
    subgroups,
)
from panther.study.plan import reads_places
from panther.study.results import Results
from panther.study.sureness import judge_sureness
from panther.study.training import StudyRun


def evaluate(run: StudyRun, *, work: Work = LOCAL) -> Results:
    """Score all predictions of a study."""
    study, population = run.study, run.population
    groups_by = subgroups(study, population)
    judged = [one for trained in run.trained for one in evaluations(trained, population, groups_by)]
    metrics = _metrics(judged)
    tested = [one for one in judged if one.part not in ("train", "val")]
    groups: dict[Group, Members] = {}
    for one in tested:
        groups[one.group()] = (*groups.get(one.group(), ()), one)
    shuffled = [one for trained in run.shuffled for one in evaluations(trained, population, {})]
    pairs, gained, moved = (
        pairs_against(groups, study.reference_row),
        gain_pairs(groups),
        shuffle_pairs(groups, shuffled),
    )
    sides = dict.fromkeys([*groups.values(), *(side for pair in (*pairs, *gained, *moved) for side in pair.sides)])
    function = partial(_resampled, number=study.bootstrap)
    resampled = dict(zip(sides, map_all(function, list(sides), "confidence intervals", work), strict=True))
    unmoved = [row.title for row in study.rows if not reads_places(row, study.rows)] if study.shuffle else []
    by_class = study.prediction_sets == "by-class"
    number = len(population.of_study)
    covariates = (
        fit_covariates(population.table.head(number), study.covariates, number)[0] if study.covariates else None
    )
    is_curved = covariates is not None and any(one.spline for one in covariates.columns)
    predictions = []
    for one in tested:
        if not one.subgroup:
            columns: dict[str, Any] = {**one.trained.cell.columns(), "fold": one.trained.fold, "part": one.part}
            columns |= {"sample": list(one.ids), "patient": list(one.patients)}
            predictions.append(pd.DataFrame({**columns, **one.target.columns(), **one.task.columns(one.prediction)}))
    return Results(
        metrics,
        pd.concat(predictions, ignore_index=True),
        _summary(metrics, groups, resampled),
        pd.DataFrame([row for pair in pairs for row in compared(pair, resampled)]),
        run,
        pd.DataFrame(gains(gained, resampled, "spline" if is_curved else "linear")),
        judge_sureness(judged, population, study.bootstrap, work, by_class),
        shuffle_table(groups, moved, unmoved, resampled),
    )


def _metrics(evaluations: Iterable[Evaluation]) -> pd.DataFrame:
    rows: list[dict[str, Any]] = []
    for one in evaluations:
        where = {**one.trained.cell.columns(), "fold": one.trained.fold, "part": one.part}
        where |= {"subgroup": one.subgroup, "by": one.by}
        values = one.task.metrics(one.prediction, one.target, one.reference if not one.subgroup else None)
        values |= {name: float(value) for name, value in one.judge().items()}
        rows += [{**where, "n": len(one.ids), "metric": name, "value": value} for name, value in values.items()]
    return pd.DataFrame(rows)


def _resampled(members: Members, number: int) -> Resampled:
    """Metrics averaged over folds and seeds, on resamples of all their patients."""
    ends = np.cumsum([len(one.ids) for one in members])[:-1]

    def measure(counts: np.ndarray) -> dict[str, np.ndarray]:
        scores = [one.judge(part) for one, part in zip(members, np.split(counts, ends, axis=-1), strict=True)]
        # over the folds or seeds that define a metric
        return {name: mean_of_defined(np.stack([one[name] for one in scores], -1)) for name in scores[0]}

    resampled = resample(measure, np.concatenate([np.array(one.patients) for one in members]), number)
    patients, tested = {name for one in members for name in one.patients}, [len(set(one.patients)) for one in members]
    if members[0].part != "test" or max(tested) == len(patients):  # models of several folds, one set of patients
        return resampled
    return over_folds(resampled, len(patients), float(np.mean(tested)))


def _summary(metrics: pd.DataFrame, groups: dict[Group, Members], resampled: Resamples) -> pd.DataFrame:
    tested = metrics[~metrics["part"].isin(["train", "val"])]
    table = tested.groupby([*WHERE, "metric"], sort=False)["value"].agg(["mean", "std", "count"]).reset_index()
    owners = list(table[WHERE].itertuples(index=False, name=None))
    limits = {key: intervals(resampled[members]) for key, members in groups.items()}
    ends = [_ends(limits[key].get(name), name) for key, name in zip(owners, table["metric"], strict=True)]
    table[["ci_low", "ci_high"]] = ends
    table = _add_selection(table, [resampled[groups[key]] for key in owners])
    table["patients"] = [len({p for one in groups[key] for p in one.patients}) for key in owners]
    table["exact_low"] = np.nan
    for row, (key, name, mean) in enumerate(zip(owners, table["metric"], table["mean"], strict=True)):
        known = [(one.target, one.patients) for one in groups[key] if isinstance(one.target, Classes)]
        if known and is_perfect(mean, name):
            labels = np.concatenate([target.as_y() for target, _ in known])
            patients = np.concatenate([np.array(patients) for _, patients in known])
            table.loc[row, "exact_low"] = exact_bounds(labels, patients).get(name, np.nan)
    return table


def _ends(interval: Interval | None, metric: str) -> tuple[float, float]:
    """Ends of an interval, inside the range of the metric."""
    return tuple(np.clip([interval.low, interval.high], *metric_range(metric))) if interval else (np.nan, np.nan)


def _add_selection(table: pd.DataFrame, resampled: list[Resampled]) -> pd.DataFrame:
    """Number of rows that the best of each test was chosen from, its score and interval corrected for that; without subgroups."""
    columns = ["of_rows", "selected", "selected_low", "selected_high"]
    table[columns] = np.nan
    for _, test in table[table["subgroup"] == ""].groupby(["part", "metric"]):
        metric = str(test["metric"].iloc[0])
        rows = [resampled[n] for n in test.index if metric in resampled[n].whole]
        if len(rows) > 1 and not test["mean"].isna().all():
            best = best_of(rows, metric, lower=metric in LOWER_IS_BETTER)
            table.loc[test.index, columns] = [len(rows), best.value, *_ends(best, metric)]
    return table
