"""Calibration and prediction sets of a study's models.

A fold's probabilities are calibrated on its validation part. Where there is none, the test patients of the other folds serve: each was
predicted by a model that had not seen them. An external cohort's are calibrated on the test part of the same model.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce
from typing import Any

import numpy as np
import pandas as pd

from panther.cohort.targets import Classes, Values
from panther.engine import Work, map_all
from panther.errors import InputError
from panther.evaluation import calibration as cal
from panther.evaluation.intervals import Interval, exact_lower, intervals, resample
from panther.evaluation.metrics import ratio
from panther.models.uncertainty import VALIDATION, Calibration, Calibrator, Margin, fit_calibrator
from panther.study.evaluations import Evaluation
from panther.study.population import Population
from panther.study.results import GROUP
from panther.study.tables import SURENESS

OTHER_FOLDS, SAME_TEST = "test patients of the other folds", "test patients of the same fold"
PREDICTED = "predicted class"
Row = dict[str, Any]
Key = tuple[Any, ...]
Intervals = Mapping[Any, Interval]
Judged = tuple[Evaluation, Calibrator | None]


def judge_sureness(
    evaluations: Iterable[Evaluation], population: Population, number: int, work: Work, by_class: bool = False
) -> dict[str, pd.DataFrame]:
    """Tables of all methods and tests, by their names; ``number`` resamples of patients give the intervals."""
    site = dict(zip(population.ids, population.sites, strict=True))
    cells: dict[Key, list[Evaluation]] = {}
    for one in evaluations:
        if not one.subgroup and isinstance(one.target, (Classes, Values)):
            cells.setdefault(tuple(one.trained.cell.columns().values()), []).append(one)
    groups: dict[Key, list[Judged]] = {}
    for same_cell in cells.values():
        for one in same_cell:
            if one.part not in ("train", "val"):
                groups.setdefault(one.group(), []).append((one, _calibrator(one, same_cell, by_class)))
    pooled = [_pooled(members, site) for members in groups.values()]
    tables = map_all(partial(tables_of, number=number), pooled, "calibration", work)
    rows: dict[str, list[Row]] = {name: [] for name in SURENESS}
    for key, group_tables in zip(groups, tables, strict=True):
        where = dict(zip([*GROUP, "part"], key, strict=False))
        for name, lines in group_tables.items():
            rows[name] += [{**where, **line} for line in lines]
    return {name: pd.DataFrame(lines) for name, lines in rows.items() if lines}


def _calibrator(one: Evaluation, same_cell: Sequence[Evaluation], by_class: bool = False) -> Calibrator | None:
    """Calibrator from patients that this fold's model was not trained on; None where they are too few."""
    same_model = [other for other in same_cell if other.trained.fold == one.trained.fold]
    others = [other for other in same_cell if other.part == "test" and other.trained.fold != one.trained.fold]
    members, source = others, OTHER_FOLDS
    if validation := [other for other in same_model if other.part == "val"]:
        members, source = validation, VALIDATION
    elif one.part != "test":
        members, source = [other for other in same_model if other.part == "test"], SAME_TEST
    if not members:
        return None
    prediction = {name: np.concatenate([other.prediction[name] for other in members]) for name in members[0].prediction}
    target = reduce(lambda a, b: a.followed_by(b), (other.target for other in members))  # type: ignore[arg-type]
    patients = np.concatenate([np.array(other.patients) for other in members])
    rows = np.flatnonzero(~np.isin(patients, np.array(one.patients)))  # repeated splits test a patient more than once
    try:
        kept = {name: values[rows] for name, values in prediction.items()}
        return fit_calibrator(one.task, kept, target.take(rows), patients[rows], source, by_class)
    except InputError:  # too few
        return None


@dataclass(frozen=True, eq=False)
class Pooled:
    """Predictions of all folds and seeds of one method for one test."""

    names: tuple[str, ...]  # of the classes; none where values are predicted
    truth: np.ndarray  # (n,), classes or values
    raw: np.ndarray  # (n, K) probabilities, or (n,) values
    calibrated: np.ndarray | None  # the same, None where they could not be calibrated
    sets: np.ndarray | None  # (n, 2): whether the set or interval holds the truth, and how large it is
    patients: np.ndarray  # (n,)
    sites: np.ndarray  # (n,), empty where not known
    source: str  # patients of the calibration
    level: float  # of the sets
    temperature: float  # mean over folds

    @property
    def variants(self) -> dict[str, np.ndarray]:
        """Probabilities of the model, raw, and calibrated where that is possible."""
        return {"raw": self.raw} | ({} if self.calibrated is None else {"calibrated": self.calibrated})

    def events(self, p: np.ndarray) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Probabilities and outcomes of the predicted class, and of each class (of two only the second)."""
        classes = (1,) if len(self.names) == 2 else range(len(self.names))
        return {
            PREDICTED: cal.confidence(self.truth, p),
            **{self.names[k]: (p[:, k], self.truth == k) for k in classes},
        }

    @cached_property
    def groups(self) -> dict[tuple[str, str], np.ndarray]:
        """All samples, each class and each site."""
        groups = {("all", ""): np.ones(len(self.truth), bool)}
        groups |= {("class", name): self.truth == k for k, name in enumerate(self.names)}
        groups |= {("site", site): self.sites == site for site in sorted(set(self.sites)) if site}
        return {key: members for key, members in groups.items() if members.any()}


def _pooled(members: Sequence[Judged], site: Mapping[str, str | None]) -> Pooled:
    """All folds and seeds of a row of the summary together; calibrated where all of them are."""
    calibrators = [calibrator for _, calibrator in members if calibrator is not None]
    is_complete = len(calibrators) == len(members)
    truth, raw, calibrated, sets = [], [], [], []
    for one, calibrator in members:
        y = next(iter(one.task.encode(one.target).values())).numpy()
        p = one.prediction["probabilities" if isinstance(one.target, Classes) else "value"]
        truth.append(y)
        raw.append(p)
        if isinstance(calibrator, Calibration):
            p = cal.tempered(p, calibrator.temperature)
            inside = cal.prediction_sets(p, calibrator.threshold)
            sets.append(np.column_stack([cal.covers(y, inside), inside.sum(1)]))
        elif isinstance(calibrator, Margin):
            covered = np.abs(y - p) <= calibrator.half_width
            sets.append(np.column_stack([covered, np.full(len(y), 2 * calibrator.half_width)]))
        calibrated.append(p)
    temperatures = [getattr(one, "temperature", np.nan) for one in calibrators]
    first = members[0][0]
    return Pooled(
        names=first.task.names if isinstance(first.target, Classes) else (),
        truth=np.concatenate(truth),
        raw=np.concatenate(raw),
        calibrated=np.concatenate(calibrated) if is_complete else None,
        sets=np.concatenate(sets) if is_complete else None,
        patients=np.concatenate([np.array(one.patients) for one, _ in members]),
        sites=np.array([site.get(name) or "" for one, _ in members for name in one.ids]),
        source=calibrators[0].source if is_complete else "",
        level=calibrators[0].level if is_complete else np.nan,
        temperature=float(np.mean(temperatures)) if is_complete else np.nan,
    )


def tables_of(pooled: Pooled, number: int) -> dict[str, list[Row]]:
    """Rows of each table; everything is measured on the same resamples, which are drawn once."""
    limits: Intervals = intervals(resample(partial(_measure, pooled), pooled.patients, number))
    tables: dict[str, list[Row]] = {"prediction_sets": []}
    sets = np.empty((0, 2)) if pooled.sets is None else pooled.sets
    for (by, value), rows in pooled.groups.items() if len(sets) else ():
        size, patients = sets[rows, 1], len(set(pooled.patients[rows]))
        where = {"by": by, "value": value, "level": pooled.level}
        ends = _ends(_of_share(limits["sets", by, value], patients), "coverage")
        single = float((size == 1).mean()) if pooled.names else np.nan
        row = {**where, **ends, "size": float(size.mean()), "single": single, "samples": int(rows.sum())}
        tables["prediction_sets"].append({**row, "patients": patients, "calibrated_on": pooled.source})
    if not pooled.names:
        return tables
    tables |= {"calibration": [], "reliability": []}
    for variant, p in pooled.variants.items():
        chance = cal.error_by_chance(p)
        by_chance = {"ece": (float(chance.mean()), float(np.quantile(chance, 0.95)))}
        is_calibrated = variant == "calibrated"
        for metric in [key[2] for key in limits if key[:2] == ("calibration", variant)]:
            expected, highest = by_chance.get(metric, (np.nan, np.nan))
            row = {"probabilities": variant, "metric": metric, **_ends(limits["calibration", variant, metric])}
            row |= {"by_chance": expected, "by_chance_high": highest}
            row |= {"temperature": pooled.temperature if is_calibrated else np.nan}
            row |= {"calibrated_on": pooled.source if is_calibrated else "", "patients": len(set(pooled.patients))}
            tables["calibration"].append(row)
        for name, (probability, came_true) in pooled.events(p).items():
            curve, member = cal.reliability(probability, came_true), cal.bin_of(probability)
            for b in np.flatnonzero(curve.weight > 0):
                patients = len(set(pooled.patients[member == b]))
                ends = _ends(_of_share(limits["reliability", variant, name, b], patients), "observed")
                row = {"probabilities": variant, "class": name, "bin": int(b), "predicted": float(curve.predicted[b])}
                tables["reliability"].append({**row, **ends, "samples": int(curve.weight[b])})
    return tables


def _measure(pooled: Pooled, counts: np.ndarray) -> dict[Any, np.ndarray]:
    """Everything that gets an interval, by table and row."""
    values: dict[Any, np.ndarray] = {}
    if pooled.sets is not None:
        for group, rows in pooled.groups.items():
            values["sets", *group] = ratio(counts @ (rows * pooled.sets[:, 0]), counts @ rows)
    for variant, p in pooled.variants.items() if pooled.names else ():
        metrics = cal.calibration_metrics(pooled.truth, p, counts)
        values |= {("calibration", variant, name): value for name, value in metrics.items()}
        for name, (probability, came_true) in pooled.events(p).items():
            observed = cal.reliability(probability, came_true, counts).observed
            values |= {("reliability", variant, name, b): observed[..., b] for b in range(cal.BINS)}
    return values


def _of_share(interval: Interval, patients: int) -> Interval:
    """A share with its interval; at 0 or 1, where resamples do not vary, with the exact binomial bound."""
    if interval.value == 1:
        return replace(interval, low=exact_lower(patients))
    return replace(interval, high=1 - exact_lower(patients)) if interval.value == 0 else interval


def _ends(interval: Interval, name: str = "value") -> Row:
    return {name: interval.value, "ci_low": interval.low, "ci_high": interval.high}
