"""Whom each method was wrong about, as the study's page shows it; one entry for each kind of target."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from panther.report.data import Run
from panther.study.patients import (
    Classified,
    Labelled,
    Measured,
    Ranked,
    classified,
    labelled,
    mean_over_methods,
    measured,
    ranked,
)

BY_CLASS = "A method is the more wrong about a patient the less probability it gave to the true class (mean over seeds and folds)."
BY_RANK = (
    "A method is the more wrong about a patient the more of its pairs it orders wrongly: pairs with patients of the same test fold of "
    "whom it is known who had the event first (those that the c-index counts), ordered wrongly where the one with the earlier event "
    "has the lower risk. Whoever is in no such pair is not judged."
)

BY_ERROR = "A method is the more wrong about a patient the farther its prediction (mean over seeds and folds) lies from what was observed."
BY_LABELS = (
    "A method is the more wrong about a patient the less probability it gave to what is true, the mean over the labels that are known of "
    "the patient; it says of a label that it is there where its probability is above a half."
)
People = Classified | Ranked | Measured | Labelled


def _classes(run: Run, found: Classified) -> list[dict[str, Any]]:
    predicted, given = found.predicted, found.of_truth
    assert run.classes is not None
    right = (predicted == found.truth) & (predicted >= 0)
    return [
        {
            "truth": run.classes[found.truth[s]] if found.truth[s] >= 0 else None,
            "predicted": [run.classes[k] if k >= 0 else None for k in predicted[:, s]],
            "probability": given[:, s],
            "all": mean,
            "right": int(right[:, s].sum()),
            "asked": int((predicted[:, s] >= 0).sum()),
            "disagree": len(set(predicted[predicted[:, s] >= 0, s].tolist())) > 1,
        }
        for s, mean in enumerate(mean_over_methods(given))
    ]


def _values(run: Run, found: Measured) -> list[dict[str, Any]]:
    middle = float(np.median(found.truth))
    sides, known = found.predicted > middle, ~np.isnan(found.predicted)
    return [
        {
            "truth": found.truth[s],
            "predicted": found.predicted[:, s],
            "error": found.error[:, s],
            "all": mean,
            "all_predicted": predicted,
            "spread": float(found.truth.std()),
            "disagree": len(set(sides[known[:, s], s].tolist())) > 1,
        }
        for s, (mean, predicted) in enumerate(
            zip(mean_over_methods(found.error), mean_over_methods(found.predicted), strict=True)
        )
    ]


def _labels(run: Run, found: Labelled) -> list[dict[str, Any]]:
    """Labels as text, those that are known; a method is right where it says of each what is true."""
    rows = []
    for s, (truth, mean) in enumerate(zip(found.truth, mean_over_methods(found.of_truth), strict=True)):
        known = ~np.isnan(truth)
        named = [name for name, there in zip(found.names, known, strict=True) if there]
        own = found.probability[:, s][:, known]  # (M, known)
        met = ~np.isnan(own).any(1)
        said = [_listed(named, p > 0.5) if there else None for p, there in zip(own, met, strict=True)]
        rows.append(
            {
                "truth": _listed(named, truth[known] == 1),
                "predicted": said,
                "probability": found.of_truth[:, s],
                "all": mean,
                "right": int((((own > 0.5) == (truth[known] == 1)).all(1) & met).sum()),
                "asked": int(met.sum()),
                "disagree": len({text for text in said if text is not None}) > 1,
            }
        )
    return rows


def _listed(names: list[str], chosen: np.ndarray) -> str:
    return ", ".join(name for name, there in zip(names, chosen, strict=True) if there) or "none"


def _ranks(run: Run, found: Ranked) -> list[dict[str, Any]]:
    halves = found.rank > 0.5  # on which side of the middle of those tested together
    known = ~np.isnan(found.rank)
    return [
        {
            "time": found.time[s],
            "event": bool(found.event[s]),
            "risk": found.rank[:, s],
            "wrong": found.wrong[:, s],
            "all": mean,
            "all_risk": risk,
            "disagree": len(set(halves[known[:, s], s].tolist())) > 1,
        }
        for s, (mean, risk) in enumerate(
            zip(mean_over_methods(found.wrong), mean_over_methods(found.rank), strict=True)
        )
    ]


class Page(NamedTuple):
    """How patients of a kind of study are shown."""

    kind: str  # which columns the page has
    how: str  # what is meant by wrong
    people: Callable[[Run, Any], People]
    rows: Callable[[Run, Any], list[dict[str, Any]]]
    about: Callable[[Run], str]  # what is predicted


PAGES: dict[str, Page] = {
    "classification": Page(
        "classes",
        BY_CLASS,
        lambda run, table: classified(table, run.rows, run.classes or []),
        _classes,
        lambda run: ", ".join(run.classes or []),
    ),
    "survival": Page("survival", BY_RANK, lambda run, table: ranked(table, run.rows), _ranks, lambda run: run.endpoint),
    "regression": Page(
        "values", BY_ERROR, lambda run, table: measured(table, run.rows), _values, lambda run: str(run.study.task.value)
    ),
    "labels": Page(
        "classes",
        BY_LABELS,
        lambda run, table: labelled(table, run.rows, run.study.task.labels or ()),
        _labels,
        lambda run: ", ".join(run.study.task.labels or ()),
    ),
}
