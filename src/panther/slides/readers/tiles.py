"""Tiles (or strips) of TIFF pages, decoded one by one: no whole page is in memory.

JPEG tiles of svs and TIFF files are read without OpenSlide's canvas: the same pixels, the same errors for damage, in less time.
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from panther.errors import InputError

WHITE = 255
VENDORS = ("aperio", "generic-tiff")  # one file, tiles side by side without overlap
JPEG = 7
LARGEST = 64  # pixels a side of the tile that is compared
Read = Callable[[int, int, int, int, int], np.ndarray]  # x, y, level, width, height -> pixels


class TiledPages:
    """RGB pages of an open TIFF as levels; decoded tiles are kept up to ``cache`` bytes."""

    def __init__(self, file: Any, pages: Sequence[Any], cache: int) -> None:
        self._file, self._pages, self._cache = file, list(pages), cache
        self._tiles: OrderedDict[tuple[int, int], np.ndarray] = OrderedDict()
        self._held = 0

    def read(self, x: int, y: int, level: int, width: int, height: int) -> np.ndarray:
        """Pixels (height, width, 3); tiles without bytes are white."""
        page = self._pages[level]
        tile_w = page.tilewidth if page.is_tiled else page.imagewidth
        tile_h = page.tilelength if page.is_tiled else min(page.rowsperstrip, page.imagelength)
        across = -(-page.imagewidth // tile_w)
        out = np.full((height, width, 3), WHITE, np.uint8)
        for row in range(y // tile_h, (y + height - 1) // tile_h + 1):
            for column in range(x // tile_w, (x + width - 1) // tile_w + 1):
                tile = self._tile(level, row * across + column)
                if tile is None:
                    continue
                top, left = row * tile_h, column * tile_w
                y0, x0 = max(y, top), max(x, left)
                y1, x1 = min(y + height, top + tile.shape[0]), min(x + width, left + tile.shape[1])
                out[y0 - y : y1 - y, x0 - x : x1 - x] = tile[y0 - top : y1 - top, x0 - left : x1 - left]
        return out

    def close(self) -> None:
        """Close the file."""
        self._tiles.clear()
        self._file.close()

    def check(self, level: int, index: int, data: bytes) -> None:
        """Raise where a tile is damaged: imagecodecs hides libjpeg's warnings and returns some pixels."""
        raise NotImplementedError

    def _tile(self, level: int, index: int) -> np.ndarray | None:
        key = (level, index)
        if key in self._tiles:
            self._tiles.move_to_end(key)
            return self._tiles[key]
        page = self._pages[level]
        count = page.databytecounts[index]
        if count == 0:
            return None
        handle = self._file.filehandle
        handle.seek(page.dataoffsets[index])
        data = handle.read(count)
        if len(data) < count:
            raise ValueError("the file ends too early")
        decoded = page.decode(data, index, jpegtables=page.jpegtables)[0]
        if decoded is None:
            return None
        self.check(level, index, data)  # once: cached tiles are sound
        tile = _on_white(decoded[0])  # (h, w, samples)
        self._tiles[key] = tile
        self._held += tile.nbytes
        while self._held > self._cache and len(self._tiles) > 1:
            self._held -= self._tiles.popitem(last=False)[1].nbytes
        return tile


def refuse_missing_tiles(page: Any) -> None:
    """Refuse a page of more tiles than the file lists: its width or height is wrong."""
    declared, listed = math.prod(page.chunked), len(page.dataoffsets)
    if page.is_tiled and listed < declared:
        size = f"{page.imagewidth:,} x {page.imagelength:,} pixels"
        raise InputError(f"{page.parent.filename}: declares {size} in {declared:,} tiles, but lists {listed:,}")


def is_rgb(page: Any) -> bool:
    """Whether the page holds 8-bit colours, pixel by pixel."""
    return bool(
        page.dtype == np.uint8
        and page.samplesperpixel in (3, 4)
        and page.planarconfig == 1
        and page.imagedepth == 1
        and page.photometric in (2, 6)  # RGB, YCbCr
    )


def _on_white(tile: np.ndarray) -> np.ndarray:
    if tile.shape[-1] == 3:
        return tile
    weight = tile[..., 3:].astype(np.uint16)
    return ((tile[..., :3] * weight + 255 * (255 - weight) + 127) // 255).astype(np.uint8)


class DirectTiles(TiledPages):
    """Levels whose tiles are decoded from the file, after OpenSlide has found each of them sound.

    Unlike imagecodecs, OpenSlide fails where libjpeg warns. For one pixel it decodes the whole tile, but has no canvas to fill:
    decoding twice still takes about half as long as its regions do.
    """

    def __init__(self, file: Any, pages: Sequence[Any], cache: int, by_openslide: Read) -> None:
        super().__init__(file, pages, cache)
        self._by_openslide = by_openslide

    def richest(self, level: int) -> tuple[int, int, int, int, int]:
        """Box x, y, level, width, height in the tile with the most bytes, where two decoders are most likely to differ."""
        x, y, width, height = self._box(level, int(np.argmax(self._pages[level].databytecounts)))
        return x, y, level, min(width, LARGEST), min(height, LARGEST)

    def check(self, level: int, index: int, data: bytes) -> None:
        """Have OpenSlide read one pixel of the tile."""
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
    """Open the pages of these sizes; None for other kinds of files, and where tiles are missing."""
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
    except InputError:
        file.close()
        raise
    except Exception:  # tags that tifffile cannot read
        pages = [None]
    if None not in pages:
        return DirectTiles(file, pages, cache, by_openslide)
    file.close()
    return None


def _page(file: Any, size: tuple[int, int]) -> Any:
    """First page of that size, if its tiles are JPEG and complete; else None."""
    page = next((page for page in file.pages if (page.imagewidth, page.imagelength) == size), None)
    if page is not None and page.is_tiled and is_rgb(page) and page.compression == JPEG and min(page.databytecounts):
        return page
    return None
