"""The study file: one YAML, checked before anything runs."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import pandas as pd
from pydantic import BaseModel, Field, ValidationError, model_validator

from panther.aggregators import aggregators
from panther.cohort.covariates import CovariateEntry
from panther.cohort.spec import STRICT, Seed, SplitSpec, TaskSpec
from panther.cohort.targets import Kind
from panther.errors import InputError, first_problem, format_problem, plain, suggestion
from panther.evaluation.metrics import PRINTED, SHOWN, label_metric
from panther.mil import networks
from panther.models.blocks import needs_prototypes
from panther.models.heads import PROBE, STRUCTURED
from panther.models.probes import PROBES
from panther.models.settings import USUAL_LOSS, USUAL_NETWORK_LOSS, Named, changed, usual_training
from panther.models.tasks import check_loss
from panther.plain_yaml import read_yaml
from panther.prototypes import KMeansSettings
from panther.registry import load_plugins
from panther.storage.bags import as_bags
from panther.storage.clinical import USUAL, Columns
from panther.storage.tables import write_table
from panther.storage.writers import store_bag
from panther.study.parts import (
    UNIQUE,
    Cell,
    ColumnSplits,
    Excluded,
    External,
    HeadEntry,
    LossEntry,
    MethodEntry,
    Metric,
    ScalingEntry,
    Splits,
    TrainSize,
    VectorEntry,
    check_rows,
    encoders_of,
    parts_of,
    refuse_repeated,
    rows_of,
)

__all__ = ["Cell", "ColumnSplits", "External", "Named", "SplitSpec", "Study", "TaskSpec", "load_study"]

SOME = Field(min_length=1)
Count = Annotated[int, Field(ge=1, strict=True)]


class Study(BaseModel):
    """A grid: features x methods x heads x losses x numbers of prototypes x training sizes x seeds, over splits."""

    model_config = STRICT

    name: str
    table: Path | None = None  # may be missing where `splits` is a folder of tables
    columns: Columns = USUAL  # names of the slide, patient and site columns, where they are not the usual ones
    features: dict[str, Path] = {}  # encoder: folder
    embeddings: dict[str, VectorEntry] = {}  # name: precomputed vectors of a slide encoder
    task: TaskSpec
    plugins: list[Path] = []  # Python files that register methods, encoders, heads or losses
    splits: Splits = SplitSpec()  # to make, from a column {column: fold}, or a folder of split tables
    external: dict[str, External] = {}
    methods: list[MethodEntry] = [Named(name="panther")]
    heads: Annotated[list[HeadEntry], SOME] = [Named(name="linear")]
    losses: list[LossEntry] | None = None  # by default cross-entropy for a label, cox for survival, mse for a value
    mil_loss: LossEntry | None = None  # loss of supervised networks; nll for survival by default
    exclude: list[Excluded] = []  # rows with heads that are not crossed
    n_prototypes: Annotated[list[Count], SOME, UNIQUE] = [16]
    train_sizes: Annotated[list[TrainSize], SOME, UNIQUE] = [
        1.0
    ]  # share of the training samples, or their number (> 1)
    seeds: Annotated[list[Seed], SOME, UNIQUE] = [1]
    scaling: ScalingEntry = Named(name="share-weighted")
    prototypes: dict[str, Any] = {}  # settings of K-means
    training: dict[str, Any] = {}  # settings of training, over the paper's
    mil_training: dict[str, Any] = {}  # the same for supervised networks
    covariates: list[CovariateEntry] = []  # clinical columns, as rows alone and beside embeddings
    evaluate_by: str | list[str] | None = None  # columns whose subgroups are also evaluated
    reference: str | None = None  # method (its title) that others are compared with; the first by default
    metrics: Annotated[list[Metric], UNIQUE] | None = None  # those of the printed tables; all are in the results
    shuffle: bool | Annotated[Count, Field(le=100)] = False  # whether, or how often, to repeat on shuffled tissue
    prediction_sets: Literal["overall", "by-class"] = "overall"  # whether they hold their level in each class
    bootstrap: Annotated[int, Field(ge=0)] = 1000
    max_models: Count = 10_000  # a study of more is refused before it starts
    allow_mixed_resolution: bool = False  # take features of several resolutions, which are refused otherwise

    @model_validator(mode="before")
    @classmethod
    def _usual_methods(cls, content: Any) -> Any:
        """Without features of patches there are no methods by default."""
        only_vectors = isinstance(content, dict) and not content.get("features") and content.get("embeddings")
        return {"methods": [], **content} if only_vectors else content

    @model_validator(mode="after")
    def _possible(self) -> "Study":
        """Checks of several keys together."""
        for name in () if self.embeddings else ("features", "methods"):
            if not getattr(self, name):
                raise ValueError(f"{name}: is empty; there is nothing to compare")
        _under("methods", check_rows, self.rows, list(self.features))
        for where, losses in (("losses", self.losses or []), ("mil_loss", [self.mil_loss] if self.mil_loss else [])):
            for loss in losses:
                _under(where, check_loss, loss.name, loss.options, self.kind)
        for where, entries in (("methods", self.rows), ("heads", self.heads), ("losses", self.losses or [])):
            keys, titles = [entry.key() for entry in entries], [entry.title for entry in entries]
            for position, title in enumerate(titles):
                if keys[position] in keys[:position]:
                    raise ValueError(f"{where}: {title!r} is repeated with the same settings")
                if title in titles[:position]:
                    raise ValueError(
                        f"{where}: {title!r} is the title of two with different settings; give each a label"
                    )
        for where, settings in (("training", self.training), ("mil_training", self.mil_training)):
            _under(where, changed, usual_training(self.kind, network=where == "mil_training"), settings)
        if "n_prototypes" in self.prototypes:
            raise ValueError("prototypes: n_prototypes is a key of the study, n_prototypes: [16]")
        for count in self.n_prototypes:
            _under("prototypes", changed, KMeansSettings(n_prototypes=count), self.prototypes)
        _under("covariates", refuse_repeated, [one.column for one in self.covariates])
        _under("evaluate_by", refuse_repeated, self.by_columns)
        if not isinstance(self.splits, Path) and self.table is None:
            raise ValueError("table: is needed to make splits; or give a folder of split tables as `splits`")
        for name, cohort in self.external.items():
            _check_same(f"external.{name}.features", cohort.features, self.features)
            _check_same(f"external.{name}.embeddings", cohort.embeddings, self.embeddings)
        self._check_judgement()
        return self

    def _check_judgement(self) -> None:
        """Rows and metrics that exist for this task."""
        titles, heads = [row.title for row in self.rows], [head.title for head in self.heads]
        for one in self.exclude:
            if one.method not in titles or one.head not in heads:
                raise ValueError(f"exclude: there is no row {one.method!r} with the head {one.head!r}")
        if self.reference is not None and self.reference not in titles:
            raise ValueError(f"reference: no method is called {self.reference!r}; {suggestion(self.reference, titles)}")
        printed = [*PRINTED[self.kind], *map(label_metric, self.task.labels or ())]
        for metric in self.metrics or []:
            if metric not in printed:
                raise ValueError(f"metrics: there is no {metric!r} in tables; {suggestion(metric, printed)}")

    @property
    def by_columns(self) -> list[str]:
        """Columns whose subgroups are also evaluated."""
        return [self.evaluate_by] if isinstance(self.evaluate_by, str) else list(self.evaluate_by or ())

    @property
    def kind(self) -> Kind:
        """Kind of the target."""
        return self.task.kind

    @property
    def rows(self) -> list[Named]:
        """Rows of the comparison: methods, precomputed vectors, covariates alone and with each of them."""
        return rows_of(self.methods, self.embeddings, bool(self.covariates))

    @property
    def reference_row(self) -> str:
        """Title of the row that the others are compared with."""
        return self.reference or self.rows[0].title

    @property
    def shown(self) -> list[str]:
        """Metrics of the printed tables."""
        return self.metrics or list(SHOWN[self.kind])

    def losses_of(self, method: Named) -> list[Named]:
        """Losses that a method is trained with."""
        if method.name in networks:
            return [self.mil_loss or Named(name=USUAL_NETWORK_LOSS[self.kind])]
        return list(self.losses or [Named(name=USUAL_LOSS[self.kind])])

    def probes(self) -> list[Named]:
        """Losses of the head `probe`: those of the study that have a closed form, else the usual one."""
        closed = dict.fromkeys(loss.name for loss in self.losses or [] if loss.name in PROBES)
        return [Named(name=name) for name in closed or [USUAL_LOSS[self.kind]]]

    def cells(self) -> Iterator["Cell"]:
        """Every combination that makes sense: supervised networks bring their own head."""
        rows = self.rows
        known = {row.title: encoders_of(row, rows, list(self.features)) for row in rows}
        encoders = dict.fromkeys([*self.features, *itertools.chain.from_iterable(known.values())])
        for encoder, size, seed, row in itertools.product(encoders, self.train_sizes, self.seeds, rows):
            if encoder not in known[row.title]:
                continue
            supervised = row.name in networks
            has_tokens = row.name in aggregators and aggregators.entry(row.name).metadata.tokens(row.options)
            counts = self.n_prototypes if any(map(needs_prototypes, parts_of(row, rows))) else [0]
            for c, head in itertools.product(counts, self.heads if not supervised else [Named(name="own")]):
                needs_tokens = not supervised and head.name in STRUCTURED
                if (needs_tokens and not has_tokens) or Excluded(method=row.title, head=head.title) in self.exclude:
                    continue
                for loss in self.probes() if head.name == PROBE else self.losses_of(row):
                    yield Cell(
                        encoder=encoder, method=row, head=head, loss=loss, n_prototypes=c, train_size=size, seed=seed
                    )


def _check_same(where: str, names: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Refuse an external cohort with other names than the study."""
    for name in sorted(set(names) - set(expected)):
        raise ValueError(f"{where}: the study has no {name!r}; {suggestion(name, expected)}")
    if missing := sorted(set(expected) - set(names)):
        raise ValueError(f"{where}: lacks {', '.join(missing)} of the study")


def _under(where: str, check: Callable[..., Any], *values: Any) -> None:
    """Run a check; its error names the key."""
    try:
        check(*values)
    except InputError as error:
        raise ValueError(f"{where}: {str(error).rstrip('.')}") from error


def load_study(path: Path) -> Study:
    """Read and check a study file; relative paths in it count from its folder."""
    study, folder = parse_study(read_yaml(path), str(path), path.parent), path.parent

    def inputs(of: Study | External) -> dict[str, Any]:
        vectors = {name: file.model_copy(update={"path": folder / file.path}) for name, file in of.embeddings.items()}
        table = None if of.table is None else folder / of.table
        features = {name: folder / place for name, place in of.features.items()}
        return {"table": table, "features": features, "embeddings": vectors}

    return study.model_copy(
        update={
            **inputs(study),
            "plugins": [folder / file for file in study.plugins],
            "splits": folder / study.splits if isinstance(study.splits, Path) else study.splits,
            "external": {name: cohort.model_copy(update=inputs(cohort)) for name, cohort in study.external.items()},
        }
    )


def parse_study(content: Mapping[str, Any], source: str = "The study", folder: Path = Path()) -> Study:
    """Check the keys and values of a study; its plug-ins, of this folder, are loaded first."""
    plugins = content.get("plugins")
    load_plugins([folder / str(file) for file in plugins] if isinstance(plugins, list) else ())
    try:
        return Study.model_validate(plain(dict(content)))
    except ValidationError as error:
        raise InputError(f"{source}: {format_study_problem(error)}.") from error


def as_study(study: Study | Mapping[str, Any] | Path | str, folder: Path) -> Study:
    """The study, checked; tables and bags in memory are stored in its folder, so that it can be run again."""
    if isinstance(study, Study):
        return study
    if isinstance(study, (str, Path)):
        return load_study(Path(study))
    external = {name: _on_disk(one, folder / "inputs" / name) for name, one in study.get("external", {}).items()}
    return parse_study({**_on_disk(study, folder / "inputs"), **({"external": external} if external else {})})


def _on_disk(content: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """A study's (or an external cohort's) values with paths in the place of tables and bags in memory."""
    content = dict(content)
    if isinstance(content.get("table"), pd.DataFrame):
        write_table(folder / "table.csv", content["table"])
        content["table"] = folder / "table.csv"
    features = content.get("features")
    by_encoder = isinstance(features, Mapping) and all(isinstance(value, (str, Path)) for value in features.values())
    if features is None or by_encoder:
        return content
    if not isinstance(features, (str, Path)):
        bags, features = as_bags(features), folder / "features"
        written = {store_bag(replace(ref.open(), slide_id=ref.sample), features) for ref in bags.refs}
        for path in {*features.glob("[!.]*.h5"), *features.glob("[!.]*.safetensors")} - written:
            path.unlink()  # of an earlier call
    return {**content, "features": {"features": features}}


KEYS: dict[str, Iterable[str]] = {  # below a key of the study; elsewhere those of an entry
    "task": TaskSpec.model_fields,
    "columns": [field.name for field in fields(Columns)],
    "splits": dict.fromkeys((*SplitSpec.model_fields, *ColumnSplits.model_fields)),
    "external": External.model_fields,
}


def format_study_problem(error: ValidationError) -> str:
    """One problem of a study: key, found value, expected value."""
    problem = first_problem(error)
    key, *below = problem["loc"] or ("",)
    if key in ("splits", "shuffle", "evaluate_by"):
        below = below[1:]  # the type that the value was taken for
    known = KEYS.get(str(key), Named.model_fields) if below else Study.model_fields
    expected = "a name, or {name: ...}" if problem["type"] == "model_type" else ""
    return format_problem({**problem, "loc": (key, *below)}, known=list(known), expected=expected)
