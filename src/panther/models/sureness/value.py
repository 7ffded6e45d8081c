"""What a model knows of its own limits, as a value that its file holds."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from panther.errors import InputError
from panther.evaluation.calibration import tempered
from panther.evaluation.outlying import Cloud
from panther.storage.metadata import check_tensor

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


Promise = Calibration | Margin
PROMISES: dict[str, type[Calibration] | type[Margin]] = {"calibration": Calibration, "margin": Margin}


@dataclass(frozen=True, eq=False)
class Sureness:
    """What a model knows of its own limits; what it does not know is None, and ``why`` says so."""

    promise: Promise | None = None  # of classes or values
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
        kind = next((name for name, kind in PROMISES.items() if isinstance(self.promise, kind)), None)
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
    promise = None if settings.get("promise") is None else _promise(path, settings["promise"], again)
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


def _promise(path: Path, settings: Mapping[str, Any], again: str) -> Promise:
    kind = PROMISES[settings["kind"]]
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
