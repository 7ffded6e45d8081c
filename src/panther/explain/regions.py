"""Contiguous patches of one prototype as polygons, and as GeoJSON that QuPath opens."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import ndimage

from panther.explain import palette
from panther.explain.geometry import Grid
from panther.explain.names import label
from panther.slides.polygons import Polygon, trace
from panther.storage.geojson import annotation, write_geojson


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
        members = order[start:stop]
        prototype, layer = (int(key) for key in keys[start])
        out += _of_cells(grid.cells[members], prototype, grid.origins[layer], grid.pitch)
    return out


def _of_cells(cells: np.ndarray, prototype: int, origin: np.ndarray, pitch: float) -> list[Region]:
    low = cells.min(0)
    width, height = (cells.max(0) - low + 1).tolist()
    mask = np.zeros((height, width), bool)
    mask[tuple((cells - low).T[::-1])] = True
    sizes = np.bincount(ndimage.label(mask)[0].ravel())[1:]  # trace numbers its regions in the same order

    def placed(ring: np.ndarray) -> np.ndarray:
        return (ring + low) * pitch + origin

    return [
        Region(prototype, Polygon(placed(polygon.outer), tuple(map(placed, polygon.holes))), int(size))
        for polygon, size in zip(trace(mask), sizes, strict=True)
    ]


def write_regions(
    path: Path, areas: list[Region], names: dict[int, str], mpp: float | None, colours: Sequence[str] | None = None
) -> None:
    """Write a FeatureCollection of locked annotations, classified and coloured by prototype, in level-0 pixels.

    ``colours`` are those of the prototypes (#RRGGBB); the palette's by default.
    """
    write_geojson(path, [feature(region, names, mpp, colours) for region in areas])


def feature(
    region: Region, names: dict[int, str], mpp: float | None, colours: Sequence[str] | None = None
) -> dict[str, Any]:
    """One region as a feature of GeoJSON."""
    area = {} if mpp is None else {"Area mm^2": region.polygon.area * mpp**2 / 1e6}
    name = label(region.prototype, names)
    measured = {"Patches": region.patches, **area}
    colour = palette.colour(region.prototype) if colours is None else colours[region.prototype]
    return annotation(
        region.polygon.rings,
        name,
        name,
        palette.rgb_values([colour])[0].tolist(),
        isLocked=True,
        measurements=measured,
    )
