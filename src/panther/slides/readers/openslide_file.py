"""OpenSlide: svs, ndpi, mrxs, scn, bif, DICOM, tiled TIFF and more."""

from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from panther.errors import require_packages
from panther.slides.readers.tiles import DirectTiles, open_direct
from panther.slides.slide import slide_readers

CACHE = 128 * 2**20  # bytes of decoded tiles: two rows of patches of a wide slide, so that no tile is decoded twice


@slide_readers.register("openslide")
class OpenSlidePixels:
    """A slide in OpenSlide; its origin is that of the scanned bounds (MRXS), not of the empty canvas around them."""

    def __init__(self, path: Path) -> None:
        require_packages("slides", "openslide")
        self._path, self._cache = path, CACHE
        self._open()
        self.properties = MappingProxyType(dict(self._slide.properties))
        self.vendor = self.properties.get("openslide.vendor", "unknown")
        self._factors = self._slide.level_downsamples
        self._origin, self.level_dimensions = _bounds(self._slide)
        self._agrees: dict[int, bool] = {}  # level -> whether direct decoding gives OpenSlide's pixels
        self._direct = open_direct(path, self.vendor, self.level_dimensions, CACHE, self._read)
        if self._direct is not None:
            self._set_cache(0)  # OpenSlide checks each tile once, the direct way caches it

    def read(self, x: int, y: int, level: int, width: int, height: int) -> np.ndarray:
        """Pixels (height, width, 3) on white.

        OpenSlide takes 1.1 ms to compose a patch of decoded tiles, five times as long as decoding one takes. Where decoding the tiles
        without it gives OpenSlide's pixels, that is done, and OpenSlide only checks whether each tile is sound.
        """
        if self._direct is not None and self._is_exact(self._direct, level):
            with suppress(Exception):  # a damaged tile: OpenSlide decides, and has the clearer error
                return self._direct.read(x, y, level, width, height)
        return self._read(x, y, level, width, height)

    def _is_exact(self, direct: DirectTiles, level: int) -> bool:
        if level not in self._agrees:
            self._agrees[level] = False
            box = direct.richest(level)
            with suppress(Exception):  # another tile may be sound
                self._agrees[level] = np.array_equal(direct.read(*box), self._read(*box))
            if not self._agrees[level]:
                self._set_cache(CACHE)
        return self._agrees[level]

    def _open(self) -> None:
        import openslide

        self._slide = openslide.OpenSlide(self._path)
        self._set_cache(self._cache)

    def _set_cache(self, size: int) -> None:
        import openslide

        self._cache = size
        self._slide.set_cache(openslide.OpenSlideCache(size))

    def _read(self, x: int, y: int, level: int, width: int, height: int) -> np.ndarray:
        factor = self._factors[level]
        corner = (round(x * factor) + self._origin[0], round(y * factor) + self._origin[1])
        try:
            picture = self._slide.read_region(corner, level, (width, height))  # RGBA
        except Exception:
            # after one bad tile OpenSlide refuses to read any other until it is opened again
            self._slide.close()
            self._open()
            raise
        if picture.getchannel("A").getextrema()[0] == 255:
            return np.asarray(picture.convert("RGB"))
        # The scan's last pixels are half transparent where OpenSlide reads between pixels. Their colour is right; mixing it
        # with white would draw a line along the edge.
        rgba = np.asarray(picture)
        return np.where(rgba[..., 3:] >= 128, rgba[..., :3], np.uint8(255))

    def close(self) -> None:
        """Close the file."""
        self._slide.close()
        if self._direct is not None:
            self._direct.close()


def _bounds(slide: Any) -> tuple[tuple[int, int], tuple[tuple[int, int], ...]]:
    """Origin of the scanned part at level 0, and each level's size from there."""
    properties, levels = slide.properties, slide.level_dimensions
    names = ("bounds-x", "bounds-y", "bounds-width", "bounds-height")
    try:
        x, y, width, height = (int(properties[f"openslide.{name}"]) for name in names)
    except (KeyError, ValueError):
        return (0, 0), tuple(levels)
    if width <= 0 or height <= 0 or x < 0 or y < 0 or x + width > levels[0][0] or y + height > levels[0][1]:
        return (0, 0), tuple(levels)
    factors = slide.level_downsamples
    sizes = ((max(1, int(width / f)), max(1, int(height / f))) for f in factors)
    return (x, y), tuple(sizes)
