"""Uncertainty of predictions: calibrated probabilities, prediction sets, and how familiar a new sample is.

All of it is learned from predictions of patients that the model was not fitted on, and is part of the model's file.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import torch
from pydantic import BaseModel, Field, ValidationError
from torch import Tensor

from panther.cohort.targets import Classes, Target, Values
from panther.engine import Work, stream
from panther.errors import InputError, format_invalid, not_finite
from panther.evaluation.calibration import (
    LEVEL,
    class_thresholds,
    fit_temperature,
    prediction_sets,
    residual_width,
    set_threshold,
    tempered,
)
from panther.evaluation.outlying import Cloud, familiarity_level, fit_cloud
from panther.models.probes import inner_folds
from panther.models.scaling import AnyScaler
from panther.models.tasks import Prediction, Task
from panther.statistics import block_rows, compute_dtype, squared_distances
from panther.storage.tensors import check_tensor
from panther.types import Openable, Prototypes

if TYPE_CHECKING:
    from panther.models.fitting import FittedModel, Parts
    from panther.models.model import Model

TENSORS = ("mean", "basis", "variance", "distances")  # of the cloud
Positive = Annotated[float, Field(gt=0, strict=True, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, strict=True, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, strict=True)]


@dataclass(frozen=True)
class Calibration:
    """Calibration of the probabilities of classes by held-out patients."""

    temperature: Positive
    # lowest calibrated probability of a class in the prediction set, or of each class
    threshold: Share | tuple[Share, ...]
    level: Share  # coverage of the sets
    patients: int  # held out for it
    source: str  # of these patients

    def sentence(self) -> str:
        """The calibration in words."""
        return f"Probabilities calibrated on {self.patients} {self.source}: temperature {self.temperature:.2f} (above 1: they were too extreme)."


@dataclass(frozen=True)
class Margin:
    """Prediction intervals of values, from residuals of held-out patients."""

    half_width: NotNegative  # of prediction intervals
    level: Share  # coverage of the intervals
    patients: int
    source: str

    def sentence(self) -> str:
        """The interval in words."""
        share = f"{100 * self.level:g} % of values"
        return f"{share} lie within {self.half_width:.4g} of the prediction, by {self.patients} {self.source}."


Calibrator = Calibration | Margin


@dataclass(frozen=True, eq=False)
class Uncertainty:
    """Uncertainty of a model's predictions; ``reasons`` explain missing parts."""

    calibrator: Calibrator | None = None  # of classes or values
    cloud: Cloud | None = None  # of the scaled training embeddings, or of the mean features where a network reads bags
    reach: float | None = None  # distance to the nearest prototype, the 99th percentile of training patches
    reasons: tuple[str, ...] = ()

    def tensors(self) -> dict[str, Tensor]:
        """Tensors for the file."""
        return {} if self.cloud is None else {name: torch.from_numpy(getattr(self.cloud, name)) for name in TENSORS}

    def settings(self) -> dict[str, Any]:
        """Plain values for the file."""
        kind = type(self.calibrator).__name__.lower()
        return {
            "calibrator": None if self.calibrator is None else {"kind": kind, **asdict(self.calibrator)},
            "residual": None if self.cloud is None else self.cloud.rest,
            "reach": self.reach,
            "reasons": list(self.reasons),
        }


class _Stored(BaseModel):
    """`settings()` in a file."""

    calibrator: Calibrator | None = None
    residual: Positive | None = None
    reach: NotNegative | None = None
    reasons: tuple[str, ...] = ()


def load_uncertainty(
    path: Path, settings: Mapping[str, Any], tensors: Mapping[str, Tensor], samples: int, again: str
) -> Uncertainty:
    """Uncertainty from the values and tensors of a model's file, which has this number of training samples."""
    try:
        stored = _Stored.model_validate(settings)
    except ValidationError as error:
        raise InputError(f"{path}: the file is damaged ({format_invalid(error)}); {again}.") from error
    cloud = None
    if tensors:
        if stored.residual is None:
            raise InputError(f"{path}: the file is damaged (its residual is missing); {again}.")
        width, k = len(tensors["mean"]), len(tensors["variance"])
        shapes = {"mean": (width,), "basis": (width, k), "variance": (k,), "distances": (samples,)}
        for name, shape in shapes.items():
            check_tensor(path, f"the training embeddings' {name}", tensors[name], shape, again)
        mean, basis, variance, distances = (tensors[name].numpy() for name in TENSORS)
        cloud = Cloud(mean, basis, variance, stored.residual, distances)
    return Uncertainty(stored.calibrator, cloud, stored.reach, stored.reasons)


VALIDATION = "validation patients"
FEWEST = 10  # patients below which a temperature is noise and a 90 % set holds every class


def fit_calibrator(
    task: Task, prediction: Prediction, target: Target, patients: np.ndarray, source: str, by_class: bool = False
) -> Calibrator:
    """Calibrator from samples not trained on: temperature and prediction sets of classes (one threshold per class with ``by_class``), or
    intervals of values.
    """
    number = len(np.unique(patients))
    if number < FEWEST:
        raise InputError(f"There are {number} {source}; at least {FEWEST} patients are needed.")
    if isinstance(target, Values):
        return Margin(residual_width(target.values, prediction["value"], patients), LEVEL, number, source)
    labels = task.encode(target)["label"].numpy()
    temperature = fit_temperature(labels, prediction["probabilities"], patients)
    thresholds: Callable[..., float | tuple[float, ...]] = class_thresholds if by_class else set_threshold
    threshold = thresholds(labels, tempered(prediction["probabilities"], temperature), patients)
    return Calibration(temperature, threshold, LEVEL, number, source)


def fit_uncertainty(
    fitted: "FittedModel", x: np.ndarray, refit: "Callable[[Parts], FittedModel]", folds: int, by_class: bool = False
) -> Uncertainty:
    """Calibrator and cloud of a fitted model; ``x`` (n, D) are its scaled training embeddings, or mean features."""
    parts, prototypes, reasons = fitted.parts, fitted.model.prototypes, []
    calibrator, cloud = None, None
    if isinstance(parts.targets["train"], (Classes, Values)):
        part = "val" if "val" in parts.ids else "train"
        patients = np.array([parts.patients[name] for name in parts.ids[part]])
        try:
            if part == "val":
                prediction, source = fitted.predict("val"), VALIDATION
            elif folds < 2:
                raise InputError("No patient was held out of the training; `calibrate=5` holds out folds.")
            else:
                prediction = _out_of_fold(parts, refit, folds, patients)
                source = f"training patients, each held out of one of {folds} inner folds"
            calibrator = fit_calibrator(fitted.model.task, prediction, parts.targets[part], patients, source, by_class)
        except InputError as error:  # too few patients, or a class that only one fold has
            reasons.append(f"The predictions are not calibrated. {error}")
    try:
        cloud = fit_cloud(x, np.array([parts.patients[name] for name in parts.ids["train"]]))
    except InputError as error:
        reasons.append(f"The familiarity of new samples is unknown. {error}")
    reach = None if prototypes is None else prototypes.diagnostics.get("reach")
    return Uncertainty(calibrator, cloud, reach, tuple(reasons))


def _out_of_fold(
    parts: "Parts", refit: "Callable[[Parts], FittedModel]", folds: int, patients: np.ndarray
) -> Prediction:
    """Predictions of the training samples, each by a model that was fitted without its patient."""
    names, target = np.array(parts.ids["train"]), parts.targets["train"]
    held_out, predictions = inner_folds(target.strata(), folds, patients, seed=0), []
    for rows in held_out:
        members = {"train": np.setdiff1d(np.arange(len(names)), rows), "held_out": rows}
        if isinstance(target, Classes):
            for label in np.setdiff1d(target.labels, target.labels[members["train"]]):
                few = len(np.unique(patients[target.labels == label]))
                raise InputError(
                    f"Class {target.names[label]}: too few patients for {folds} inner folds (patients: {few})"
                )
        ids = {part: tuple(names[chosen].tolist()) for part, chosen in members.items()}
        targets = {part: target.take(chosen) for part, chosen in members.items()}
        predictions.append(refit(replace(parts, ids=ids, targets=targets)).predict("held_out"))
    order = np.argsort(np.concatenate(held_out))
    return {name: np.concatenate([fold[name] for fold in predictions])[order] for name in predictions[0]}


@torch.no_grad()
def mean_features(refs: Iterable[Openable]) -> np.ndarray:
    """Mean feature vector of each bag (n, d)."""
    means = []
    for ref in refs:
        bag = ref.open()
        step = block_rows(bag.dim, 4, "cpu")
        total = torch.zeros(bag.dim, dtype=torch.float64)
        for start in range(0, len(bag), step):
            total += bag.features[start : start + step].sum(0, dtype=torch.float64)
        means.append((total / max(len(bag), 1)).float())
    return torch.stack(means).numpy()


FAMILIARITY = "familiarity"  # name of the p-values among a model's predictions
OUTSIDE = "at the edge of what the model has seen, or beyond"  # also said of extreme training samples
UNUSUAL_SHARE = 0.1  # of patches beyond the prototypes' reach; 0.01 is expected
OUTSIDE_SHARE = 0.5


def with_familiarity(
    model: "Model", predictions: Mapping[str, np.ndarray], x: np.ndarray, scaler: AnyScaler | None = None
) -> dict[str, np.ndarray]:
    """Predictions with the p-value of each sample's distance to the training samples; ``x`` (n, D) are embeddings or mean features."""
    cloud = model.uncertainty.cloud
    if cloud is None:
        return dict(predictions)
    blocks = [x[i : i + 64] for i in range(0, len(x), 64)]
    if scaler is not None:
        blocks = [scaler(torch.from_numpy(np.array(block))).numpy() for block in blocks]
    return {**predictions, FAMILIARITY: np.concatenate([cloud.p_value(block) for block in blocks])}


def uncertainty_columns(
    model: "Model", samples: Sequence[str], predictions: Mapping[str, np.ndarray], bags: Sequence[Openable], work: Work
) -> dict[str, Any]:
    """Columns of uncertainty for the table of predictions, where they are defined; the last one is a text."""
    columns: dict[str, Any] = {}
    texts: list[list[str]] = [[] for _ in samples]
    calibrator, cloud = model.uncertainty.calibrator, model.uncertainty.cloud
    if isinstance(calibrator, Calibration):
        names = model.task.names
        p = tempered(predictions["probabilities"], calibrator.temperature)
        columns = {f"calibrated_{name}": p[:, k] for k, name in enumerate(names)}
        sets = [[names[k] for k in np.flatnonzero(row)] for row in prediction_sets(p, calibrator.threshold)]
        columns["prediction_set"] = ["; ".join(classes) for classes in sets]
        for classes, text in zip(sets, texts, strict=True):
            full = "; that is every class, so it cannot tell" if len(classes) == len(names) else ""
            text.append(f"{' or '.join(classes)} ({100 * calibrator.level:g} % set{full})")
    elif isinstance(calibrator, Margin):
        columns = {"low": predictions["value"] - calibrator.half_width}
        columns["high"] = predictions["value"] + calibrator.half_width
        for low, high, text in zip(*columns.values(), texts, strict=True):
            text.append(f"{low:.4g} to {high:.4g} ({100 * calibrator.level:g} % interval)")
    p_values, shares = predictions.get(FAMILIARITY), _rare_shares(model, samples, bags, work)
    for name, values in ((FAMILIARITY, p_values), ("rare_patches", shares)):
        if values is not None:
            columns[name] = np.round(values, 4)
    if p_values is not None or shares is not None:
        for row, text in enumerate(texts):
            p_value = 1.0 if p_values is None else float(p_values[row])
            share = 0.0 if shares is None else float(shares[row])
            text.append(describe_familiarity(p_value, share, 0 if cloud is None else len(cloud.distances)))
    if columns:
        columns["sureness"] = ["; ".join(text) for text in texts]
    return columns


def describe_familiarity(p_value: float, share: float, number: int) -> str:
    """Similarity to the ``number`` training samples: the p-value of the embedding's distance, and the share of rare patches."""
    reasons = []
    level = familiarity_level(p_value, number) if number else "familiar"
    if level != "familiar":
        others = f"any of the {number} training samples was"
        if p_value > 1 / (number + 1) + 1e-12:
            others = f"{100 * (1 - p_value):.0f} % of the {number} training samples were"
        reasons.append(f"farther out than {others} from the others")
    if share >= UNUSUAL_SHARE:
        patches = f"{100 * share:.0f} % of the patches lie farther from every prototype"
        reasons.append(f"{patches} than 99 % of the training patches")
    title = OUTSIDE if level == "outside" or share >= OUTSIDE_SHARE else "unusual"
    return f"{title}: {', and '.join(reasons)}" if reasons else "like the training samples"


def _rare_shares(model: "Model", samples: Sequence[str], bags: Sequence[Openable], work: Work) -> np.ndarray | None:
    """Share of patches (n,) beyond the reach of the prototypes; None where it is unknown."""
    if model.prototypes is None or model.uncertainty.reach is None:
        return None
    by_name = {bag.sample: bag for bag in bags}
    function = partial(_share_beyond, prototypes=model.prototypes, reach=model.uncertainty.reach)
    shares = np.full(len(samples), np.nan)
    for index, share in stream(function, [by_name[name] for name in samples], "looking for rare patches", work, {}):
        shares[index] = share
    return shares


@torch.no_grad()
def _share_beyond(ref: Openable, *, prototypes: Prototypes, reach: float) -> float:
    """Share of a bag's patches that are farther from every prototype than ``reach``."""
    bag = prototypes.prepared(ref.open())
    if len(bag) == 0:
        return 0.0
    centroids = prototypes.centroids.to(compute_dtype(bag.features.dtype))
    distance = squared_distances(bag.features, centroids, centroids.mean(0)).amin(-1)  # (N,)
    if not bool(torch.isfinite(distance).all()):
        raise not_finite(bag.source, int((~torch.isfinite(distance)).nonzero()[0]))
    return float((distance.sqrt() > reach).double().mean())
