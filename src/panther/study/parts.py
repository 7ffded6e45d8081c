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

from panther.cohort.spec import Level, SplitSpec, Strict
from panther.evaluation.metrics import OF_LABEL, PRINTED
from panther.models import checks
from panther.models.blocks import CONCAT
from panther.models.scaling import scalers
from panther.models.settings import Named, as_named
from panther.storage.clinical import Columns

LABEL = {"type": ["string", "null"]}


def _schema_of(known: list[str], *more: dict[str, Any]) -> WithJsonSchema:
    """Schema for editors: one of the known names, alone or with settings; or what else there may be."""
    name = {"type": "string", "enum": known}
    settings = {"type": "object", "properties": {"name": name, "label": LABEL}}
    return WithJsonSchema({"anyOf": [name, {**settings, "required": ["name"]}, *more]})


def _as_method(value: Any) -> Any:
    """A method, or rows side by side: `{concat: [panther, titan]}`."""
    if isinstance(value, dict) and CONCAT in value:
        of = value[CONCAT]
        title = " + ".join(map(str, of)) if isinstance(of, list) else CONCAT
        rest = {name: own for name, own in value.items() if name not in (CONCAT, "label")}
        return {"name": CONCAT, "options": {"of": of, **rest}, "label": value.get("label") or title}
    return as_named(value)


_TITLES = {"type": "array", "items": {"type": "string"}, "minItems": 2}
_SIDE_BY_SIDE = {"type": "object", "properties": {CONCAT: _TITLES, "label": LABEL}, "required": [CONCAT]}
MethodEntry = Annotated[Named, BeforeValidator(_as_method), _schema_of(checks.method_names(), _SIDE_BY_SIDE)]
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


class Given(Strict):
    """Vectors of slides or patients that a slide encoder made elsewhere: a file or folder, with the place in it where that needs one."""

    path: Path
    key: str | None = None  # `obsm/X_titan` of an .h5ad, the column with the names of a table
    level: Level | None = None  # what a vector stands for; found out by the names by default


def as_given(value: Any) -> Any:
    """`titan.h5ad#obsm/X_titan`, `{path: ..., key: ...}`, or one of these for each encoder, as `{encoder: {path, key}}`."""
    if isinstance(value, dict) and "path" not in value:
        return {encoder: _one_given(own) for encoder, own in value.items()}
    return {NOT_NAMED: _one_given(value)}


def _one_given(value: Any) -> Any:
    if not isinstance(value, (str, Path)):
        return value
    path, hash_sign, key = str(value).rpartition("#")
    return {"path": path, "key": key} if hash_sign and path else {"path": str(value)}


NOT_NAMED = "given"  # encoder of vectors of which nobody says which encoder's patches they were made of
GivenEntry = Annotated[dict[str, Given], BeforeValidator(as_given)]  # by encoder


class External(Strict):
    """A cohort that is only tested on, with the models of every fold."""

    table: Path
    columns: Columns | None = None  # those of the study by default
    features: dict[str, Path] = Field(default_factory=dict)  # by encoder, as in the study
    embeddings: dict[str, GivenEntry] = Field(default_factory=dict)  # by name, as in the study


class Excluded(Strict):
    """A row that is not trained with a head, both by their titles."""

    method: str
    head: str


class Cell(Strict):
    """One row of the comparison; it is trained once per fold."""

    encoder: str
    method: Named
    head: Named
    loss: Named
    n_prototypes: int  # 0: none
    train_size: float
    seed: int
    permuted: bool = False  # whether labels are exchanged between patients

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
