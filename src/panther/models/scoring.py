"""How good the predictions of a trained model are, where a table knows the outcome."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from pydantic import ValidationError

from panther.cohort.load import Cohort, make_cohort
from panther.cohort.spec import Level, TaskSpec
from panther.cohort.targets import Classes
from panther.errors import InputError
from panther.evaluation.intervals import Interval, intervals, resample
from panther.evaluation.metric_names import metric_title
from panther.evaluation.perfect_scores import exact_bounds, is_perfect
from panther.evaluation.verdicts import about_one_class, about_perfect
from panther.models.model import Model
from panther.models.tasks import KINDS
from panther.models.tasks.classes import ClassTask
from panther.storage.bags import Listing, group_by_patient
from panther.storage.clinical import TCGA, ClinicalTable
from panther.storage.names import without_suffix
from panther.types import Openable

RESAMPLES = 1000
PREDICTS = {**KINDS, "survival": "risks of survival"}


@dataclass(frozen=True)
class Scores:
    """Metrics of the predictions whose outcome is known."""

    samples: int
    patients: int
    counts: Mapping[str, int]  # samples per class, or with and without the event
    metrics: Mapping[str, Interval]  # over patients; without those that are not defined here
    columns: str  # of the outcome, and what their values mean
    notes: tuple[str, ...]

    def sentences(self) -> list[str]:
        """Scores for reading."""
        who = ", ".join(f"{name} {n}" for name, n in self.counts.items())
        known = f"whose outcome is known from {self.columns}"
        head = f"Scored on {self.samples} samples of {self.patients} patients {known}: {who}."
        return [
            head,
            *(f"  {metric_title(m)} {i.value:.3f} [{i.low:.3f}, {i.high:.3f}]" for m, i in self.metrics.items()),
        ]

    def to_dict(self) -> dict[str, Any]:
        """Scores for a machine."""
        metrics = {
            name: {"value": i.value, "ci_low": _plain(i.low), "ci_high": _plain(i.high), "resamples": i.resamples}
            for name, i in self.metrics.items()
        }
        return {
            "samples": self.samples,
            "patients": self.patients,
            "counts": dict(self.counts),
            "columns": self.columns,
            "metrics": metrics,
            "notes": list(self.notes),
        }


def trained_task(model: Model, source: object = "the model") -> TaskSpec | None:
    """What a model was trained to predict, as columns of its table; None where its file, ``source``, does not say."""
    said = model.about.get("task")
    try:
        return None if said is None else TaskSpec.model_validate(said)
    except ValidationError as error:
        raise InputError(f"{source}: says {said!r} of its task, which is none; train it again.") from error


def in_units(
    refs: Sequence[Openable], level: Level, table: ClinicalTable | None
) -> tuple[tuple[Openable, ...], Level, list[str]]:
    """Bags of that level where it can be had, else of slides, and notes; without a table only TCGA's names tell the patient."""
    if level == "slide":
        return tuple(refs), level, []
    slides = [ref.sample for ref in refs]
    if table is not None:
        who = table.who
        patients, notes = dict(zip(who.slide, who.patient, strict=True)), who.notes
    elif all(re.match(TCGA, slide) for slide in slides):
        patients, notes = {slide: slide[:12] for slide in slides}, []
    else:
        why = "The model was trained on patients; without a table that names them every slide is predicted by itself."
        return tuple(refs), "slide", [why]
    known = {slide: patients[without_suffix(slide)] for slide in slides}
    return group_by_patient(Listing(tuple(refs), {}), known)[0].refs, level, list(notes)


def known_outcomes(model: Model, task: TaskSpec, table: ClinicalTable, level: Level, slides: Sequence[str]) -> Cohort:
    """Samples of a table with their outcome, in the classes that the model knows."""
    if task.kind != model.task.kind:
        predicts = PREDICTS[model.task.kind]
        raise InputError(f"The model predicts {predicts}; name the columns of such an outcome to score it.")
    own = {"classes": tuple(model.task.names)} if isinstance(model.task, ClassTask) else {}
    known = task.model_copy(update={**own, "level": level})
    return make_cohort(table, known, slides)


def score(
    model: Model,
    samples: Sequence[str],
    predictions: Mapping[str, np.ndarray],
    cohort: Cohort,
    split: str | None = None,
) -> Scores | None:
    """Judge the predictions of samples whose outcome is known, of that part of the table; None where there is none."""
    known = set(cohort.ids)
    rows = np.array([i for i, name in enumerate(samples) if name in known], np.int64)
    if not len(rows):
        return None
    positions = cohort.positions([samples[i] for i in rows])
    target = cohort.target.take(positions)
    patients = np.array([cohort.samples[i].patient for i in positions])
    judged = {name: values[rows] for name, values in predictions.items()}

    resampled = resample(lambda counts: model.task.judge(judged, target, None, counts), patients, RESAMPLES)
    metrics = {name: i for name, i in intervals(resampled).items() if not np.isnan(i.value)}
    seen = _seen(model, [samples[i] for i in rows], split)
    notes = [*seen, *_one_class(target), *_perfect(metrics, target, patients)]
    return Scores(len(rows), len(set(patients)), target.counts(), metrics, cohort.report.columns, tuple(notes))


def _seen(model: Model, samples: Sequence[str], split: str | None) -> list[str]:
    seen = set(model.about.get("samples", ())) & set(samples)
    if not seen:
        return []
    asked_for_test = split is not None and split.startswith("test")
    remedy = (
        f"train without them, or take them out of {split!r}"
        if asked_for_test
        else "score others, e.g. with `split=test`"
    )
    return [
        f"{len(seen)} of the {len(samples)} scored samples were trained on, e.g. {min(seen)}: the scores say little about new "
        f"patients; {remedy}."
    ]


def _one_class(target: Any) -> list[str]:
    only = target.only_class() if isinstance(target, Classes) else None
    return [] if only is None else [f"Of the scored, {about_one_class(len(target), only)}."]


def _perfect(metrics: Mapping[str, Interval], target: Any, patients: np.ndarray) -> list[str]:
    """What a perfect score does not say."""
    bounds = exact_bounds(target.labels, patients) if isinstance(target, Classes) else {}
    notes = []
    for name, interval in metrics.items():
        if is_perfect(interval.value, name):
            about = {
                "metric": name,
                "mean": interval.value,
                "patients": len(set(patients)),
                "exact_low": bounds.get(name, np.nan),
            }
            notes.append(f"{metric_title(name)} is 1: {about_perfect(pd.Series(about))}.")
    return notes


def _plain(value: float) -> float | None:
    return None if np.isnan(value) else value
