"""One slide, whoever scanned it: sizes, resolution, pixels. Coordinates count level-0 pixels, always."""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
from PIL import Image

from panther.errors import InputError
from panther.machine import reading
from panther.registry import Nothing, Registry
from panther.slides.overview import WHITE, overview
from panther.slides.resolution import resolve_mpp
from panther.storage.names import composed

Size = tuple[int, int]  # width, height
# how readers say that a file is none of theirs: the sentence says it once for all of them
NOT_MINE = ("Unsupported or missing image file", "not a TIFF file", "cannot identify image file")


class Pixels(Protocol):
    """What a reader must give; `Slide` adds the resolution, checks and thumbnails."""

    @property
    def level_dimensions(self) -> tuple[Size, ...]:
        """Width and height of each level, level 0 first."""

    @property
    def properties(self) -> Mapping[str, str]:
        """What the file says about itself, under OpenSlide's names."""

    @property
    def vendor(self) -> str:
        """Who made the scanner, or the kind of file."""

    def read(self, x: int, y: int, level: int, width: int, height: int) -> np.ndarray:
        """Pixels (height, width, 3) of a box that lies inside ``level``, in that level's pixels; white where nothing was scanned."""

    def close(self) -> None:
        """Close the file."""


Reader = Callable[[Path], Pixels]
slide_readers: Registry[Reader, Nothing] = Registry("slide reader", Nothing)


class Slide:
    """A slide that is open. It pickles as its path, so that worker processes open it again."""

    def __init__(self, path: Path, pixels: Pixels, override: float | None = None) -> None:
        self.path = path
        self.name = slide_name(path)
        self.level_dimensions = pixels.level_dimensions
        self.level_downsamples = downsamples(pixels.level_dimensions)
        self.properties = pixels.properties
        self.vendor = pixels.vendor
        self.mpp_override = override  # what the user says, None where the file is believed
        self._pixels = pixels
        try:
            self.resolution = resolve_mpp(pixels.properties, override)
        except InputError as error:
            pixels.close()
            raise InputError(f"{path.name}: {error}") from error

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
        """Return the same for a corner in the level's own pixels."""
        columns, rows = self.level_dimensions[level]
        left, top = max(x, 0), max(y, 0)
        right, bottom = min(x + width, columns), min(y + height, rows)
        inside = left == x and top == y and right == x + width and bottom == y + height
        if inside:
            return self._read(x, y, level, width, height)
        out = np.full((height, width, 3), WHITE, np.uint8)
        if left < right and top < bottom:
            part = self._read(left, top, level, right - left, bottom - top)
            out[top - y : bottom - y, left - x : right - x] = part
        return out

    def best_level(self, downsample: float) -> int:
        """Coarsest level that is still as fine as ``downsample``; one part in a hundred is the same."""
        fine = [i for i, factor in enumerate(self.level_downsamples) if factor <= downsample * 1.01]
        return max(fine, key=lambda i: self.level_downsamples[i], default=0)

    def thumbnail(self, max_side: int) -> np.ndarray:
        """Whole slide, area-averaged, its longer side at most ``max_side`` (never enlarged)."""
        return self.scaled(max(1.0, max(self.dimensions) / max_side))

    def scaled(self, downsample: float) -> np.ndarray:
        """Whole slide (h, w, 3) made smaller by averaging areas; what the file cannot give is white."""
        return overview(self, downsample).image

    def resampled(
        self,
        level: int,
        box: tuple[float, float, float, float],
        size: Size,
        how: Image.Resampling = Image.Resampling.BOX,
    ) -> np.ndarray:
        """Read a box of a level, corners in fractions of its pixels (left, top, right, bottom), as an image of ``size``."""
        left, top = math.floor(box[0] + 1e-6), math.floor(box[1] + 1e-6)
        right, bottom = math.ceil(box[2] - 1e-6), math.ceil(box[3] - 1e-6)
        pixels = self._read_edge(left, top, level, right - left, bottom - top)
        if (right - left, bottom - top) == size:
            return pixels
        # rounding of the corners must not leave the image, which Pillow refuses
        inner = (
            max(box[0] - left, 0.0),
            max(box[1] - top, 0.0),
            min(box[2] - left, right - left),
            min(box[3] - top, bottom - top),
        )
        return np.asarray(Image.fromarray(pixels).resize(size, how, box=inner))

    def _read_edge(self, x: int, y: int, level: int, width: int, height: int) -> np.ndarray:
        """Read a box that may leave the level by the pixel that halving has dropped; there the last pixel is repeated, not white."""
        columns, rows = self.level_dimensions[level]
        more_x, more_y = x + width - columns, y + height - rows
        if max(more_x, more_y) not in (1, 2) or width <= 2 or height <= 2:
            return self.read_level(x, y, level, width, height)
        more_x, more_y = max(more_x, 0), max(more_y, 0)
        part = self.read_level(x, y, level, width - more_x, height - more_y)
        return np.pad(part, ((0, more_y), (0, more_x), (0, 0)), mode="edge")

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
        except Exception as error:  # decoders have errors of many types; all mean the same to the user
            raise InputError(
                f"{self.path.name}: the pixels at ({x}, {y}) of level {level} cannot be decoded ({_first_line(error)}); "
                "the file is damaged: copy or scan it again."
            ) from error


def open_slide(path: Path | str, mpp: float | None = None) -> Slide:
    """Open a slide by trying the readers in turn; ``mpp`` is its resolution, where the file does not say it or is wrong."""
    import panther.slides.readers  # noqa: F401  (registers them; here because they need this module)

    path = Path(path)
    file = _dicom_file(path) if path.is_dir() else path
    if not file.is_file():
        raise InputError(f"{path}: there is no such file.")
    if file.stat().st_size == 0:
        raise InputError(f"{path.name}: the file is empty; copy it again.")
    reasons = []
    for entry in slide_readers:
        try:
            with reading():
                pixels = entry.value(file)
        except InputError:
            raise
        except Exception as error:  # a reader that does not know the format says so in its own way
            reasons.append(f"{entry.name}: {_first_line(error)}")
            continue
        return Slide(path, pixels, mpp)
    telling = "; ".join(reason for reason in reasons if not any(words in reason for words in NOT_MINE))
    raise InputError(
        f"{file.name}: no reader opens this file, it is damaged or not a slide{telling and f' ({telling})'}; "
        "copy it again, or convert it to a pyramidal TIFF."
    )


def slide_name(path: Path) -> str:
    """Name of a slide, composed: the file's without its ending, or the folder's (DICOM); the ending may be double (.ome.tif)."""
    folder = path if path.name not in ("", "..") else path.resolve()  # `.` is the folder where one is
    return composed(folder.name if path.is_dir() else path.stem.removesuffix(".ome"))


def downsamples(level_dimensions: tuple[Size, ...]) -> tuple[float, ...]:
    """How much coarser each level is than level 0.

    Levels are made by halving, and a last odd pixel is dropped: 4443 -> 2221 is a factor of 2, not of 2.0005. Where both sides
    agree with a whole factor that factor is meant; taking the ratio would shift far patches by pixels.
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


def _dicom_file(folder: Path) -> Path:
    files = sorted(folder.glob("*.dcm"))
    if not files:
        raise InputError(
            f"{folder} is a folder without DICOM files (*.dcm); give a slide, or a folder of one DICOM slide."
        )
    return files[0]


def _first_line(error: Exception) -> str:
    text = (str(error).strip().splitlines() or [""])[0][:200]
    return text if len(text) > 8 else f"{type(error).__name__} {text}".strip()
