"""The study file: one YAML that says what is compared with what, checked before anything runs."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import pandas as pd
from pydantic import BaseModel, Field, StrictBool, ValidationError, model_validator

from panther.aggregators import aggregators
from panther.cohort.covariates import CovariateEntry
from panther.cohort.spec import STRICT, Seed, SplitSpec, TaskSpec
from panther.cohort.splits import SCHEMES
from panther.cohort.targets import Kind
from panther.errors import InputError, plain, suggestion
from panther.evaluation.metrics import SHOWN, metric_problem
from panther.mil import networks
from panther.models import checks
from panther.models.blocks import needs_prototypes
from panther.models.checks import STRUCTURED
from panther.models.heads import PROBE
from panther.models.probes import PROBES
from panther.models.settings import USUAL_LOSS, USUAL_NETWORK_LOSS, Named, usual_preset
from panther.plain_yaml import read_yaml
from panther.registry import load_plugins
from panther.search.retrieval import AT
from panther.storage.bags import Listing, as_bags
from panther.storage.clinical import USUAL, Columns
from panther.storage.tables import write_table
from panther.storage.writers import store_bag
from panther.study.parts import (
    Cell,
    ColumnSplits,
    Excluded,
    External,
    GivenEntry,
    HeadEntry,
    LossEntry,
    MethodEntry,
    Metric,
    ScalingEntry,
    Splits,
    TrainSize,
)
from panther.study.problems import explained
from panther.study.rows import check_rows, encoders_of, parts_of, rows_of

__all__ = ["Cell", "ColumnSplits", "External", "Named", "SplitSpec", "Study", "TaskSpec", "load_study"]


class Study(BaseModel):
    """A grid: features x methods x heads x losses x numbers of prototypes x training sizes x seeds, over splits."""

    model_config = STRICT

    name: str
    table: Path | None = None  # may be missing where `splits` is a folder of tables
    columns: Columns = USUAL  # names of the slide, patient and site columns, where they are not the usual ones
    features: dict[str, Path] = {}  # encoder: folder
    embeddings: dict[str, GivenEntry] = {}  # name: vectors of slides that a slide encoder made elsewhere
    task: TaskSpec
    plugins: list[Path] = []  # Python files that register methods, encoders, heads or losses
    splits: Splits = SplitSpec()  # to make, from a column {column: fold}, or a folder of split tables
    external: dict[str, External] = {}
    methods: list[MethodEntry] = [Named(name="panther")]
    heads: list[HeadEntry] = [Named(name="linear")]
    losses: list[LossEntry] | None = None  # by default cross-entropy for a label, cox for survival, mse for a value
    mil_loss: LossEntry | None = None  # loss of supervised networks; nll for survival by default
    exclude: list[Excluded] = []  # rows with heads that are not crossed
    n_prototypes: list[Annotated[int, Field(ge=1, strict=True)]] = [16]
    train_sizes: list[TrainSize] = [1.0]  # share of the training samples (<= 1) or their number (> 1)
    seeds: list[Seed] = [1]
    scaling: ScalingEntry = Named(name="share-weighted")
    prototypes: dict[str, Any] = {}  # settings of K-means
    training: dict[str, Any] = {}  # settings of training, over the paper's
    mil_training: dict[str, Any] = {}  # the same for supervised networks
    covariates: list[
        CovariateEntry
    ] = []  # columns that are known without the slide, as rows alone and beside embeddings
    evaluate_by: str | list[str] | None = None  # columns whose values are also judged by themselves
    reference: str | None = None  # method (its title) that others are compared with; the first by default
    metrics: list[Metric] | None = None  # those of the printed tables; all are in the results
    retrieval: bool | list[Annotated[int, Field(ge=1, le=1000, strict=True)]] = (
        False  # whether, or at which k, neighbours are judged
    )
    shuffle: bool | Annotated[int, Field(ge=1, le=100, strict=True)] = (
        False  # whether, or how often, everything is done on shuffled tissue too
    )
    prediction_sets: Literal["overall", "by-class"] = "overall"  # whether they hold their level in each class
    permuted: StrictBool = False  # whether the reference is also trained and tested on permuted labels
    bootstrap: Annotated[int, Field(ge=0)] = 1000
    max_models: Annotated[int, Field(ge=1, strict=True)] = 10_000  # a study of more is refused before it starts
    allow_mixed_resolution: bool = False  # take features of several resolutions, which are refused otherwise

    @model_validator(mode="before")
    @classmethod
    def _usual_methods(cls, content: Any) -> Any:
        """Where there are no patches there is nothing for PANTHER to be made of."""
        given = isinstance(content, dict) and not content.get("features") and content.get("embeddings")
        return {"methods": [], **content} if given else content

    @model_validator(mode="after")
    def _possible(self) -> "Study":
        """Every name and every setting, tried."""
        needed = () if self.embeddings else ("features", "methods")
        empty = [n for n in (*needed, "heads", "n_prototypes", "train_sizes", "seeds") if not getattr(self, n)]
        if empty:
            raise ValueError(f"{empty[0]}: is empty; there is nothing to compare")
        self._check_entries()
        _under("training", checks.check_training, self.training, usual_preset(self.kind, network=False))
        _under("mil_training", checks.check_training, self.mil_training, usual_preset(self.kind, network=True))
        _under("prototypes", checks.check_prototypes, self.prototypes, self.n_prototypes)
        _under("covariates", checks.refuse_repeated, [one.column for one in self.covariates])
        for key in ("seeds", "n_prototypes", "train_sizes"):
            _under(key, checks.refuse_repeated, getattr(self, key))
        self._check_splits()
        self._check_judgement()
        return self

    def _check_entries(self) -> None:
        """Methods, heads, losses and scaling: known, with settings that they take, each once."""
        for method in self.methods:
            _under("methods", checks.check_method, method.name, method.options)
        _under("methods", check_rows, self.rows, list(self.features))
        for head in self.heads:
            _under("heads", checks.check_head, head.name, head.options)
        for loss in self.losses or []:
            _under("losses", checks.check_loss, loss.name, loss.options, self.kind)
        if self.mil_loss:
            _under("mil_loss", checks.check_loss, self.mil_loss.name, self.mil_loss.options, self.kind)
        titles, heads = [row.title for row in self.rows], [head.title for head in self.heads]
        for one in self.exclude:
            if one.method not in titles or one.head not in heads:
                raise ValueError(f"exclude: there is no row {one.method!r} with the head {one.head!r}")
        _under("scaling", checks.check_scaling, self.scaling.name, self.scaling.options)
        for where, entries in (("methods", self.rows), ("heads", self.heads), ("losses", self.losses or [])):
            _under(where, checks.refuse_alike, [entry.key() for entry in entries], [entry.title for entry in entries])

    def _check_splits(self) -> None:
        """A scheme that exists, a table to split, and a folder for every external feature set."""
        if isinstance(self.splits, SplitSpec) and self.splits.scheme not in SCHEMES:
            asked = self.splits.scheme
            raise ValueError(f"splits.scheme: there is no {asked!r}; {suggestion(asked, SCHEMES)}")
        if not isinstance(self.splits, Path) and self.table is None:
            raise ValueError("table: is needed to make splits; or give a folder of split tables as `splits`")
        for name, cohort in self.external.items():
            _check_same(f"external.{name}.features", cohort.features, self.features, "features", "folder")
            _check_same(f"external.{name}.embeddings", cohort.embeddings, self.embeddings, "embeddings", "file")
            for row, own in self.embeddings.items():
                _check_same(f"external.{name}.embeddings.{row}", cohort.embeddings[row], own, f"{row} of", "file")

    @property
    def neighbours(self) -> tuple[int, ...]:
        """Numbers of neighbours that retrieval is judged at; none where it is not asked for."""
        if isinstance(self.retrieval, bool):
            return AT if self.retrieval else ()
        return tuple(sorted(set(self.retrieval)))

    @property
    def sets_by_class(self) -> bool:
        """Whether prediction sets hold their level in each class."""
        return self.prediction_sets == "by-class"

    @property
    def shuffles(self) -> int:
        """How often tissue is shuffled for the shuffle test."""
        return int(self.shuffle)

    def _check_judgement(self) -> None:
        """Metrics that judge this task, and a reference that is compared."""
        if self.neighbours and self.kind != "classification":
            raise ValueError(f"retrieval: neighbours share a label, but this study is about {self.kind}; leave it out")
        _under("metrics", checks.refuse_repeated, self.metrics or [])
        _under("evaluate_by", checks.refuse_repeated, self.by_columns)
        for metric in self.metrics or []:
            if problem := metric_problem(metric, self.kind, self.task.labels or ()):
                raise ValueError(f"metrics: {problem}")
        titles = [row.title for row in self.rows]
        if self.reference is not None and self.reference not in titles:
            raise ValueError(f"reference: no method is called {self.reference!r}; {suggestion(self.reference, titles)}")

    @property
    def by_columns(self) -> list[str]:
        """Columns whose values are judged by themselves."""
        return [self.evaluate_by] if isinstance(self.evaluate_by, str) else list(self.evaluate_by or ())

    @property
    def kind(self) -> Kind:
        """What kind of target is predicted."""
        return self.task.kind

    @property
    def rows(self) -> list[Named]:
        """What is compared: the methods, the given embeddings, covariates alone and beside each."""
        return rows_of(self.methods, self.embeddings, bool(self.covariates))

    @property
    def reference_row(self) -> str:
        """Title of the row that the others are compared with."""
        return self.reference or self.rows[0].title

    @property
    def shown(self) -> list[str]:
        """Metrics of the printed tables."""
        return self.metrics or list(SHOWN[self.kind])

    @property
    def default_loss(self) -> Named:
        """Loss of heads on embeddings where the study names none."""
        return Named(name=USUAL_LOSS[self.kind])

    def losses_of(self, method: Named) -> list[Named]:
        """Losses that a method is trained with."""
        if method.name in networks:
            return [self.mil_loss or Named(name=USUAL_NETWORK_LOSS[self.kind])]
        return list(self.losses) if self.losses else [self.default_loss]

    def probes(self) -> list[Named]:
        """Losses that the head `probe` is fitted with: those of the study that have a closed form, else the usual one."""
        asked = dict.fromkeys(loss.name for loss in self.losses or [] if loss.name in PROBES)
        return [Named(name=name) for name in asked] or [self.default_loss]

    def cells(self) -> Iterator["Cell"]:
        """Every combination that makes sense, then those of the reference on permuted labels."""
        yield from self._cells()
        for cell in self._cells() if self.permuted else ():
            if cell.method.title == self.reference_row:
                method = cell.method.model_copy(update={"label": f"{cell.method.title}, labels permuted"})
                yield cell.model_copy(update={"method": method, "permuted": True})

    def _cells(self) -> Iterator["Cell"]:
        """Every combination that makes sense: supervised networks bring their own head."""
        rows, embeddings = self.rows, self.embeddings
        known = {row.title: encoders_of(row, rows, list(self.features), embeddings) for row in rows}
        encoders = dict.fromkeys([*self.features, *(encoder for own in known.values() for encoder in own)])
        for encoder, size, seed, row in itertools.product(encoders, self.train_sizes, self.seeds, rows):
            if encoder not in known[row.title]:
                continue
            supervised = row.name in networks
            counts = self.n_prototypes if any(map(needs_prototypes, parts_of(row, rows))) else [0]
            for c, head in itertools.product(counts, self.heads if not supervised else [Named(name="own")]):
                if not supervised and head.name in STRUCTURED and not _has_tokens(row):
                    continue  # nothing to be structured by
                if Excluded(method=row.title, head=head.title) in self.exclude:
                    continue
                for loss in self.probes() if head.name == PROBE else self.losses_of(row):
                    yield Cell(
                        encoder=encoder, method=row, head=head, loss=loss, n_prototypes=c, train_size=size, seed=seed
                    )


def _has_tokens(row: Named) -> bool:
    return row.name in aggregators and aggregators.entry(row.name).metadata.tokens(row.options)


def _check_same(where: str, given: Mapping[str, Any], wanted: Mapping[str, Any], what: str, kind: str) -> None:
    """Refuse an external cohort that has more or less than the study."""
    missing, unknown = sorted(set(wanted) - set(given)), sorted(set(given) - set(wanted))
    if unknown:
        raise ValueError(f"{where}: the study has no {what} {unknown[0]!r}; {suggestion(unknown[0], wanted)}")
    if missing:
        raise ValueError(f"{where}: no {kind} for {', '.join(missing)}")


def load_study(path: Path) -> Study:
    """Read and check a study file; relative paths in it count from its folder."""
    return _resolved(parse_study(read_yaml(path), str(path), path.parent), path.parent)


def parse_study(content: Mapping[str, Any], source: str = "The study", folder: Path = Path()) -> Study:
    """Check the keys and values of a study; its plug-ins, of this folder, are loaded first."""
    plugins = content.get("plugins")
    load_plugins([folder / str(file) for file in plugins] if isinstance(plugins, list) else ())
    try:
        return Study.model_validate(plain(dict(content)))
    except ValidationError as error:
        raise InputError(f"{source}: {explained(error, [*Study.model_fields])}") from error


def _under(where: str, check: Callable[..., None], *given: Any) -> None:
    """Run a check; what it refuses is said with the key."""
    try:
        check(*given)
    except InputError as error:
        raise ValueError(f"{where}: {str(error).rstrip('.')}") from error


def _resolved(study: Study, folder: Path) -> Study:
    def at(path: Path) -> Path:
        return path if path.is_absolute() else folder / path

    def inputs(of: Study | External) -> dict[str, Any]:
        given = {
            name: {encoder: one.model_copy(update={"path": at(one.path)}) for encoder, one in by_encoder.items()}
            for name, by_encoder in of.embeddings.items()
        }
        return {
            "features": {name: at(folder) for name, folder in of.features.items()},
            "embeddings": given,
        }

    external = {
        name: cohort.model_copy(update={"table": at(cohort.table), **inputs(cohort)})
        for name, cohort in study.external.items()
    }
    return study.model_copy(
        update={
            "table": None if study.table is None else at(study.table),
            "plugins": [at(file) for file in study.plugins],
            **inputs(study),
            "splits": at(study.splits) if isinstance(study.splits, Path) else study.splits,
            "external": external,
        }
    )


def as_study(study: Study | Mapping[str, Any] | Path | str, folder: Path) -> Study:
    """The study, checked; tables and bags in memory are stored in its folder, so that it can be run again."""
    if isinstance(study, Study):
        return study
    if isinstance(study, (str, Path)):
        return load_study(Path(study))
    content = dict(study)
    external = {
        name: _on_disk(cohort, folder / "inputs" / name) for name, cohort in content.get("external", {}).items()
    }
    return parse_study({**_on_disk(content, folder / "inputs"), **({"external": external} if external else {})})


def _on_disk(content: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """A study's (or an external cohort's) values with paths in the place of tables and bags in memory."""
    content = dict(content)
    if isinstance(content.get("table"), pd.DataFrame):
        write_table(folder / "table.csv", content["table"])
        content["table"] = folder / "table.csv"
    features = content.get("features")
    by_encoder = isinstance(features, Mapping) and all(isinstance(value, (str, Path)) for value in features.values())
    if features is not None and not by_encoder:
        if not isinstance(features, (str, Path)):
            features = _stored(as_bags(features), folder / "features")
        content["features"] = {"features": features}
    return content


def _stored(listing: Listing, folder: Path) -> Path:
    """Bags as files; those of an earlier call that are not among them are removed, so that nobody is taken for one of these."""
    written = {store_bag(replace(ref.open(), slide_id=ref.sample), folder) for ref in listing.refs}
    for path in {*folder.glob("[!.]*.h5"), *folder.glob("[!.]*.safetensors")} - written:
        path.unlink()
    return folder
