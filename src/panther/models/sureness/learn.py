"""Learn how sure a model may be, from predictions of patients whom it was not fitted on."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from panther.cohort.targets import Classes, Target, Values
from panther.errors import InputError
from panther.evaluation.calibration import fit_temperature, tempered
from panther.evaluation.conformal import LEVEL, class_thresholds, residual_width, set_threshold
from panther.evaluation.outlying import fit_cloud
from panther.models.probe_search import inner_folds
from panther.models.sureness.value import Calibration, Margin, Promise, Sureness
from panther.models.tasks import Prediction, Task
from panther.statistics import block_rows
from panther.types import Openable

if TYPE_CHECKING:
    from panther.models.fitting import FittedModel, Parts

VALIDATION = "validation patients"
NOBODY = (
    "The model does not know how sure it may be: nobody was held out of its training; train it with `calibrate=5`, or give the splits of "
    "the study a validation part."
)
FEWEST = 10  # patients below which a temperature is noise and a 90 % set holds every class


def learn_promise(
    task: Task[Any], prediction: Prediction, target: Target, patients: np.ndarray, source: str, by_class: bool = False
) -> Promise:
    """Temperature and prediction sets of classes (at their level in each class, if so), or intervals of values, from samples not trained on."""
    number = len(np.unique(patients))
    if number < FEWEST:
        raise InputError(f"There are {number} {source}; at least {FEWEST} patients are needed.")
    if isinstance(target, Values):
        return Margin(residual_width(target.values, prediction["value"], patients), LEVEL, number, source)
    labels = task.encode(target)["label"].numpy()
    temperature = fit_temperature(labels, prediction["probabilities"], patients)
    learn: Callable[..., float | tuple[float, ...]] = class_thresholds if by_class else set_threshold
    threshold = learn(labels, tempered(prediction["probabilities"], temperature), patients)
    return Calibration(temperature, threshold, LEVEL, number, source)


def learn_sureness(
    fitted: "FittedModel", seen: np.ndarray, refit: "Callable[[Parts], FittedModel]", folds: int, by_class: bool = False
) -> Sureness:
    """Calibration and surroundings of a fitted model; ``seen`` (n, D) is what it knows of its training samples."""
    promise, why = _promise(fitted, refit, folds, by_class)
    patients = [fitted.parts.patients[name] for name in fitted.parts.ids["train"]]
    prototypes, cloud = fitted.model.prototypes, None
    try:
        cloud = fit_cloud(seen, np.array(patients))
    except InputError as error:
        why = (*why, f"The model cannot tell what lies outside of its training. {error}")
    return Sureness(promise, cloud, None if prototypes is None else prototypes.diagnostics.get("reach"), why)


def _promise(
    fitted: "FittedModel", refit: "Callable[[Parts], FittedModel]", folds: int, by_class: bool
) -> tuple[Promise | None, tuple[str, ...]]:
    """By the validation part, or by inner folds of the training part where there is none; else why there is none."""
    parts = fitted.parts
    if not isinstance(parts.targets["train"], (Classes, Values)):
        return None, ()
    part = "val" if "val" in parts.ids else "train"
    if part == "train" and folds < 2:
        return None, (NOBODY,)
    patients = np.array([parts.patients[name] for name in parts.ids[part]])
    try:
        if part == "val":
            prediction, source = fitted.predict("val"), VALIDATION
        else:
            prediction = _out_of_fold(parts, refit, folds, patients)
            source = f"training patients, each held out of one of {folds} inner folds"
        return learn_promise(fitted.model.task, prediction, parts.targets[part], patients, source, by_class), ()
    except InputError as error:  # too few, or a class that only one fold has
        return None, (f"The model does not know how sure it may be. {error}",)


def _out_of_fold(
    parts: "Parts", refit: "Callable[[Parts], FittedModel]", folds: int, patients: np.ndarray
) -> Prediction:
    """Predictions of the training samples, each by a model that was fitted without its patient."""
    names, target = np.array(parts.ids["train"]), parts.targets["train"]
    found: list[tuple[np.ndarray, Mapping[str, np.ndarray]]] = []
    for rows in inner_folds(target.strata(), folds, patients, seed=0):
        rest = np.setdiff1d(np.arange(len(names)), rows)
        _check_classes(target, rest, patients, folds)
        members = {"train": rest, "held_out": rows}
        inner = replace(
            parts,
            ids={part: tuple(names[own].tolist()) for part, own in members.items()},
            targets={part: target.take(own) for part, own in members.items()},
        )
        found.append((rows, refit(inner).predict("held_out")))
    order = np.argsort(np.concatenate([rows for rows, _ in found]))
    return {name: np.concatenate([own[name] for _, own in found])[order] for name in found[0][1]}


def _check_classes(target: Target, rest: np.ndarray, patients: np.ndarray, folds: int) -> None:
    """Refuse an inner fold that leaves nobody of a class to train on."""
    if not isinstance(target, Classes):
        return
    for label in np.setdiff1d(target.labels, target.labels[rest]):
        few = len(np.unique(patients[target.labels == label]))
        raise InputError(
            f"The class {target.names[label]} has {few} {'patient' if few == 1 else 'patients'}, too few for {folds} inner folds: without "
            "those of one fold nobody of the class is left to train on."
        )


@torch.no_grad()
def mean_features(refs: Iterable[Openable]) -> np.ndarray:
    """Mean feature vector of each bag (n, d): what is known of a slide before a network looks at it."""
    means = []
    for ref in refs:
        bag = ref.open()
        step = block_rows(bag.dim, 4, "cpu")
        total = torch.zeros(bag.dim, dtype=torch.float64)
        for start in range(0, len(bag), step):
            total += bag.features[start : start + step].sum(0, dtype=torch.float64)
        means.append((total / max(len(bag), 1)).float())
    return torch.stack(means).numpy()
