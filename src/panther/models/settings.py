"""A method, head, loss or scaling as people write it: a name, with settings where it has any.

Settings of training, and those of the paper by name (section 4 and the supplement's training details).
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any, TypeVar, get_type_hints

from pydantic import Field, TypeAdapter, ValidationError

from panther.cohort.spec import Strict
from panther.errors import InputError, check_choice, check_number, check_seed, check_whole, make_plain, suggestion

T = TypeVar("T")


class Named(Strict):
    """A name with settings: `ot`, or `{name: ot, epsilon: 0.05}`."""

    name: str
    options: dict[str, Any] = Field(default_factory=dict)
    label: str | None = None  # what tables call it

    @property
    def title(self) -> str:
        """What tables call it: the label, or the name with its settings."""
        if self.label:
            return self.label
        settings = ", ".join(f"{name} {_shown(value)}" for name, value in self.options.items())
        return self.name + (f" ({settings})" if settings else "")

    def key(self) -> str:
        """Text that is the same for the same name and settings."""
        return json.dumps([self.name, self.options], sort_keys=True)


def _shown(value: Any) -> str:
    return " + ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def as_named(value: Any) -> Any:
    """Plain values of a study file (`ot`, `{name: ot, epsilon: 0.05}`) as fields of :class:`Named`."""
    if isinstance(value, str):
        return {"name": value}
    if isinstance(value, dict) and "name" in value and "options" not in value:
        rest = {k: v for k, v in value.items() if k not in ("name", "label")}
        return {"name": value["name"], "label": value.get("label"), "options": rest}
    return value


def changed(settings: T, values: Mapping[str, Any]) -> T:
    """Settings with other values, of the types of their fields; the settings check the bounds."""
    known = [field.name for field in fields(settings)]  # type: ignore[arg-type]
    for name, value in values.items():
        if name not in known:
            raise InputError(f"there is no setting {name!r}; {suggestion(name, known)}")
        try:
            TypeAdapter(get_type_hints(type(settings))[name]).validate_python(value, strict=True)
        except ValidationError as error:
            problem = error.errors()[0]["msg"].replace("Input should be", "expected")
            raise InputError(f"{name}: {problem}, found {value!r}") from error
    return replace(settings, **values)  # type: ignore[type-var]


@dataclass(frozen=True)
class TrainSettings:
    """How a network is trained."""

    epochs: int = 20
    batch_size: int = 32
    accumulate: int = 1  # batches whose gradients are averaged for one step
    min_steps: int = (
        0  # of the optimiser: fewer batches make a step, then there are more epochs, until there are so many
    )
    learning_rate: float = 1e-4
    weight_decay: float = 1e-5
    decay_biases: bool = True  # weight decay of biases and gains too
    input_dropout: float = 0.0  # share of the input's numbers that each step does not see
    shuffle: bool = True  # embeddings in a new order every epoch
    warmup_epochs: int = 1  # linear from 0; then cosine to 0
    patience: int | None = None  # epochs without a better validation value before stopping; None trains to the end
    min_epochs: int = 0  # no stopping before
    keep: str = "last"  # or "best": the epoch of the best validation value
    seed: int = 1
    device: str = "cpu"
    mixed_precision: bool = False  # bfloat16 where that is safe; on a GPU only

    def __post_init__(self) -> None:
        make_plain(self)
        for name in ("epochs", "batch_size", "accumulate"):
            check_whole(name, getattr(self, name), 1, 1_000_000)
        for name in ("weight_decay", "warmup_epochs", "input_dropout"):
            check_number(name, getattr(self, name), 0)
        check_number("learning_rate", self.learning_rate, 0, above=True)
        check_whole("min_epochs", self.min_epochs, 0, self.epochs)
        check_whole("min_steps", self.min_steps, 0, 1_000_000)
        check_whole("patience", 1 if self.patience is None else self.patience, 1, 1_000_000)
        check_seed(self.seed)
        check_choice("keep", self.keep, ("last", "best"))
        if self.warmup_epochs > self.epochs:
            raise InputError(f"warmup_epochs: {self.warmup_epochs}, expected 0 to epochs ({self.epochs})")
        if self.input_dropout >= 1:
            raise InputError(f"input_dropout: {self.input_dropout}, expected 0 to below 1")

    def for_batches(self, number: int) -> "TrainSettings":
        """With accumulation and epochs that make the least number of steps, for so many batches an epoch."""
        if not self.min_steps:
            return self
        accumulate = max(1, min(self.accumulate, self.epochs * number // self.min_steps))
        epochs = max(self.epochs, math.ceil(self.min_steps / math.ceil(number / accumulate)))
        return replace(self, accumulate=accumulate, epochs=epochs, min_steps=0)

    def changed(self, values: Mapping[str, Any]) -> "TrainSettings":
        """With some settings instead; where epochs or accumulation are among them, they are kept, and a batch is a step unless they say else."""
        fixed = self.min_steps and {"epochs", "accumulate"} & set(values)
        return replace(self, **{**({"accumulate": 1, "min_steps": 0} if fixed else {}), **values})

    def rate(self, progress: float) -> float:
        """Learning rate after that many epochs (a fraction counts): linear warm-up, then half a cosine down to 0."""
        if progress < self.warmup_epochs:
            return self.learning_rate * progress / self.warmup_epochs
        rest = max(self.epochs - self.warmup_epochs, 1e-12)
        return self.learning_rate * 0.5 * (1 + math.cos(math.pi * min((progress - self.warmup_epochs) / rest, 1.0)))


@dataclass(frozen=True)
class Preset:
    """A whole recipe: how to train, which loss with which settings, which structured head."""

    train: TrainSettings
    loss: str
    loss_options: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    head: str = "linear"


_CLASSIFICATION = TrainSettings(epochs=20, batch_size=32, patience=10, keep="best")
_SURVIVAL = TrainSettings(epochs=50, batch_size=64)
# bags differ in size, so a batch is one bag; the paper names accumulation for classification only
_BAGS: dict[str, Any] = {"batch_size": 1, "epochs": 20}
# chosen by the protocol of benchmarks/mil_steps.py: in small cohorts 32 bags a step leave a network near where it started
_STEPS: dict[str, Any] = {"accumulate": 32, "min_steps": 1000}
_BINS = MappingProxyType({"n_bins": 4, "alpha": 0.5})

PRESETS: dict[str, Preset] = {
    "paper-classification": Preset(_CLASSIFICATION, "cross-entropy", head="paper-classification"),
    "paper-survival": Preset(_SURVIVAL, "cox", head="paper-survival"),
    "paper-survival-nll": Preset(_SURVIVAL, "nll", _BINS, head="paper-survival"),
    "paper-survival-ranking": Preset(_SURVIVAL, "ranking", head="paper-survival"),
    "paper-mil-classification": Preset(replace(_CLASSIFICATION, **_BAGS, accumulate=32), "cross-entropy"),
    "paper-mil-survival": Preset(replace(_SURVIVAL, **_BAGS), "nll", _BINS),
    "usual-mil-classification": Preset(replace(_CLASSIFICATION, **_BAGS, **_STEPS), "cross-entropy"),
    "usual-mil-survival": Preset(replace(_SURVIVAL, **_BAGS, min_steps=_STEPS["min_steps"]), "nll", _BINS),
    "usual-regression": Preset(_CLASSIFICATION, "mse"),
    "usual-labels": Preset(_CLASSIFICATION, "binary-cross-entropy"),
    "usual-mil-regression": Preset(replace(_CLASSIFICATION, **_BAGS, **_STEPS), "mse"),
    "usual-mil-labels": Preset(replace(_CLASSIFICATION, **_BAGS, **_STEPS), "binary-cross-entropy"),
}


# Losses of a kind of target where none is named: of heads on embeddings, and of networks where that differs
USUAL_LOSS: dict[str, str] = {
    "classification": "cross-entropy",
    "survival": "cox",
    "regression": "mse",
    "labels": "binary-cross-entropy",
}
USUAL_NETWORK_LOSS: dict[str, str] = {**USUAL_LOSS, "survival": "nll"}


def usual_preset(kind: str, *, network: bool) -> str:
    """Preset of a kind of target: heads of classes and survival train as in the paper, networks as long as they need."""
    return f"{'paper' if kind in ('classification', 'survival') and not network else 'usual'}{'-mil' if network else ''}-{kind}"


def preset(name: str) -> Preset:
    """Preset of that name, or a sentence that lists the known ones."""
    if name not in PRESETS:
        raise InputError(f"There is no training preset {name!r}; {suggestion(name, PRESETS)}")
    return PRESETS[name]
