"""OME-Zarr (NGFF 0.4 in Zarr 2, 0.5 in Zarr 3): a folder `slide.zarr` with one array per level; only the chunks of a region are decoded."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from panther.errors import InputError, require_packages
from panther.slides.slide import slide_readers

STORE = ".zarr"
AXES = ("t", "c", "z", "y", "x")
COLOURS = (3, 4)  # RGB, or with an alpha that is dropped
UNITS = {"nanometer": 1e-3, "micrometer": 1.0, "millimeter": 1e3, "centimeter": 1e4, "meter": 1e6}


def is_image(path: Path) -> bool:
    """Whether a folder of zarr is an image: other stores hold features (wsidata) or anything else."""
    import zarr

    try:
        return _multiscales(zarr.open_group(path, mode="r", use_consolidated=False)) is not None
    except Exception:  # whatever zarr raises for other folders
        return False


def _multiscales(root: Any) -> tuple[Any, Mapping[str, Any]] | None:
    """Group of the image (of bioformats2raw's layout the first) and its metadata; None where there is none."""
    for group in (root, root["0"] if "0" in root and hasattr(root["0"], "groups") else None):
        if group is None:
            continue
        attributes = dict(group.attrs)
        multiscales = attributes.get("ome", attributes).get("multiscales")
        if multiscales:
            return group, multiscales[0]
    return None


@slide_readers.register("ome-zarr")
class ZarrPixels:
    """The levels of an OME-Zarr image."""

    vendor = "ome-zarr"

    def __init__(self, path: Path) -> None:
        if not path.is_dir():
            raise ValueError("cannot identify image file")  # of another format
        require_packages("slides", "zarr")
        import zarr

        image_group = _multiscales(zarr.open_group(path, mode="r", use_consolidated=False))
        if image_group is None:
            raise InputError(f"{path.name}: found no `multiscales`, expected an image of OME-Zarr 0.4 or 0.5")
        group, image = image_group
        axes = [axis["name"] if isinstance(axis, Mapping) else axis for axis in image.get("axes", AXES)]
        if sorted(set(axes) - {"t", "z"}) != ["c", "x", "y"]:
            raise InputError(f"{path.name}: found axes {', '.join(axes)}, expected y, x and a channel c of RGB")
        self._axes = axes
        self._levels = [group[dataset["path"]] for dataset in image["datasets"]]
        for level in self._levels:
            sizes = dict(zip(axes, level.shape, strict=True))
            others = {name: size for name, size in sizes.items() if name in "tz" and size != 1}
            if level.dtype != np.uint8 or sizes["c"] not in COLOURS or others:
                what = ", ".join(f"{name}={size}" for name, size in sizes.items())
                expected = "expected 8-bit RGB of one plane and time"
                raise InputError(f"{path.name}: found {level.dtype} pixels with {what}, {expected}")
        at_x, at_y = axes.index("x"), axes.index("y")
        self.level_dimensions = tuple((int(level.shape[at_x]), int(level.shape[at_y])) for level in self._levels)
        widths = [width for width, _ in self.level_dimensions]
        if widths != sorted(widths, reverse=True):
            raise InputError(f"{path.name}: found levels of widths {widths}, expected the finest first")
        self.properties = MappingProxyType(_properties(image, axes))

    def read(self, x: int, y: int, level: int, width: int, height: int) -> np.ndarray:
        """Pixels (height, width, 3)."""
        box = {"x": slice(x, x + width), "y": slice(y, y + height), "c": slice(0, 3)}
        axes = [name for name in self._axes if name in box]
        pixels = self._levels[level][tuple(box.get(name, 0) for name in self._axes)]
        return np.ascontiguousarray(np.transpose(pixels, [axes.index(name) for name in "yxc"]))

    def close(self) -> None:
        """Do nothing: no file is open."""


def _properties(image: Mapping[str, Any], axes: Sequence[str]) -> dict[str, str]:
    """Micrometres per pixel of level 0, under OME's names; empty where an axis has no unit of length."""
    units = [axis.get("unit") if isinstance(axis, Mapping) else None for axis in image.get("axes", ())]
    transforms = [
        *image["datasets"][0].get("coordinateTransformations", ()),
        *image.get("coordinateTransformations", ()),
    ]
    scale = np.prod([t["scale"] for t in transforms if t.get("type") == "scale"] or [[0.0] * len(axes)], axis=0)
    properties = {}
    for name, size, unit in zip(axes, scale.tolist(), units, strict=False):
        if name in ("x", "y") and unit in UNITS and size:
            properties[f"ome.PhysicalSize{name.upper()}"] = repr(size * UNITS[unit])
    return properties | ({"ome.PhysicalSizeXUnit": "um"} if properties else {})
