"""A trained model as a value and as one portable file: prototypes, scaling, head or network, settings, and what it was trained on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from panther.cohort.load import CohortReport
from panther.errors import InputError, listed
from panther.mil import build_model, networks, revision
from panther.models.blocks import Block, columns_of, needs_prototypes
from panther.models.heads import PROBE, build_head, token_shape
from panther.models.scaling import AnyScaler, Scaler, scaler_from_state, scaler_parts
from panther.models.settings import Named
from panther.models.sureness import Sureness, load_sureness
from panther.models.tasks import Task, load_task
from panther.patches import encoder_words, same_encoder, spec_from
from panther.storage.prototypes import alignment_tensors, check_projection, check_surprise, read_alignment
from panther.storage.tensors import Kinds, TensorFileError, check_tensor, parse_about, read_tensors, write_tensors
from panther.types import Basis, FeatureSpace, Openable, PatchSpec, Projection, Prototypes, check_resolution


@dataclass(frozen=True, eq=False, repr=False)
class Model:
    """A trained model."""

    method: Named
    head: Named
    task: Task
    network: nn.Module  # the head on scaled embeddings, or a supervised network on bags
    dim: int  # features per patch
    encoder: str | None
    prototypes: Prototypes | None
    scaler: AnyScaler | None
    about: Mapping[str, Any]  # who was trained on, settings, fingerprint, version
    baseline: Tensor | None = None  # (D,), mean training embedding, the origin of attributions; None for networks
    spec: PatchSpec = field(default_factory=PatchSpec)  # resolution and size of the training patches
    sure: Sureness = field(default_factory=Sureness)  # how sure it may be, and what it has seen
    blocks: tuple[Block, ...] = ()  # of a concatenation: what stands side by side
    # of the training, not in the file: samples of the table, and which were left out and why
    report: CohortReport | None = None
    failures: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        made = self.method.title + (f" ({len(self.prototypes)} prototypes)" if self.prototypes is not None else "")
        outputs = f" of {listed(self.task.output_names, 5)}" if len(self.task.output_names) > 1 else ""
        trained = f"trained on {len(self.about.get('samples', ()))} samples"
        return f"<Model {made}, {self.head.title}: {self.task.kind}{outputs}; {trained}>"

    def to_lines(self) -> list[str]:
        """What it was trained on, for people."""
        count = len(self.about.get("samples", ()))
        name = self.method.title if self.head.name == "own" else f"{self.method.title} + {self.head.title}"
        promise = self.sure.promise
        return [
            *(self.report.sentences() if self.report else ()),
            *([promise.sentence()] if promise else ()),
            f"{name} trained on {count} samples",
        ]

    def to_json(self) -> dict[str, Any]:
        """The same for programs."""
        return {
            "samples": len(self.about.get("samples", ())),
            "method": self.method.name,
            "head": self.head.name,
            "report": self.report.to_dict() if self.report else None,
            "calibration": self.sure.settings()["promise"],
        }

    def representation(self) -> tuple[Block, ...]:
        """What the numbers are that the head reads; nothing where a network reads bags."""
        if self.scaler is None or self.blocks:
            return self.blocks
        return (Block(self.method, self.prototypes or FeatureSpace(self.dim, self.encoder, self.spec)),)


def embedding_model(
    method: Named,
    head: Named,
    task: Task,
    network: nn.Module,
    blocks: tuple[Block, ...],
    scaler: AnyScaler,
    about: Mapping[str, Any],
    baseline: Tensor | None,
) -> Model:
    """Model of a head on embeddings: what a single block stands on is what the model stands on."""
    if len(blocks) > 1:
        width = sum(block.basis.dim_in for block in blocks)
        encoder = next((block.basis.encoder for block in blocks if block.basis.encoder), None)
        return Model(method, head, task, network, width, encoder, None, scaler, about, baseline, blocks=blocks)
    (block,) = blocks
    basis, method = block.basis, block.method
    prototypes = basis if isinstance(basis, Prototypes) else None
    return Model(
        method, head, task, network, basis.dim_in, basis.encoder, prototypes, scaler, about, baseline, basis.spec
    )


def check_bag(model: Model, ref: Openable) -> None:
    """Refuse features that the model was not trained on."""
    bag = ref.open()
    if bag.dim != model.dim or not same_encoder(bag.encoder, model.encoder):
        expected = f"{model.dim} of {encoder_words(model.encoder)}, as in the training"
        raise InputError(f"{bag.source}: {bag.dim} features of {encoder_words(bag.encoder)}, expected {expected}")
    check_resolution(bag, model.spec, "the model was trained on")


FORMAT = 1  # raised when a reader of the old format would misread the new one
_KEY = "panther_model"
AGAIN = "train the model again"
FIELDS: Kinds = {
    **dict.fromkeys(("method", "head", "task", "about"), (dict,)),
    "dim": (int,),
    "encoder": (str, type(None)),
    "normalise": (bool,),
    "patch_spec": (dict, type(None)),
    "sure": (dict, type(None)),
    "alignment": (dict, type(None)),
}


def save_model(model: Model, path: Path | str) -> None:
    """Write a model as one file, for `predict`, maps, attribution and colleagues.

    Parameters
    ----------
    model : Model
        Of `train`, or of a study: ``results.model(fold=0)``.
    path : path
        Usually `*.safetensors`; it appears whole or not at all.

    Examples
    --------
    >>> import numpy as np, pandas as pd, panther
    >>> bags = {f"S{i}": np.random.default_rng(i).normal(i % 2, 1, (30, 4)) for i in range(12)}
    >>> table = pd.DataFrame({"slide_id": list(bags), "case_id": list(bags), "subtype": ["a", "b"] * 6})
    >>> panther.save_model(panther.train(bags, table, label="subtype", n_prototypes=2), "model.safetensors")
    >>> panther.load_model("model.safetensors")
    <Model panther (2 prototypes), probe: classification of a, b; trained on 12 samples>
    """
    tensors: dict[str, Tensor] = {f"network.{name}": value for name, value in model.network.state_dict().items()}
    p = model.prototypes
    tensors |= _prototype_tensors("prototypes", p)
    for number, block in enumerate(model.blocks):
        tensors |= _prototype_tensors(f"blocks.{number}", block.basis)
    if model.scaler is not None:
        tensors |= {f"scaler.{name}": value for name, value in model.scaler.state().items()}
    if model.baseline is not None:
        tensors["baseline.mean"] = model.baseline
    tensors |= {f"cloud.{name}": tensor for name, tensor in model.sure.tensors().items()}
    about = {
        "format": FORMAT,
        "method": model.method.model_dump(),
        "head": model.head.model_dump(),
        "task": model.task.settings(),
        **_about_basis(p, model.dim, model.encoder, model.spec),
        "about": dict(model.about),
        "sure": model.sure.settings(),
    }
    if model.blocks:
        about["blocks"] = [
            {"method": block.method.model_dump(), **_about_basis(basis, basis.dim_in, basis.encoder, basis.spec)}
            for block in model.blocks
            for basis in [block.basis]
        ]
    if model.method.name in networks:
        about["revision"] = revision(model.method.name)
    write_tensors(Path(path), tensors, _KEY, about)


def _about_basis(basis: Basis | None, dim: int, encoder: str | None, spec: PatchSpec) -> dict[str, Any]:
    """Plain values of what a representation stands on."""
    about = {"dim": dim, "encoder": encoder, "normalise": False, "patch_spec": spec.known()}
    if isinstance(basis, Prototypes):
        about["normalise"] = basis.projection.normalise
        about |= {} if basis.alignment is None else {"alignment": basis.alignment.settings()}
    return about


def _prototype_tensors(prefix: str, basis: Basis | None) -> dict[str, Tensor]:
    if not isinstance(basis, Prototypes):
        return {}
    projection = basis.projection
    optional = {
        "within_variance": basis.within_variance,
        "surprise": basis.surprise,
        "mean": projection.mean,
        "basis": projection.basis,
    }
    return {
        f"{prefix}.centroids": basis.centroids,
        **{f"{prefix}.{name}": tensor for name, tensor in optional.items() if tensor is not None},
        **alignment_tensors(f"{prefix}.alignment", basis.alignment),
    }


def as_model(model: Model | Path | str) -> Model:
    """A model as it is, or of a file."""
    return model if isinstance(model, Model) else load_model(model)


def load_model(path: Path | str) -> Model:
    """Read a model file.

    Parameters
    ----------
    path : path
        File of `save_model`, `train` or `panther train`.

    Returns
    -------
    Model
        For `predict`, maps and attribution, which take the file as well.
    """
    path = Path(path)
    about, tensors = _read(path)
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


def read_about(path: Path) -> dict[str, Any]:
    """What a model file says about itself; its tensors are not read."""
    return _read(path, with_tensors=False)[0]


def _read(path: Path, *, with_tensors: bool = True) -> tuple[dict[str, Any], dict[str, Tensor]]:
    try:
        text, tensors = read_tensors(path, _KEY, with_tensors=with_tensors)
    except TensorFileError as error:
        raise InputError(f"{path}: cannot be read as a model ({error}); write it with `panther train`.") from error
    if text is None:
        raise InputError(f"{path}: a safetensors file, but not of a model; write one with `panther train`.")
    return parse_about(path, text, FIELDS, FORMAT, AGAIN), tensors


def _assembled(path: Path, about: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Model:
    method, head, task = Named(**about["method"]), Named(**about["head"]), load_task(about["task"])
    baseline, weights, trained = tensors.get("baseline.mean"), _under("network.", tensors), about["about"]
    cloud, samples = _under("cloud.", tensors), len(trained.get("samples", ()))
    sure = load_sureness(path, about.get("sure") or {}, cloud, samples, AGAIN)
    if method.name in networks:
        if about.get("revision", 1) != revision(method.name):  # its weights would mean something else
            raise InputError(f"{path}: trained with another form of {method.name} ({trained.get('version')}); {AGAIN}.")
        prototypes = _prototypes(path, "prototypes", tensors, about)
        network = build_model(method.name, about["dim"], task.n_outputs, prototypes, method.options)
        _load_weights(path, network, weights)
        spec = spec_from(about.get("patch_spec"))
        made = (about["dim"], about["encoder"], prototypes, None, trained, baseline, spec, sure)
        return Model(method, head, task, network.eval(), *made)
    if "blocks" in about:
        parts = [(Named(**one["method"]), f"blocks.{n}", one) for n, one in enumerate(about["blocks"])]
    else:
        parts = [(method, "prototypes", dict(about))]
    blocks = tuple(_block(path, of, prefix, facts, tensors) for of, prefix, facts in parts)
    state = _under("scaler.", tensors)
    for what, is_missing in (("scaling", not state), ("mean embedding", baseline is None)):
        if is_missing:
            raise InputError(f"{path}: the file is damaged (its {what} is missing); {AGAIN}.")
    assert baseline is not None
    for name, tensor in state.items():  # as written: the scaling makes float32 of whatever it gets
        check_tensor(path, f"the scaling's {name}", tensor, (None,) * tensor.ndim, AGAIN)
    scaler = scaler_from_state(state)
    _check_scaling(path, blocks, scaler, baseline)
    columns = scaler.columns(columns_of(blocks))
    if head.name == PROBE:
        top = build_head("linear", (len(columns),), task.n_outputs)
    else:
        top = build_head(head.name, token_shape(columns), task.n_outputs, head.options)
    _load_weights(path, top, weights)
    model = embedding_model(method, head, task, top.eval(), blocks, scaler, trained, baseline)
    return replace(model, sure=sure)


def _block(path: Path, method: Named, prefix: str, about: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Block:
    prototypes = _prototypes(path, prefix, tensors, about)
    if prototypes is None and needs_prototypes(method):
        raise InputError(f"{path}: the file is damaged (its prototypes are missing); {AGAIN}.")
    space = FeatureSpace(about["dim"], about["encoder"], spec_from(about.get("patch_spec")))
    return Block(method, prototypes or space)


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _load_weights(path: Path, network: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Refuse weights that are not those of the network that the file names."""
    kinds = [{n: (t.shape, t.is_floating_point()) for n, t in some.items()} for some in (network.state_dict(), weights)]
    if wrong := [name for name in {*kinds[0], *kinds[1]} if kinds[0].get(name) != kinds[1].get(name)]:
        raise InputError(f"{path}: the weights are not of the network it names (first: {min(wrong)}); {AGAIN}.")
    network.load_state_dict(weights)


def _check_scaling(path: Path, blocks: Sequence[Block], scaler: AnyScaler, baseline: Tensor) -> None:
    """Refuse parts that were not made for each other."""
    parts = scaler_parts(scaler)
    owners = [(block, len(columns)) for block in blocks for columns in block.parts()]
    if len(parts) != len(owners):
        raise InputError(f"{path}: the file is damaged ({len(parts)} scalings for {len(owners)} blocks); {AGAIN}.")
    widths = [width for _, width in owners]
    for (block, width), part in zip(owners, parts, strict=True):
        for name, tensor in part.state().items():
            check_tensor(path, f"the scaling's {name}", tensor, _shape(name, block, part, width), AGAIN)
    check_tensor(path, "the mean embedding", baseline, (sum(widths),), AGAIN)


def _shape(name: str, block: Block, part: Scaler, width: int) -> tuple[int | None, ...]:
    """Shape of a tensor of a scaling of embeddings of that width."""
    if name.startswith("usual_") and isinstance(block.basis, Prototypes):
        return tuple(block.basis.centroids.shape)
    if part.reduction is not None:
        reduced = len(part.shift)
        return {"reduction_mean": (width,), "reduction_basis": (width, reduced)}.get(name, (reduced,))
    return (width if part.usual is None else width + block.basis.dim,)  # the slide's mean follows


def _prototypes(path: Path, prefix: str, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> Prototypes | None:
    names = ("centroids", "mean", "basis", "within_variance", "surprise")
    centroids, mean, basis, variance, surprise = (tensors.get(f"{prefix}.{name}") for name in names)
    if centroids is None:
        return None
    check_tensor(path, "prototypes", centroids, (None, None), AGAIN)
    check_projection(path, centroids, mean, basis)
    projection = Projection(about["normalise"], mean, basis)
    check_tensor(path, "within-cluster variances", variance, centroids.shape[1:], AGAIN, least=0)
    check_surprise(path, surprise, AGAIN)
    alignment = read_alignment(
        path, f"{prefix}.alignment", about.get("alignment"), tensors, projection, centroids, AGAIN
    )
    more: dict[str, Any] = {"spec": spec_from(about.get("patch_spec")), "alignment": alignment, "surprise": surprise}
    prototypes = Prototypes(centroids, variance, None, projection, about["encoder"], **more)
    if prototypes.dim_in != about["dim"]:
        raise InputError(f"{path}: says {about['dim']} features, but its prototypes take {prototypes.dim_in}; {AGAIN}.")
    return prototypes
