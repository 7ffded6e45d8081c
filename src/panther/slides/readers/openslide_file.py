"""OpenSlide: svs, ndpi, mrxs, scn, bif, DICOM, tiled TIFF and more."""

from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from panther.errors import require_packages
from panther.slides.readers.tiles import open_direct
from panther.slides.slide import slide_readers

CACHE = 128 * 2**20  # bytes of decoded tiles: two rows of patches of a wide slide, so that no tile is decoded twice


@slide_readers.register("openslide")
class OpenSlidePixels:
    """A slide in OpenSlide; its origin is that of the scanned bounds (MRXS), not of the empty canvas around them."""

    def __init__(self, path: Path) -> None:
        require_packages("slides", "openslide")
        self._path, self._cache = path, CACHE
        self._slide = _opened(path, CACHE)
        self.properties = MappingProxyType(dict(self._slide.properties))
        self.vendor = self.properties.get("openslide.vendor", "unknown")
        self._factors = self._slide.level_downsamples
        self._origin, self.level_dimensions = _bounds(self._slide)
        self._alike: dict[int, bool] = {}  # level -> whether both ways give the same pixels
        self._direct = open_direct(path, self.vendor, self.level_dimensions, CACHE, self._read)
        if self._direct is not None:
            self._keep(0)  # OpenSlide is asked once about each tile, the direct way keeps it

    def read(self, x: int, y: int, level: int, width: int, height: int) -> np.ndarray:
        """Pixels (height, width, 3) on white.

        OpenSlide takes 1.1 ms to put together a patch whose tiles it has decoded already, five times as long as decoding one takes.
        Where the tiles can be decoded without it, and give OpenSlide's own pixels, they are, and it only judges whether each is sound.
        """
        if self._direct is not None and self._same(level):
            with suppress(Exception):  # a damaged tile: OpenSlide has the last word, and the better ones
                return self._direct.read(x, y, level, width, height)
        return self._read(x, y, level, width, height)

    def _same(self, level: int) -> bool:
        if level not in self._alike:
            assert self._direct is not None
            box = self._direct.richest(level)
            try:
                here, there = self._direct.read(*box), self._read(*box)
                self._alike[level] = np.array_equal(here, there)
            except Exception:  # not a reason to fail: what is asked for may be another tile
                self._alike[level] = False
            if not self._alike[level]:
                self._keep(CACHE)
        return self._alike[level]

    def _keep(self, size: int) -> None:
        import openslide

        self._cache = size
        self._slide.set_cache(openslide.OpenSlideCache(size))

    def _read(self, x: int, y: int, level: int, width: int, height: int) -> np.ndarray:
        factor = self._factors[level]
        corner = (round(x * factor) + self._origin[0], round(y * factor) + self._origin[1])
        try:
            picture = self._slide.read_region(corner, level, (width, height))  # RGBA
        except Exception:
            # after one bad tile OpenSlide refuses to read any other; a fresh one will
            self._slide.close()
            self._slide = _opened(self._path, self._cache)
            raise
        if picture.getchannel("A").getextrema()[0] == 255:
            return np.asarray(picture.convert("RGB"))
        # The scan's last pixels are half transparent where OpenSlide reads between pixels; their colour is right, mixing
        # it with white would draw a line along the edge.
        rgba = np.asarray(picture)
        return np.where(rgba[..., 3:] >= 128, rgba[..., :3], np.uint8(255))

    def close(self) -> None:
        """Close the file."""
        self._slide.close()
        if self._direct is not None:
            self._direct.close()


def _opened(path: Path, cache: int) -> Any:
    import openslide

    slide = openslide.OpenSlide(path)
    slide.set_cache(openslide.OpenSlideCache(cache))
    return slide


def _bounds(slide: Any) -> tuple[tuple[int, int], tuple[tuple[int, int], ...]]:
    """Origin of the scanned part at level 0, and each level's size counted from there."""
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
