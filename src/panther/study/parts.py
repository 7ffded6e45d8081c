"""What a study file is made of: names with settings, the task, splits, external cohorts; and a cell of its grid."""

from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    Tag,
    WithJsonSchema,
)

from panther.cohort.spec import SplitSpec, Strict
from panther.evaluation.metric_names import OF_LABEL, PRINTED
from panther.models import checks
from panther.models.named import Named, as_named
from panther.models.scaling import scalers
from panther.storage.clinical import Columns


def _schema_of(known: list[str]) -> WithJsonSchema:
    """Schema for editors: one of the known names, alone or with settings."""
    name = {"type": "string", "enum": known}
    settings = {"type": "object", "properties": {"name": name, "label": {"type": ["string", "null"]}}}
    return WithJsonSchema({"anyOf": [name, {**settings, "required": ["name"]}]})


MethodEntry = Annotated[Named, BeforeValidator(as_named), _schema_of(checks.method_names())]
HeadEntry = Annotated[Named, BeforeValidator(as_named), _schema_of(checks.head_names())]
LossEntry = Annotated[Named, BeforeValidator(as_named), _schema_of(checks.loss_names())]
ScalingEntry = Annotated[Named, BeforeValidator(as_named), _schema_of(scalers.names())]
Metric = Annotated[
    str,
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "enum": [name for names in PRINTED.values() for name in names]},
                {"type": "string", "pattern": f"^{OF_LABEL}"},
            ]
        }
    ),
]


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
    columns: Columns | None = None  # those of the study by default
    features: dict[str, Path]  # by encoder, as in the study


class Cell(Strict):
    """One row of the comparison; it is trained once per fold."""

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
