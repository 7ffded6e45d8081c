"""TRIDENT's HDF5 files, written in one place: `features` (N, d) and `coords` (N, 2) at level 0, the geometry as attributes."""

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from panther.errors import InputError
from panther.machine import reading
from panther.storage.files import DAMAGE, read_errors
from panther.storage.isolated import call_isolated
from panther.store import atomic_write, h5_writer
from panther.types import PatchSpec

Attributes = Mapping[str, Any]
ALL_COORDS = "all_coords"  # beside `coords`, where only a sample of the patches was encoded


@dataclass(frozen=True)
class Coords:
    """Coordinates of a slide's patches."""

    slide: str
    coords: np.ndarray  # (N, 2) int64, upper left corners at level 0
    spec: PatchSpec
    mpp: float  # of the slide's level 0
    dimensions: tuple[int, int]  # of the slide's level 0
    about: Mapping[str, Any] = field(default_factory=dict)  # settings, the tissue's hash
    attributes: Attributes = field(default_factory=dict)  # of the file that was read
    content: bytes = field(default=b"", repr=False)  # of that file


@dataclass(frozen=True)
class FeatureRows:
    """Features to be written block by block."""

    shape: tuple[int, int]  # (N, d)
    dtype: np.dtype
    blocks: Iterable[np.ndarray]  # (n, d) each
    attributes: Attributes


def write_bag(
    path: Path,
    features: FeatureRows,
    coords: tuple[np.ndarray, Attributes] | None = None,
    tiles: list[str] | None = None,
    population: np.ndarray | None = None,
) -> None:
    """Write TRIDENT's layout, contiguous: `features`, then `coords` (N, 2) or the names of `tiles`.

    Of a sample of patches also the coordinates of all, `all_coords`.
    """
    import h5py

    with h5_writer(path) as file:
        rows = file.create_dataset("features", features.shape, features.dtype)
        rows.attrs.update(features.attributes)
        start = 0
        for block in features.blocks:
            rows[start : start + len(block)] = block
            start += len(block)
        if coords is not None:
            file.create_dataset("coords", data=coords[0].astype(np.int64)).attrs.update(coords[1])
        if population is not None:
            file.create_dataset(ALL_COORDS, data=population.astype(np.int64))
        if tiles is not None:
            file.create_dataset("tiles", data=tiles, dtype=h5py.string_dtype())


def feature_attributes(path: Path) -> dict[str, Any]:
    """Attributes of the features of a bag; empty without such a bag."""
    return call_isolated(_feature_attributes, path) if path.exists() else {}


def _feature_attributes(path: Path) -> dict[str, Any]:
    import h5py

    with suppress(*DAMAGE), reading(), h5py.File(path, "r") as file:
        return dict(file["features"].attrs)
    return {}


def tile_names(path: Path) -> list[str]:
    """Names of the tiles of a bag; empty if the file does not list them."""
    import h5py

    if not h5py.is_hdf5(path):
        return []
    with reading(), h5py.File(path, "r") as file:
        return [str(name) for name in file["tiles"].asstr()[:]] if "tiles" in file else []


def magnification(mpp: float) -> int | float:
    """Magnification of a resolution: 0.5 um/px is 20x."""
    value = round(10 / mpp, 3)
    return int(value) if value.is_integer() else value


def folder_name(size: int, mpp: float, overlap: int) -> str:
    """TRIDENT's name for a set of patches, e.g. `20x_256px_0px_overlap`."""
    return f"{magnification(mpp):g}x_{size}px_{overlap}px_overlap"


def write_coords(path: Path, value: Coords, saved_to: str) -> None:
    """Write coordinates with TRIDENT's attributes, and all others as JSON in `panther`; the same value gives the same bytes."""
    spec = value.spec
    assert spec.mpp is not None
    # unrounded, unlike the magnifications
    exact = {"level0_mpp": value.mpp, "mpp": spec.mpp, "level": spec.level, "size_read": spec.size_read}
    attributes = {
        "patch_size": spec.size,
        "patch_size_level0": spec.size_level0,
        "level0_magnification": magnification(value.mpp),
        "target_magnification": magnification(spec.mpp),
        "overlap": spec.overlap,
        "name": value.slide,
        "savetodir": saved_to,
        "level0_width": value.dimensions[0],
        "level0_height": value.dimensions[1],
        "panther": json.dumps({**exact, **value.about}, sort_keys=True),
    }
    with atomic_write(path) as temporary, h5_writer(temporary) as file:
        coords = file.create_dataset("coords", data=value.coords.astype(np.int64).reshape(-1, 2))
        coords.attrs.update(attributes)


def read_coords(path: Path | str) -> Coords:
    """Read a coordinates file, ours or TRIDENT's; without our attribute the level and the exact resolution are not known."""
    return call_isolated(_read_coords, Path(path))


def _read_coords(path: Path) -> Coords:
    import h5py

    with read_errors(path, "file of patch coordinates", "remove it and run again"):
        content = path.read_bytes()
        with reading(), h5py.File(h5py.h5f.open_file_image(content)) as file:
            coords, attrs = np.asarray(file["coords"], np.int64), dict(file["coords"].attrs)
        if coords.ndim != 2 or coords.shape[1] != 2:
            raise InputError(f"coords have the shape {coords.shape}, expected (N, 2)")
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
        return Coords(name, coords, spec, float(mpp0), size, about, attrs, content)
