"""Pictures of tiles: pixels of the slide as JPEG, colours and lines over it as PNG."""

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw

from panther.slides import Slide
from panther.slides.polygons import Polygon
from panther.viewer.tiles.pyramid import Cells, Window

LEVELS = 255  # colours of a quantity; number 0 is transparent
LINE = np.array([[0, 0, 0, 0], [34, 34, 34, 255]], np.uint8)
SMALLEST = 4  # pixels of a patch: borders of smaller ones would cover everything
# by coverage of the pixel; blue as of the contours that QuPath opens
OUTLINE_COLOURS = np.column_stack([np.full((256, 3), (0, 114, 178), np.uint8), np.arange(256, dtype=np.uint8)])
WIDTH = 2  # pixels
OVERSAMPLING = 2  # lines are drawn so many times larger and averaged, which smooths them
QUALITY = 85
WHITE = 255
AT_ONCE = 4096  # pixels of a level across that are read at a time: slides without a pyramid must not fill the memory
OVERVIEW = 2048  # pixels of the longer side of a whole slide made small
FAR = 16  # pixels of the best level per pixel of a tile from which on the overview is taken


@dataclass(frozen=True, eq=False)
class Colours:
    """Colour of every patch, as a number into a table."""

    codes: np.ndarray  # (N + 1,) uint8; 0 is transparent, and so is the last, which stands for no patch
    table: np.ndarray  # (at most 256, 4) uint8

    @classmethod
    def of_classes(cls, labels: np.ndarray, colours: np.ndarray, shown: np.ndarray) -> "Colours":
        """Colours (C, 3) of labels (N,); those that are not ``shown`` (N,) are transparent."""
        distinct, number = np.unique(colours, axis=0, return_inverse=True)
        # a palette of more than 255 colours: the last ones become one, they cannot be distinguished anyway
        codes = np.minimum(number.reshape(-1) + 1, LEVELS)[labels]
        return cls(_coded(codes, shown), _opaque(distinct[:LEVELS]))

    @classmethod
    def of_values(cls, parts: np.ndarray, scale: np.ndarray, shown: np.ndarray) -> "Colours":
        """Colours of quantities (N,) from 0 to 1 on a scale (255, 3)."""
        is_finite = np.isfinite(parts)
        codes = 1 + np.round(np.clip(np.where(is_finite, parts, 0), 0, 1) * (LEVELS - 1)).astype(np.int64)
        return cls(_coded(codes, shown & is_finite), _opaque(scale))


def _coded(codes: np.ndarray, shown: np.ndarray) -> np.ndarray:
    return np.append(np.where(shown, codes, 0), 0).astype(np.uint8)


def _opaque(colours: np.ndarray) -> np.ndarray:
    table = np.full((len(colours) + 1, 4), 255, np.uint8)
    table[0], table[1:, :3] = 0, colours
    return table


def encode(codes: np.ndarray, table: np.ndarray) -> bytes:
    """PNG of numbers (h, w) uint8 and their colours (n, 4)."""
    picture = Image.frombytes("P", codes.shape[::-1], np.ascontiguousarray(codes).tobytes())
    picture.putpalette(np.ascontiguousarray(table[:, :3]).tobytes())
    buffer = io.BytesIO()
    picture.save(buffer, "png", transparency=table[:, 3].tobytes(), compress_level=1)
    return buffer.getvalue()


def borders(cells: Cells, window: Window, pitch: float) -> np.ndarray:
    """Which pixels are the first of a patch, or the last before no patch, (h, w) bool."""
    if pitch < SMALLEST * window.scale:
        return np.zeros((window.height, window.width), bool)
    index = cells.under(window.wider(1))
    centre, left, above = index[1:-1, 1:-1], index[1:-1, :-2], index[:-2, 1:-1]
    right, below = index[1:-1, 2:], index[2:, 1:-1]
    return (centre >= 0) & ((centre != left) | (centre != above) | (right < 0) | (below < 0))


def segments(polygons: Sequence[Polygon], origin: tuple[float, float] = (0.0, 0.0)) -> np.ndarray:
    """Sides of polygons on the canvas, (n, 2, 2): two ends, x and y."""
    rings = [np.asarray(ring, float) - origin for polygon in polygons for ring in polygon.rings]
    parts = [np.stack([ring, np.roll(ring, -1, axis=0)], 1) for ring in rings if len(ring) > 1]
    return np.concatenate(parts) if parts else np.zeros((0, 2, 2))


def outline_alpha(sides: np.ndarray, window: Window) -> np.ndarray:
    """How much of each pixel the outline covers, (h, w) uint8; only sides that touch the window are drawn."""
    margin = WIDTH * window.scale
    low = np.array([window.left, window.top]) - margin
    high = low + np.array([window.width, window.height]) * window.scale + 2 * margin
    near = sides[((sides.max(1) >= low) & (sides.min(1) <= high)).all(1)]
    picture = Image.new("L", (window.width * OVERSAMPLING, window.height * OVERSAMPLING), 0)
    draw = ImageDraw.Draw(picture)
    for ends in ((near - (window.left, window.top)) * (OVERSAMPLING / window.scale)).reshape(-1, 4).tolist():
        draw.line(ends, fill=255, width=WIDTH * OVERSAMPLING)
    return np.asarray(picture.reduce(OVERSAMPLING))


def pixels(slide: Slide, window: Window) -> np.ndarray:
    """Pixels (h, w, 3) of a part of the slide, averaged from the coarsest level that is fine enough; white outside."""
    out = np.full((window.height, window.width, 3), WHITE, np.uint8)
    corner = np.array([window.left, window.top])
    left, top = np.maximum(np.floor(-corner / window.scale), 0).astype(int).tolist()
    width, height = _covered(window, slide.dimensions)
    level = slide.best_level(window.scale)
    per_pixel = window.scale / slide.level_downsamples[level]
    step = max(1, int(AT_ONCE / per_pixel))
    for row in range(top, height, step):
        for column in range(left, width, step):
            right, bottom = min(column + step, width), min(row + step, height)
            box = np.add(np.tile(corner / window.scale, 2), (column, row, right, bottom)) * per_pixel
            out[row:bottom, column:right] = slide.resampled(level, tuple(box.tolist()), (right - column, bottom - row))
    return out


def _covered(window: Window, size: tuple[int, int]) -> tuple[int, int]:
    """Pixels of the window, across and down, up to the end of a slide of this size."""
    width, height = (np.array(size) - (window.left, window.top)) / window.scale
    return min(window.width, math.ceil(width)), min(window.height, math.ceil(height))


def needs_overview(level_downsamples: Sequence[float], best: int, window: Window, size: tuple[int, int]) -> bool:
    """Whether a tile covers too many pixels to read, because the slide has no pyramid: coarse tiles share one overview then."""
    return window.scale / level_downsamples[best] > FAR and window.scale >= max(size) / OVERVIEW


def from_overview(overview: np.ndarray, size: tuple[int, int], window: Window) -> np.ndarray:
    """Pixels of a part of the slide, of ``size``, from a picture of the whole slide."""
    out = np.full((window.height, window.width, 3), WHITE, np.uint8)
    width, height = _covered(window, size)
    across, down = overview.shape[1] / size[0], overview.shape[0] / size[1]
    # the last pixel may reach beyond the slide, which Pillow refuses
    box = (
        window.left * across,
        window.top * down,
        min((window.left + width * window.scale) * across, overview.shape[1]),
        min((window.top + height * window.scale) * down, overview.shape[0]),
    )
    out[:height, :width] = np.asarray(Image.fromarray(overview).resize((width, height), Image.Resampling.BOX, box=box))
    return out


def jpeg(picture: np.ndarray) -> bytes:
    """JPEG of pixels (h, w, 3)."""
    buffer = io.BytesIO()
    Image.fromarray(picture).save(buffer, "jpeg", quality=QUALITY)
    return buffer.getvalue()
