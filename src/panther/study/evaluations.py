"""Predictions of a study beside the truth: one value for each cell, fold, part and subgroup."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from panther.cohort.targets import Target
from panther.evaluation.verdicts import group_names
from panther.models.tasks import Task, load_task
from panther.storage.tables import is_missing
from panther.study.cache import load_predictions
from panther.study.file import Study
from panther.study.population import Population
from panther.study.results import GROUP
from panther.study.training import Trained

Group = tuple[Any, ...]  # values of GROUP, part, subgroup and its column: a row of the summary
WHERE = [*GROUP, "part", "subgroup", "by"]


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Predictions of one cell for one part of one fold."""

    trained: Trained
    part: str
    subgroup: str  # empty: everybody
    by: str  # column that makes the subgroup
    task: Task
    prediction: dict[str, np.ndarray]
    target: Target
    ids: tuple[str, ...]
    patients: tuple[str, ...]
    reference: Any  # training predictions and target

    def group(self) -> Group:
        """Row of the summary this belongs to."""
        columns = self.trained.cell.columns()
        return (*(columns[name] for name in GROUP), self.part, self.subgroup, self.by)

    def of(self, rows: np.ndarray) -> "Evaluation":
        """The same of some of its samples."""
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


def evaluations(trained: Trained, population: Population, groups: Mapping[str, pd.Series]) -> Iterable[Evaluation]:
    """Predictions of every part, and of each group of the tested ones; see :func:`subgroups`."""
    about, parts = load_predictions(trained.predictions)
    task = load_task(about["task"])
    patient = dict(zip(population.ids, population.patients, strict=True))
    truth = population.permuted if trained.cell.permuted else population.target
    training = None
    for part, arrays in parts.items():
        ids = tuple(str(name) for name in arrays.pop("ids"))
        target = truth.take(population.rows(ids))
        training = training or (arrays, target)
        whole = Evaluation(trained, part, "", "", task, arrays, target, ids, tuple(patient[i] for i in ids), training)
        yield whole
        if part in ("train", "val"):
            continue
        for column, names in groups.items():
            own = names.reindex(ids)
            for value in sorted(set(own) - {""}):
                yield replace(whole.of(np.flatnonzero((own == value).to_numpy())), subgroup=value, by=column)


def subgroups(study: Study, population: Population) -> dict[str, pd.Series]:
    """Group of everybody by each column that is also judged by; empty where it is not known.

    Where several columns are asked for, a group is called by its column too: `sex: female`.
    """
    found = {}
    own = {name for split in population.splits for name in (*split.train, *split.val, *split.test.get("test", ()))}
    for column in study.by_columns:
        cells = population.table[column].fillna("").astype(str)  # an external table need not have the column
        names = group_names(cells.mask(is_missing(cells), ""), column, own)
        found[column] = names if isinstance(study.evaluate_by, str) else names.where(names == "", f"{column}: " + names)
    return found
