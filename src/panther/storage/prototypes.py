"""The prototype file: one .safetensors with centroids, settings and provenance; also the published layouts."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from panther.errors import InputError, listed
from panther.mixture import STARTING_VARIANCES
from panther.patches import spec_from
from panther.rows import Alignment, as_centroids
from panther.storage.tensors import (
    Kinds,
    TensorFileError,
    check_tensor,
    kind_of_file,
    load_arrays,
    parse_about,
    read_tensors,
    write_tensors,
)
from panther.types import Projection, Prototypes

FORMAT = 1  # raised when a reader of the old format would misread the new one
_KEY = "panther_prototypes"
AGAIN = "fit the prototypes again"
FIELDS: Kinds = {
    "version": (str,),
    "encoder": (str, type(None)),
    "dim": (int,),
    "normalise": (bool,),
    "slides": (list,),
    "settings": (dict,),
    "diagnostics": (dict,),
    "parents": (str,),
    "patch_spec": (dict, type(None)),
    "alignment": (dict, type(None)),
}


def save_prototypes(prototypes: Prototypes, path: Path | str) -> None:
    """Write a prototype file; the same prototypes give the same bytes.

    Parameters
    ----------
    prototypes : Prototypes
        What to write, with all that is known about them.
    path : path
        Usually `*.safetensors`; it appears whole or not at all.
    """
    tensors = {
        "centroids": prototypes.centroids,
        "within_variance": prototypes.within_variance,
        "occupancy": prototypes.occupancy,
        "surprise": prototypes.surprise,
        "projection_mean": prototypes.projection.mean,
        "projection_basis": prototypes.projection.basis,
        **alignment_tensors("alignment", prototypes.alignment),
    }
    about = {
        "format": FORMAT,
        "version": prototypes.version,
        "encoder": prototypes.encoder,
        "dim": prototypes.dim,
        "normalise": prototypes.projection.normalise,
        "slides": list(prototypes.slides),
        "settings": dict(prototypes.settings),
        "diagnostics": dict(prototypes.diagnostics),
        "parents": prototypes.parents,
        "patch_spec": prototypes.spec.known(),
    }
    if prototypes.alignment is not None:
        about["alignment"] = prototypes.alignment.settings()
    write_tensors(Path(path), {name: tensor for name, tensor in tensors.items() if tensor is not None}, _KEY, about)


def load_prototypes(path: Path | str) -> Prototypes:
    """Read a file of prototypes.

    Parameters
    ----------
    path : path
        File of `save_prototypes`, or published prototypes: a pickle with `prototypes` (1, C, d), or a `.npy` array (C, d).

    Returns
    -------
    Prototypes
        With all that the file says about them.

    Examples
    --------
    >>> import torch, panther
    >>> panther.save_prototypes(panther.Prototypes(torch.eye(3)), "protos.safetensors")
    >>> len(panther.load_prototypes("protos.safetensors"))
    3
    """
    path = Path(path)
    try:
        with path.open("rb") as handle:
            head = handle.read(9)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); give a prototype file.") from error
    if head.startswith(b"\x93NUMPY"):
        return _published(path, _load_npy(path))
    if head[8:9] == b"{":
        return _load_ours(path)
    if head[:1] == b"\x80":
        content = load_arrays(path)
        if not isinstance(content, dict) or "prototypes" not in content:
            raise InputError(f"{path}: the pickle holds no `prototypes`; published prototype files do.")
        return _published(path, content["prototypes"])
    raise InputError(
        f"{path}: not a prototype file; expected .safetensors (`panther prototypes`), .npy or a published .pkl."
    )


def as_prototypes(prototypes: Prototypes | Path | str | Tensor | np.ndarray) -> Prototypes:
    """Prototypes as they are, of a file, or of an array (C, d)."""
    if isinstance(prototypes, Prototypes):
        return prototypes
    return load_prototypes(prototypes) if isinstance(prototypes, (str, Path)) else Prototypes(as_centroids(prototypes))


def _load_ours(path: Path) -> Prototypes:
    try:
        text, tensors = read_tensors(path, _KEY)
    except TensorFileError as error:
        raise InputError(f"{path}: the file is damaged ({error}); fit the prototypes again.") from error
    if text is None or "centroids" not in tensors:
        raise InputError(_not_prototypes(path, tensors))
    about = parse_about(path, text, FIELDS, FORMAT, AGAIN)
    if not all(isinstance(slide, str) for slide in about["slides"]):
        raise InputError(f"{path}: the file is damaged (slides are not all names); {AGAIN}.")
    centroids = _valid(path, tensors["centroids"])
    if about["dim"] != centroids.shape[1]:
        raise InputError(
            f"{path}: says {about['dim']} dimensions, but the prototypes have {centroids.shape[1]}; {AGAIN}."
        )
    check_projection(path, centroids, tensors.get("projection_mean"), tensors.get("projection_basis"))
    check_tensor(path, "within-cluster variances", tensors.get("within_variance"), centroids.shape[1:], AGAIN, least=0)
    check_tensor(path, "occupancies", tensors.get("occupancy"), centroids.shape[:1], AGAIN, least=0)
    check_surprise(path, tensors.get("surprise"), AGAIN)
    projection = Projection(about["normalise"], tensors.get("projection_mean"), tensors.get("projection_basis"))
    keep = {name: about[name] for name in ("encoder", "settings", "diagnostics", "parents", "version")}
    return Prototypes(
        centroids,
        tensors.get("within_variance"),
        tensors.get("occupancy"),
        projection,
        slides=tuple(about["slides"]),
        spec=spec_from(about.get("patch_spec")),
        alignment=read_alignment(path, "alignment", about.get("alignment"), tensors, projection, centroids),
        surprise=tensors.get("surprise"),
        **keep,
    )


def _not_prototypes(path: Path, tensors: Mapping[str, Tensor]) -> str:
    """What a sound .safetensors file holds instead, and what to give."""
    kind = kind_of_file(path)
    what = f"a {kind} of this package" if kind not in (None, "prototypes") else f"tensors {listed(sorted(tensors), 3)}"
    use = "; with a model `panther predict` predicts" if kind == "model" else ""
    return f"{path}: holds {what}, not prototypes; give a file of `panther prototypes`{use}."


def alignment_tensors(prefix: str, alignment: Alignment | None) -> dict[str, Tensor]:
    """Tensors of an alignment as files name them."""
    return {} if alignment is None else {f"{prefix}.{name}": tensor for name, tensor in alignment.tensors().items()}


def read_alignment(
    path: Path,
    prefix: str,
    about: Any,
    tensors: Mapping[str, Tensor],
    projection: Projection,
    centroids: Tensor,
    again: str = AGAIN,
) -> Alignment | None:
    """Alignment of a file, checked; None where slides are taken as they are."""
    if about is None:
        return None
    own = {name.removeprefix(f"{prefix}."): tensor for name, tensor in tensors.items() if name.startswith(f"{prefix}.")}
    try:
        found = Alignment.from_state(about, own)
        dim = centroids.shape[1] if projection.basis is None else projection.basis.shape[0]
        if len(found.mean) != dim:
            raise ValueError(f"{len(found.mean)} dimensions for features of {dim}")
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise InputError(f"{path}: the file is damaged (its alignment of sites: {error}); {again}.") from error
    return found


def check_projection(path: Path, centroids: Tensor, mean: Tensor | None, basis: Tensor | None) -> None:
    """Refuse a projection that does not lead to where the centroids are."""
    if (mean is None) != (basis is None):
        raise InputError(f"{path}: the file is damaged (half of its projection is missing); {AGAIN}.")
    if mean is not None:
        check_tensor(path, "the projection's means", mean, (None,), AGAIN)
        check_tensor(path, "the projection's axes", basis, (len(mean), centroids.shape[1]), AGAIN)


def check_surprise(path: Path, surprise: Tensor | None, remedy: str) -> None:
    """Refuse what is usual and rare where it is not in this order."""
    check_tensor(path, "surprises of the training patches", surprise, (len(STARTING_VARIANCES), 2), remedy)
    if surprise is not None and not bool((surprise[:, 0] < surprise[:, 1]).all()):
        raise InputError(f"{path}: the file is damaged (what is rare is more usual than what is usual); {remedy}.")


def _load_npy(path: Path) -> np.ndarray:
    try:
        return np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise InputError(f"{path}: not an array of numbers ({error}).") from error


def _published(path: Path, array: Any) -> Prototypes:
    try:
        centroids = torch.as_tensor(np.asarray(array, dtype=np.float32))
    except (ValueError, TypeError) as error:
        raise InputError(f"{path}: the prototypes are not an array of numbers ({error}); expected (C, d).") from error
    if centroids.ndim == 3 and len(centroids) == 1:
        centroids = centroids[0]
    return Prototypes(_valid(path, centroids), settings={"source": path.name})


def _valid(path: Path, centroids: Tensor) -> Tensor:
    if centroids.ndim != 2 or 0 in centroids.shape or not centroids.is_floating_point():
        raise InputError(f"{path}: prototypes have shape {tuple(centroids.shape)}; expected (C, d).")
    if not bool(torch.isfinite(centroids).all()):
        raise InputError(f"{path}: prototypes hold NaN or infinite numbers; fit them again.")
    return centroids
