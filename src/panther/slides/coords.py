"""Coordinates of patches in TRIDENT's file: `coords` (N, 2) at level 0, the geometry as attributes."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from panther.errors import InputError
from panther.storage.atomic import atomic_write
from panther.types import PatchSpec


@dataclass(frozen=True)
class Coords:
    """Where a slide's patches are."""

    slide: str
    coords: np.ndarray  # (N, 2) int64, upper left corners at level 0
    spec: PatchSpec
    mpp: float  # of the slide's level 0
    dimensions: tuple[int, int]  # of the slide's level 0
    about: Mapping[str, Any] = field(default_factory=dict)  # settings, the tissue's hash


def magnification(mpp: float) -> int | float:
    """10 um/px times the magnification: 0.5 is 20x."""
    value = round(10 / mpp, 3)
    return int(value) if value.is_integer() else value


def folder_name(size: int, mpp: float, overlap: int) -> str:
    """TRIDENT's name for a set of patches, e.g. `20x_256px_0px_overlap`."""
    return f"{magnification(mpp):g}x_{size}px_{overlap}px_overlap"


def write_coords(path: Path, value: Coords, saved_to: str) -> None:
    """Write the file whole or not at all; the same value gives the same bytes."""
    import h5py

    spec = value.spec
    assert spec.mpp is not None
    with atomic_write(path) as temporary, h5py.File(temporary, "w") as file:
        coords = file.create_dataset("coords", data=value.coords.astype(np.int64).reshape(-1, 2))
        coords.attrs["patch_size"] = spec.size
        coords.attrs["patch_size_level0"] = spec.size_level0
        coords.attrs["level0_magnification"] = magnification(value.mpp)
        coords.attrs["target_magnification"] = magnification(spec.mpp)
        coords.attrs["overlap"] = spec.overlap
        coords.attrs["name"] = value.slide
        coords.attrs["savetodir"] = saved_to
        coords.attrs["level0_width"], coords.attrs["level0_height"] = value.dimensions
        # ours: what TRIDENT has no place for; the magnification above is rounded, these are not
        exact = {"level0_mpp": value.mpp, "mpp": spec.mpp, "level": spec.level, "size_read": spec.size_read}
        coords.attrs["panther"] = json.dumps({**exact, **value.about}, sort_keys=True)


def read_coords(path: Path | str) -> Coords:
    """Read a coordinates file, ours or TRIDENT's; without our attribute the level and the exact resolution are not known."""
    import h5py

    path = Path(path)
    try:
        with h5py.File(path) as file:
            coords = np.asarray(file["coords"], np.int64)
            attrs = dict(file["coords"].attrs)
    except (OSError, KeyError, ValueError) as error:
        raise InputError(f"{path}: this is no file of patch coordinates ({error}); remove it and run again.") from error
    try:
        about = json.loads(attrs.get("panther", "{}"))
        mpp0 = about.pop("level0_mpp", None) or 10 / float(attrs["level0_magnification"])
        spec = PatchSpec(
            about.pop("mpp", None) or 10 / float(attrs["target_magnification"]),
            int(attrs["patch_size"]),
            about.pop("size_read", None),
            int(attrs["patch_size_level0"]),
            about.pop("level", None),
            int(attrs.get("overlap", 0)),
        )
        size = (int(attrs["level0_width"]), int(attrs["level0_height"]))
        name = str(attrs.get("name", path.stem.removesuffix("_patches")))
    except (KeyError, ValueError, ZeroDivisionError) as error:
        raise InputError(f"{path}: the coordinates lack an attribute of TRIDENT's ({error}).") from error
    if coords.ndim != 2 or coords.shape[1] != 2:
        raise InputError(f"{path}: coords have the shape {coords.shape}; (N, 2) is expected.")
    return Coords(name, coords, spec, float(mpp0), size, about)
