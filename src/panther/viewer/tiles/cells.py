"""Which patch lies under each pixel of a tile: looked up in a table of cells, so that a tile costs its own pixels and no more."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from panther.explain.geometry import Grid, View, raster
from panther.viewer.tiles.pyramid import Window

MOST_LAYERS = 256  # grids that are looked up one by one; coordinates that were rounded at random make thousands
ROOM = 64  # cells of the tables per patch: a few patches far apart must not fill the memory


class _Table(NamedTuple):
    """One grid."""

    origin: np.ndarray  # (2,) of its first cell, on the canvas
    patch: np.ndarray  # (rows + 2, columns + 2) int32, -1 where there is none; a border of none


class Cells:
    """Patches of one slide by their place. Where two cover a pixel's centre the later one is meant."""

    def __init__(self, grid: Grid, origin: tuple[float, float] = (0.0, 0.0)) -> None:
        self._grid = grid._replace(origins=grid.origins - np.asarray(origin))  # on the canvas
        self._tables = None if _scattered(grid) else list(_tables(self._grid))

    def under(self, window: Window) -> np.ndarray:
        """Patch under the centre of every pixel, (h, w) int32; -1 where there is none."""
        if self._tables is None:
            return self._painted(window)
        out = np.full((window.height, window.width), -1, np.int32)
        x, y = window.columns(), window.rows()
        for table in self._tables:
            rows, columns = (
                np.clip(_cell(centres, start, self._grid.pitch), -1, count) + 1
                for centres, start, count in zip(
                    (y, x), table.origin[::-1].tolist(), np.subtract(table.patch.shape, 2).tolist(), strict=True
                )
            )
            if rows.max() > 0 and columns.max() > 0:
                np.maximum(out, table.patch[rows[:, None], columns], out=out)
        return out

    def _painted(self, window: Window) -> np.ndarray:
        """Draw the same cell by cell, of those patches that touch the window."""
        corners, pitch = self._grid.corners, self._grid.pitch
        low = np.array([window.left, window.top])
        high = low + np.array([window.width, window.height]) * window.scale
        near = np.flatnonzero(((corners < high) & (corners + pitch > low)).all(1))
        part = self._grid._replace(cells=self._grid.cells[near], layer=self._grid.layer[near])
        shape = np.broadcast_to(np.uint8(0), (window.height, window.width, 3))  # only its size is asked for
        found = raster(part, View(shape, (1 / window.scale, 1 / window.scale), (window.left, window.top)))
        return np.append(near, -1).astype(np.int32)[found]


def _cell(centres: np.ndarray, start: float, pitch: float) -> np.ndarray:
    """Number of the cell that holds each centre; cell k is [start + k pitch, start + (k + 1) pitch) in these very numbers."""
    found = np.floor((centres - start) / pitch).astype(np.int64)
    found -= centres < start + found * pitch
    found += centres >= start + (found + 1) * pitch
    return found


def _scattered(grid: Grid) -> bool:
    """Whether tables would be too many or too empty."""
    if len(grid.origins) > MOST_LAYERS:
        return True
    extents = (grid.cells[grid.layer == layer] for layer in range(len(grid.origins)))
    room = sum(float(np.prod(np.ptp(cells, axis=0) + 3.0)) for cells in extents)
    return room > ROOM * len(grid.cells) + (1 << 20)


def _tables(grid: Grid) -> Iterator[_Table]:
    for layer, origin in enumerate(grid.origins):
        members = np.flatnonzero(grid.layer == layer)
        cells = grid.cells[members]
        low = cells.min(0)
        columns, rows = (cells - low).T + 1
        patch = np.full((rows.max() + 2, columns.max() + 2), -1, np.int32)
        patch[rows, columns] = members  # of two in one cell the later one stays
        yield _Table(origin + low * grid.pitch, patch)
