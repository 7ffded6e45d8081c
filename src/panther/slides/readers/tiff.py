"""TIFFs that OpenSlide refuses (strips, JPEG 2000, WebP, odd pyramids, OME): tifffile, decoding only the tiles that are needed."""

import logging
import re
from collections import OrderedDict
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from panther.slides.slide import slide_readers

CACHE = 64 * 2**20  # bytes of decoded tiles

# what tifffile finds strange in a file we say in our own words; with -v its log is shown too
logging.getLogger("tifffile").addHandler(logging.NullHandler())


class TiffPixels:
    """The largest RGB image of a TIFF, and its pyramid."""

    def __init__(self, path: Path) -> None:
        import tifffile

        self._file = tifffile.TiffFile(path)
        try:
            series = max(
                (s for s in self._file.series if _is_rgb(s.keyframe)), key=lambda s: s.keyframe.size, default=None
            )
            if series is None:
                first = self._file.pages.first
                raise ValueError(f"the images are not 8-bit RGB but {first.dtype} of shape {first.shape}")
            # a level whose aspect ratio differs is no level of this image (labels and macros are other series)
            self._pages = [level.keyframe for level in series.levels if _is_rgb(level.keyframe)]
            self.level_dimensions = tuple((page.imagewidth, page.imagelength) for page in self._pages)
            self.properties = MappingProxyType(_properties(self._file, self._pages[0]))
        except Exception:
            self._file.close()
            raise
        self.vendor = "tiff"
        self._tiles: OrderedDict[tuple[int, int], np.ndarray] = OrderedDict()
        self._held = 0

    def read(self, x: int, y: int, level: int, width: int, height: int) -> np.ndarray:
        """Pixels (height, width, 3); tiles that the file left out are white."""
        page = self._pages[level]
        tile_w = page.tilewidth if page.is_tiled else page.imagewidth
        tile_h = page.tilelength if page.is_tiled else min(page.rowsperstrip, page.imagelength)
        across = -(-page.imagewidth // tile_w)
        out = np.full((height, width, 3), 255, np.uint8)
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
        tile = _on_white(decoded[0])  # (h, w, samples)
        self._tiles[key] = tile
        self._held += tile.nbytes
        while self._held > CACHE and len(self._tiles) > 1:
            self._held -= self._tiles.popitem(last=False)[1].nbytes
        return tile


@slide_readers.register("tifffile")
def open_tiff(path: Path) -> TiffPixels:
    """Open with tifffile, or raise its error."""
    return TiffPixels(path)


def _is_rgb(page: Any) -> bool:
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


def _properties(file: Any, page: Any) -> dict[str, str]:
    """Tags under the names that OpenSlide gives them."""
    found: dict[str, str] = {}
    for name in ("XResolution", "YResolution"):
        tag = page.tags.get(name)
        if tag is not None and tag.value[1]:
            found[f"tiff.{name}"] = str(tag.value[0] / tag.value[1])
    unit = page.tags.get("ResolutionUnit")
    if unit is not None:
        found["tiff.ResolutionUnit"] = str(int(unit.value))
    if file.is_ome and file.ome_metadata:
        for name in ("PhysicalSizeX", "PhysicalSizeY", "PhysicalSizeXUnit"):
            if match := re.search(rf'\b{name}="([^"]*)"', file.ome_metadata):
                found[f"ome.{name}"] = match[1]
    description = page.description or ""
    if description.startswith("Aperio"):
        found |= {
            f"aperio.{k.strip()}": v.strip() for k, _, v in (s.partition("=") for s in description.split("|")[1:])
        }
    return found
