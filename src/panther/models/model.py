"""A trained model as a value and as a portable file: prototypes, scaling, head or network, settings and training samples."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from panther.cohort.load import CohortReport
from panther.errors import InputError, listed
from panther.mil import build_model, networks, revision
from panther.models.blocks import Block, columns_of, needs_prototypes
from panther.models.heads import PROBE, build_head, token_shape
from panther.models.scaling import AnyScaler, scaler_from_state, scaler_parts
from panther.models.settings import Named
from panther.models.tasks import Task, load_task
from panther.models.uncertainty import Uncertainty, load_uncertainty
from panther.patches import encoder_words, same_encoder, spec_from
from panther.storage.prototypes import prototype_tensors, read_prototypes
from panther.storage.tensors import Kinds, TensorFileError, check_tensor, parse_about, read_tensors, write_tensors
from panther.types import Basis, FeatureSpace, Openable, Prototypes, check_resolution


@dataclass(frozen=True, eq=False, repr=False)
class Model:
    """A trained model."""

    method: Named
    head: Named
    task: Task
    network: nn.Module  # the head on scaled embeddings, or a supervised network on bags
    blocks: tuple[Block, ...]  # its input: a representation of slides, or several side by side
    scaler: AnyScaler | None  # of embeddings; None for networks
    about: Mapping[str, Any]  # training samples, settings, fingerprint, version
    baseline: Tensor | None = None  # (D,), mean training embedding, the origin of attributions; None for networks
    uncertainty: Uncertainty = field(default_factory=Uncertainty)
    # of the training, not in the file: samples of the table, and which were left out and why
    report: CohortReport | None = None
    failures: Mapping[str, str] = field(default_factory=dict)

    @property
    def basis(self) -> Basis:
        """Prototypes or feature space of its block; of several blocks, their total width."""
        if len(self.blocks) == 1:
            return self.blocks[0].basis
        bases = [block.basis for block in self.blocks]
        return FeatureSpace(sum(basis.dim_in for basis in bases), next((b.encoder for b in bases if b.encoder), None))

    @property
    def prototypes(self) -> Prototypes | None:
        """Prototypes of a model of one block."""
        return self.basis if isinstance(self.basis, Prototypes) else None

    @property
    def samples(self) -> Sequence[str]:
        """Training samples."""
        return self.about.get("samples", ())

    def __repr__(self) -> str:
        method = self.method.title + (f" ({len(self.prototypes)} prototypes)" if self.prototypes is not None else "")
        outputs = f" of {listed(self.task.names, 5)}" if len(self.task.names) > 1 else ""
        trained = f"trained on {len(self.samples)} samples"
        return f"<Model {method}, {self.head.title}: {self.task.kind}{outputs}; {trained}>"

    def to_lines(self) -> list[str]:
        """Summary of the training, for people."""
        name = self.method.title if self.head.name == "own" else f"{self.method.title} + {self.head.title}"
        calibrator = self.uncertainty.calibrator
        return [
            *(self.report.sentences() if self.report else ()),
            *([calibrator.sentence()] if calibrator else ()),
            f"{name} trained on {len(self.samples)} samples",
        ]

    def to_json(self) -> dict[str, Any]:
        """Summary of the training, for programs."""
        return {
            "samples": len(self.samples),
            "method": self.method.name,
            "head": self.head.name,
            "report": self.report.to_dict() if self.report else None,
            "calibration": self.uncertainty.settings()["calibrator"],
        }


def check_bag(model: Model, ref: Openable) -> None:
    """Refuse features of another encoder, dimension or resolution than in the training."""
    bag, basis = ref.open(), model.basis
    if bag.dim != basis.dim_in or not same_encoder(bag.encoder, basis.encoder):
        expected = f"{basis.dim_in} of {encoder_words(basis.encoder)}, as in the training"
        raise InputError(f"{bag.source}: {bag.dim} features of {encoder_words(bag.encoder)}, expected {expected}")
    check_resolution(bag, basis.spec, "the model was trained on")


FORMAT = 1  # raised when a reader of the old format would misread the new one
_KEY = "panther_model"
AGAIN = "train the model again"
FIELDS: Kinds = {
    **dict.fromkeys(("method", "head", "task", "about"), (dict,)),
    "dim": (int,),
    "encoder": (str, type(None)),
    "normalise": (bool,),
    "patch_spec": (dict, type(None)),
    "uncertainty": (dict, type(None)),
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
    tensors |= _prototype_tensors("prototypes", model.basis)
    joined = model.blocks if len(model.blocks) > 1 else ()
    for number, block in enumerate(joined):
        tensors |= _prototype_tensors(f"blocks.{number}", block.basis)
    if model.scaler is not None:
        tensors |= {f"scaler.{name}": value for name, value in model.scaler.state().items()}
    if model.baseline is not None:
        tensors["baseline.mean"] = model.baseline
    tensors |= {f"cloud.{name}": tensor for name, tensor in model.uncertainty.tensors().items()}
    about = {
        "format": FORMAT,
        "method": model.method.model_dump(),
        "head": model.head.model_dump(),
        "task": model.task.settings(),
        **_about_basis(model.basis),
        "about": dict(model.about),
        "uncertainty": model.uncertainty.settings(),
    }
    if joined:
        about["blocks"] = [{"method": b.method.model_dump(), **_about_basis(b.basis)} for b in joined]
    if model.method.name in networks:
        about["revision"] = revision(model.method.name)
    write_tensors(Path(path), tensors, _KEY, about)


def _about_basis(basis: Basis) -> dict[str, Any]:
    """Plain values of prototypes or of a feature space."""
    about = {"dim": basis.dim_in, "encoder": basis.encoder, "normalise": False, "patch_spec": basis.spec.known()}
    if isinstance(basis, Prototypes):
        about["normalise"] = basis.projection.normalise
        about |= {} if basis.alignment is None else {"alignment": basis.alignment.settings()}
    return about


def _prototype_tensors(prefix: str, basis: Basis) -> dict[str, Tensor]:
    tensors = prototype_tensors(basis) if isinstance(basis, Prototypes) else {}
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items() if name != "occupancy"}


def as_model(model: Model | Path | str) -> Model:
    """The model itself, or that of a file."""
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
    """Metadata of a model file; its tensors are not read."""
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
    trained, baseline = about["about"], tensors.get("baseline.mean")
    uncertainty = load_uncertainty(
        path, about.get("uncertainty") or {}, _under("cloud.", tensors), len(trained.get("samples", ())), AGAIN
    )
    if "blocks" in about:
        parts = [(Named(**entry["method"]), f"blocks.{n}", entry) for n, entry in enumerate(about["blocks"])]
    else:
        parts = [(method, "prototypes", about)]
    blocks = tuple(_block(path, *part, tensors) for part in parts)
    network: nn.Module
    scaler: AnyScaler | None = None
    if method.name in networks:
        if about.get("revision", 1) != revision(method.name):  # the meaning of its weights has changed
            raise InputError(f"{path}: trained with another form of {method.name} ({trained.get('version')}); {AGAIN}.")
        basis = blocks[0].basis
        prototypes = basis if isinstance(basis, Prototypes) else None
        network = build_model(method.name, about["dim"], task.n_outputs, prototypes, method.options)
    else:
        scaler = _scaler(path, blocks, _under("scaler.", tensors), baseline)
        columns = scaler.columns(columns_of(blocks))
        if head.name == PROBE:
            network = build_head("linear", (len(columns),), task.n_outputs)
        else:
            network = build_head(head.name, token_shape(columns), task.n_outputs, head.options)
    weights = _under("network.", tensors)
    expected, stored = (
        {name: (t.shape, t.is_floating_point()) for name, t in state.items()}
        for state in (network.state_dict(), weights)
    )
    if wrong := [name for name in {*expected, *stored} if expected.get(name) != stored.get(name)]:
        raise InputError(f"{path}: the weights are not of the network it names (first: {min(wrong)}); {AGAIN}.")
    network.load_state_dict(weights)
    return Model(method, head, task, network.eval(), blocks, scaler, trained, baseline, uncertainty)


def _block(path: Path, method: Named, prefix: str, about: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Block:
    tensors, dim = _under(f"{prefix}.", tensors), about["dim"]
    if "centroids" in tensors:
        prototypes = read_prototypes(path, tensors, about, None, AGAIN)
        if prototypes.dim_in != dim:
            raise InputError(f"{path}: {dim} features, but prototypes of {prototypes.dim_in}; {AGAIN}.")
        return Block(method, prototypes)
    if needs_prototypes(method):
        raise InputError(f"{path}: the file is damaged (its prototypes are missing); {AGAIN}.")
    return Block(method, FeatureSpace(dim, about["encoder"], spec_from(about.get("patch_spec"))))


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _scaler(path: Path, blocks: Sequence[Block], state: Mapping[str, Tensor], baseline: Tensor | None) -> AnyScaler:
    """Scaling from its tensors; shapes that do not fit the blocks are refused."""
    for name, is_missing in (("scaling", not state), ("mean embedding", baseline is None)):
        if is_missing:
            raise InputError(f"{path}: the file is damaged (its {name} is missing); {AGAIN}.")
    for name, tensor in state.items():  # before the conversion to float32
        check_tensor(path, f"the scaling's {name}", tensor, (None,) * tensor.ndim, AGAIN)
    scaler = scaler_from_state(state)
    parts = scaler_parts(scaler)
    widths = [(block, len(columns)) for block in blocks for columns in block.parts()]
    if len(parts) != len(widths):
        raise InputError(f"{path}: the file is damaged ({len(parts)} scalings for {len(widths)} blocks); {AGAIN}.")
    for (block, width), part in zip(widths, parts, strict=True):
        for name, tensor in part.state().items():
            scaled = width if part.usual is None else width + block.basis.dim  # the slide's mean follows
            shape: tuple[int | None, ...] = (scaled,)
            if name.startswith("usual_") and isinstance(block.basis, Prototypes):
                shape = tuple(block.basis.centroids.shape)
            elif part.reduction is not None:
                reduced = len(part.shift)
                shape = {"reduction_mean": (width,), "reduction_basis": (width, reduced)}.get(name, (reduced,))
            check_tensor(path, f"the scaling's {name}", tensor, shape, AGAIN)
    check_tensor(path, "the mean embedding", baseline, (sum(width for _, width in widths),), AGAIN)
    return scaler
