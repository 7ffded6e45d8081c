"""What a study file is made of: names with settings, the task, splits, external cohorts; and a cell of its grid."""

import json
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    WithJsonSchema,
    model_validator,
)

from panther.learning import study_names as names
from panther.learning.metric_names import PRINTED
from panther.learning.outcomes import LabelOutcome, Outcome, SurvivalOutcome
from panther.learning.scaling import scalers

STRICT = ConfigDict(extra="forbid", frozen=True)


class Strict(BaseModel):
    """No key that is not known, and nothing changes."""

    model_config = STRICT


class Named(Strict):
    """A name with settings: `ot`, or `{name: ot, epsilon: 0.05}`."""

    name: str
    options: dict[str, Any] = {}
    label: str | None = None  # what tables call it

    @property
    def title(self) -> str:
        """What tables call it: the label, or the name with its settings."""
        if self.label:
            return self.label
        return self.name + (f" ({', '.join(f'{k} {v}' for k, v in self.options.items())})" if self.options else "")

    def key(self) -> str:
        """Text that is the same for the same name and settings."""
        return json.dumps([self.name, self.options], sort_keys=True)


def _named(value: Any) -> Any:
    if isinstance(value, str):
        return {"name": value}
    if isinstance(value, dict) and "name" in value and "options" not in value:
        rest = {k: v for k, v in value.items() if k not in ("name", "label")}
        return {"name": value["name"], "label": value.get("label"), "options": rest}
    return value


def _schema_of(known: list[str]) -> WithJsonSchema:
    """What an editor is told about a name: one of the known, alone or with settings."""
    name = {"type": "string", "enum": known}
    settings = {"type": "object", "properties": {"name": name, "label": {"type": ["string", "null"]}}}
    return WithJsonSchema({"anyOf": [name, {**settings, "required": ["name"]}]})


MethodEntry = Annotated[Named, BeforeValidator(_named), _schema_of(names.method_names())]
HeadEntry = Annotated[Named, BeforeValidator(_named), _schema_of(names.head_names())]
LossEntry = Annotated[Named, BeforeValidator(_named), _schema_of(names.loss_names())]
ScalingEntry = Annotated[Named, BeforeValidator(_named), _schema_of(scalers.names())]
Metric = Annotated[str, WithJsonSchema({"type": "string", "enum": [*PRINTED[True], *PRINTED[False]]})]
Seed = Annotated[int, Field(ge=0, lt=2**63, strict=True)]


class TaskSpec(Strict):
    """What is predicted: a label column, or a survival endpoint."""

    label: str | None = None
    classes: tuple[str, ...] | None = None  # their order; all others are left out
    survival: str | None = None  # os, dss, dfi or pfi
    time: str | None = None  # columns of another name
    event: str | None = None  # 1 = event
    censorship: str | None = None  # 1 = censored
    level: Literal["patient", "slide"] = "patient"

    @model_validator(mode="after")
    def _one_of(self) -> "TaskSpec":
        survival = any(v is not None for v in (self.survival, self.time, self.event, self.censorship))
        if survival == (self.label is not None):
            raise ValueError("give either a label column or a survival endpoint")
        return self

    def outcome(self) -> Outcome:
        """As the cohort reads it."""
        if self.label is not None:
            return LabelOutcome(self.label, self.classes)
        return SurvivalOutcome(endpoint=self.survival, time=self.time, event=self.event, censorship=self.censorship)


class SplitSpec(Strict):
    """Splits to make; a path in its place reads splits that exist."""

    scheme: str = "kfold"
    k: Annotated[int, Field(ge=2)] = 5
    shares: tuple[float, float, float] = (0.8, 0.1, 0.1)
    val: bool = False
    seed: Seed = 0


class ColumnSplits(Strict):
    """Splits that a column of the table says: folds, each of which is tested once, or train, val and test."""

    column: str
    val: bool = False  # the next fold validates


def _splits_kind(value: Any) -> str:
    if isinstance(value, (str, Path)):
        return "path"
    asked = value if isinstance(value, dict) else vars(value) if isinstance(value, Strict) else {}
    return "column" if "column" in asked else "scheme"


Splits = Annotated[
    Annotated[Path, Tag("path")] | Annotated[SplitSpec, Tag("scheme")] | Annotated[ColumnSplits, Tag("column")],
    Discriminator(_splits_kind),
]


def _whole_above_one(size: float) -> float:
    if size > 1 and size != int(size):
        raise ValueError(f"{size} is neither a share (0 to 1) nor a number of samples")
    return size


TrainSize = Annotated[float, Field(gt=0, allow_inf_nan=False), AfterValidator(_whole_above_one)]


class External(Strict):
    """A cohort that is only tested on, with the models of every fold."""

    table: Path
    features: dict[str, Path]  # by encoder, as in the study


class Cell(Strict):
    """One row of the comparison; it is trained once a fold."""

    encoder: str
    method: Named
    head: Named
    loss: Named
    n_prototypes: int  # 0: none
    train_size: float
    seed: int

    def columns(self) -> dict[str, Any]:
        """As columns of the results."""
        return {
            "encoder": self.encoder,
            "method": self.method.title,
            "head": self.head.title,
            "loss": self.loss.title,
            "n_prototypes": self.n_prototypes,
            "train_size": self.train_size,
            "seed": self.seed,
        }
