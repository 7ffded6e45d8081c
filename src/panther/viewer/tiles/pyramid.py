"""Geometry of tiles: a canvas cut into a pyramid, and the patch under each pixel."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from panther.explain.geometry import Grid, View, raster

TILE = 256
MOST_LAYERS = 256  # grids that are looked up one by one; coordinates that were rounded at random make thousands
ROOM = 64  # cells of the tables per patch: a few patches far apart must not fill the memory


@dataclass(frozen=True)
class Window:
    """A part of the canvas as a picture: its corner in canvas units, its pixels, and how many units a pixel is wide."""

    left: float
    top: float
    width: int
    height: int
    scale: float

    def columns(self) -> np.ndarray:
        """Centres of the pixels across, canvas units."""
        return self.left + (np.arange(self.width) + 0.5) * self.scale

    def rows(self) -> np.ndarray:
        """Centres of the pixels down."""
        return self.top + (np.arange(self.height) + 0.5) * self.scale

    def wider(self, pixels: int) -> "Window":
        """With so many pixels more on every side."""
        shift = pixels * self.scale
        return Window(
            self.left - shift, self.top - shift, self.width + 2 * pixels, self.height + 2 * pixels, self.scale
        )


@dataclass(frozen=True)
class Pyramid:
    """Tiles of a canvas of this size."""

    width: int
    height: int

    @property
    def zooms(self) -> int:
        """Their number: at zoom 0 the whole canvas is one tile, at the last one a pixel is a canvas unit; none for an empty canvas."""
        if min(self.width, self.height) <= 0:
            return 0
        return 1 + (math.ceil(max(self.width, self.height) / TILE) - 1).bit_length()

    def scale(self, zoom: int) -> int:
        """Canvas units per pixel."""
        return 1 << (self.zooms - 1 - zoom)

    def counts(self, zoom: int) -> tuple[int, int]:
        """Tiles across and down."""
        side = TILE * self.scale(zoom)
        return math.ceil(self.width / side), math.ceil(self.height / side)

    def window(self, zoom: int, x: int, y: int) -> Window | None:
        """What a tile shows; None where there is no such tile."""
        if not 0 <= zoom < self.zooms:
            return None
        scale, (across, down) = self.scale(zoom), self.counts(zoom)
        is_inside = 0 <= x < across and 0 <= y < down
        return Window(x * TILE * scale, y * TILE * scale, TILE, TILE, scale) if is_inside else None


class _Table(NamedTuple):
    """One grid."""

    origin: tuple[float, float]  # of its first cell, on the canvas
    patch: np.ndarray  # (rows, columns) int32, -1 where there is none


class Cells:
    """Patches of one slide by their place. Where two cover a pixel's centre the later one counts."""

    def __init__(self, grid: Grid, origin: tuple[float, float] = (0.0, 0.0)) -> None:
        self._grid = grid._replace(origins=grid.origins - np.asarray(origin))  # on the canvas
        self._tables = None if _is_scattered(grid) else list(_tables(self._grid))
        if self._tables is None:
            corners = self._grid.corners
            self._order = np.argsort(corners[:, 1], kind="stable")  # from top to bottom
            self._corners = corners[self._order]
        else:
            sizes = np.array([table.patch.shape[::-1] for table in self._tables]) * grid.pitch
            low = np.array([table.origin for table in self._tables])
            self._boxes = np.hstack([low, low + sizes])

    def under(self, window: Window) -> np.ndarray:
        """Patch under the centre of every pixel, (h, w) int32; -1 where there is none."""
        if self._tables is None:
            return self._draw(window)
        out = np.full((window.height, window.width), -1, np.int32)
        x, y = window.columns(), window.rows()
        left, top, right, bottom = self._boxes.T
        near = (left <= x[-1]) & (right >= x[0]) & (top <= y[-1]) & (bottom >= y[0])
        for number in np.flatnonzero(near).tolist():
            table = self._tables[number]
            columns, across = _cells_of(x, table.origin[0], self._grid.pitch, table.patch.shape[1])
            rows, down = _cells_of(y, table.origin[1], self._grid.pitch, table.patch.shape[0])
            part = out[down, across]
            np.maximum(part, table.patch[rows[:, None], columns], out=part)
        return out

    def _draw(self, window: Window) -> np.ndarray:
        """Patches under the pixels by drawing those that touch the window, cell by cell."""
        right, bottom = window.left + window.width * window.scale, window.top + window.height * window.scale
        pitch = self._grid.pitch
        first, last = np.searchsorted(self._corners[:, 1], (window.top - pitch, bottom))
        x = self._corners[first:last, 0]
        near = np.sort(self._order[first:last][(x > window.left - pitch) & (x < right)])
        part = self._grid._replace(cells=self._grid.cells[near], layer=self._grid.layer[near])
        shape = np.broadcast_to(np.uint8(0), (window.height, window.width, 3))  # only its shape is used
        index = raster(part, View(shape, (1 / window.scale, 1 / window.scale), (window.left, window.top)))
        return np.append(near, -1).astype(np.int32)[index]


def _cells_of(centres: np.ndarray, start: float, pitch: float, count: int) -> tuple[np.ndarray, slice]:
    """Cells that hold the centres, which ascend, and which of the centres lie in one of ``count`` cells at all.

    Cell k is [start + k pitch, start + (k + 1) pitch), computed in exactly this order of operations.
    """
    cells = np.floor((centres - start) / pitch).astype(np.int64)
    cells -= centres < start + cells * pitch
    cells += centres >= start + (cells + 1) * pitch
    inside = slice(*np.searchsorted(cells, (0, count)).tolist())
    return cells[inside], inside


def _is_scattered(grid: Grid) -> bool:
    """Whether tables would be too many or too empty."""
    if len(grid.origins) > MOST_LAYERS:
        return True
    extents = (grid.cells[grid.layer == layer] for layer in range(len(grid.origins)))
    room = sum(float(np.prod(np.ptp(cells, axis=0) + 1.0)) for cells in extents)
    return room > ROOM * len(grid.cells) + (1 << 20)


def _tables(grid: Grid) -> Iterator[_Table]:
    order = np.argsort(grid.layer, kind="stable")
    ends = np.cumsum(np.bincount(grid.layer, minlength=len(grid.origins)))
    for origin, members in zip(grid.origins, np.split(order, ends[:-1]), strict=True):
        cells = grid.cells[members]
        low = cells.min(0)
        columns, rows = (cells - low).T
        patch = np.full((rows.max() + 1, columns.max() + 1), -1, np.int32)
        patch[rows, columns] = members  # of two in one cell the later one stays
        x, y = (origin + low * grid.pitch).tolist()
        yield _Table((x, y), patch)
