"""One fold's diagnosis: every look is judged by probes on inner folds of the training patients; nobody else is read."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from panther.cohort.targets import Target
from panther.errors import InputError
from panther.models.blocks import columns_of
from panther.models.fitting import Parts
from panther.models.probe_search import inner_folds
from panther.models.probes import fit_suitable
from panther.models.tasks import Prediction, Task, fit_task
from panther.storage.files import write_arrays
from panther.study.cache import load_embeddings
from panther.study.jobs import BlockSource, StudyJob
from panther.study.needle.looks import scaled_looks

INNER_FOLDS = 5
# of the probes within: four looks in every inner fold of every fold are many, and a diagnosis does not hang on the last digit of a penalty
SEARCH = {"strengths": (0.01, 1.0, 100.0), "folds": 3}


@dataclass(frozen=True)
class DiagnosisJob(StudyJob):
    """Predictions of training patients by probes that did not see them, for each look."""

    encoder: str
    fold: int
    parts: Parts  # the training part alone
    loss: str  # of the probes
    seed: int
    panther: Path  # matrix of PANTHER's mixtures with the block `tail`
    source: BlockSource  # what that is
    largest: Path  # matrix of the largest values
    path: Path  # .npz of predictions, of each look and inner fold

    def __str__(self) -> str:
        return f"diagnosis, {self.encoder}, fold {self.fold}"

    @property
    def inputs(self) -> tuple[Path, ...]:
        """Both matrices, and the prototypes."""
        return (self.panther, self.largest, *self.source.files)

    @property
    def outputs(self) -> dict[str, Path]:
        """The predictions."""
        return {"predictions": self.path}

    def run(self) -> None:
        """Write the predictions of every inner fold."""
        (x, names), (largest, others) = load_embeddings(self.panther), load_embeddings(self.largest)
        rows, rows_of_largest = ({name: row for row, name in enumerate(own)} for own in (names, others))
        parts = self.parts.known([name for name in names if name in rows_of_largest])
        if "train" not in parts.ids:
            raise InputError("none of the training samples could be embedded.")
        ids, target = parts.ids["train"], parts.targets["train"]
        task = fit_task(self.loss, target)
        found = inner_predictions(
            np.array(x[[rows[name] for name in ids]]),
            columns_of([self.source.load()]),
            np.array(largest[[rows_of_largest[name] for name in ids]]),
            target,
            np.array([parts.patients[name] for name in ids]),
            task,
            self.seed,
        )
        arrays: dict[str, Any] = {"about": np.array(json.dumps({"task": task.settings()}, default=list))}
        for one in found:
            part = f"{one.look} {one.fold}"
            arrays[f"{part}/ids"] = np.array(ids)[one.rows]
            arrays |= {f"{part}/{name}": values for name, values in one.prediction.items()}
        if len(arrays) == 1:
            raise InputError("no inner fold of the training patients leaves something to learn from.")
        write_arrays(self.path, arrays)


class Inner(NamedTuple):
    """Predictions of one inner fold from one look."""

    look: str
    fold: int
    rows: np.ndarray  # that were predicted
    prediction: Prediction


def inner_predictions(
    panther: np.ndarray,
    columns: Any,
    largest: np.ndarray,
    target: Target,
    patients: np.ndarray,
    task: Task[Any],
    seed: int = 0,
) -> Iterator[Inner]:
    """Predict every row by probes of the other inner folds, patients together; scaling and penalties are of these others as well.

    An inner fold whose others say nothing (one class, no event) is left out, of every look alike.
    """
    for number, test in enumerate(inner_folds(target.strata(), INNER_FOLDS, patients, seed)):
        train = np.setdiff1d(np.arange(len(target)), test)
        try:
            own = fit_task(task.name, target.take(train))
            looks = scaled_looks(panther, columns, largest, train)
            search = {**SEARCH, "groups": patients[train], "seed": seed}
            probes = {
                name: fit_suitable(z[train], target.take(train), task.name, **search) for name, z in looks.items()
            }
        except InputError:
            continue
        for name, probe in probes.items():
            logits = torch.from_numpy(probe.logits(looks[name][test]))
            yield Inner(name, number, test, own.predict(logits))


def run_diagnosis(job: DiagnosisJob) -> None:
    """Run a job, unless another process has made its file meanwhile."""
    if not job.done:
        job.run()
