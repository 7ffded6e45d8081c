"""JPEG tiles of svs and TIFF files without OpenSlide in between: the same pixels, in a third of the time."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from panther.slides.readers.tiles import TiledPages, is_rgb

VENDORS = ("aperio", "generic-tiff")  # one file, tiles side by side, nothing overlaps
JPEG = 7
LARGEST = 64  # pixels of the tile that is compared


class DirectTiles(TiledPages):
    """Levels whose tiles are read straight from the file."""

    def richest(self, level: int) -> tuple[int, int, int, int, int]:
        """Box x, y, level, width, height in the tile with the most bytes: two ways of decoding it differ there if anywhere."""
        page = self._pages[level]
        row, column = divmod(int(np.argmax(page.databytecounts)), -(-page.imagewidth // page.tilewidth))
        x, y = column * page.tilewidth, row * page.tilelength
        width, height = min(page.tilewidth, page.imagewidth - x), min(page.tilelength, page.imagelength - y)
        return x, y, level, min(width, LARGEST), min(height, LARGEST)


def open_direct(path: Path, vendor: str, dimensions: Sequence[tuple[int, int]], cache: int) -> DirectTiles | None:
    """Open the pages of these sizes; None where the file is of another kind, or leaves out tiles."""
    if vendor not in VENDORS:
        return None
    try:
        import tifffile

        file = tifffile.TiffFile(path)
    except Exception:  # no tifffile, or a file that only OpenSlide understands
        return None
    try:
        pages = [_page(file, size) for size in dimensions]
        if all(page is not None for page in pages):
            return DirectTiles(file, pages, cache)
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
