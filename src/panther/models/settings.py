"""Methods, heads, losses and scalings as names with settings; settings of training, those of the paper by default (section 4, supplement)."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field

from panther.cohort.spec import Strict
from panther.errors import LARGEST_SEED, InputError, check_fields, suggestion

T = TypeVar("T")


class Named(Strict):
    """A name with settings: `ot`, or `{name: ot, epsilon: 0.05}`."""

    name: str
    options: dict[str, Any] = Field(default_factory=dict)
    label: str | None = None  # title in tables

    @property
    def title(self) -> str:
        """Title in tables: the label, or the name with its settings."""
        if self.label:
            return self.label
        settings = []
        for name, value in self.options.items():
            values = value if isinstance(value, (list, tuple)) else [value]
            settings.append(f"{name} {' + '.join(map(str, values))}")
        return self.name + (f" ({', '.join(settings)})" if settings else "")

    def key(self) -> str:
        """Identity of name and settings, as text."""
        return json.dumps([self.name, self.options], sort_keys=True)


def as_named(value: Any) -> Any:
    """Plain values of a study file (`ot`, `{name: ot, epsilon: 0.05}`) as fields of :class:`Named`."""
    if isinstance(value, str):
        return {"name": value}
    if isinstance(value, dict) and "name" in value and "options" not in value:
        rest = {k: v for k, v in value.items() if k not in ("name", "label")}
        return {"name": value["name"], "label": value.get("label"), "options": rest}
    return value


def changed(settings: T, values: Mapping[str, Any]) -> T:
    """Settings with other values, which they check themselves."""
    known = [field.name for field in fields(settings)]  # type: ignore[arg-type]
    for name in values:
        if name not in known:
            raise InputError(f"there is no setting {name!r}; {suggestion(name, known)}")
    return replace(settings, **values)  # type: ignore[type-var]


Count = Annotated[int, Field(ge=1, le=1_000_000)]
Whole = Annotated[int, Field(ge=0, le=1_000_000)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


@dataclass(frozen=True)
class TrainSettings:
    """Settings of the training of a network."""

    epochs: Count = 20
    batch_size: Count = 32
    accumulate: Count = 1  # batches per step of the optimiser, whose gradients are averaged
    # least number of steps of the optimiser: first `accumulate` is lowered, then `epochs` is raised
    min_steps: Whole = 0
    learning_rate: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1e-4
    weight_decay: NotNegative = 1e-5
    decay_biases: bool = True  # weight decay of biases and gains too
    input_dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0  # of the embedding or the features
    shuffle: bool = True  # embeddings in a new order every epoch
    warmup_epochs: Whole = 1  # linear from 0; then cosine to 0
    patience: Count | None = None  # epochs without a lower validation loss before stopping; None: no early stopping
    min_epochs: Whole = 0  # before early stopping
    keep: Literal["last", "best"] = "last"  # parameters of the last epoch, or of the lowest validation loss
    seed: Annotated[int, Field(ge=0, le=LARGEST_SEED)] = 1
    device: str = "cpu"
    mixed_precision: bool = False  # autocast to bfloat16; on a GPU only

    def __post_init__(self) -> None:
        check_fields(self)
        for name in ("min_epochs", "warmup_epochs"):
            if getattr(self, name) > self.epochs:
                raise InputError(f"{name}: {getattr(self, name)}, expected 0 to epochs ({self.epochs})")

    def for_batches(self, number: int) -> "TrainSettings":
        """Settings with accumulation and epochs that give `min_steps`, for this number of batches per epoch."""
        if not self.min_steps:
            return self
        accumulate = max(1, min(self.accumulate, self.epochs * number // self.min_steps))
        epochs = max(self.epochs, math.ceil(self.min_steps / math.ceil(number / accumulate)))
        return replace(self, accumulate=accumulate, epochs=epochs, min_steps=0)

    def changed(self, values: Mapping[str, Any]) -> "TrainSettings":
        """Settings with other values; explicit epochs or accumulation are not adapted to `min_steps`."""
        is_explicit = self.min_steps and {"epochs", "accumulate"} & set(values)
        return replace(self, **{**({"accumulate": 1, "min_steps": 0} if is_explicit else {}), **values})

    def rate(self, progress: float) -> float:
        """Learning rate after a (fractional) number of epochs: linear warm-up, then half a cosine down to 0."""
        if progress < self.warmup_epochs:
            return self.learning_rate * progress / self.warmup_epochs
        rest = max(self.epochs - self.warmup_epochs, 1e-12)
        return self.learning_rate * 0.5 * (1 + math.cos(math.pi * min((progress - self.warmup_epochs) / rest, 1.0)))


# Default losses of heads on embeddings, and of networks
USUAL_LOSS: dict[str, str] = {
    "classification": "cross-entropy",
    "survival": "cox",
    "regression": "mse",
    "labels": "binary-cross-entropy",
}
USUAL_NETWORK_LOSS: dict[str, str] = {**USUAL_LOSS, "survival": "nll"}


def usual_training(kind: str, *, network: bool) -> TrainSettings:
    """Settings of training for a kind of target: those of the paper and, for networks, at least a thousand steps."""
    survival = kind == "survival"
    settings = TrainSettings() if survival else TrainSettings(patience=10, keep="best")
    if not network:
        return replace(settings, epochs=50, batch_size=64) if survival else settings
    # bags differ in size, so a batch is one bag; the paper has gradient accumulation for classification only. Steps were chosen by the
    # protocol of benchmarks/mil_steps.py: in small cohorts 32 bags per step are too few steps
    return replace(settings, batch_size=1, min_steps=1000, accumulate=1 if survival else 32)
