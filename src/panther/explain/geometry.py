"""Places of patches: on integer grids, on the pixels of a picture, and as polygons, in level-0 pixels (or um where a file has only these)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy import ndimage
from torch import Tensor

from panther.errors import InputError
from panther.explain import palette
from panther.explain.names import label
from panther.patches import shown_step, stated_side, stated_step
from panther.slides.polygons import Polygon, trace
from panther.storage.geojson import annotation
from panther.types import PatchSpec

BLOCK = 1 << 22  # pixels painted at a time


class Grid(NamedTuple):
    """Patches as cells. CLAM starts a new grid at every piece of tissue, so there may be several, each exact."""

    cells: np.ndarray  # (N, 2) int64, column and row within its grid
    layer: np.ndarray  # (N,) int64, which grid
    origins: np.ndarray  # (layers, 2), upper left corner of cell (0, 0)
    pitch: float  # side of a cell: the patch, or the step where patches overlap
    inferred: bool = False  # from the distance of neighbours, because the file has no patch size

    @property
    def corners(self) -> np.ndarray:
        """Upper left corners of the cells, (N, 2)."""
        return self.origins[self.layer] + self.cells * self.pitch


@dataclass(frozen=True)
class View:
    """A picture of a part of the slide, on which a map is drawn."""

    background: np.ndarray  # (h, w, 3) uint8
    scale: tuple[float, float]  # pixels per unit of the coordinates, across and down
    origin: tuple[float, float] = (0.0, 0.0)  # coordinates of the upper left corner
    mpp: float | None = None  # micrometres per unit of the coordinates; None: not known, no scale bar
    blank: bool = False  # no image of the slide
    unit: str = "px"  # of the coordinates: "px" at level 0, or "um"

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels."""
        return self.background.shape[1], self.background.shape[0]

    def pixels(self, points: np.ndarray) -> np.ndarray:
        """Points (n, 2) in pixels of the picture, (0, 0) being the corner of the first."""
        return (np.asarray(points, float) - self.origin) * self.scale

    def within(self, max_side: int) -> "View":
        """Same part in a picture smaller by a whole factor, whose pixels are averages."""
        from PIL import Image

        factor = math.ceil(max(self.size) / max_side)
        if factor <= 1:
            return self
        small = np.asarray(Image.fromarray(self.background).reduce(factor))
        return replace(self, background=small, scale=(self.scale[0] / factor, self.scale[1] / factor))


def grid(coords: Tensor | np.ndarray, spec: PatchSpec, mpp: float | None = None) -> Grid:
    """Cells of patches with upper left corners ``coords`` (N, 2).

    With ``mpp`` of the slide's level 0, coordinates in micrometres (STAMP) become level-0 pixels. Where patches overlap, a cell is the
    middle of its patch.
    """
    points = np.asarray(coords, dtype=np.float64).reshape(-1, 2)
    if not np.isfinite(points).all():
        raise InputError("The coordinates hold NaN or infinite numbers")
    in_um = spec.coords_unit == "um"
    side, step = stated_side(spec), stated_step(spec)
    if in_um and mpp is not None:
        points, side, step = points / mpp, side and side / mpp, step and step / mpp
    pitch = shown_step(points, step)
    # half of the overlap; 0 where patches do not overlap
    shift = 0.0 if side is None else max(0.0, (side - pitch) / 2)
    index = np.round((points - points.min(0)) / pitch) if in_um else np.floor((points - points.min(0)) / pitch)
    # micrometres are rounded, so one grid is assumed; in pixels every remainder is another grid
    rest = np.zeros_like(points) if in_um else points - points.min(0) - index * pitch
    origins, layer = np.unique(rest, axis=0, return_inverse=True)
    origins = origins + points.min(0) + shift
    return Grid(index.astype(np.int64), layer.reshape(-1).astype(np.int64), origins, pitch, side is None)


def raster(cells: Grid, view: View) -> np.ndarray:
    """Index of the patch under the centre of every pixel, the last one where several are, (h, w) int32; -1 where there is none."""
    width, height = view.size
    out = np.full((height, width), -1, np.int32)
    corners = cells.corners
    # pixels whose centre lies in [left, right): neighbours share no pixel and leave none
    first = np.ceil(view.pixels(corners) - 0.5).astype(np.int64)
    last = np.ceil(view.pixels(corners + cells.pitch) - 0.5).astype(np.int64)
    first, last = np.clip(first, 0, (width, height)), np.clip(last, 0, (width, height))
    extent = last - first
    size = np.where(extent.all(1), extent[:, 0] * (height + 1) + extent[:, 1], 0)  # one number: sorting pairs is slow
    for extent_number in np.unique(size[size > 0]).tolist():  # rounding makes a handful of sizes
        across, down = divmod(extent_number, height + 1)
        same = np.flatnonzero(size == extent_number)
        at_once = max(1, BLOCK // (across * down))
        for start in range(0, len(same), at_once):
            part = same[start : start + at_once]
            columns = first[part, 0, None, None] + np.arange(across)[None, None, :]
            rows = first[part, 1, None, None] + np.arange(down)[None, :, None]
            # larger ones were painted before: among those of one size the last assignment stays, which is the largest
            out[rows, columns] = np.maximum(out[rows, columns], part[:, None, None])
    return out


def blank_view(cells: Grid, max_side: int, spec: PatchSpec) -> View:
    """White picture around the patches with a margin of one patch, for slides without an image."""
    low, high = cells.corners.min(0) - cells.pitch, cells.corners.max(0) + 2 * cells.pitch
    extent = high - low
    scale = min(max_side / float(extent.max()), 64 / cells.pitch)  # few patches: no need for large squares
    width, height = (max(1, math.ceil(side * scale - 1e-9)) for side in extent.tolist())
    background = np.full((height, width, 3), 255, np.uint8)
    origin = (float(low[0]), float(low[1]))
    return View(background, (scale, scale), origin, level0_mpp(spec), blank=True, unit=spec.coords_unit)


def level0_mpp(spec: PatchSpec) -> float | None:
    """Micrometres per unit of the coordinates; None where the feature file has no resolution."""
    if spec.coords_unit == "um":
        return 1.0
    if not spec.mpp or not spec.size or not spec.size_level0:
        return None
    return spec.mpp * spec.size / spec.size_level0


@dataclass(frozen=True)
class Region:
    """Patches of one prototype that touch along an edge."""

    prototype: int
    polygon: Polygon  # in the units of the coordinates
    patches: int


def regions(grid: Grid, labels: np.ndarray) -> list[Region]:
    """Regions of the grid's cells by their label (N,), ordered by prototype, then grid, then from top to bottom.

    A polygon's area is its number of distinct cells times the area of one, holes excluded.
    """
    out: list[Region] = []
    order = np.lexsort((grid.layer, labels))
    keys = np.stack([labels[order], grid.layer[order]], 1)
    starts = np.flatnonzero(np.r_[True, (np.diff(keys, axis=0) != 0).any(1)])
    for start, stop in zip(starts.tolist(), [*starts[1:].tolist(), len(order)], strict=True):
        prototype, layer = (int(key) for key in keys[start])
        cells = grid.cells[order[start:stop]]
        low = cells.min(0)
        width, height = (cells.max(0) - low + 1).tolist()
        mask = np.zeros((height, width), bool)
        mask[tuple((cells - low).T[::-1])] = True
        sizes = np.bincount(ndimage.label(mask)[0].ravel())[1:]  # trace numbers its regions in the same order
        for polygon, size in zip(trace(mask), sizes.tolist(), strict=True):
            outer, *holes = ((ring + low) * grid.pitch + grid.origins[layer] for ring in polygon.rings)
            out.append(Region(prototype, Polygon(outer, tuple(holes)), size))
    return out


def feature(region: Region, names: dict[int, str], mpp: float | None, colours: Sequence[str]) -> dict[str, Any]:
    """One region as a locked annotation of GeoJSON, classified and coloured by prototype, in level-0 pixels."""
    area = {} if mpp is None else {"Area mm^2": region.polygon.area * mpp**2 / 1e6}
    name, colour = label(region.prototype, names), palette.rgb_values([colours[region.prototype]])[0].tolist()
    measurements = {"Patches": region.patches, **area}
    return annotation(region.polygon.rings, name, name, colour, isLocked=True, measurements=measurements)
