"""The prototype file: one .safetensors with centroids, settings and provenance; also the published layouts."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from panther.engine import Work, map_slides
from panther.errors import InputError, listed
from panther.mixture import STARTING_VARIANCES
from panther.patches import spec_from
from panther.rows import Alignment, as_centroids
from panther.storage.files import read_errors
from panther.storage.hub import find_shared
from panther.storage.tensors import (
    Kinds,
    check_tensor,
    kind_of_file,
    load_arrays,
    parse_about,
    read_tensors,
    write_tensors,
)
from panther.types import Openable, Projection, Prototypes

FORMAT = 1  # to be raised when older versions would misread a new file
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
        Prototypes with their settings and provenance.
    path : path
        Usually `*.safetensors`; it appears whole or not at all.
    """
    tensors = {PROJECTION.get(name, name): tensor for name, tensor in prototype_tensors(prototypes).items()}
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
        **({} if prototypes.alignment is None else {"alignment": prototypes.alignment.settings()}),
    }
    write_tensors(Path(path), tensors, _KEY, about)


PROJECTION = {"mean": "projection_mean", "basis": "projection_basis"}  # names in files of prototypes


def prototype_tensors(prototypes: Prototypes) -> dict[str, Tensor]:
    """Tensors of prototypes by name."""
    alignment = {} if prototypes.alignment is None else prototypes.alignment.tensors()
    tensors = {
        "centroids": prototypes.centroids,
        "within_variance": prototypes.within_variance,
        "occupancy": prototypes.occupancy,
        "surprise": prototypes.surprise,
        "mean": prototypes.projection.mean,
        "basis": prototypes.projection.basis,
        **{f"alignment.{name}": tensor for name, tensor in alignment.items()},
    }
    return {name: tensor for name, tensor in tensors.items() if tensor is not None}


def load_prototypes(path: Path | str) -> Prototypes:
    """Read a file of prototypes.

    Parameters
    ----------
    path : path
        File of `save_prototypes`; a folder of `panther share`, or its name ORG/NAME on the Hugging Face hub; or published prototypes: a
        pickle with `prototypes` (1, C, d), or a `.npy` array (C, d).

    Returns
    -------
    Prototypes
        Prototypes with all metadata of the file.

    Examples
    --------
    >>> import torch, panther
    >>> panther.save_prototypes(panther.Prototypes(torch.eye(3)), "protos.safetensors")
    >>> len(panther.load_prototypes("protos.safetensors"))
    3
    """
    path = find_shared(path)
    with read_errors(path, "prototype file", AGAIN):
        with path.open("rb") as handle:
            head = handle.read(9)
        if head[8:9] == b"{":
            return _read(path)
        if head.startswith(b"\x93NUMPY"):
            array = np.load(path, allow_pickle=False)
        elif head[:1] == b"\x80":  # a published pickle
            content = load_arrays(path)
            if not isinstance(content, dict) or "prototypes" not in content:
                raise InputError("the pickle holds no `prototypes`; published prototype files do")
            array = content["prototypes"]
        else:
            raise InputError("not a prototype file, expected .safetensors, .npy or a published .pkl")
        centroids = torch.as_tensor(np.asarray(array, dtype=np.float32))
        if centroids.ndim == 3 and len(centroids) == 1:
            centroids = centroids[0]
        check_tensor(path, "prototypes", centroids, (None, None), AGAIN)
        return Prototypes(centroids, settings={"source": path.name})


def as_prototypes(prototypes: Prototypes | Path | str | Tensor | np.ndarray) -> Prototypes:
    """Prototypes, from a file or an array (C, d) if need be."""
    if isinstance(prototypes, Prototypes):
        return prototypes
    return load_prototypes(prototypes) if isinstance(prototypes, (str, Path)) else Prototypes(as_centroids(prototypes))


def encoder_notes(prototypes: Prototypes, refs: Sequence[Openable], work: Work) -> list[str]:
    """Note where either the prototypes or the features (of the first slide) name no encoder, so that only dimensions are compared."""
    for result in map_slides(_encoder_of, refs[:1], work.executor):
        if result.reason is None and bool(result.value) != bool(prototypes.encoder):
            unnamed, other = (
                (refs[0].sample, prototypes.encoder) if prototypes.encoder else ("the prototypes", result.value)
            )
            return [f"{unnamed}: no encoder is named, the other side is of {other!r}; only dimensions were compared"]
    return []


def _encoder_of(ref: Openable) -> str | None:
    return ref.open().encoder


def _read(path: Path) -> Prototypes:
    text, tensors = read_tensors(path, _KEY)
    if text is None or "centroids" not in tensors:
        kind = kind_of_file(path)
        what = f"tensors {listed(sorted(tensors), 3)}" if kind in (None, "prototypes") else f"a {kind} of this package"
        use = "; `panther predict` uses models" if kind == "model" else ""
        raise InputError(f"holds {what}, not prototypes{use}")
    about = parse_about(path, text, FIELDS, FORMAT, AGAIN)
    if not all(isinstance(slide, str) for slide in about["slides"]):
        raise InputError(f"the file is damaged (slides are not all names); {AGAIN}")
    tensors |= {name: tensors[stored] for name, stored in PROJECTION.items() if stored in tensors}
    provenance = {name: about[name] for name in ("settings", "diagnostics", "parents", "version")}
    return read_prototypes(path, tensors, about, about["dim"], AGAIN, slides=tuple(about["slides"]), **provenance)


def read_prototypes(
    path: Path, tensors: Mapping[str, Tensor], about: Mapping[str, Any], dim: int | None, again: str, **provenance: Any
) -> Prototypes:
    """Prototypes of width ``dim`` from the tensors and values of a file, checked; ``again`` is the remedy in errors."""
    centroids, mean, basis = (tensors.get(name) for name in ("centroids", "mean", "basis"))
    check_tensor(path, "prototypes", centroids, (None, dim), again)
    assert centroids is not None
    if (mean is None) != (basis is None):
        raise InputError(f"{path}: the file is damaged (half of its projection is missing); {again}")
    if mean is not None:
        check_tensor(path, "the projection's means", mean, (None,), again)
        check_tensor(path, "the projection's axes", basis, (len(mean), centroids.shape[1]), again)
    for name, shape in (("within_variance", centroids.shape[1:]), ("occupancy", centroids.shape[:1])):
        check_tensor(path, name, tensors.get(name), shape, again, least=0)
    surprise = tensors.get("surprise")
    check_tensor(path, "surprises of the training patches", surprise, (len(STARTING_VARIANCES), 2), again)
    if surprise is not None and not bool((surprise[:, 0] < surprise[:, 1]).all()):
        raise InputError(f"{path}: the file is damaged (its levels of surprise are in the wrong order); {again}")
    projection = Projection(about["normalise"], mean, basis)
    return Prototypes(
        centroids,
        projection=projection,
        encoder=about["encoder"],
        spec=spec_from(about.get("patch_spec")),
        alignment=_alignment(path, about.get("alignment"), tensors, projection, centroids, again),
        within_variance=tensors.get("within_variance"),
        occupancy=tensors.get("occupancy"),
        surprise=surprise,
        **provenance,
    )


def _alignment(
    path: Path, about: Any, tensors: Mapping[str, Tensor], projection: Projection, centroids: Tensor, again: str
) -> Alignment | None:
    """Alignment of a file, checked; None without alignment."""
    if about is None:
        return None
    prefix = "alignment."
    parts = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
    try:
        alignment = Alignment.from_state(about, parts)
        dim = centroids.shape[1] if projection.basis is None else projection.basis.shape[0]
        if len(alignment.mean) != dim:
            raise ValueError(f"{len(alignment.mean)} dimensions for features of {dim}")
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise InputError(f"{path}: the file is damaged (its alignment of sites: {error}); {again}") from error
    return alignment
