"""How sure a model may be: calibrated probabilities, prediction sets, and whether a new sample is like the training samples.

All of it is learned from predictions of patients that the model was not fitted on, and is part of the file of a model.
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
from panther.errors import InputError, not_finite
from panther.evaluation.calibration import (
    LEVEL,
    class_thresholds,
    fit_temperature,
    prediction_sets,
    residual_width,
    set_threshold,
    tempered,
)
from panther.evaluation.outlying import Cloud, fit_cloud, in_words
from panther.models.probes import inner_folds
from panther.models.scaling import AnyScaler
from panther.models.tasks import Prediction, Task
from panther.statistics import block_rows, compute_dtype, squared_distances
from panther.storage.tensors import check_tensor
from panther.types import Openable, Prototypes

if TYPE_CHECKING:
    from panther.models.fitting import FittedModel, Parts
    from panther.models.model import Model

SLIGHT = 1.1  # temperatures up to this, or down to its inverse, change little
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
    level: Share  # how often the set holds the truth
    patients: int  # that it was learned from
    source: str  # who they were

    def probabilities(self, raw: np.ndarray) -> np.ndarray:
        """Calibrated probabilities (n, K)."""
        return tempered(raw, self.temperature)

    def sentence(self) -> str:
        """The calibration, for reading."""
        t = self.temperature
        verdict = (
            "they were too extreme" if t > SLIGHT else "they were too moderate" if t < 1 / SLIGHT else "hardly changed"
        )
        return f"Probabilities calibrated on {self.patients} {self.source}: temperature {t:.2f}, {verdict}."


@dataclass(frozen=True)
class Margin:
    """Error of predicted values on held-out patients."""

    half_width: NotNegative  # of intervals around them
    level: Share  # how often those hold the truth
    patients: int
    source: str

    def sentence(self) -> str:
        """The margin, for reading."""
        share = f"{100 * self.level:g} % of values"
        return f"{share} lie within {self.half_width:.4g} of the prediction, by {self.patients} {self.source}."


Calibrator = Calibration | Margin


@dataclass(frozen=True, eq=False)
class Sureness:
    """What a model knows of its limits; what it does not know is None, and ``why`` gives the reasons."""

    promise: Calibrator | None = None  # of classes or values
    cloud: Cloud | None = None  # of the scaled training embeddings, or of the mean features where a network reads bags
    reach: float | None = None  # distance to the nearest prototype that 99 of 100 training patches keep
    why: tuple[str, ...] = ()

    def tensors(self) -> dict[str, Tensor]:
        """Tensors for the file."""
        return {} if self.cloud is None else {name: torch.from_numpy(getattr(self.cloud, name)) for name in TENSORS}

    def settings(self) -> dict[str, Any]:
        """Plain values for the file."""
        kind = type(self.promise).__name__.lower()
        return {
            "promise": None if self.promise is None else {"kind": kind, **asdict(self.promise)},
            "rest": None if self.cloud is None else self.cloud.rest,
            "reach": self.reach,
            "why": list(self.why),
        }


class _Stored(BaseModel):
    """`settings()` in a file."""

    promise: Calibrator | None = None
    rest: Positive | None = None
    reach: NotNegative | None = None
    why: tuple[str, ...] = ()


def load_sureness(
    path: Path, settings: Mapping[str, Any], tensors: Mapping[str, Tensor], samples: int, again: str
) -> Sureness:
    """Sureness of a model of so many training samples from a file's values; impossible numbers are refused by the name of the file."""
    try:
        stored = _Stored.model_validate(settings)
    except ValidationError as error:
        problem = next((one for one in error.errors() if one["type"] != "missing"), error.errors()[0])
        where = ".".join(map(str, problem["loc"]))
        raise InputError(f"{path}: the file is damaged ({where} is {problem['input']!r:.40}); {again}.") from error
    cloud = None
    if tensors:
        if stored.rest is None:
            raise InputError(f"{path}: the file is damaged (its rest is missing); {again}.")
        width, k = len(tensors["mean"]), len(tensors["variance"])
        shapes = {"mean": (width,), "basis": (width, k), "variance": (k,), "distances": (samples,)}
        for name, shape in shapes.items():
            check_tensor(path, f"the training embeddings' {name}", tensors[name], shape, again)
        mean, basis, variance, distances = (tensors[name].numpy() for name in TENSORS)
        cloud = Cloud(mean, basis, variance, stored.rest, distances)
    return Sureness(stored.promise, cloud, stored.reach, stored.why)


VALIDATION = "validation patients"
NOBODY = (
    "The model does not know how sure it may be: no patient was held out of its training; train it with `calibrate=5`, or give the splits "
    "of the study a validation part."
)
FEWEST = 10  # patients below which a temperature is noise and a 90 % set holds every class


def fit_calibrator(
    task: Task, prediction: Prediction, target: Target, patients: np.ndarray, source: str, by_class: bool = False
) -> Calibrator:
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


def fit_sureness(
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
) -> tuple[Calibrator | None, tuple[str, ...]]:
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
        return fit_calibrator(fitted.model.task, prediction, parts.targets[part], patients, source, by_class), ()
    except InputError as error:  # too few, or a class that only one fold has
        return None, (f"The model does not know how sure it may be. {error}",)


def _out_of_fold(
    parts: "Parts", refit: "Callable[[Parts], FittedModel]", folds: int, patients: np.ndarray
) -> Prediction:
    """Predictions of the training samples, each by a model that was fitted without its patient."""
    names, target = np.array(parts.ids["train"]), parts.targets["train"]
    every, predictions = inner_folds(target.strata(), folds, patients, seed=0), []
    for rows in every:
        members = {"train": np.setdiff1d(np.arange(len(names)), rows), "held_out": rows}
        if isinstance(target, Classes):
            for label in np.setdiff1d(target.labels, target.labels[members["train"]]):
                few = len(np.unique(patients[target.labels == label]))
                count = f"{few} patient{'' if few == 1 else 's'}"
                raise InputError(f"The class {target.names[label]} has {count}, too few for {folds} inner folds")
        ids = {part: tuple(names[some].tolist()) for part, some in members.items()}
        targets = {part: target.take(some) for part, some in members.items()}
        predictions.append(refit(replace(parts, ids=ids, targets=targets)).predict("held_out"))
    order = np.argsort(np.concatenate(every))
    return {name: np.concatenate([one[name] for one in predictions])[order] for name in predictions[0]}


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


FARTHER = "familiarity"  # name of the p-values among a model's predictions
OUTSIDE = "at the edge of what the model has seen, or beyond"  # an extreme training sample is called so, too
MANY = 0.1  # share of patches beyond the prototypes' reach that is unusual; 0.01 is expected
MOST = 0.5  # share from which the slide is something else


def with_familiarity(
    model: "Model", predictions: Mapping[str, np.ndarray], x: np.ndarray, scaler: AnyScaler | None = None
) -> dict[str, np.ndarray]:
    """Predictions with how often a sample like the training's is at least as far out, of embeddings or mean features (n, D)."""
    cloud = model.sure.cloud
    if cloud is None:
        return dict(predictions)
    blocks = [x[i : i + 64] for i in range(0, len(x), 64)]
    seen = blocks if scaler is None else [scaler(torch.from_numpy(np.array(block))).numpy() for block in blocks]
    return {**predictions, FARTHER: np.concatenate([cloud.p_value(block) for block in seen])}


def sure_columns(
    model: "Model", samples: Sequence[str], predictions: Mapping[str, np.ndarray], bags: Sequence[Openable], work: Work
) -> dict[str, Any]:
    """Columns of the table of predictions, as far as the model knows how sure it may be; the last one says it in words."""
    columns: dict[str, Any] = {}
    words: list[list[str]] = [[] for _ in samples]
    promise, cloud = model.sure.promise, model.sure.cloud
    if isinstance(promise, Calibration):
        names: Sequence[str] = model.task.names  # type: ignore[attr-defined]
        p = promise.probabilities(predictions["probabilities"])
        inside = prediction_sets(p, promise.threshold)
        sets = [[name for name, is_in in zip(names, row, strict=True) if is_in] for row in inside]
        for one, line in zip(sets, words, strict=True):
            every = "; that is every class, so it cannot tell" if len(one) == len(names) else ""
            line.append(f"{' or '.join(one)} ({100 * promise.level:g} % set{every})")
        columns = {f"calibrated_{name}": p[:, k] for k, name in enumerate(names)}
        columns["prediction_set"] = ["; ".join(one) for one in sets]
    elif isinstance(promise, Margin):
        low, high = (predictions["value"] + sign * promise.half_width for sign in (-1, 1))
        columns = {"low": low, "high": high}
        for one, other, line in zip(low, high, words, strict=True):
            line.append(f"{one:.4g} to {other:.4g} ({100 * promise.level:g} % interval)")
    if cloud is not None and FARTHER in predictions:
        columns[FARTHER] = np.round(predictions[FARTHER], 4)
    shares = _rare(model, samples, bags, work)
    if shares is not None:
        columns["rare_patches"] = np.round(shares, 4)
    for row, line in enumerate(words if FARTHER in columns or shares is not None else ()):
        p_value = float(predictions[FARTHER][row]) if FARTHER in columns else 1.0
        share = 0.0 if shares is None else float(shares[row])
        line.append(_seen(p_value, share, 0 if cloud is None else len(cloud.distances)))
    if columns:
        columns["sureness"] = ["; ".join(line) for line in words]
    return columns


def _seen(p: float, share: float, number: int) -> str:
    """Whether the model has seen the like, by the embedding and by the patches."""
    reasons = []
    verdict = in_words(p, number) if number else "familiar"
    if verdict != "familiar":
        others = f"any of the {number} training samples was"
        if p > 1 / (number + 1) + 1e-12:
            others = f"{100 * (1 - p):.0f} % of the {number} training samples were"
        reasons.append(f"farther out than {others} from the others")
    if share >= MANY:
        patches = f"{100 * share:.0f} % of the patches lie farther from every prototype"
        reasons.append(f"{patches} than 99 % of the training patches")
    how = OUTSIDE if verdict == "outside" or share >= MOST else "unusual"
    return f"{how}: {', and '.join(reasons)}" if reasons else "like the training samples"


def _rare(model: "Model", samples: Sequence[str], bags: Sequence[Openable], work: Work) -> np.ndarray | None:
    """Share of patches (n,) beyond the reach of the prototypes; None where that is not known."""
    if model.prototypes is None or model.sure.reach is None:
        return None
    by_name = {bag.sample: bag for bag in bags}
    chosen = [by_name[name] for name in samples]
    function = partial(_share_beyond, prototypes=model.prototypes, reach=model.sure.reach)
    shares = np.full(len(chosen), np.nan)
    for index, share in stream(function, chosen, "looking for rare patches", work, {}):
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
