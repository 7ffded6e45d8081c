"""What a model knows of its own limits, as a value that its file holds."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from panther.errors import InputError
from panther.evaluation.outlying import Cloud
from panther.storage.metadata import check_tensor

TENSORS = ("mean", "basis", "variance", "distances")  # of the cloud


@dataclass(frozen=True)
class Calibration:
    """What held-out patients taught about the probabilities of classes."""

    temperature: float
    threshold: float  # lowest calibrated probability of a class in the prediction set
    level: float  # how often the set holds the truth
    patients: int  # that it was learned from
    source: str  # who they were


@dataclass(frozen=True, eq=False)
class Sureness:
    """What a model knows of its own limits; what it does not know is None, and ``why`` says so."""

    calibration: Calibration | None = None
    cloud: Cloud | None = None  # of the scaled training embeddings, or of the mean features where a network reads bags
    reach: float | None = None  # distance to the nearest prototype that 99 of 100 training patches keep
    why: tuple[str, ...] = ()

    def sentences(self) -> list[str]:
        """What was learned, for reading."""
        c = self.calibration
        if c is None:
            return []
        verdict = (
            "it was too sure"
            if c.temperature > 1.1
            else "it was not sure enough"
            if c.temperature < 1 / 1.1
            else "they were right"
        )
        return [f"Probabilities calibrated on {c.patients} {c.source}: temperature {c.temperature:.2f}, {verdict}."]

    def tensors(self) -> dict[str, Tensor]:
        """Tensors for the file."""
        if self.cloud is None:
            return {}
        return {name: torch.from_numpy(getattr(self.cloud, name)) for name in TENSORS}

    def settings(self) -> dict[str, Any]:
        """Plain values for the file."""
        return {
            "calibration": None if self.calibration is None else asdict(self.calibration),
            "rest": None if self.cloud is None else self.cloud.rest,
            "reach": self.reach,
            "why": list(self.why),
        }


def load_sureness(path: Path, settings: Mapping[str, Any], tensors: Mapping[str, Tensor], again: str) -> Sureness:
    """Sureness from a file's values; numbers that cannot be are refused by the name of the file."""
    calibration, rest, reach = (settings.get(name) for name in ("calibration", "rest", "reach"))
    if calibration is not None:
        calibration = Calibration(**{f.name: calibration[f.name] for f in fields(Calibration)})
        _check(path, "temperature", calibration.temperature, again, above=0)
        _check(path, "threshold", calibration.threshold, again, most=1)
        _check(path, "level", calibration.level, again, above=0, most=1)
    if reach is not None:
        _check(path, "reach", reach, again)
    cloud = None
    if tensors:
        _check(path, "rest", rest, again, above=0)
        width, k = len(tensors["mean"]), len(tensors["variance"])
        shapes = {"mean": (width,), "basis": (width, k), "variance": (k,), "distances": (None,)}
        for name, shape in shapes.items():
            check_tensor(path, f"the training embeddings' {name}", tensors[name], shape, again)
        mean, basis, variance, distances = (tensors[name].numpy() for name in TENSORS)
        cloud = Cloud(mean, basis, variance, float(rest), distances)  # type: ignore[arg-type]
    return Sureness(calibration, cloud, reach, tuple(map(str, settings.get("why") or ())))


def _check(path: Path, name: str, value: object, again: str, above: float = -1e-300, most: float = math.inf) -> None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not above < float(value) <= most or math.isinf(float(value)):  # type: ignore[arg-type]
        raise InputError(f"{path}: the file is damaged (its {name} is {value!r:.40}); {again}.")
