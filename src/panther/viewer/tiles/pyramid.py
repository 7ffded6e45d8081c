"""How a canvas is cut into tiles: 256 pixels a side, each zoom twice as fine as the one before, the last at full resolution."""

import math
from dataclasses import dataclass

import numpy as np

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
        longest = max(self.width, self.height)
        if min(self.width, self.height) <= 0:
            return 0
        zooms = 1
        while longest > TILE << (zooms - 1):
            zooms += 1
        return zooms

    def scale(self, zoom: int) -> int:
        """Canvas units per pixel."""
        return 1 << (self.zooms - 1 - zoom)

    def counts(self, zoom: int) -> tuple[int, int]:
        """Tiles across and down."""
        side = TILE * self.scale(zoom)
        return math.ceil(self.width / side), math.ceil(self.height / side)

    def window(self, zoom: int, x: int, y: int) -> Window | None:
        """What a tile shows; None where there is no such tile."""
        if not 0 <= zoom < self.zooms or not (0 <= x < self.counts(zoom)[0] and 0 <= y < self.counts(zoom)[1]):
            return None
        scale = self.scale(zoom)
        return Window(x * TILE * scale, y * TILE * scale, TILE, TILE, scale)
