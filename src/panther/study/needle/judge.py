"""From the predictions of inner folds to scores of every look, and to a verdict for every encoder."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from panther.cohort.targets import Kind, Target
from panther.evaluation.intervals import Resampled, intervals, resample
from panther.evaluation.metrics import mean_of_defined
from panther.models.tasks import Prediction, Task, load_task
from panther.study.cache import load_predictions
from panther.study.needle.decide import decide
from panther.study.needle.job import DiagnosisJob
from panther.study.needle.looks import LOOKS
from panther.study.needle.words import in_words
from panther.study.population import Population
from panther.study.tables import DIAGNOSIS

# metrics that do not hang on a threshold, which few patients cannot set; and what a guess has
METRIC: dict[Kind, tuple[str, float]] = {
    "classification": ("auroc", 0.5),
    "survival": ("c_index", 0.5),
    "regression": ("pearson", 0.0),
    "labels": ("macro_auroc", 0.5),
}
RESAMPLES = 1000
COLUMNS = {"": "value", "_low": "low", "_high": "high"}  # of each look, after its name


class _Inner(NamedTuple):
    """One inner fold of one fold: everybody in it, and what every look predicts of them."""

    fold: int
    target: Target
    patients: list[str]
    predictions: Mapping[str, Prediction]


def judge_needle(jobs: Iterable[DiagnosisJob], population: Population, rare: bool) -> dict[str, pd.DataFrame]:
    """Tables `diagnosis` (every look in every fold) and `diagnosis_verdicts` (one row per encoder); none where nothing was diagnosed."""
    metric, chance = METRIC[population.target.kind]
    scores: list[dict[str, Any]] = []
    verdicts: list[dict[str, Any]] = []
    by_encoder: dict[str, list[DiagnosisJob]] = {}
    for job in jobs:
        by_encoder.setdefault(job.encoder, []).append(job)
    for encoder, own in by_encoder.items():
        task, members = _read(own, population)
        for fold in dict.fromkeys(one.fold for one in members):
            inner = [one for one in members if one.fold == fold]
            scores += [{"encoder": encoder, "fold": fold, **row} for row in _scores(task, metric, inner)]
        resampled = _resampled(task, metric, members)
        found, looks = decide(resampled, chance), intervals(resampled)
        verdicts.append(
            {
                "encoder": encoder,
                "metric": metric,
                "verdict": found.verdict,
                "whole": found.whole.value,
                "whole_by": found.best[0],
                "stands_out": found.stands_out.value,
                "stands_out_by": found.best[1],
                "difference": found.difference.value,
                "ci_low": found.difference.low,
                "ci_high": found.difference.high,
                **{f"{look}{end}": getattr(i, field) for look, i in looks.items() for end, field in COLUMNS.items()},
                "chance": chance,
                "patients": len({name for one in members for name in one.patients}),
                "words": in_words(found, metric, rare=rare),
            }
        )
    return dict(zip(DIAGNOSIS, map(pd.DataFrame, (scores, verdicts)), strict=True)) if verdicts else {}


def _read(jobs: Sequence[DiagnosisJob], population: Population) -> tuple[Task[Any], list[_Inner]]:
    patient = dict(zip(population.ids, population.patients, strict=True))
    members, task = [], None
    for job in jobs:
        about, parts = load_predictions(job.path)
        task = task or load_task(about["task"])
        for number in dict.fromkeys(part.split(" ")[1] for part in parts):
            own = {look: dict(parts[f"{look} {number}"]) for look in LOOKS}
            ids = [[str(name) for name in arrays.pop("ids")] for arrays in own.values()].pop()
            target = population.target.take(population.rows(ids))
            members.append(_Inner(job.fold, target, [patient[name] for name in ids], own))
    assert task is not None
    return task, members


def _scores(task: Task[Any], metric: str, inner: Sequence[_Inner]) -> list[dict[str, Any]]:
    """Mean and spread over the inner folds of one fold."""
    rows = []
    for look in LOOKS:
        each = np.array([float(task.judge(one.predictions[look], one.target)[metric]) for one in inner])
        known = each[~np.isnan(each)]
        spread = known.std(ddof=1) if len(known) > 1 else np.nan
        score = known.mean() if len(known) else np.nan
        patients = len({name for one in inner for name in one.patients})
        rows.append({"what": look, "metric": metric, "score": score, "std": spread, "inner_folds": len(known), "patients": patients})  # fmt: skip
    return rows


def _resampled(task: Task[Any], metric: str, members: Sequence[_Inner]) -> Resampled:
    """Score of every look, the mean over inner folds, on resamples of their patients."""
    ends = np.cumsum([len(one.patients) for one in members])[:-1]

    def measure(counts: np.ndarray) -> dict[str, np.ndarray]:
        each = list(zip(members, np.split(counts, ends, axis=-1), strict=True))
        return {
            look: mean_of_defined(
                np.stack([task.judge(one.predictions[look], one.target, None, own)[metric] for one, own in each], -1)
            )
            for look in LOOKS
        }

    return resample(measure, [name for one in members for name in one.patients], RESAMPLES)
