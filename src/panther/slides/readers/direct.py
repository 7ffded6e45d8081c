"""JPEG tiles of svs and TIFF files without OpenSlide's canvas in between: the same pixels, the same verdict on damage, in less time."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from panther.errors import InputError
from panther.slides.readers.tiles import TiledPages, is_rgb, refuse_missing_tiles

VENDORS = ("aperio", "generic-tiff")  # one file, tiles side by side, nothing overlaps
JPEG = 7
LARGEST = 64  # pixels of the tile that is compared
Read = Callable[[int, int, int, int, int], np.ndarray]  # x, y, level, width, height -> pixels


class DirectTiles(TiledPages):
    """Levels whose tiles are read straight from the file, once OpenSlide has found each of them sound.

    OpenSlide stops at the first thing that libjpeg finds wrong, no decoder of ours does. Asked for one pixel it decodes the
    whole tile, but has no canvas to fill: decoding twice still takes about half as long as its regions do.
    """

    def __init__(self, file: Any, pages: Sequence[Any], cache: int, by_openslide: Read) -> None:
        super().__init__(file, pages, cache, self._judge)
        self._by_openslide = by_openslide

    def richest(self, level: int) -> tuple[int, int, int, int, int]:
        """Box x, y, level, width, height in the tile with the most bytes: two ways of decoding it differ there if anywhere."""
        x, y, width, height = self._box(level, int(np.argmax(self._pages[level].databytecounts)))
        return x, y, level, min(width, LARGEST), min(height, LARGEST)

    def _judge(self, level: int, index: int, _: bytes) -> None:
        x, y, width, height = self._box(level, index)
        # in the middle, where rounding to level 0 and back cannot lead into the next tile
        self._by_openslide(x + width // 2, y + height // 2, level, 1, 1)

    def _box(self, level: int, index: int) -> tuple[int, int, int, int]:
        """Corner and size of the part of a tile that lies in the page."""
        page = self._pages[level]
        row, column = divmod(index, -(-page.imagewidth // page.tilewidth))
        x, y = column * page.tilewidth, row * page.tilelength
        return x, y, min(page.tilewidth, page.imagewidth - x), min(page.tilelength, page.imagelength - y)


def open_direct(
    path: Path, vendor: str, dimensions: Sequence[tuple[int, int]], cache: int, by_openslide: Read
) -> DirectTiles | None:
    """Open the pages of these sizes; None where the file is of another kind, or leaves out tiles."""
    if vendor not in VENDORS:
        return None
    try:
        import tifffile

        file = tifffile.TiffFile(path)
    except Exception:  # no tifffile, or a file that only OpenSlide understands
        return None
    try:
        for page in file.pages:
            refuse_missing_tiles(page)
        pages = [_page(file, size) for size in dimensions]
        if all(page is not None for page in pages):
            return DirectTiles(file, pages, cache, by_openslide)
    except InputError:
        file.close()
        raise
    except Exception:  # tags that tifffile cannot read
        pass
    file.close()
    return None


def _page(file: Any, size: tuple[int, int]) -> Any:
    """First page of that size, if its tiles are JPEG and all there."""
    page = next((page for page in file.pages if (page.imagewidth, page.imagelength) == size), None)
    if page is None or not (page.is_tiled and is_rgb(page) and page.compression == JPEG):
        return None
    return page if min(page.databytecounts) > 0 else None
