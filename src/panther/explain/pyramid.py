"""The map as a pyramidal TIFF: colours alone, aligned with the slide, for viewers that lay one image over another."""

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from panther.errors import InputError
from panther.explain.geometry import View, raster
from panther.explain.slide_map import SlideMap
from panther.storage.atomic import atomic_write

CELL = 16  # pixels per patch at the finest level: edges within a sixteenth of a patch
LARGEST = 8192  # pixels of the longer side: the finest level stays below a gigabyte of memory
TILE = 256


def levels(found: SlideMap) -> Iterator[tuple[np.ndarray, float]]:
    """Pictures (h, w, 4) from fine to coarse, each half of the one before, and how many level-0 pixels theirs are wide.

    Every level is painted anew from the coordinates, so that none is a blurred or shifted copy of another.
    """
    extent = np.array(found.view.size) / found.view.scale  # of the picture, in level-0 pixels
    factor = max(found.grid.pitch / CELL, float(extent.max()) / LARGEST, 1.0)
    colours = np.concatenate([found.patch_colours, np.zeros((1, 3), np.uint8)])
    while True:
        width, height = (max(1, math.ceil(side / factor - 1e-9)) for side in extent.tolist())
        shape = np.broadcast_to(np.uint8(0), (height, width, 3))  # only its size is asked for
        index = raster(found.grid, View(shape, (1 / factor, 1 / factor), found.view.origin))
        yield np.concatenate([colours[index], (index >= 0)[..., None].astype(np.uint8) * 255], -1), factor
        if max(width, height) <= TILE:
            return
        factor *= 2


def write_pyramid(path: Path, found: SlideMap) -> None:
    """Write a tiled, compressed RGBA TIFF with reduced levels and its resolution in the tags."""
    try:
        import tifffile
    except ImportError as error:
        raise InputError(
            "A TIFF needs tifffile; pip install 'panther-wsi[slides]', or leave tiff out of `formats=`."
        ) from error

    with atomic_write(path) as temporary, tifffile.TiffWriter(temporary, bigtiff=True) as file:
        for number, (pixels, factor) in enumerate(levels(found)):
            per_cm = None if found.view.mpp is None else 1e4 / (found.view.mpp * factor)
            file.write(
                pixels,
                tile=(TILE, TILE),
                photometric="rgb",
                extrasamples=("unassalpha",),
                compression="zlib",
                subfiletype=int(number > 0),
                resolution=None if per_cm is None else (per_cm, per_cm),
                resolutionunit=None if per_cm is None else "CENTIMETER",
                metadata=None,
                software=False,
            )
