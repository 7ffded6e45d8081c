"""One trained model: prototypes, scaling, head or network, settings, and what it was trained on; training it and predicting with it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from panther.aggregators import embed_cohort
from panther.cohort.spec import TaskSpec
from panther.cohort.targets import Target
from panther.content import hash_contents
from panther.encoder_names import same_encoder
from panther.errors import InputError
from panther.execution import HERE, Work
from panther.mil import BagSource, LoadSettings, build_model, networks
from panther.models.heads import PROBE, build_head, token_shape
from panther.models.named import Named
from panther.models.presets import TrainSettings
from panther.models.probes import fit_suitable
from panther.models.scaling import Scaler, build_scaler, moments
from panther.models.sources import ArraySource
from panther.models.tasks import Task, fit_task
from panther.models.trainer import fit, predict_logits
from panther.patch_spec import in_common
from panther.prototypes import KMeansSettings, fit_prototypes
from panther.prototypes.patches import example, scan_bags
from panther.types import Openable, PatchSpec, Prototypes, check_resolution
from panther.version import __version__


@dataclass(frozen=True)
class Recipe:
    """What to train."""

    method: Named
    head: Named
    loss: Named
    prototypes: KMeansSettings
    training: TrainSettings
    scaling: Named = field(default_factory=lambda: Named(name="fisher"))
    task: TaskSpec | None = None  # what is predicted, as columns of the table, and for whom

    @property
    def supervised(self) -> bool:
        """Whether the method is a network of its own."""
        return self.method.name in networks


@dataclass(frozen=True, eq=False)
class Model:
    """A trained model."""

    method: Named
    head: Named
    task: Task[Any]
    network: nn.Module  # the head on scaled embeddings, or a supervised network on bags
    dim: int  # features a patch
    encoder: str | None
    prototypes: Prototypes | None
    scaler: Scaler | None
    about: Mapping[str, Any]  # training samples, settings, fingerprint, version
    baseline: Tensor | None = (
        None  # (D,), mean training embedding, what attributions are measured from; None for networks
    )
    spec: PatchSpec = field(default_factory=PatchSpec)  # resolution and size of the training patches


def train_model(
    bags: Sequence[Openable],
    target: Target,
    recipe: Recipe,
    prototypes: Prototypes | None = None,
    *,
    patients: Mapping[str, str] | None = None,
    work: Work = HERE,
) -> tuple[Model, dict[str, str]]:
    """Train on all samples given, on given ``prototypes`` or new ones; those that cannot be read are left out and listed.

    ``patients`` names the patient of each sample, where samples are slides: a probe's inner folds keep a patient's slides together.
    """
    bags, target, spec, failures = _alike(bags, target, work)
    task = fit_task(recipe.loss.name, target, **recipe.loss.options)
    needs = not recipe.supervised or networks.entry(recipe.method.name).metadata["needs_prototypes"]
    first = bags[0].open()
    if not needs:
        prototypes = None
    elif prototypes is None:
        fitted = fit_prototypes(bags, recipe.prototypes, work=work)
        prototypes, failures = fitted.prototypes, {**failures, **fitted.failures}
    train = _train_network if recipe.supervised else _train_head
    own = patients or {bag.sample: bag.sample for bag in bags}
    network, scaler, baseline, contents, failed = train(bags, target, task, recipe, prototypes, own, work)
    about = {
        "version": __version__,
        "samples": sorted(contents),
        "fingerprint": hash_contents(contents),
        "loss": recipe.loss.model_dump(),
        "training": {k: v for k, v in vars(recipe.training).items() if k != "device"},
        "task": None if recipe.task is None else recipe.task.model_dump(exclude_none=True),
    }
    encoder = prototypes.encoder if prototypes is not None else first.encoder
    spec = spec if prototypes is None else prototypes.spec
    made = (network, first.dim, encoder, prototypes, scaler, about, baseline, spec)
    return Model(recipe.method, recipe.head, task, *made), {**failures, **failed}


def _alike(
    bags: Sequence[Openable], target: Target, work: Work
) -> tuple[Sequence[Openable], Target, PatchSpec, dict[str, str]]:
    """Samples of one dimension, encoder and resolution with their targets, that resolution, and why others are left out."""
    looks, failures = scan_bags(bags, work)
    rows = [row for row, bag in enumerate(bags) if bag.sample in looks]
    if not rows:
        raise InputError(f"None of the {len(bags)} samples can be read. {example(failures)}")
    spec = in_common([look.spec for look in looks.values()])
    return [bags[row] for row in rows], target.take(np.array(rows, np.int64)), spec, failures


def _train_head(
    bags: Sequence[Openable],
    target: Target,
    task: Task[Any],
    recipe: Recipe,
    prototypes: Prototypes | None,
    patients: Mapping[str, str],
    work: Work,
) -> tuple[nn.Module, Scaler | None, Tensor | None, Mapping[str, str], dict[str, str]]:
    assert prototypes is not None
    table = embed_cohort(bags, prototypes, recipe.method.name, recipe.method.options, work=work)
    where = {bag.sample: row for row, bag in enumerate(bags)}
    own = target.take(np.array([where[name] for name in table.samples], np.int64))
    scaler = build_scaler(recipe.scaling.name, recipe.scaling.options).fit(table.vectors, table.columns)
    baseline = moments(table.vectors)[0].float()
    if recipe.head.name == PROBE:
        scaled = scaler(torch.from_numpy(np.array(table.vectors)))
        groups, blocks = np.array([patients[name] for name in table.samples]), scaler.blocks(table.columns)
        probe = fit_suitable(scaled.numpy(), own, groups=groups, blocks=blocks, seed=recipe.training.seed)
        head = build_head("linear", (scaled.shape[1],), probe.weight.shape[1])
        head.load_state_dict(
            {"network.weight": torch.tensor(probe.weight.T).float(), "network.bias": torch.tensor(probe.bias).float()}
        )
        return head.eval(), scaler, baseline, table.contents, dict(table.failures)
    shape = token_shape(scaler.columns(table.columns))
    head = build_head(recipe.head.name, shape, task.n_outputs, recipe.head.options, seed=recipe.training.seed)
    source = ArraySource(
        np.asarray(table.vectors),
        task.encode(own),
        recipe.training.batch_size,
        scaler=scaler,
        shuffle=recipe.training.shuffle,
    )
    fitted = fit(head, source, task, recipe.training, track=work.track)
    return fitted.model, scaler, baseline, table.contents, dict(table.failures)


def _train_network(
    bags: Sequence[Openable],
    target: Target,
    task: Task[Any],
    recipe: Recipe,
    prototypes: Prototypes | None,
    patients: Mapping[str, str],
    work: Work,
) -> tuple[nn.Module, Scaler | None, Tensor | None, Mapping[str, str], dict[str, str]]:
    dim = bags[0].open().dim
    model = build_model(
        recipe.method.name, dim, task.n_outputs, prototypes, recipe.method.options, seed=recipe.training.seed
    )
    source = BagSource(list(bags), task.encode(target), LoadSettings(batch_size=recipe.training.batch_size))
    fitted = fit(model, source, task, recipe.training, track=work.track)
    contents = {bag.sample: bag.open().fingerprint() for bag in bags}
    return fitted.model, None, None, contents, {}


def predict_bags(
    model: Model, bags: Sequence[Openable], *, work: Work = HERE
) -> tuple[list[str], dict[str, np.ndarray], dict[str, str]]:
    """Samples, their predictions and what failed; features of another encoder are refused sample by sample."""
    if model.prototypes is not None and model.scaler is not None:
        table = embed_cohort(bags, model.prototypes, model.method.name, model.method.options, work=work)
        with torch.no_grad():
            blocks = [
                model.network(model.scaler(torch.from_numpy(np.array(table.vectors[i : i + 64]))))
                for i in range(0, len(table.samples), 64)
            ]
        return table.samples, model.task.predict(torch.cat(blocks)), dict(table.failures)
    samples, logits, failures = [], [], {}
    for bag in work.track(bags, "predicting", len(bags)):
        try:
            check_bag(model, bag)
            source = BagSource([bag], {"none": torch.zeros(1)}, LoadSettings().for_evaluation())
            logits.append(predict_logits(model.network, source, TrainSettings())[0])
            samples.append(bag.sample)
        except InputError as error:
            failures[bag.sample] = str(error)
    if not samples:
        raise InputError(f"None of the {len(bags)} samples could be predicted. {next(iter(failures.values()), '')}")
    return samples, model.task.predict(torch.cat(logits)), failures


def check_bag(model: Model, ref: Openable) -> None:
    """Refuse features that the model was not trained on."""
    bag = ref.open()
    if bag.dim != model.dim or not same_encoder(bag.encoder, model.encoder):
        raise InputError(
            f"{bag.source}: has {bag.dim} features of encoder {bag.encoder!r}, but the model was trained on {model.dim} of {model.encoder!r}; "
            "encode the slides with the same encoder."
        )
    check_resolution(bag, model.spec, "the model was trained on")
