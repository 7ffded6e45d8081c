"""One trained model as one portable file: prototypes, scaling, head or network, settings, and what it was trained on."""

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from panther.aggregators import build, embed_cohort
from panther.content import hash_contents
from panther.encoder_names import same_encoder
from panther.errors import InputError
from panther.execution import Track, untracked
from panther.learning.heads import build_head
from panther.learning.jobs import token_shape
from panther.learning.presets import TrainSettings
from panther.learning.probes import fit_suitable
from panther.learning.scaling import Scaler, build_scaler, moments
from panther.learning.sources import ArraySource
from panther.learning.study import PROBE, Named, TaskSpec
from panther.learning.targets import Target
from panther.learning.task import Task, fit_task, load_task
from panther.learning.trainer import fit, predict_logits
from panther.mil import BagSource, LoadSettings, build_model, networks, revision
from panther.patch_spec import in_common, spec_from
from panther.prototypes import KMeansSettings, fit_prototypes
from panther.prototypes.patches import example, look_at_all
from panther.storage.atomic import atomic_write
from panther.storage.bags import BagRef
from panther.storage.metadata import Kinds, check_tensor, parse_about
from panther.storage.prototypes import check_projection
from panther.types import Openable, PatchSpec, Projection, Prototypes, check_resolution
from panther.version import __version__

FORMAT = 1
_KEY = "panther_model"
AGAIN = "train the model again"
FIELDS: Kinds = {
    **dict.fromkeys(("method", "head", "task", "about"), (dict,)),
    "dim": (int,),
    "encoder": (str, type(None)),
    "normalise": (bool,),
    "patch_spec": (dict, type(None)),
}


@dataclass(frozen=True)
class Recipe:
    """What to train."""

    method: Named
    head: Named
    loss: Named
    prototypes: KMeansSettings
    training: TrainSettings
    scaling: Named = field(default_factory=lambda: Named(name="balanced"))
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
    bags: Sequence[BagRef],
    target: Target,
    recipe: Recipe,
    prototypes: Prototypes | None = None,
    *,
    executor: Executor | None = None,
    track: Track = untracked,
) -> tuple[Model, dict[str, str]]:
    """Train on all samples given, on given ``prototypes`` or new ones; those that cannot be read are left out and listed."""
    bags, target, spec, failures = _alike(bags, target, executor, track)
    task = fit_task(recipe.loss.name, target, **recipe.loss.options)
    needs = not recipe.supervised or networks.entry(recipe.method.name).metadata["needs_prototypes"]
    first = bags[0].open()
    if not needs:
        prototypes = None
    elif prototypes is None:
        fitted = fit_prototypes(bags, recipe.prototypes, executor=executor, track=track)
        prototypes, failures = fitted.prototypes, {**failures, **fitted.failures}
    train = _train_network if recipe.supervised else _train_head
    network, scaler, baseline, contents, failed = train(bags, target, task, recipe, prototypes, executor, track)
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
    bags: Sequence[BagRef], target: Target, executor: Executor | None, track: Track
) -> tuple[Sequence[BagRef], Target, PatchSpec, dict[str, str]]:
    """Samples of one dimension, encoder and resolution with their targets, that resolution, and why others are left out."""
    looks, failures = look_at_all(bags, executor, track)
    rows = [row for row, bag in enumerate(bags) if bag.sample in looks]
    if not rows:
        raise InputError(f"None of the {len(bags)} samples can be read. {example(failures)}")
    spec = in_common([look.spec for look in looks.values()])
    return [bags[row] for row in rows], target.take(np.array(rows, np.int64)), spec, failures


def _train_head(
    bags: Sequence[BagRef],
    target: Target,
    task: Task[Any],
    recipe: Recipe,
    prototypes: Prototypes | None,
    executor: Any,
    track: Track,
) -> tuple[nn.Module, Scaler | None, Tensor | None, Mapping[str, str], dict[str, str]]:
    assert prototypes is not None
    table = embed_cohort(bags, prototypes, recipe.method.name, recipe.method.options, executor=executor, track=track)
    where = {bag.sample: row for row, bag in enumerate(bags)}
    own = target.take(np.array([where[name] for name in table.samples], np.int64))
    scaler = build_scaler(recipe.scaling.name, recipe.scaling.options).fit(table.vectors, table.columns)
    baseline = moments(table.vectors)[0].float()
    if recipe.head.name == PROBE:
        scaled = scaler(torch.from_numpy(np.array(table.vectors)))
        probe = fit_suitable(scaled.numpy(), own, seed=recipe.training.seed)
        head = build_head("linear", (scaled.shape[1],), probe.weight.shape[1])
        head.load_state_dict(
            {"network.weight": torch.tensor(probe.weight.T).float(), "network.bias": torch.tensor(probe.bias).float()}
        )
        return head.eval(), scaler, baseline, table.contents, dict(table.failures)
    shape = token_shape(table.columns)
    head = build_head(recipe.head.name, shape, task.n_outputs, recipe.head.options, seed=recipe.training.seed)
    source = ArraySource(
        np.asarray(table.vectors),
        task.encode(own),
        recipe.training.batch_size,
        scaler=scaler,
        shuffle=recipe.training.shuffle,
    )
    fitted = fit(head, source, task, recipe.training, track=track)
    return fitted.model, scaler, baseline, table.contents, dict(table.failures)


def _train_network(
    bags: Sequence[BagRef],
    target: Target,
    task: Task[Any],
    recipe: Recipe,
    prototypes: Prototypes | None,
    executor: Any,
    track: Track,
) -> tuple[nn.Module, Scaler | None, Tensor | None, Mapping[str, str], dict[str, str]]:
    dim = bags[0].open().dim
    model = build_model(
        recipe.method.name, dim, task.n_outputs, prototypes, recipe.method.options, seed=recipe.training.seed
    )
    source = BagSource(list(bags), task.encode(target), LoadSettings(batch_size=recipe.training.batch_size))
    fitted = fit(model, source, task, recipe.training, track=track)
    contents = {bag.sample: bag.open().fingerprint() for bag in bags}
    return fitted.model, None, None, contents, {}


def predict_bags(
    model: Model, bags: Sequence[BagRef], *, executor: Executor | None = None, track: Track = untracked
) -> tuple[list[str], dict[str, np.ndarray], dict[str, str]]:
    """Samples, their predictions and what failed; features of another encoder are refused sample by sample."""
    if model.prototypes is not None and model.scaler is not None:
        table = embed_cohort(
            bags, model.prototypes, model.method.name, model.method.options, executor=executor, track=track
        )
        with torch.no_grad():
            blocks = [
                model.network(model.scaler(torch.from_numpy(np.array(table.vectors[i : i + 64]))))
                for i in range(0, len(table.samples), 64)
            ]
        return table.samples, model.task.predict(torch.cat(blocks)), dict(table.failures)
    samples, logits, failures = [], [], {}
    for bag in track(bags, "predicting", len(bags)):
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


def save_model(model: Model, path: Path) -> None:
    """Write one .safetensors file."""
    from safetensors.torch import save_file

    tensors: dict[str, Tensor] = {f"network.{name}": value for name, value in model.network.state_dict().items()}
    p = model.prototypes
    if p is not None:
        optional = {"within_variance": p.within_variance, "mean": p.projection.mean, "basis": p.projection.basis}
        tensors |= {
            "prototypes.centroids": p.centroids,
            **{f"prototypes.{k}": v for k, v in optional.items() if v is not None},
        }
    if model.scaler is not None:
        tensors |= {f"scaler.{name}": value for name, value in model.scaler.state().items()}
    if model.baseline is not None:
        tensors["baseline.mean"] = model.baseline
    about = {
        "format": FORMAT,
        "method": model.method.model_dump(),
        "head": model.head.model_dump(),
        "task": model.task.settings(),
        "dim": model.dim,
        "encoder": model.encoder,
        "normalise": p.projection.normalise if p is not None else False,
        "patch_spec": model.spec.known(),
        "about": dict(model.about),
    }
    if model.method.name in networks:
        about["revision"] = revision(model.method.name)
    with atomic_write(path) as temporary:
        save_file(
            {name: t.detach().cpu().contiguous() for name, t in tensors.items()},
            temporary,
            {_KEY: json.dumps(about, sort_keys=True)},
        )


def load_model(path: Path) -> Model:
    """Read a model file."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as handle:
            metadata = handle.metadata() or {}
            tensors = {name: handle.get_tensor(name).clone() for name in handle.keys()}  # noqa: SIM118 (not a mapping)
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path}: cannot be read as a model ({error}); write it with `panther train`.") from error
    if _KEY not in metadata:
        raise InputError(f"{path}: a safetensors file, but not of a model; write one with `panther train`.")
    about = parse_about(path, metadata[_KEY], FIELDS, FORMAT, AGAIN)
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise InputError(f"{path}: the file is damaged ({name} holds NaN or infinite numbers); {AGAIN}.")
    try:
        return _assembled(path, about, tensors)
    except InputError as error:
        raise InputError(str(error) if str(path) in str(error) else f"{path}: {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, AssertionError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"{path}: the parts of the file contradict each other ({reason}); {AGAIN}.") from error


def _assembled(path: Path, about: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Model:
    method, head, task = Named(**about["method"]), Named(**about["head"]), load_task(about["task"])
    _check_revision(path, method.name, about)
    prototypes = _prototypes(path, tensors, about)
    network = _network(method, head, task, about["dim"], prototypes)
    _load_weights(
        path, network, {n.removeprefix("network."): t for n, t in tensors.items() if n.startswith("network.")}
    )
    scaler = {n.removeprefix("scaler."): t for n, t in tensors.items() if n.startswith("scaler.")}
    _check_widths(path, about, method, prototypes, scaler, tensors.get("baseline.mean"))
    return Model(
        method,
        head,
        task,
        network.eval(),
        about["dim"],
        about["encoder"],
        prototypes,
        Scaler.from_state(scaler) if scaler else None,
        about["about"],
        tensors.get("baseline.mean"),  # earlier files have none
        spec_from(about.get("patch_spec")),
    )


def _load_weights(path: Path, network: nn.Module, given: Mapping[str, Tensor]) -> None:
    """Refuse weights that are not those of the network that the file names."""
    wanted = network.state_dict()
    wrong = [n for n in {*wanted, *given} if n not in wanted or n not in given or not _same_kind(wanted[n], given[n])]
    if wrong:
        raise InputError(f"{path}: the weights are not of the network it names (first: {min(wrong)}); {AGAIN}.")
    network.load_state_dict(given)


def _same_kind(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and one.is_floating_point() == other.is_floating_point()


def _check_widths(
    path: Path,
    about: Mapping[str, Any],
    method: Named,
    prototypes: Prototypes | None,
    scaler: Mapping[str, Tensor],
    baseline: Tensor | None,
) -> None:
    """Refuse parts that were not made for each other."""
    if prototypes is not None and prototypes.dim_in != about["dim"]:
        raise InputError(f"{path}: says {about['dim']} features, but its prototypes take {prototypes.dim_in}; {AGAIN}.")
    if method.name in networks:
        return
    if prototypes is None or not scaler:
        raise InputError(f"{path}: the file is damaged (its prototypes or its scaling are missing); {AGAIN}.")
    width = len(build(method.name, prototypes, method.options).columns())
    for name in ("shift", "scale"):
        check_tensor(path, f"the scaling's {name}", scaler[name], (width,), AGAIN)
    check_tensor(path, "the mean embedding", baseline, (width,), AGAIN)


def _check_revision(path: Path, method: str, about: Mapping[str, Any]) -> None:
    """Refuse a network that is built differently now: its weights would mean something else, if they fitted at all."""
    if method in networks and about.get("revision", 1) != revision(method):
        raise InputError(
            f"{path}: trained with another form of {method} (panther-wsi {about['about'].get('version', 'of an earlier version')}) than this "
            "version builds; train it again with `panther train`, or use that version."
        )


def _prototypes(path: Path, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> Prototypes | None:
    if "prototypes.centroids" not in tensors:
        return None
    centroids, mean, basis = (tensors.get(f"prototypes.{name}") for name in ("centroids", "mean", "basis"))
    assert centroids is not None
    check_tensor(path, "prototypes", centroids, (None, None), AGAIN)
    check_projection(path, centroids, mean, basis)
    projection = Projection(about["normalise"], mean, basis)
    variance = tensors.get("prototypes.within_variance")
    check_tensor(path, "within-cluster variances", variance, centroids.shape[1:], AGAIN, least=0)
    spec = spec_from(about.get("patch_spec"))
    return Prototypes(tensors["prototypes.centroids"], variance, None, projection, about["encoder"], spec=spec)


def _network(method: Named, head: Named, task: Task[Any], dim: int, prototypes: Prototypes | None) -> nn.Module:
    if method.name in networks:
        return build_model(method.name, dim, task.n_outputs, prototypes, method.options)
    assert prototypes is not None
    columns = build(method.name, prototypes, method.options).columns()
    if head.name == PROBE:
        return build_head("linear", (len(columns),), task.n_outputs)
    return build_head(head.name, token_shape(columns), task.n_outputs, head.options)
