"""How sure a study's models are, and whether they keep what they promise: calibration, prediction sets.

A fold's probabilities are calibrated on its validation part. Where there is none, the test patients of the other folds serve: each was
predicted by a model that had not seen them. An external cohort's are calibrated on the test part of the same model.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from panther.cohort.targets import Classes, Values
from panther.engine import Work, map_all
from panther.errors import InputError
from panther.evaluation.calibration import hold_the_truth, prediction_sets
from panther.models.sureness import VALIDATION, Calibration, Margin, Promise, learn_promise
from panther.study.evaluations import Evaluation
from panther.study.population import Population
from panther.study.results import GROUP
from panther.study.sureness.rows import Pooled, tables_of
from panther.study.tables import SURENESS

OTHER_FOLDS, OWN_TEST = "test patients of the other folds", "test patients of the same fold"
Key = tuple[Any, ...]


def judge_sureness(
    found: Iterable[Evaluation], population: Population, number: int, work: Work, by_class: bool = False
) -> dict[str, pd.DataFrame]:
    """Tables of all methods and tests, by their names; ``number`` resamples of patients give the intervals."""
    whole = [one for one in found if not one.subgroup and isinstance(one.target, (Classes, Values))]
    site = dict(zip(population.ids, population.sites, strict=True))
    cells: dict[Key, list[Evaluation]] = {}
    for one in whole:
        cells.setdefault(tuple(one.trained.cell.columns().values()), []).append(one)
    groups: dict[Key, list[_Judged]] = {}
    for same_cell in cells.values():
        for one in same_cell:
            if one.part not in ("train", "val"):
                groups.setdefault(one.group(), []).append(_Judged(one, _promise(one, same_cell, by_class)))
    pooled = [_pooled(members, site) for members in groups.values()]
    tables = map_all(partial(tables_of, number=number), pooled, "calibration", work)
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in SURENESS}
    for key, own in zip(groups, tables, strict=True):
        where = dict(zip([*GROUP, "part"], key, strict=False))
        for name, lines in own.items():
            rows[name] += [{**where, **line} for line in lines]
    return {name: pd.DataFrame(lines) for name, lines in rows.items() if lines}


@dataclass(frozen=True)
class _Judged:
    one: Evaluation
    promise: Promise | None


def _promise(one: Evaluation, same_cell: Sequence[Evaluation], by_class: bool = False) -> Promise | None:
    """What patients whom this fold's model was not trained on say about it; None where they are too few."""
    members, source = _held_out(one, same_cell)
    if not members:
        return None
    prediction = {name: np.concatenate([other.prediction[name] for other in members]) for name in members[0].prediction}
    target = members[0].target
    for other in members[1:]:
        target = target.followed_by(other.target)  # type: ignore[arg-type]
    patients = np.concatenate([np.array(other.patients) for other in members])
    mine = np.isin(patients, np.array(one.patients))  # repeated splits test a patient more than once
    rows = np.flatnonzero(~mine)
    try:
        kept = {name: values[rows] for name, values in prediction.items()}
        return learn_promise(one.task, kept, target.take(rows), patients[rows], source, by_class)
    except InputError:  # too few
        return None


def _held_out(one: Evaluation, same_cell: Sequence[Evaluation]) -> tuple[list[Evaluation], str]:
    """Predictions that calibrate those of one part of one fold, and who they are."""
    same_model = [other for other in same_cell if other.trained.fold == one.trained.fold]
    validation = [other for other in same_model if other.part == "val"]
    if validation:
        return validation, VALIDATION
    if one.part != "test":
        return [other for other in same_model if other.part == "test"], OWN_TEST
    others = [other for other in same_cell if other.part == "test" and other.trained.fold != one.trained.fold]
    return others, OTHER_FOLDS


def _pooled(members: Sequence[_Judged], site: Mapping[str, str | None]) -> Pooled:
    """All folds and seeds of a row of the summary together; calibrated where all of them are."""
    first = members[0].one
    promises = [member.promise for member in members if member.promise is not None]
    complete = len(promises) == len(members)
    ids = [name for member in members for name in member.one.ids]
    return Pooled(
        names=getattr(first.task, "names", ()),
        truth=np.concatenate([_truth(member.one) for member in members]),
        raw=np.concatenate([_raw(member.one) for member in members]),
        calibrated=np.concatenate([_calibrated(m) for m in members]) if complete else None,
        sets=np.concatenate([_covered(m) for m in members]) if complete else None,
        patients=np.concatenate([np.array(member.one.patients) for member in members]),
        sites=np.array([site.get(name) or "" for name in ids]),
        source=promises[0].source if complete else "",
        level=promises[0].level if complete else np.nan,
        temperature=float(np.mean([getattr(p, "temperature", np.nan) for p in promises])) if complete else np.nan,
    )


def _truth(one: Evaluation) -> np.ndarray:
    encoded = one.task.encode(one.target)
    return next(iter(encoded.values())).numpy()


def _raw(one: Evaluation) -> np.ndarray:
    return one.prediction["probabilities"] if isinstance(one.target, Classes) else one.prediction["value"]


def _calibrated(member: _Judged) -> np.ndarray:
    promise, raw = member.promise, _raw(member.one)
    return promise.probabilities(raw) if isinstance(promise, Calibration) else raw


def _covered(member: _Judged) -> np.ndarray:
    """Whether the set or interval holds the truth, and how large it is; (n, 2)."""
    truth, given = _truth(member.one), _calibrated(member)
    if isinstance(member.promise, Margin):
        covered = np.abs(truth - given) <= member.promise.half_width
        return np.column_stack([covered, np.full(len(truth), 2 * member.promise.half_width)])
    assert isinstance(member.promise, Calibration)
    sets = prediction_sets(given, member.promise.threshold)
    return np.column_stack([hold_the_truth(truth, sets), sets.sum(1)])
