"""The study file: one YAML that says what is compared with what, checked before anything runs."""

import itertools
import json
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from panther.aggregators import aggregators
from panther.errors import InputError
from panther.learning.heads import heads
from panther.learning.outcomes import LabelOutcome, Outcome, SurvivalOutcome
from panther.learning.presets import TrainSettings
from panther.learning.scaling import scalers
from panther.learning.splits import SCHEMES
from panther.learning.task import tasks
from panther.mil import networks
from panther.prototypes import KMeansSettings

STRUCTURED = ("structured", "paper-classification", "paper-survival")  # heads that need one token a prototype
PROBE = "probe"  # a head without training: logistic regression or ridge Cox with inner cross-validation


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Named(_Strict):
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


NamedEntry = Annotated[Named, BeforeValidator(_named)]


class TaskSpec(_Strict):
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


class SplitSpec(_Strict):
    """Splits to make; a path in its place reads splits that exist."""

    scheme: str = "kfold"
    k: Annotated[int, Field(ge=2)] = 5
    shares: tuple[float, float, float] = (0.8, 0.1, 0.1)
    val: bool = False
    seed: int = 0


class External(_Strict):
    """A cohort that is only tested on, with the models of every fold."""

    table: Path
    features: dict[str, Path]  # by encoder, as in the study


class Study(_Strict):
    """A grid: features x methods x heads x losses x numbers of prototypes x training sizes x seeds, over splits."""

    name: str
    table: Path | None = None  # may be missing where `splits` is a folder of tables
    features: dict[str, Path]  # encoder: folder
    task: TaskSpec
    splits: Path | SplitSpec = SplitSpec()
    external: dict[str, External] = {}
    methods: list[NamedEntry] = [Named(name="panther")]
    heads: list[NamedEntry] = [Named(name="linear")]
    losses: list[NamedEntry] | None = None  # cross-entropy for labels, cox for survival by default
    mil_loss: NamedEntry | None = None  # loss of supervised networks; nll for survival by default
    n_prototypes: list[int] = [16]
    train_sizes: list[float] = [1.0]  # share of the training samples (<= 1) or their number (> 1)
    seeds: list[int] = [1]
    scaling: NamedEntry = Named(name="balanced")
    prototypes: dict[str, Any] = {}  # settings of K-means
    training: dict[str, Any] = {}  # settings of training, over the paper's
    mil_training: dict[str, Any] = {}  # the same for supervised networks
    evaluate_by: str | None = None  # column whose values are also judged by themselves
    reference: str | None = None  # method (its title) that others are compared with; the first by default
    metrics: list[str] | None = None  # those of the printed tables; all are in the results
    bootstrap: Annotated[int, Field(ge=0)] = 1000
    allow_mixed_resolution: bool = False  # take features of several resolutions, which are refused otherwise

    @model_validator(mode="after")
    def _known(self) -> "Study":
        loss_names = [e.name for e in tasks]
        for where, entries, known in (
            ("methods", self.methods, [*aggregators.names(), *networks.names()]),
            ("heads", self.heads, [*heads.names(), PROBE]),
            ("losses", self.losses or [], loss_names),
            ("mil_loss", [self.mil_loss] if self.mil_loss else [], loss_names),
            ("scaling", [self.scaling], scalers.names()),
        ):
            for entry in entries:
                if entry.name not in known:
                    raise ValueError(f"{where}: there is no {entry.name!r}; known are {', '.join(known)}")
        for where, given, settings in (
            ("prototypes", self.prototypes, KMeansSettings),
            ("training", self.training, TrainSettings),
            ("mil_training", self.mil_training, TrainSettings),
        ):
            names = [f.name for f in fields(settings)]
            for name in given:
                if name not in names:
                    raise ValueError(f"{where}: there is no setting {name!r}; known are {', '.join(names)}")
        if isinstance(self.splits, SplitSpec):
            if self.splits.scheme not in SCHEMES:
                raise ValueError(f"splits.scheme: there is no {self.splits.scheme!r}; known are {', '.join(SCHEMES)}")
            if self.table is None:
                raise ValueError("table: is needed to make splits; or give a folder of split tables as `splits`")
        for name, cohort in self.external.items():
            missing = sorted(set(self.features) - set(cohort.features))
            if missing:
                raise ValueError(f"external.{name}.features: no folder for {', '.join(missing)}")
        empty = [
            n for n in ("features", "methods", "heads", "n_prototypes", "train_sizes", "seeds") if not getattr(self, n)
        ]
        if empty:
            raise ValueError(f"{empty[0]}: is empty; there is nothing to compare")
        return self

    @property
    def is_survival(self) -> bool:
        """Whether times are predicted."""
        return self.task.label is None

    @property
    def shown(self) -> list[str]:
        """Metrics of the printed tables."""
        return self.metrics or (["c_index"] if self.is_survival else ["balanced_accuracy", "weighted_f1"])

    @property
    def default_loss(self) -> Named:
        """Loss of heads on embeddings where the study names none."""
        return Named(name="cox" if self.is_survival else "cross-entropy")

    def losses_of(self, method: Named) -> list[Named]:
        """Losses that a method is trained with."""
        if method.name in networks:
            return [self.mil_loss or (Named(name="nll") if self.is_survival else self.default_loss)]
        return list(self.losses) if self.losses else [self.default_loss]

    def cells(self) -> Iterator["Cell"]:
        """Every combination that makes sense: supervised networks bring their own head."""
        for encoder, size, seed, method in itertools.product(self.features, self.train_sizes, self.seeds, self.methods):
            supervised = method.name in networks
            needs = not supervised or networks.entry(method.name).metadata["needs_prototypes"]
            chosen = self.heads if not supervised else [Named(name="own")]
            for c, head in itertools.product(self.n_prototypes if needs else [0], chosen):
                if not supervised and head.name in STRUCTURED and not _has_tokens(method):
                    continue  # nothing to be structured by
                for loss in [self.default_loss] if head.name == PROBE else self.losses_of(method):
                    yield Cell(
                        encoder=encoder, method=method, head=head, loss=loss, n_prototypes=c, train_size=size, seed=seed
                    )


def _has_tokens(method: Named) -> bool:
    return bool(aggregators.entry(method.name).metadata["tokens"](method.options))


class Cell(_Strict):
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


def load_study(path: Path) -> Study:
    """Read and check a study file; relative paths in it count from its folder."""
    try:
        content = yaml.safe_load(path.read_text())
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}).") from error
    except yaml.YAMLError as error:
        raise InputError(f"{path}: is not YAML ({' '.join(str(error).split())}).") from error
    if not isinstance(content, dict):
        raise InputError(f"{path}: expected keys like name, features, task; `panther study new` writes a template.")
    try:
        study = Study.model_validate(content)
    except ValidationError as error:
        raise InputError(f"{path}: {_explained(error)}") from error
    return _resolved(study, path.parent)


def _explained(error: ValidationError) -> str:
    """First problem: the key, what was found, what was expected."""
    problem = error.errors()[0]
    where = ".".join(
        str(part) for part in problem["loc"] if not isinstance(part, str) or part not in ("SplitSpec", "path")
    )
    message = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "extra_forbidden":
        message = (
            f"there is no such key; known are {', '.join(Study.model_fields)}"
            if "." not in where
            else "there is no such key"
        )
    more = error.error_count() - 1
    return (f"{where}: " if where else "") + f"{message}" + (f" (and {more} more)." if more else ".")


def _resolved(study: Study, folder: Path) -> Study:
    def at(path: Path) -> Path:
        return path if path.is_absolute() else folder / path

    external = {
        name: External(table=at(e.table), features={k: at(v) for k, v in e.features.items()})
        for name, e in study.external.items()
    }
    return study.model_copy(
        update={
            "table": None if study.table is None else at(study.table),
            "features": {name: at(path) for name, path in study.features.items()},
            "splits": at(study.splits) if isinstance(study.splits, Path) else study.splits,
            "external": external,
        }
    )
