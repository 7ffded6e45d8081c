"""Training of a model: `panther train` and every fold of a study call :func:`fit_model`."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from panther.aggregators import embed_bags
from panther.cohort.covariates import COVARIATES, CovariateSpec, check_covariates, fit_covariates
from panther.cohort.load import Cohort
from panther.cohort.spec import TaskSpec
from panther.cohort.targets import Target
from panther.engine import LOCAL, Track, Work, collect, untracked
from panther.errors import InputError
from panther.mil import BagSource, LoadSettings, build_model, networks
from panther.models.blocks import CONCAT, Block, check_method, columns_of, made_by, needs_prototypes
from panther.models.heads import PROBE, build_head, check_head, token_shape
from panther.models.model import Model
from panther.models.probes import PROBES, fit_suitable
from panther.models.scaling import column_means, fit_scaler
from panther.models.settings import USUAL_LOSS, USUAL_NETWORK_LOSS, Named, TrainSettings, usual_training
from panther.models.tasks import Prediction, Task, check_loss, fit_task
from panther.models.trainer import ArraySource, BatchSource, fit, predict_logits
from panther.models.uncertainty import fit_uncertainty, mean_features
from panther.patches import in_common
from panther.prototypes import KMeansSettings, fit_bags
from panther.prototypes.patches import example, scan_bags
from panther.storage.bags import finite_content
from panther.storage.prototypes import as_prototypes
from panther.store import hash_contents, hash_of
from panther.types import FeatureSpace, Openable, PatchSpec, Prototypes
from panther.version import __version__


@dataclass(frozen=True)
class TrainingRecipe:
    """Settings of a training."""

    method: Named
    head: Named
    loss: Named
    prototypes: KMeansSettings  # of new prototypes
    training: TrainSettings
    scaling: Named = field(default_factory=lambda: Named(name="share-weighted"))
    by_class: bool = False  # whether prediction sets have their coverage in each class
    task: TaskSpec | None = None  # columns of the outcome, and the level

    @property
    def supervised(self) -> bool:
        """Whether the method is a network on bags."""
        return self.method.name in networks


@dataclass(frozen=True)
class Parts:
    """Slides (or patients) of each part of a split, and their targets."""

    ids: Mapping[str, tuple[str, ...]]  # train, val, test, test_<cohort>
    targets: Mapping[str, Target]
    patients: Mapping[str, str]  # of each slide: a probe's inner folds keep a patient's slides together
    contents: Mapping[str, str] = field(default_factory=dict)  # hash of the features of each training sample

    def signature(self) -> str:
        """Hash of the ids, patients and targets of the parts."""
        members = {part: [(name, self.patients[name]) for name in ids] for part, ids in self.ids.items()}
        values = (value for part in sorted(self.targets) for value in vars(self.targets[part]).values())
        return hash_of(members, *(v.tobytes() if isinstance(v, np.ndarray) else str(v).encode() for v in values))

    def only(self, names: Iterable[str]) -> "Parts":
        """Samples of these names; empty parts are dropped."""
        available = set(names)
        rows = {part: np.flatnonzero([name in available for name in ids]) for part, ids in self.ids.items()}
        rows = {part: kept for part, kept in rows.items() if len(kept)}
        return replace(
            self,
            ids={part: tuple(self.ids[part][i] for i in kept) for part, kept in rows.items()},
            targets={part: self.targets[part].take(kept) for part, kept in rows.items()},
        )


@dataclass(frozen=True, eq=False)
class Embedded:
    """Embeddings of the samples of all parts."""

    x: np.ndarray  # (n, D), perhaps a memory map
    names: Sequence[str]  # of the rows
    blocks: tuple[Block, ...]  # representations in a row, from left to right


@dataclass(frozen=True, eq=False)
class Bags:
    """Bags of the samples of all parts, for a network; prototypes where it needs them."""

    refs: Mapping[str, Openable]
    prototypes: Prototypes | None
    spec: PatchSpec  # common to the training patches


@dataclass(frozen=True, eq=False)
class FittedModel:
    """A trained model, its learning curve, and its predictions."""

    model: Model
    history: list[dict[str, float]]  # one row per epoch; empty for a probe
    parts: Parts  # without samples that failed
    predict: Callable[[str], Prediction]  # part -> predictions


class _Trained(NamedTuple):
    network: nn.Module
    history: list[dict[str, float]]
    logits: Callable[[str], Tensor]  # part -> (n, n_outputs)


def fit_model(
    recipe: TrainingRecipe,
    parts: Parts,
    data: Embedded | Bags,
    *,
    track: Track = untracked,
    inner_folds: int = 0,
) -> FittedModel:
    """Train on the part `train`; `val`, where there is one, decides when to stop and calibrates the probabilities.

    Parameters
    ----------
    recipe : TrainingRecipe
        Settings.
    parts : Parts
        Names and targets of all samples; test parts are predicted.
    data : Embedded or Bags
        Their embeddings, or their bags where the method is a network.
    track : Track
        Progress bar over the epochs.
    inner_folds : int
        Without `val`: number of folds of the training part whose held-out predictions calibrate the model; 0: no calibration.
    """
    fit_on = _fit_on_bags if isinstance(data, Bags) else _fit_on_embeddings
    train = partial(fit_on, recipe, data=data, track=track)  # type: ignore[arg-type]
    fitted = train(parts)
    names, scaler = fitted.parts.ids["train"], fitted.model.scaler
    if isinstance(data, Bags):
        x = mean_features(data.refs[name] for name in names)
    else:
        assert scaler is not None
        position = {name: row for row, name in enumerate(data.names)}
        x = scaler(torch.from_numpy(np.array(data.x[[position[name] for name in names]]))).numpy()
    uncertainty = fit_uncertainty(fitted, x, train, inner_folds, recipe.by_class)
    return replace(fitted, model=replace(fitted.model, uncertainty=uncertainty))


def _fit_on_embeddings(recipe: TrainingRecipe, parts: Parts, *, data: Embedded, track: Track) -> FittedModel:
    """Fit a scaling and a head."""
    parts = parts.only(data.names)
    if "train" not in parts.ids:
        raise InputError(f"{recipe.method.title}: none of the training samples could be embedded.")
    position = {name: row for row, name in enumerate(data.names)}
    rows = {part: np.array([position[name] for name in ids], np.int64) for part, ids in parts.ids.items()}
    columns = columns_of(data.blocks)
    train = data.x[rows["train"]]
    scaler = fit_scaler(recipe.scaling, train, data.blocks)
    task = fit_task(recipe.loss.name, parts.targets["train"], **recipe.loss.options)
    settings = recipe.training

    @cache  # rows are scaled once: the training part is predicted as well
    def shuffled(part: str) -> ArraySource:
        target = task.encode(parts.targets[part])
        return ArraySource(data.x, target, settings.batch_size, rows[part], scaler, shuffle=settings.shuffle)

    def source(part: str, training: bool = False) -> BatchSource:
        return shuffled(part) if training else shuffled(part).in_order()

    if recipe.head.name == PROBE:
        scaled = {part: scaler(torch.from_numpy(np.array(data.x[chosen]))).numpy() for part, chosen in rows.items()}
        trained = _fit_probe(task.name, parts, scaled, scaler.blocks(columns), settings.seed)
    else:
        shape = token_shape(scaler.columns(columns))
        head = build_head(recipe.head.name, shape, task.n_outputs, recipe.head.options, seed=settings.seed)
        trained = _fit_network(head, source, parts, task, settings, track)
    method = recipe.method if len(data.blocks) > 1 else data.blocks[0].method
    about, baseline = _about(recipe, parts), column_means(train).float()
    model = Model(method, recipe.head, task, trained.network, data.blocks, scaler, about, baseline)
    return _finished(model, trained, parts)


def _fit_on_bags(recipe: TrainingRecipe, parts: Parts, *, data: Bags, track: Track) -> FittedModel:
    """Fit a network on bags."""
    task = fit_task(recipe.loss.name, parts.targets["train"], **recipe.loss.options)
    first = data.refs[parts.ids["train"][0]].open()
    settings, p = recipe.training, data.prototypes
    load = LoadSettings(batch_size=settings.batch_size)

    def source(part: str, training: bool = False) -> BatchSource:
        refs = [data.refs[name] for name in parts.ids[part]]
        return BagSource(refs, task.encode(parts.targets[part]), load if training else load.for_evaluation())

    network = build_model(recipe.method.name, first.dim, task.n_outputs, p, recipe.method.options, seed=settings.seed)
    trained = _fit_network(network, source, parts, task, settings, track)
    blocks = (Block(recipe.method, p or FeatureSpace(first.dim, first.encoder, data.spec)),)
    model = Model(recipe.method, recipe.head, task, trained.network, blocks, None, _about(recipe, parts))
    return _finished(model, trained, parts)


def _fit_network(
    network: nn.Module,
    source: Callable[..., BatchSource],  # of a part, in order or (`training`) shuffled
    parts: Parts,
    task: Task,
    settings: TrainSettings,
    track: Track,
) -> _Trained:
    """Train by gradient descent."""
    val, train = source("val") if "val" in parts.ids else None, source("train", training=True)
    fitted = fit(network, train, task, settings, val=val, track=track)
    return _Trained(fitted.model, fitted.history, lambda part: predict_logits(fitted.model, source(part), settings)[0])


def _fit_probe(
    loss: str, parts: Parts, scaled: Mapping[str, np.ndarray], blocks: np.ndarray | None, seed: int
) -> _Trained:
    """Fit the convex model of the loss; the network is the same linear map in float32."""
    groups = np.array([parts.patients[name] for name in parts.ids["train"]])
    probe = fit_suitable(scaled["train"], parts.targets["train"], loss, groups=groups, blocks=blocks, seed=seed)
    head = build_head("linear", (scaled["train"].shape[1],), probe.weight.shape[1], seed=seed)
    head.load_state_dict(
        {"network.weight": torch.tensor(probe.weight.T).float(), "network.bias": torch.tensor(probe.bias).float()}
    )
    return _Trained(head.eval(), [], lambda part: torch.from_numpy(probe.logits(scaled[part])))


def _finished(model: Model, trained: _Trained, parts: Parts) -> FittedModel:
    return FittedModel(model, trained.history, parts, cache(lambda part: model.task.predict(trained.logits(part))))


def _about(recipe: TrainingRecipe, parts: Parts) -> dict[str, Any]:
    """Description of the training in a model's file."""
    contents = {name: parts.contents[name] for name in parts.ids["train"]}
    return {
        "version": __version__,
        "samples": sorted(contents),
        "fingerprint": hash_contents(contents),
        "loss": recipe.loss.model_dump(),
        # results of a GPU differ in the last digits, so its name is written
        "training": {k: v for k, v in vars(recipe.training).items() if (k, v) != ("device", "cpu")},
        "task": None if recipe.task is None else recipe.task.model_dump(exclude_none=True),
    }


@dataclass(frozen=True, eq=False)
class Clinic:
    """Covariates of a cohort."""

    cohort: Cohort
    specs: Sequence[CovariateSpec]

    def check(self, recipe: TrainingRecipe) -> list[str]:
        """Refuse networks and columns that cannot be read; notes about constant columns and columns that equal the target."""
        if recipe.supervised:
            raise InputError(f"covariates: {recipe.method.name} is a network on patches, which reads none")
        return check_covariates(self.cohort, self.specs)

    def join(self, recipe: TrainingRecipe, data: Embedded) -> tuple[TrainingRecipe, Embedded]:
        """Recipe and data with the covariates beside the embeddings."""
        table = self.cohort.table.loc[list(data.names)]
        fitted, _ = fit_covariates(table, self.specs, len(table))
        numbers = fitted.encode(table).astype(np.float32)
        method = Named(name=COVARIATES, options={"columns": fitted.settings()}, label=COVARIATES)
        block = Block(method, FeatureSpace(numbers.shape[1]))
        title = recipe.method.title
        both = Named(name=CONCAT, options={"of": [title, COVARIATES]}, label=f"{title} + {COVARIATES}")
        joined = Embedded(np.hstack([data.x, numbers]), data.names, (*data.blocks, block))
        return replace(recipe, method=both), joined


INNER_FOLDS = 5  # their held-out predictions calibrate a model


def make_recipe(
    task: TaskSpec,
    method: str,
    options: Mapping[str, Any],
    head: str,
    loss: str | None,
    prototypes: KMeansSettings,
) -> TrainingRecipe:
    """Recipe with the paper's settings of training; names and settings are checked."""
    check_method(method, options)
    check_head(head, {})
    supervised = method in networks
    loss = loss or (USUAL_NETWORK_LOSS if supervised else USUAL_LOSS)[task.kind]
    check_loss(loss, {}, task.kind)
    if head == PROBE and not supervised and loss not in PROBES:
        raise InputError(f"The head {PROBE!r} has no loss {loss!r}; use {USUAL_LOSS[task.kind]!r}, or another head.")
    training = usual_training(task.kind, network=supervised)
    top = Named(name="own" if supervised else head)
    return TrainingRecipe(
        Named(name=method, options=dict(options)), top, Named(name=loss), prototypes, training, task=task
    )


def check_prototypes(prototypes: Prototypes | Path | str, count: int | None, recipe: TrainingRecipe) -> Prototypes:
    """Prototypes to train on; refused where the recipe cannot use them."""
    source = str(prototypes) if isinstance(prototypes, (str, Path)) else "prototypes"
    fitted = as_prototypes(prototypes)
    if not needs_prototypes(recipe.method):
        raise InputError(f"{source}: found prototypes, expected none for the method {recipe.method.name}")
    if recipe.supervised and fitted.alignment is not None:
        raise InputError(f"{source}: centred by {fitted.alignment.kind}, which {recipe.method.name} cannot use")
    if count not in (None, len(fitted)):
        raise InputError(f"{source}: found {len(fitted)} prototypes, expected n_prototypes = {count}")
    return fitted


def train_model(
    bags: Sequence[Openable],
    target: Target,
    recipe: TrainingRecipe,
    prototypes: Prototypes | None = None,
    *,
    patients: Mapping[str, str] | None = None,
    clinic: Clinic | None = None,
    calibrate: int | None = None,
    work: Work = LOCAL,
) -> tuple[Model, dict[str, str]]:
    """Train on all bags, with these ``prototypes`` or new ones; bags that cannot be read are left out and listed.

    ``patients`` names the patient of each bag, where bags are slides: a probe's inner folds keep a patient's slides together.
    ``clinic`` has the covariates beside the embedding, ``calibrate`` is the number of inner folds.
    """
    infos, failures = scan_bags(bags, work)
    refs = {bag.sample: bag for bag in bags if bag.sample in infos}
    if not refs:
        raise InputError(f"None of the {len(bags)} samples can be read. {example(failures)}")
    target = target.take(np.flatnonzero([bag.sample in refs for bag in bags]))
    if not needs_prototypes(recipe.method):
        prototypes = None
    elif prototypes is None:
        fitted = fit_bags(list(refs.values()), recipe.prototypes, work=work)
        prototypes, failures = fitted.prototypes, {**failures, **fitted.failures}
    parts = Parts({"train": tuple(refs)}, {"train": target}, patients or {name: name for name in refs})
    spec = in_common([info.spec for info in infos.values()])
    data: Embedded | Bags
    if recipe.supervised:
        data = Bags(refs, prototypes, spec)
        contents, unreadable = collect(_content, list(refs.values()), "reading the features", work)
        failures, parts = {**failures, **unreadable}, parts.only(contents)
        if not contents:
            raise InputError(f"None of the {len(bags)} samples can be trained on. {example(failures)}")
    else:
        encoder = next((info.encoder for info in infos.values() if info.encoder), None)
        dim = next(iter(infos.values())).dim
        basis, method = prototypes or FeatureSpace(dim, encoder, spec), made_by(recipe.method)
        table = embed_bags(list(refs.values()), basis, method.name, method.options, work=work)
        data = Embedded(table.vectors, table.samples, (Block(recipe.method, basis),))
        if clinic is not None:
            recipe, data = clinic.join(recipe, data)
        contents = dict(table.contents)
        failures = {**failures, **table.failures}
    folds = (0 if recipe.supervised else INNER_FOLDS) if calibrate is None else calibrate
    parts = replace(parts, contents=contents)
    return fit_model(recipe, parts, data, track=work.track, inner_folds=folds).model, failures


def _content(ref: Openable) -> str:
    """Hash of a bag's features; empty bags and NaN are refused."""
    if not len(ref.open()):
        raise InputError(f"{ref.sample}: zero patches; it is left out.")
    return finite_content(ref)
