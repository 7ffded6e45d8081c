"""One slide of any scanner: sizes, resolution, pixels. Coordinates count level-0 pixels, always.

Where a level of a damaged file cannot be decoded, another level is read; what no level can give is white and marked.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol, Self

import numpy as np
from PIL import Image

from panther.errors import InputError, error_context
from panther.machine import reading
from panther.registry import Nothing, Registry
from panther.slides.resolution import resolve_mpp
from panther.storage.names import composed

BLOCK = 2048  # pixels of the level read at a time: a slide without a pyramid must not fill the memory
LEAF = 64  # a block that cannot be read is quartered down to this, so that little around the damage is lost
COARSEST = 4.0  # times the level: how much coarser a fallback level may be
WHITE = 255

Size = tuple[int, int]  # width, height
Box = tuple[int, int, int, int]  # left, top, right, bottom in pixels of an overview
# messages of readers for a file of another format, which are not listed
OTHER_FORMAT = ("Unsupported or missing image file", "not a TIFF file", "cannot identify image file")


class Pixels(Protocol):
    """Interface of a reader; `Slide` adds the resolution, checks and thumbnails."""

    level_dimensions: tuple[Size, ...]  # width and height of each level, level 0 first
    properties: MappingProxyType[str, str]  # metadata of the file, under OpenSlide's names
    vendor: str  # of the scanner, or the kind of file

    def read(self, x: int, y: int, level: int, width: int, height: int) -> np.ndarray:
        """Pixels (height, width, 3) of a box that lies inside ``level``, in that level's pixels; white where nothing was scanned."""

    def close(self) -> None:
        """Close the file."""


Reader = Callable[[Path], Pixels]
slide_readers: Registry[Reader, Nothing] = Registry("slide reader", Nothing)


class Slide:
    """An open slide. It pickles as its path, so that worker processes open it again."""

    def __init__(self, path: Path, pixels: Pixels, override: float | None = None) -> None:
        self.path = path
        self.name = slide_name(path)
        self.level_dimensions = pixels.level_dimensions
        self.level_downsamples = downsamples(pixels.level_dimensions)
        self.properties = pixels.properties
        self.vendor = pixels.vendor
        self.mpp_override = override  # the user's value; None: the file's
        self._pixels = pixels
        try:
            with error_context(path.name):
                self.resolution = resolve_mpp(pixels.properties, override)
        except InputError:
            pixels.close()
            raise

    @property
    def dimensions(self) -> Size:
        """Width and height at level 0."""
        return self.level_dimensions[0]

    @property
    def mpp(self) -> float:
        """Micrometres per pixel at level 0; plausible, or the slide would not have opened."""
        return self.resolution.mpp

    def read_region(self, x0: int, y0: int, level: int, width: int, height: int) -> np.ndarray:
        """Pixels (height, width, 3) of ``level``, whose upper left corner is (x0, y0) at level 0; white outside the slide."""
        factor = self.level_downsamples[level]
        return self.read_level(round(x0 / factor), round(y0 / factor), level, width, height)

    def read_level(self, x: int, y: int, level: int, width: int, height: int) -> np.ndarray:
        """Pixels (height, width, 3) of ``level``, whose upper left corner (x, y) is counted in that level's pixels."""
        columns, rows = self.level_dimensions[level]
        left, top, right, bottom = max(x, 0), max(y, 0), min(x + width, columns), min(y + height, rows)
        if (left, top, right, bottom) == (x, y, x + width, y + height):
            return self._read(x, y, level, width, height)
        out = np.full((height, width, 3), WHITE, np.uint8)
        if left < right and top < bottom:
            part = self._read(left, top, level, right - left, bottom - top)
            out[top - y : bottom - y, left - x : right - x] = part
        return out

    def best_level(self, downsample: float) -> int:
        """Coarsest level that is still as fine as ``downsample``, to one per cent."""
        fine = [level for level, factor in enumerate(self.level_downsamples) if factor <= downsample * 1.01]
        return max(fine, key=self.level_downsamples.__getitem__, default=0)

    def thumbnail(self, max_side: int) -> np.ndarray:
        """Whole slide, area-averaged, its longer side at most ``max_side`` (never enlarged)."""
        return self.scaled(max(1.0, max(self.dimensions) / max_side))

    def scaled(self, downsample: float) -> np.ndarray:
        """Whole slide (h, w, 3) made smaller by averaging areas; what cannot be read is white."""
        return overview(self, downsample).image

    def resampled(
        self,
        level: int,
        box: tuple[float, float, float, float],
        size: Size,
        resampling: Image.Resampling = Image.Resampling.BOX,
    ) -> np.ndarray:
        """Read a box of a level, corners in fractions of its pixels (left, top, right, bottom), as an image of ``size``."""
        left, top = math.floor(box[0] + 1e-6), math.floor(box[1] + 1e-6)
        right, bottom = math.ceil(box[2] - 1e-6), math.ceil(box[3] - 1e-6)
        # the box may exceed the level by the pixel that halving has dropped: there the last pixel is repeated
        columns, rows = self.level_dimensions[level]
        more_x, more_y = max(right - columns, 0), max(bottom - rows, 0)
        if max(more_x, more_y) > 2 or min(right - left, bottom - top) <= 2:
            more_x = more_y = 0
        pixels = self.read_level(left, top, level, right - left - more_x, bottom - top - more_y)
        if more_x or more_y:
            pixels = np.pad(pixels, ((0, more_y), (0, more_x), (0, 0)), mode="edge")
        if (right - left, bottom - top) == size:
            return pixels
        # rounding of the corners must not leave the image, which Pillow refuses
        corner = max(box[0] - left, 0.0), max(box[1] - top, 0.0)
        inner = (*corner, min(box[2] - left, right - left), min(box[3] - top, bottom - top))
        return np.asarray(Image.fromarray(pixels).resize(size, resampling, box=inner))

    def close(self) -> None:
        """Close the file."""
        self._pixels.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return open_slide, (self.path, self.mpp_override)

    def __repr__(self) -> str:
        width, height = self.dimensions
        return f"<Slide {self.name}: {width} x {height}, {self.mpp:g} um/px, {self.vendor}>"

    def _read(self, x: int, y: int, level: int, width: int, height: int) -> np.ndarray:
        try:
            with reading():
                return self._pixels.read(x, y, level, width, height)
        except InputError:
            raise
        except Exception as error:  # decoders raise errors of many types
            where = f"the pixels at ({x}, {y}) of level {level} cannot be decoded"
            raise InputError(f"{self.path.name}: {where} ({_first_line(error)}); the file is damaged") from error


@dataclass(frozen=True)
class Overview:
    """A small picture of a slide."""

    image: np.ndarray  # (h, w, 3) uint8, white where nothing could be read
    unread: np.ndarray  # (h, w) bool, pixels that no level could give


def overview(slide: Slide, downsample: float) -> Overview:
    """Average areas of the whole slide, block by block; an error only where nothing can be read."""
    width, height = (max(1, math.ceil(side / downsample - 1e-9)) for side in slide.dimensions)
    image, unread = np.full((height, width, 3), WHITE, np.uint8), np.zeros((height, width), bool)
    painter, failure = _Painter(slide, slide.best_level(downsample), image), None
    for block in painter.parts((0, 0, width, height), BLOCK):
        for (left, top, right, bottom), error in painter.paint(block):
            unread[top:bottom, left:right], failure = True, error
    if failure is not None and unread.all():
        raise failure
    return Overview(image, unread)


def fallback_levels(slide: Slide, level: int) -> list[int]:
    """Levels to read instead of a damaged one: finer ones, which lose nothing, then coarser ones that are sharp enough."""
    factors = slide.level_downsamples
    coarser = [other for other in range(level + 1, len(factors)) if factors[other] <= COARSEST * factors[level]]
    return [*range(level - 1, -1, -1), *coarser]


@dataclass(frozen=True)
class _Painter:
    slide: Slide
    level: int
    image: np.ndarray  # (h, w, 3), painted in place

    def paint(self, box: Box) -> Iterator[tuple[Box, InputError]]:
        """Fill a box; yields the parts of it that no level can give, with the error."""
        try:
            self._read(box, self.level)
        except InputError as error:
            across, down = self._scale(self.level)
            longest = max((box[2] - box[0]) * across, (box[3] - box[1]) * down)
            parts = [] if longest <= LEAF else list(self.parts(box, max(LEAF, math.ceil(longest / 2))))
            if len(parts) > 1:  # quarters
                for part in parts:
                    yield from self.paint(part)
                return
            for level in fallback_levels(self.slide, self.level):
                with suppress(InputError):
                    self._read(box, level)
                    return
            yield box, error

    def parts(self, box: Box, pixels: int) -> Iterator[Box]:
        """Boxes of at most ``pixels`` pixels of the level a side, row by row."""
        left, top, right, bottom = box
        across, down = self._scale(self.level)
        step_x, step_y = max(1, int(pixels / across)), max(1, int(pixels / down))
        for y in range(top, bottom, step_y):
            for x in range(left, right, step_x):
                yield x, y, min(x + step_x, right), min(y + step_y, bottom)

    def _read(self, box: Box, level: int) -> None:
        left, top, right, bottom = box
        across, down = self._scale(level)
        source = (left * across, top * down, right * across, bottom * down)
        self.image[top:bottom, left:right] = self.slide.resampled(level, source, (right - left, bottom - top))

    def _scale(self, level: int) -> tuple[float, float]:
        """Pixels of a level per pixel of the overview."""
        columns, rows = self.slide.level_dimensions[level]
        return columns / self.image.shape[1], rows / self.image.shape[0]


def open_slide(path: Path | str, mpp: float | None = None) -> Slide:
    """Open a slide by trying the readers in turn.

    Parameters
    ----------
    path : path
        Slide file of any scanner, a TIFF or a plain image, or a folder that is one slide: of DICOM files, or OME-Zarr (`.zarr`).
    mpp : float, optional
        Micrometres per pixel at level 0, where the file lacks it or is wrong.

    Returns
    -------
    Slide
        Sizes, levels, a resolution that was checked, and `read_region`.

    Examples
    --------
    >>> import numpy as np, panther
    >>> from PIL import Image
    >>> Image.fromarray(np.full((300, 400, 3), 240, np.uint8)).save("slide.png")
    >>> panther.open_slide("slide.png", mpp=0.5).dimensions
    (400, 300)
    """
    import panther.slides.readers  # noqa: F401  (registers them; they import this module)

    path = Path(path)
    is_zarr = path.is_dir() and path.suffix.lower() == ".zarr"
    file = next(iter(sorted(path.glob("*.dcm"))), None) if path.is_dir() and not is_zarr else path
    if file is None:
        raise InputError(f"{path}: found a folder without DICOM files (*.dcm), expected a slide")
    if not file.is_file() and not is_zarr:
        raise InputError(f"{path}: there is no such file")
    if file.is_file() and file.stat().st_size == 0:
        raise InputError(f"{path.name}: the file is empty")
    reasons = []
    for entry in slide_readers:
        try:
            with reading():
                pixels = entry.value(file)
        except InputError:
            raise
        except Exception as error:  # each library has its own errors for formats that it does not know
            reason = _first_line(error)
            if not any(words in reason for words in OTHER_FORMAT):
                reasons.append(f"{entry.name}: {reason}")
        else:
            return Slide(path, pixels, mpp)
    why = f" ({'; '.join(reasons)})" if reasons else ""
    raise InputError(f"{file.name}: no reader opens this file, it is damaged or not a slide{why}")


def slide_name(path: Path) -> str:
    """Name of a slide, in composed letters: the file's without its suffix (.tif, .ome.tif, .ome.zarr), or the folder's (DICOM)."""
    folder = path if path.name not in ("", "..") else path.resolve()
    is_series = path.is_dir() and path.suffix.lower() != ".zarr"  # of DICOM files
    return composed(folder.name if is_series else path.stem.removesuffix(".ome"))


def downsamples(level_dimensions: tuple[Size, ...]) -> tuple[float, ...]:
    """How much coarser each level is than level 0.

    Levels are made by halving, and a last odd pixel is dropped: 4443 -> 2221 is a factor of 2, not of 2.0005. A whole factor
    that agrees with both sides is taken; the ratio would shift far patches by pixels.
    """
    width, height = level_dimensions[0]
    factors = []
    for columns, rows in level_dimensions:
        ratio = (width / columns + height / rows) / 2
        # halving drops less than one pixel of this level per side
        whole = max(round(ratio), 1)
        fits = abs(width / whole - columns) < 1 and abs(height / whole - rows) < 1
        factors.append(float(whole) if fits else ratio)
    return tuple(factors)


def _first_line(error: Exception) -> str:
    text = (str(error).strip().splitlines() or [""])[0][:200]
    return text if len(text) > 8 else f"{type(error).__name__} {text}".strip()
