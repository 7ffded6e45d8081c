"""The one way a model is trained: `panther train`, every fold of a study and the Python function `train` come through :func:`fit_model`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

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
from panther.models.model import Model, embedding_model
from panther.models.probes import PROBES, fit_suitable
from panther.models.scaling import column_means, fit_scaler
from panther.models.settings import USUAL_LOSS, Named, TrainSettings, preset, usual_preset
from panther.models.sureness import fit_sureness, mean_features
from panther.models.tasks import Prediction, Task, check_loss, fit_task
from panther.models.trainer import ArraySource, BatchSource, fit, predict_logits
from panther.patches import in_common
from panther.prototypes import KMeansSettings, fit_bags
from panther.prototypes.patches import example, scan_bags
from panther.storage.bags import finite_content
from panther.storage.prototypes import as_prototypes
from panther.store import hash_contents, hash_of
from panther.types import FeatureSpace, Openable, PatchSpec, Prototypes
from panther.version import __version__

HEAD_SECONDS = 2.0  # of training a head; most are done by then, and a checkpoint would take a tenth of their time


@dataclass(frozen=True)
class TrainingRecipe:
    """What to train."""

    method: Named
    head: Named
    loss: Named
    prototypes: KMeansSettings  # how new ones are fitted, where none are given
    training: TrainSettings
    scaling: Named = field(default_factory=lambda: Named(name="share-weighted"))
    by_class: bool = False  # whether prediction sets hold each class at their level, not all together
    task: TaskSpec | None = None  # what is predicted, as columns of the table, and the level

    @property
    def supervised(self) -> bool:
        """Whether the method is a network of its own."""
        return self.method.name in networks


@dataclass(frozen=True)
class Parts:
    """Who is trained on and who is predicted: names and target of the slides (or patients) of each part."""

    ids: Mapping[str, tuple[str, ...]]  # train, val, test, test_<cohort>
    targets: Mapping[str, Target]
    patients: Mapping[str, str]  # of each slide: a probe's inner folds keep a patient's slides together
    contents: Mapping[str, str] = field(default_factory=dict)  # hash of the features, of each of the training part

    def signature(self) -> str:
        """Hash of who is in which part, and of their patients and targets."""
        who = {part: [(name, self.patients[name]) for name in ids] for part, ids in self.ids.items()}
        values = (value for part in sorted(self.targets) for value in vars(self.targets[part]).values())
        return hash_of(who, *(v.tobytes() if isinstance(v, np.ndarray) else str(v).encode() for v in values))

    def known(self, names: Sequence[str]) -> "Parts":
        """Only those with these names; an empty part is dropped."""
        there = set(names)
        rows = {part: np.flatnonzero([name in there for name in ids]) for part, ids in self.ids.items()}
        rows = {part: kept for part, kept in rows.items() if len(kept)}
        return replace(
            self,
            ids={part: tuple(self.ids[part][i] for i in kept) for part, kept in rows.items()},
            targets={part: self.targets[part].take(kept) for part, kept in rows.items()},
        )


@dataclass(frozen=True, eq=False)
class Embedded:
    """Embeddings of the samples of all parts, and what they are made of."""

    x: np.ndarray  # (n, D), perhaps a memory map
    names: Sequence[str]  # of the rows
    blocks: tuple[Block, ...]  # what stands side by side in a row, from left to right


@dataclass(frozen=True, eq=False)
class Bags:
    """Bags of the samples of all parts, for a network; prototypes where it needs them."""

    refs: Mapping[str, Openable]
    prototypes: Prototypes | None
    spec: PatchSpec  # what the training patches have in common


@dataclass(frozen=True, eq=False)
class FittedModel:
    """A trained model, how it learned, and its predictions."""

    model: Model
    history: list[dict[str, float]]  # one row per epoch; empty for a probe
    parts: Parts  # those who could be embedded
    predict: Callable[[str], Prediction]  # part -> predictions


class _Trained(NamedTuple):
    network: nn.Module
    history: list[dict[str, float]]
    logits: Callable[[str], Tensor]  # part -> (n, n_outputs)


class _Source(Protocol):
    """Batches of a part: shuffled and thinned out for training, or all samples in order."""

    def __call__(self, part: str, *, training: bool = False) -> BatchSource: ...


def fit_model(
    recipe: TrainingRecipe,
    parts: Parts,
    data: Embedded | Bags,
    *,
    checkpoint: Path | None = None,
    track: Track = untracked,
    inner_folds: int = 0,
) -> FittedModel:
    """Train on the part `train`; `val`, where there is one, decides when to stop and calibrates the probabilities.

    Parameters
    ----------
    recipe : TrainingRecipe
        What to train.
    parts : Parts
        Names and targets of all samples; the test parts are kept for predicting.
    data : Embedded or Bags
        Their embeddings, or their bags where the method is a network.
    checkpoint : Path, optional
        Where a killed training goes on from (see :func:`panther.models.trainer.fit`).
    track : Track
        Progress bar over the epochs.
    inner_folds : int
        Where there is no `val`: models fitted without a fold of the training part each, whose predictions of it calibrate; 0: none.
    """
    fit_on = _fit_on_bags if isinstance(data, Bags) else _fit_on_embeddings
    train = partial(fit_on, recipe, data=data, track=track)  # type: ignore[arg-type]  # of its type
    fitted = train(parts, checkpoint=checkpoint)
    names, scaler = fitted.parts.ids["train"], fitted.model.scaler
    if isinstance(data, Bags):
        x = mean_features(data.refs[name] for name in names)
    else:
        assert scaler is not None
        position = {name: row for row, name in enumerate(data.names)}
        x = scaler(torch.from_numpy(np.array(data.x[[position[name] for name in names]]))).numpy()
    sure = fit_sureness(fitted, x, train, inner_folds, recipe.by_class)
    return replace(fitted, model=replace(fitted.model, sure=sure))


def _fit_on_embeddings(
    recipe: TrainingRecipe, parts: Parts, checkpoint: Path | None = None, *, data: Embedded, track: Track
) -> FittedModel:
    """A scaling and a head."""
    parts = parts.known(data.names)
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
    def whole(part: str) -> ArraySource:
        target = task.encode(parts.targets[part])
        return ArraySource(data.x, target, settings.batch_size, rows[part], scaler, shuffle=settings.shuffle)

    def source(part: str, *, training: bool = False) -> BatchSource:
        return whole(part) if training else whole(part).in_order()

    if recipe.head.name == PROBE:
        scaled = {part: scaler(torch.from_numpy(np.array(data.x[some]))).numpy() for part, some in rows.items()}
        trained = _fit_probe(task.name, parts, scaled, scaler.blocks(columns), settings.seed)
    else:
        shape = token_shape(scaler.columns(columns))
        head = build_head(recipe.head.name, shape, task.n_outputs, recipe.head.options, seed=settings.seed)
        trained = _fit_network(head, source, parts, task, settings, checkpoint, track, worth_keeping=HEAD_SECONDS)
    made = (data.blocks, scaler, _about(recipe, parts), column_means(train).float())
    return _finished(embedding_model(recipe.method, recipe.head, task, trained.network, *made), trained, parts)


def _fit_on_bags(
    recipe: TrainingRecipe, parts: Parts, checkpoint: Path | None = None, *, data: Bags, track: Track
) -> FittedModel:
    """A network with a head of its own."""
    task = fit_task(recipe.loss.name, parts.targets["train"], **recipe.loss.options)
    first = data.refs[parts.ids["train"][0]].open()
    settings, p = recipe.training, data.prototypes
    load = LoadSettings(batch_size=settings.batch_size)

    def source(part: str, *, training: bool = False) -> BatchSource:
        refs = [data.refs[name] for name in parts.ids[part]]
        return BagSource(refs, task.encode(parts.targets[part]), load if training else load.for_evaluation())

    network = build_model(recipe.method.name, first.dim, task.n_outputs, p, recipe.method.options, seed=settings.seed)
    trained = _fit_network(network, source, parts, task, settings, checkpoint, track)
    encoder, spec = (first.encoder, data.spec) if p is None else (p.encoder, p.spec)
    made = (trained.network, first.dim, encoder, p, None, _about(recipe, parts), None, spec)
    return _finished(Model(recipe.method, recipe.head, task, *made), trained, parts)


def _fit_network(
    network: nn.Module,
    source: _Source,
    parts: Parts,
    task: Task,
    settings: TrainSettings,
    checkpoint: Path | None,
    track: Track,
    worth_keeping: float = 0.0,
) -> _Trained:
    """Epoch by epoch."""
    val = source("val") if "val" in parts.ids else None
    kept: dict[str, Any] = {"checkpoint": checkpoint, "worth_keeping": worth_keeping}
    fitted = fit(network, source("train", training=True), task, settings, val=val, track=track, **kept)
    return _Trained(fitted.model, fitted.history, lambda part: predict_logits(fitted.model, source(part), settings)[0])


def _fit_probe(
    loss: str, parts: Parts, scaled: Mapping[str, np.ndarray], blocks: np.ndarray | None, seed: int
) -> _Trained:
    """The convex model of the loss in closed form; the network is the same linear map in float32."""
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
    """What the file of a model says about its training."""
    contents = {name: parts.contents[name] for name in parts.ids["train"]}
    return {
        "version": __version__,
        "samples": sorted(contents),
        "fingerprint": hash_contents(contents),
        "loss": recipe.loss.model_dump(),
        # a network of a GPU is not to the last digit that of a CPU, and says so
        "training": {k: v for k, v in vars(recipe.training).items() if (k, v) != ("device", "cpu")},
        "task": None if recipe.task is None else recipe.task.model_dump(exclude_none=True),
    }


@dataclass(frozen=True, eq=False)
class Clinic:
    """What is known of a cohort without its slides."""

    cohort: Cohort
    specs: Sequence[CovariateSpec]

    def check(self, recipe: TrainingRecipe) -> list[str]:
        """Refuse columns that cannot be read, and networks; notes about columns that say nothing, or the target itself."""
        if recipe.supervised:
            raise InputError(f"covariates: {recipe.method.name} is a network on patches, which reads none")
        return check_covariates(self.cohort, self.specs)

    def beside(self, recipe: TrainingRecipe, data: Embedded) -> tuple[TrainingRecipe, Embedded]:
        """What to train on both, side by side."""
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
    """What to train, with the paper's settings of training; names and settings are tried first."""
    check_method(method, options)
    check_head(head, {})
    supervised = method in networks
    chosen = preset(usual_preset(task.kind, network=supervised))
    loss = loss or chosen.loss
    check_loss(loss, {}, task.kind)
    if head == PROBE and not supervised and loss not in PROBES:
        raise InputError(f"The head {PROBE!r} has no loss {loss!r}; use {USUAL_LOSS[task.kind]!r}, or another head.")
    top = Named(name="own" if supervised else head)
    return TrainingRecipe(
        Named(name=method, options=dict(options)), top, Named(name=loss), prototypes, chosen.train, task=task
    )


def check_prototypes(prototypes: Prototypes | Path | str, count: int | None, recipe: TrainingRecipe) -> Prototypes:
    """Prototypes to train on; refused where the recipe has no use for them."""
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
    """Train on all bags given, on given ``prototypes`` or new ones; those that cannot be read are left out and listed.

    ``patients`` names the patient of each bag, where bags are slides: a probe's inner folds keep a patient's slides together.
    ``clinic`` has the covariates that are read beside the embedding, ``calibrate`` the number of inner folds.
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
    data: Embedded | Bags
    if recipe.supervised:
        data = Bags(refs, prototypes, in_common([info.spec for info in infos.values()]))
        contents, bad = collect(_content, list(refs.values()), "reading the features", work)
        failures, parts = {**failures, **bad}, parts.known(list(contents))
        if not contents:
            raise InputError(f"None of the {len(bags)} samples can be trained on. {example(failures)}")
    else:
        encoder = next((info.encoder for info in infos.values() if info.encoder), None)
        spec, dim = in_common([info.spec for info in infos.values()]), next(iter(infos.values())).dim
        basis, made = prototypes or FeatureSpace(dim, encoder, spec), made_by(recipe.method)
        table = embed_bags(list(refs.values()), basis, made.name, made.options, work=work)
        data = Embedded(table.vectors, table.samples, (Block(recipe.method, basis),))
        if clinic is not None:
            recipe, data = clinic.beside(recipe, data)
        contents = dict(table.contents)
        failures = {**failures, **table.failures}
    folds = (0 if recipe.supervised else INNER_FOLDS) if calibrate is None else calibrate
    parts = replace(parts, contents=contents)
    return fit_model(recipe, parts, data, track=work.track, inner_folds=folds).model, failures


def _content(ref: Openable) -> str:
    """Hash of features that a network can read: some, and all of them numbers."""
    if not len(ref.open()):
        raise InputError(f"{ref.sample}: zero patches; it is left out.")
    return finite_content(ref)
