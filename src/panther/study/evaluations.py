"""Predictions of a study with their targets, and comparisons of two rows of its table on the same patients of the same folds.

The shuffle test: how much of each score remains when features are shuffled against coordinates.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from panther.cohort.covariates import COVARIATES
from panther.cohort.targets import Classes, Target
from panther.evaluation.intervals import Difference, Resampled, differences, sign_test
from panther.evaluation.metrics import THRESHOLD
from panther.evaluation.verdicts import group_names
from panther.models.tasks import Task, load_task
from panther.storage.tables import is_missing
from panther.study.file import Study
from panther.study.jobs import load_predictions
from panther.study.parts import NOT_NAMED, reads_covariates
from panther.study.population import Population
from panther.study.results import GROUP
from panther.study.tables import row_suffix, shuffle_verdict, varying_factors
from panther.study.training import Trained

Group = tuple[Any, ...]  # values of GROUP, part, subgroup and its column: a row of the summary
WHERE = [*GROUP, "part", "subgroup", "by"]
FEW = 10  # patients with different predictions, below which resamples of them are too coarse for a p-value


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Predictions of one cell for one part of one fold."""

    trained: Trained
    part: str
    subgroup: str  # empty: all samples
    by: str  # column that makes the subgroup
    task: Task
    prediction: dict[str, np.ndarray]
    target: Target
    ids: tuple[str, ...]
    patients: tuple[str, ...]
    reference: Any  # training predictions and target

    def group(self) -> Group:
        """Row of the summary."""
        columns = self.trained.cell.columns()
        return (*(columns[name] for name in GROUP), self.part, self.subgroup, self.by)

    def of(self, rows: np.ndarray) -> "Evaluation":
        """Evaluation of some of its samples."""
        return replace(
            self,
            prediction={name: array[rows] for name, array in self.prediction.items()},
            target=self.target.take(rows),
            ids=tuple(self.ids[i] for i in rows),
            patients=tuple(self.patients[i] for i in rows),
        )

    def judge(self, counts: np.ndarray | None = None) -> dict[str, np.ndarray]:
        """Metrics that get intervals; a resample may lack events or classes, there they are NaN."""
        return self.task.judge(self.prediction, self.target, self.reference, counts)


Members = tuple[Evaluation, ...]  # folds and seeds of one row of the summary
Resamples = Mapping[Members, Resampled]  # metrics of each side, on resamples of its patients


def evaluations(trained: Trained, population: Population, groups: Mapping[str, pd.Series]) -> Iterable[Evaluation]:
    """Predictions of every part, and of each group of the tested ones; see :func:`subgroups`."""
    about, parts = load_predictions(trained.predictions)
    task = load_task(about["task"])
    patient = dict(zip(population.ids, population.patients, strict=True))
    training = None
    for part, arrays in parts.items():
        ids = tuple(str(name) for name in arrays.pop("ids"))
        target = population.target.take(population.rows(ids))
        training = training or (arrays, target)
        whole = Evaluation(trained, part, "", "", task, arrays, target, ids, tuple(patient[i] for i in ids), training)
        yield whole
        for column, names in groups.items() if part not in ("train", "val") else ():
            values = names.reindex(ids)
            for value in sorted(set(values) - {""}):
                yield replace(whole.of(np.flatnonzero((values == value).to_numpy())), subgroup=value, by=column)


def subgroups(study: Study, population: Population) -> dict[str, pd.Series]:
    """Subgroup of each sample by each column of ``evaluate_by``; empty where it is not known.

    With several columns, the name of a subgroup begins with its column: `sex: female`.
    """
    groups = {}
    for column in study.by_columns:
        cells = population.table[column].fillna("").astype(str)  # an external table need not have the column
        names = group_names(cells.mask(is_missing(cells), ""), column, population.of_study)
        groups[column] = (
            names if isinstance(study.evaluate_by, str) else names.where(names == "", f"{column}: " + names)
        )
    return groups


class Pair(NamedTuple):
    """A row of the summary and the row that it is compared with, in the folds and seeds that both have."""

    key: Group
    sides: tuple[Members, Members]
    reference: str = ""  # unique name of the other row


def pairs_against(groups: Mapping[Group, Members], reference: str) -> list[Pair]:
    """Every cell against the reference method, on the same patients of the same folds."""
    pairs = []
    varying = varying_factors(pd.DataFrame(list(groups), columns=WHERE))
    for key, members in groups.items():
        # that of the reference most like this one: same training size and part, then encoder, head, loss, C; rows of two encoders are not
        # compared, unless one of them is of precomputed vectors, which belong to no encoder
        like = [g for g in groups if g[1] == reference and g[5:] == key[5:]]
        same = [g for g in like if g[0] == key[0] or NOT_NAMED in (g[0], key[0])]
        against = max(same, key=lambda g: tuple(g[i] == key[i] for i in (0, 2, 3, 4)), default=None)
        if against is not None and against != key and (sides := aligned(members, groups[against]))[0]:
            cell = dict(zip(WHERE, against, strict=True))
            pairs.append(Pair(key, sides, f"{cell['method']}{row_suffix(cell, varying)}"))
    return pairs


def aligned(first: Members, second: Members) -> tuple[Members, Members]:
    """Folds and seeds that both have, in one order, with the samples that both have."""
    a, b = ({(one.trained.fold, one.trained.cell.seed): one for one in side} for side in (first, second))
    pairs = []
    for one, two in ((a[k], b[k]) for k in a if k in b):
        if one.ids != two.ids:
            _, rows, others = np.intersect1d(one.ids, two.ids, return_indices=True)
            order = np.argsort(rows)
            one, two = one.of(rows[order]), two.of(others[order])
        pairs.append((one, two))
    return tuple(one for one, _ in pairs if one.ids), tuple(two for _, two in pairs if two.ids)


def paired_differences(sides: tuple[Members, Members], resampled: Resamples) -> dict[str, Difference]:
    """Difference of every metric, on the same resamples.

    Where fewer than ten patients have different predictions, the p-value of a metric of predicted classes is at least McNemar's exact one; each
    patient counts once, over all slides, seeds and models.
    """
    paired = differences(resampled[sides[0]], resampled[sides[1]])
    won: dict[str, int] = {}
    for one, two in zip(*sides, strict=True):
        if not isinstance(one.target, Classes):
            return paired
        truth = one.target.columns()["label"]
        predicted = (side.task.columns(side.prediction)["predicted"] for side in (one, two))
        for patient, label, a, b in zip(one.patients, truth, *predicted, strict=True):
            if a != b:
                won[patient] = won.get(patient, 0) + (a == label) - (b == label)
    if len(won) >= FEW:
        return paired
    exact = sign_test(sum(n > 0 for n in won.values()), sum(n < 0 for n in won.values()))
    return {name: replace(d, p_value=max(d.p_value, exact)) if name in THRESHOLD else d for name, d in paired.items()}


def _columns(d: Difference) -> dict[str, float]:
    return {"difference": d.value, "ci_low": d.low, "ci_high": d.high, "p_value": d.p_value}


def compared(pair: Pair, resampled: Resamples) -> Iterable[dict[str, Any]]:
    """One row per metric: the difference, its interval and p-value."""
    where = {**dict(zip(WHERE, pair.key, strict=True)), "reference": pair.reference}
    for name, d in paired_differences(pair.sides, resampled).items():
        yield {**where, "metric": name, **_columns(d)}


def gain_pairs(groups: Mapping[Group, Members]) -> list[Pair]:
    """Every row of an embedding with covariates, against covariates alone."""
    pairs = pairs_against(groups, COVARIATES)
    return [pair for pair in pairs if reads_covariates(groups[pair.key][0].trained.cell.method)]


def gains(pairs: Iterable[Pair], resampled: Resamples, baseline: str) -> list[dict[str, Any]]:
    """One row per metric: covariates alone, with the slide, the gain and its interval."""
    rows = []
    for pair in pairs:
        both, alone = (resampled[side].whole for side in pair.sides)
        rows += [
            {**row, "covariates": alone[row["metric"]], "with_slide": both[row["metric"]], "baseline": baseline}
            for row in compared(pair, resampled)
        ]
    return rows


def shuffle_pairs(groups: Mapping[Group, Members], shuffled: Iterable[Evaluation]) -> list[Pair]:
    """Every row that was also trained and tested on shuffled tissue, against the same on shuffled tissue, in the folds that both have."""
    others: dict[tuple[Group, int], Members] = {}
    for one in shuffled:
        key = one.group(), one.trained.shuffle
        others[key] = (*others.get(key, ()), one)
    both: dict[Group, tuple[Members, Members]] = {}
    for (group, _), members in others.items():
        if group in groups:
            sides, more = both.get(group, ((), ())), aligned(groups[group], members)
            both[group] = (*sides[0], *more[0]), (*sides[1], *more[1])
    return [Pair(key, sides) for key, sides in both.items() if sides[0]]


def shuffle_table(
    groups: Mapping[Group, Members], pairs: Iterable[Pair], unmoved: Iterable[str], resampled: Resamples
) -> pd.DataFrame:
    """One row per metric of every row of the summary (without subgroups): the score, that on shuffled tissue, and the loss.

    ``unmoved`` are the methods that do not depend on coordinates, and which were therefore not trained again.
    """
    rows: list[dict[str, Any]] = []
    sides = {pair.key: pair.sides for pair in pairs}
    for key, members in groups.items():
        where = dict(zip(WHERE, key, strict=True))
        if where.pop("subgroup") or where.pop("by"):
            continue
        if key in sides:
            as_it_is, shuffled = (resampled[side].whole for side in sides[key])
            paired, repeats = paired_differences(sides[key], resampled), len({o.trained.shuffle for o in sides[key][1]})
        elif where["method"] in unmoved:
            as_it_is = shuffled = resampled[members].whole
            paired, repeats = {name: Difference(0.0, 0.0, 0.0, 0, np.nan) for name in as_it_is}, 0
        else:
            continue
        for metric, d in paired.items():
            scores = {"metric": metric, "score": as_it_is[metric], "shuffled": shuffled[metric]}
            rows.append({**where, **scores, **_columns(d), "shuffles": repeats})
    table = pd.DataFrame(rows)
    return table if table.empty else table.assign(words=[shuffle_verdict(row) for _, row in table.iterrows()])
