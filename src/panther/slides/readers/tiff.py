"""TIFFs that OpenSlide refuses (strips, JPEG 2000, WebP, odd pyramids, OME): tifffile, decoding only the tiles that are needed."""

import logging
import re
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from panther.slides.readers.tiles import TiledPages, is_rgb
from panther.slides.slide import slide_readers

CACHE = 64 * 2**20  # bytes of decoded tiles

# what tifffile finds strange in a file we say in our own words; with -v its log is shown too
logging.getLogger("tifffile").addHandler(logging.NullHandler())


class TiffPixels:
    """The largest RGB image of a TIFF, and its pyramid."""

    def __init__(self, path: Path) -> None:
        import tifffile

        file = tifffile.TiffFile(path)
        try:
            series = max((s for s in file.series if is_rgb(s.keyframe)), key=lambda s: s.keyframe.size, default=None)
            if series is None:
                first = file.pages.first
                raise ValueError(f"the images are not 8-bit RGB but {first.dtype} of shape {first.shape}")
            # a level whose aspect ratio differs is no level of this image (labels and macros are other series)
            pages = [level.keyframe for level in series.levels if is_rgb(level.keyframe)]
            self.level_dimensions = tuple((page.imagewidth, page.imagelength) for page in pages)
            self.properties = MappingProxyType(_properties(file, pages[0]))
        except Exception:
            file.close()
            raise
        self.vendor = "tiff"
        self._tiles = TiledPages(file, pages, CACHE)

    def read(self, x: int, y: int, level: int, width: int, height: int) -> np.ndarray:
        """Pixels (height, width, 3); tiles that the file left out are white."""
        return self._tiles.read(x, y, level, width, height)

    def close(self) -> None:
        """Close the file."""
        self._tiles.close()


@slide_readers.register("tifffile")
def open_tiff(path: Path) -> TiffPixels:
    """Open with tifffile, or raise its error."""
    return TiffPixels(path)


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
