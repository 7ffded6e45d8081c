"""A trained model as one portable file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from panther.aggregators import build
from panther.errors import InputError
from panther.mil import build_model, networks, revision
from panther.models.heads import PROBE, build_head, token_shape
from panther.models.model import Model
from panther.models.named import Named
from panther.models.scaling import Scaler
from panther.models.sureness.value import load_sureness
from panther.models.tasks import Task, load_task
from panther.patch_spec import spec_from
from panther.storage.metadata import Kinds, check_tensor, parse_about
from panther.storage.prototypes import check_projection
from panther.storage.tensors import TensorFileError, read_tensors, write_tensors
from panther.types import Projection, Prototypes

FORMAT = 2  # 2: the scaling may read a mixture in its Fisher metric
_KEY = "panther_model"
AGAIN = "train the model again"
FIELDS: Kinds = {
    **dict.fromkeys(("method", "head", "task", "about"), (dict,)),
    "dim": (int,),
    "encoder": (str, type(None)),
    "normalise": (bool,),
    "patch_spec": (dict, type(None)),
    "sure": (dict, type(None)),
}


def save_model(model: Model, path: Path) -> None:
    """Write one .safetensors file."""
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
    tensors |= {f"cloud.{name}": tensor for name, tensor in model.sure.tensors().items()}
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
        "sure": model.sure.settings(),
    }
    if model.method.name in networks:
        about["revision"] = revision(model.method.name)
    write_tensors(path, tensors, _KEY, about)


def as_model(model: Model | Path | str) -> Model:
    """A model as it is, or of a file."""
    return model if isinstance(model, Model) else load_model(Path(model))


def load_model(path: Path) -> Model:
    """Read a model file."""
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
    _check_revision(path, method.name, about)
    prototypes = _prototypes(path, tensors, about)
    state = _under("scaler.", tensors)
    _check_widths(path, about, method, prototypes, state, tensors.get("baseline.mean"))
    scaler = Scaler.from_state(state) if state else None
    network = _network(method, head, task, about["dim"], prototypes, scaler)
    _load_weights(path, network, _under("network.", tensors))
    return Model(
        method,
        head,
        task,
        network.eval(),
        about["dim"],
        about["encoder"],
        prototypes,
        scaler,
        about["about"],
        tensors.get("baseline.mean"),  # earlier files have none
        spec_from(about.get("patch_spec")),
        load_sureness(path, about.get("sure") or {}, _under("cloud.", tensors), AGAIN),
    )


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


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
    count, dim = prototypes.centroids.shape
    read = width + (dim if "usual_means" in scaler else 0)  # the slide's mean follows
    for name, tensor in scaler.items():
        shape = (count, dim) if name.startswith("usual_") else (read,)
        check_tensor(path, f"the scaling's {name}", tensor, shape, AGAIN)
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


def _network(
    method: Named, head: Named, task: Task[Any], dim: int, prototypes: Prototypes | None, scaler: Scaler | None
) -> nn.Module:
    if method.name in networks:
        return build_model(method.name, dim, task.n_outputs, prototypes, method.options)
    assert prototypes is not None
    assert scaler is not None
    columns = scaler.columns(build(method.name, prototypes, method.options).columns())
    if head.name == PROBE:
        return build_head("linear", (len(columns),), task.n_outputs)
    return build_head(head.name, token_shape(columns), task.n_outputs, head.options)
