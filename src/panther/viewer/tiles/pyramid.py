"""Geometry of tiles: a canvas cut into a pyramid, and the patch under each pixel."""

import math
from dataclasses import dataclass

import numpy as np

from panther.explain.geometry import Grid, View, raster

TILE = 256


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


class Cells:
    """Patches of one slide by their place, drawn as on maps. Where two cover a pixel's centre the later one counts."""

    def __init__(self, grid: Grid, origin: tuple[float, float] = (0.0, 0.0)) -> None:
        self._grid = grid._replace(origins=grid.origins - np.asarray(origin))  # on the canvas
        corners = self._grid.corners
        self._order = np.argsort(corners[:, 1], kind="stable")  # from top to bottom
        self._corners = corners[self._order]

    def under(self, window: Window) -> np.ndarray:
        """Patch under the centre of every pixel, (h, w) int32; -1 where there is none."""
        right, bottom = window.left + window.width * window.scale, window.top + window.height * window.scale
        pitch = self._grid.pitch
        first, last = np.searchsorted(self._corners[:, 1], (window.top - pitch, bottom))
        x = self._corners[first:last, 0]
        near = np.sort(self._order[first:last][(x > window.left - pitch) & (x < right)])
        part = self._grid._replace(cells=self._grid.cells[near], layer=self._grid.layer[near])
        shape = np.broadcast_to(np.uint8(0), (window.height, window.width, 3))  # only its shape is used
        index = raster(part, View(shape, (1 / window.scale, 1 / window.scale), (window.left, window.top)))
        return np.append(near, -1).astype(np.int32)[index]
