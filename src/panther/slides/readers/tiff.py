"""TIFFs that OpenSlide refuses (strips, JPEG 2000, WebP, odd pyramids, OME): tifffile, decoding only the tiles that are needed."""

import io
import logging
import re
import struct
import tempfile
from pathlib import Path
from types import MappingProxyType
from typing import Any

from PIL import Image

from panther.slides.readers.tiles import TiledPages, is_rgb, refuse_missing_tiles
from panther.slides.slide import slide_readers

CACHE = 64 * 2**20  # bytes of decoded tiles
JPEG = (6, 7, 33007, 34892)  # the compressions that TIFF has for it

# the package reports what tifffile logs; -v shows its log too
logging.getLogger("tifffile").addHandler(logging.NullHandler())


@slide_readers.register("tifffile")
class TiffPixels(TiledPages):
    """The largest RGB image of a TIFF, and its pyramid."""

    vendor = "tiff"

    def __init__(self, path: Path) -> None:
        import tifffile

        file = tifffile.TiffFile(path)
        try:
            series = max((s for s in file.series if is_rgb(s.keyframe)), key=lambda s: s.keyframe.size, default=None)
            if series is None:
                first = file.pages.first
                raise ValueError(f"found images of {first.dtype} and shape {first.shape}, expected 8-bit RGB")
            # labels and macros are other series
            pages = [level.keyframe for level in series.levels if is_rgb(level.keyframe)]
            for page in pages:
                refuse_missing_tiles(page)
            self.level_dimensions = tuple((page.imagewidth, page.imagelength) for page in pages)
            self.properties = MappingProxyType(_properties(file, pages[0]))
        except Exception:
            file.close()
            raise
        super().__init__(file, pages, CACHE)

    def check(self, level: int, index: int, data: bytes) -> None:
        """Refuse a damaged JPEG."""
        page = self._pages[level]
        if page.compression in JPEG:
            tables = page.jpegtables  # Huffman and quantisation tables that all tiles share: start, tables, end
            refuse_damaged_jpeg(data if tables is None else tables[:-2] + data[2:], int(page.photometric))


def refuse_damaged_jpeg(data: bytes, photometric: int) -> None:
    """Raise OpenSlide's error for a JPEG that is damaged anywhere.

    Only OpenSlide's decoder fails where libjpeg warns, and it reads files: so the JPEG becomes a slide of one tile, of which
    one pixel is read. 0.6 ms for 256 x 256 pixels.
    """
    import openslide

    with Image.open(io.BytesIO(data)) as image:
        width, height = image.size
    # width, height, bits per sample, compression (JPEG), colours, samples per pixel; the tile's width and height, offset and bytes
    tags = {256: width, 257: height, 258: 8, 259: 7, 262: photometric, 277: 3}
    tags |= {322: width, 323: height, 324: 0, 325: len(data)}
    directory = struct.Struct(f"<H{12 * len(tags)}sI")
    tags[324] = 8 + directory.size
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())  # 4: unsigned 32-bit
    header = struct.pack("<2sHI", b"II", 42, 8) + directory.pack(len(tags), entries, 0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tile.tif"
        path.write_bytes(header + data)
        with openslide.OpenSlide(path) as slide:
            slide.read_region((0, 0), 0, (1, 1))


def _properties(file: Any, page: Any) -> dict[str, str]:
    """Tags under the names that OpenSlide gives them."""
    properties: dict[str, str] = {}
    for name in ("XResolution", "YResolution"):
        tag = page.tags.get(name)
        if tag is not None and tag.value[1]:
            properties[f"tiff.{name}"] = str(tag.value[0] / tag.value[1])
    if (unit := page.tags.get("ResolutionUnit")) is not None:
        properties["tiff.ResolutionUnit"] = str(int(unit.value))
    for name in ("PhysicalSizeX", "PhysicalSizeY", "PhysicalSizeXUnit"):
        if match := re.search(rf'\b{name}="([^"]*)"', (file.is_ome and file.ome_metadata) or ""):
            properties[f"ome.{name}"] = match[1]
    if (page.description or "").startswith("Aperio"):
        pairs = (part.partition("=") for part in page.description.split("|")[1:])
        properties |= {f"aperio.{name.strip()}": value.strip() for name, _, value in pairs}
    return properties
