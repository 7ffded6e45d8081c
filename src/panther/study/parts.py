"""Entries of a study file (methods, heads and losses with settings, splits, vectors, external cohorts), rows of its table, cells of its grid."""

from collections.abc import Hashable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, WithJsonSchema

from panther.aggregators import aggregators
from panther.cohort.covariates import COVARIATES
from panther.cohort.spec import Level, SplitSpec, Strict
from panther.errors import InputError, suggestion
from panther.evaluation.metrics import OF_LABEL, PRINTED
from panther.mil import networks
from panther.models.blocks import CONCAT, PCA, PRECOMPUTED, UNMADE, check_method, method_names
from panther.models.heads import check_head, head_names
from panther.models.scaling import build_scaler, scalers
from panther.models.settings import Named, as_named
from panther.models.tasks import loss_names
from panther.storage.clinical import Columns

T = TypeVar("T", bound=Hashable)
LABEL = {"type": ["string", "null"]}
NOT_NAMED = "given"  # encoder of vectors without one


def _schema_of(known: list[str], *more: dict[str, Any]) -> WithJsonSchema:
    """Schema for editors: one of the known names, alone or with settings, or one of ``more``."""
    name = {"type": "string", "enum": known}
    settings = {"type": "object", "properties": {"name": name, "label": LABEL}}
    return WithJsonSchema({"anyOf": [name, {**settings, "required": ["name"]}, *more]})


def _as_method(value: Any) -> Any:
    """A method, or rows side by side: `{concat: [panther, titan]}`."""
    if isinstance(value, dict) and CONCAT in value:
        of = value[CONCAT]
        title = " + ".join(map(str, of)) if isinstance(of, list) else CONCAT
        rest = {name: setting for name, setting in value.items() if name not in (CONCAT, "label")}
        return {"name": CONCAT, "options": {"of": of, **rest}, "label": value.get("label") or title}
    return as_named(value)


def _checked(check: Any) -> AfterValidator:
    """Validator of name and settings."""

    def run(entry: Named) -> Named:
        check(entry.name, entry.options)
        return entry

    return AfterValidator(run)


def refuse_repeated(values: list[T]) -> list[T]:
    """Refuse repeated values."""
    for position, value in enumerate(values):
        if value in values[:position]:
            raise InputError(f"{value!r} is repeated")
    return values


UNIQUE = AfterValidator(refuse_repeated)
_TITLES = {"type": "array", "items": {"type": "string"}, "minItems": 2}
_SIDE_BY_SIDE = {"type": "object", "properties": {CONCAT: _TITLES, "label": LABEL}, "required": [CONCAT]}
_METRIC_NAMES = {"type": "string", "enum": [name for names in PRINTED.values() for name in names]}
MethodEntry = Annotated[
    Named, BeforeValidator(_as_method), _checked(check_method), _schema_of(method_names(), _SIDE_BY_SIDE)
]
HeadEntry = Annotated[Named, BeforeValidator(as_named), _checked(check_head), _schema_of(head_names())]
LossEntry = Annotated[Named, BeforeValidator(as_named), _schema_of(loss_names())]  # checked by the kind of target
ScalingEntry = Annotated[Named, BeforeValidator(as_named), _checked(build_scaler), _schema_of(scalers.names())]
Metric = Annotated[str, WithJsonSchema({"anyOf": [_METRIC_NAMES, {"type": "string", "pattern": f"^{OF_LABEL}"}]})]


class ColumnSplits(Strict):
    """Splits by a column of the table: folds, each of which is tested once, or train, val and test."""

    column: str
    val: bool = False  # the next fold validates


def _splits_kind(value: Any) -> str:
    if isinstance(value, (str, Path)):
        return "path"
    keys = value if isinstance(value, dict) else vars(value) if isinstance(value, Strict) else {}
    return "column" if "column" in keys else "scheme"


Splits = Annotated[
    Annotated[Path, Tag("path")] | Annotated[SplitSpec, Tag("scheme")] | Annotated[ColumnSplits, Tag("column")],
    Discriminator(_splits_kind),
]


def _whole_above_one(size: float) -> float:
    if size > 1 and size != int(size):
        raise ValueError(f"{size}, expected a share (0 to 1) or a number of samples")
    return size


TrainSize = Annotated[float, Field(gt=0, lt=1e9, allow_inf_nan=False), AfterValidator(_whole_above_one)]


class VectorFile(Strict):
    """Precomputed vectors of slides or patients: a file or folder, with the place in it where that needs one."""

    path: Path
    key: str | None = None  # `obsm/X_titan` of an .h5ad, the column with the names of a table
    level: Level | None = None  # of each vector; by default the one that the names match


def _as_vectors(value: Any) -> Any:
    """`titan.h5ad#obsm/X_titan`, or `{path: ..., key: ...}`."""
    if not isinstance(value, (str, Path)):
        return value
    path, hash_sign, key = str(value).rpartition("#")
    return {"path": path, "key": key} if hash_sign and path else {"path": str(value)}


VectorEntry = Annotated[VectorFile, BeforeValidator(_as_vectors)]


class External(Strict):
    """A cohort that is only tested on, with the models of every fold."""

    table: Path
    columns: Columns | None = None  # those of the study by default
    features: dict[str, Path] = Field(default_factory=dict)  # by encoder, as in the study
    embeddings: dict[str, VectorEntry] = Field(default_factory=dict)  # by name, as in the study


class Excluded(Strict):
    """A row that is not trained with a head, both by their titles."""

    method: str
    head: str


class Cell(Strict):
    """One combination of the grid; it is trained once per fold."""

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


def rows_of(methods: Sequence[Named], embeddings: Iterable[str], covariates: bool = False) -> list[Named]:
    """Every row: methods, then precomputed vectors; with covariates, these alone, and concatenated to every embedding."""
    rows = [*methods, *(Named(name=PRECOMPUTED, options={"name": name}, label=name) for name in embeddings)]
    if not covariates:
        return rows
    both = []
    for row in rows:
        if row.name not in networks and not reads_covariates(row):
            of = row.options["of"] if row.name == CONCAT else [row.title]
            label = f"{row.title} + {COVARIATES}"
            both.append(Named(name=CONCAT, options={"of": [*of, COVARIATES]}, label=label))
    return [*rows, Named(name=COVARIATES), *both]


def reads_covariates(row: Named) -> bool:
    """Whether a row is a concatenation with covariates."""
    of = row.options.get("of") if row.name == CONCAT else None
    return isinstance(of, list) and COVARIATES in of


def parts_of(row: Named, rows: Sequence[Named]) -> tuple[Named, ...]:
    """Parts of a row: itself, or those of a concatenation."""
    if row.name != CONCAT:
        return (row,)
    known = {one.title: one for one in rows}
    return tuple(known.get(title) or Named(name=title) for title in row.options["of"])


def is_of_patches(row: Named) -> bool:
    """Whether a row is made of the features of patches."""
    return row.name not in UNMADE


def encoders_of(row: Named, rows: Sequence[Named], features: Sequence[str]) -> list[str]:
    """Encoders for which a row can be made; rows without patches have none."""
    return list(features) if any(map(is_of_patches, parts_of(row, rows))) else [NOT_NAMED]


def check_rows(rows: Sequence[Named], features: Sequence[str]) -> None:
    """Refuse concatenations of unknown rows, and methods on patches where the study has none."""
    titles = [one.title for one in rows if one.name not in networks and one.name != CONCAT]
    known = list(dict.fromkeys([*titles, *aggregators.names(), PCA]))
    for row in rows:
        of: Any = row.options.get("of") if row.name == CONCAT else []
        if row.name == CONCAT:
            if not isinstance(of, list) or not all(isinstance(title, str) for title in of) or len(of) < 2:
                raise InputError(f"concat: {of!r}, expected two rows or more, e.g. {{concat: [panther, titan]}}")
            refuse_repeated(of)
        for title in of:
            if title not in known:
                why = "is a network, which has no embedding" if title in networks else "is not a row"
                raise InputError(f"concat: {title!r} {why}; {suggestion(title, known)}")
        for part in parts_of(row, rows):
            if is_of_patches(part) and not features:
                raise InputError(f"{part.title!r} is made of patches: found only `embeddings`, expected `features`")
