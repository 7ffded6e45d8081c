"""What a model knows of its own limits, as a value that its file holds.

Learn how sure a model may be, from predictions of patients whom it was not fitted on.

How sure a model is of new samples: calibrated probabilities, prediction sets, and whether it has seen the like, in words.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
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
LIMITS = {  # above, and at most
    "temperature": (0.0, math.inf),
    "threshold": (-1e-300, 1.0),
    "level": (0.0, 1.0),
    "half_width": (-1e-300, math.inf),
}
TENSORS = ("mean", "basis", "variance", "distances")  # of the cloud


@dataclass(frozen=True)
class Calibration:
    """What held-out patients taught about the probabilities of classes."""

    temperature: float
    threshold: (
        float | tuple[float, ...]
    )  # lowest calibrated probability of a class in the prediction set, or of each class
    level: float  # how often the set holds the truth
    patients: int  # that it was learned from
    source: str  # who they were

    def probabilities(self, raw: np.ndarray) -> np.ndarray:
        """Calibrated probabilities (n, K)."""
        return tempered(raw, self.temperature)

    def sentence(self) -> str:
        """What was learned, for reading."""
        t = self.temperature
        verdict = "it was too sure" if t > SLIGHT else "it was not sure enough" if t < 1 / SLIGHT else "they were right"
        return f"Probabilities calibrated on {self.patients} {self.source}: temperature {t:.2f}, {verdict}."


@dataclass(frozen=True)
class Margin:
    """What held-out patients taught about the error of predicted values."""

    half_width: float  # of intervals around them
    level: float  # how often those hold the truth
    patients: int
    source: str

    def sentence(self) -> str:
        """What was learned, for reading."""
        level = f"{100 * self.level:g} %"
        return (
            f"{level} of values lie within {self.half_width:.4g} of the prediction, by {self.patients} {self.source}."
        )


Calibrator = Calibration | Margin
CALIBRATORS: dict[str, type[Calibration] | type[Margin]] = {"calibration": Calibration, "margin": Margin}


@dataclass(frozen=True, eq=False)
class Sureness:
    """What a model knows of its own limits; what it does not know is None, and ``why`` says so."""

    promise: Calibrator | None = None  # of classes or values
    cloud: Cloud | None = None  # of the scaled training embeddings, or of the mean features where a network reads bags
    reach: float | None = None  # distance to the nearest prototype that 99 of 100 training patches keep
    why: tuple[str, ...] = ()

    def tensors(self) -> dict[str, Tensor]:
        """Tensors for the file."""
        if self.cloud is None:
            return {}
        return {name: torch.from_numpy(getattr(self.cloud, name)) for name in TENSORS}

    def settings(self) -> dict[str, Any]:
        """Plain values for the file."""
        kind = next((name for name, kind in CALIBRATORS.items() if isinstance(self.promise, kind)), None)
        return {
            "promise": None if self.promise is None else {"kind": kind, **asdict(self.promise)},
            "rest": None if self.cloud is None else self.cloud.rest,
            "reach": self.reach,
            "why": list(self.why),
        }


def load_sureness(
    path: Path, settings: Mapping[str, Any], tensors: Mapping[str, Tensor], samples: int, again: str
) -> Sureness:
    """Sureness of a model of so many training samples from a file's values; numbers that cannot be are refused by the name of the file."""
    rest, reach = (settings.get(name) for name in ("rest", "reach"))
    promise = None if settings.get("promise") is None else _load_calibrator(path, settings["promise"], again)
    if reach is not None:
        _check(path, "reach", reach, again)
    cloud = None
    if tensors:
        _check(path, "rest", rest, again, above=0)
        width, k = len(tensors["mean"]), len(tensors["variance"])
        shapes = {"mean": (width,), "basis": (width, k), "variance": (k,), "distances": (samples,)}
        for name, shape in shapes.items():
            check_tensor(path, f"the training embeddings' {name}", tensors[name], shape, again)
        mean, basis, variance, distances = (tensors[name].numpy() for name in TENSORS)
        cloud = Cloud(mean, basis, variance, float(rest), distances)  # type: ignore[arg-type]
    return Sureness(promise, cloud, reach, tuple(map(str, settings.get("why") or ())))


def _load_calibrator(path: Path, settings: Mapping[str, Any], again: str) -> Calibrator:
    kind = CALIBRATORS[settings["kind"]]
    values: dict[str, Any] = {}
    for one in fields(kind):
        value = settings[one.name]
        values[one.name] = tuple(value) if isinstance(value, list) else value
    found = kind(**values)
    for name, (above, most) in LIMITS.items():
        value = getattr(found, name, ())
        for one in value if isinstance(value, tuple) else (value,):
            _check(path, name, one, again, above, most)
    return found


def _check(path: Path, name: str, value: object, again: str, above: float = -1e-300, most: float = math.inf) -> None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not above < float(value) <= most or math.isinf(float(value)):  # type: ignore[arg-type]
        raise InputError(f"{path}: the file is damaged (its {name} is {value!r:.40}); {again}.")


VALIDATION = "validation patients"
NOBODY = (
    "The model does not know how sure it may be: nobody was held out of its training; train it with `calibrate=5`, or give the splits of "
    "the study a validation part."
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
        columns |= _calibrated(model, predictions["probabilities"], promise, words)
    elif isinstance(promise, Margin):
        low, high = (predictions["value"] + sign * promise.half_width for sign in (-1, 1))
        columns |= {"low": low, "high": high}
        for one, other, said in zip(low, high, words, strict=True):
            said.append(f"{one:.4g} to {other:.4g} ({100 * promise.level:g} % interval)")
    if cloud is not None and FARTHER in predictions:
        columns[FARTHER] = np.round(predictions[FARTHER], 4)
    shares = _rare(model, samples, bags, work)
    if shares is not None:
        columns["rare_patches"] = np.round(shares, 4)
    for row, said in enumerate(words if FARTHER in columns or shares is not None else ()):
        p = float(predictions[FARTHER][row]) if FARTHER in columns else 1.0
        share = 0.0 if shares is None else float(shares[row])
        said.append(_seen(p, share, 0 if cloud is None else len(cloud.distances)))
    if columns:
        columns["sureness"] = ["; ".join(said) for said in words]
    return columns


def _calibrated(
    model: "Model", probabilities: np.ndarray, calibration: Calibration, words: list[list[str]]
) -> dict[str, Any]:
    names: Sequence[str] = model.task.names  # type: ignore[attr-defined]
    p = calibration.probabilities(probabilities)
    sets = [
        [name for name, is_in in zip(names, row, strict=True) if is_in]
        for row in prediction_sets(p, calibration.threshold)
    ]
    for inside, said in zip(sets, words, strict=True):
        every = "; that is every class, so it cannot tell" if len(inside) == len(names) else ""
        said.append(f"{' or '.join(inside)} ({100 * calibration.level:g} % set{every})")
    columns: dict[str, Any] = {f"calibrated_{name}": p[:, k] for k, name in enumerate(names)}
    return {**columns, "prediction_set": ["; ".join(inside) for inside in sets]}


def _seen(p: float, share: float, number: int) -> str:
    """Whether the model has seen the like, by the embedding and by the patches."""
    reasons = []
    verdict = in_words(p, number) if number else "familiar"
    if verdict != "familiar":
        most = p > 1 / (number + 1) + 1e-12
        farther = (
            f"{100 * (1 - p):.0f} % of the {number} training samples were"
            if most
            else f"any of the {number} training samples was"
        )
        reasons.append(f"farther out than {farther} from the others")
    if share >= MANY:
        reasons.append(
            f"{100 * share:.0f} % of the patches lie farther from every prototype than 99 % of the training patches"
        )
    if not reasons:
        return "like the training samples"
    return f"{OUTSIDE if verdict == 'outside' or share >= MOST else 'unusual'}: {', and '.join(reasons)}"


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
