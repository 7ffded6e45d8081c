"""Pictures of tiles: pixels of the slide as JPEG, colours and lines over it as PNG."""

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw

from panther.slides import Slide
from panther.slides.polygons import Polygon, Tissue, rasterise
from panther.viewer.patches import Cells, Window

LEVELS = 255  # colours of a quantity; number 0 is transparent
MOST_CLASSES = 127  # colours of classes: each has a second number for outlines
LIGHT = 0.55  # opacity of a light fill; overlays.js has the same number, and PALE
PALE = 0.4  # of the darkness of tissue in grey
HATCH = 8  # pixels from one line to the next; tiles are a multiple of it
LINE = np.array([[0, 0, 0, 0], [34, 34, 34, 255]], np.uint8)
MISSING = np.array([[0, 0, 0, 0], [90, 90, 90, 200]], np.uint8)
SMALLEST = 4  # pixels of a patch: borders of smaller ones would cover everything
# by coverage of the pixel; blue as of the contours that QuPath opens
OUTLINE_COLOURS = np.column_stack([np.full((256, 3), (0, 114, 178), np.uint8), np.arange(256, dtype=np.uint8)])
WIDTH = 2  # pixels of the outline of the tissue
REGION = 3  # pixels of the outline of regions
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
        # of a larger palette the last colours become one, they cannot be distinguished anyway
        codes = np.minimum(number.reshape(-1) + 1, MOST_CLASSES)[labels]
        return cls(_coded(codes, shown), _table(distinct[:MOST_CLASSES], 255))

    @classmethod
    def of_values(cls, parts: np.ndarray, scale: np.ndarray, shown: np.ndarray, zero: float = 0.0) -> "Colours":
        """Colours of quantities (N,) from 0 to 1 on a scale (255, 3); opacity is the distance from ``zero``, which is transparent."""
        is_finite = np.isfinite(parts)
        codes = 1 + np.round(np.clip(np.where(is_finite, parts, 0), 0, 1) * (LEVELS - 1)).astype(np.int64)
        strength = np.abs(np.linspace(0, 1, LEVELS) - zero) / max(zero, 1 - zero)
        return cls(_coded(codes, shown & is_finite), _table(scale, np.round(255 * strength)))


def _coded(codes: np.ndarray, shown: np.ndarray) -> np.ndarray:
    return np.append(np.where(shown, codes, 0), 0).astype(np.uint8)


def _table(colours: np.ndarray, opacity: np.ndarray | int) -> np.ndarray:
    table = np.zeros((len(colours) + 1, 4), np.uint8)
    table[1:, :3], table[1:, 3] = colours, opacity
    return table


def styled(codes: np.ndarray, table: np.ndarray, window: Window, style: str) -> tuple[np.ndarray, np.ndarray]:
    """Numbers and colours of regions as outlines, as outlines with a light fill, or hatched.

    ``codes`` (h + 2 REGION, w + 2 REGION) reach beyond the window, so that an outline does not end at its border. An outline lies within
    its region: two regions that touch keep their colours.
    """
    inner = codes[REGION:-REGION, REGION:-REGION]
    if style == "hatch":
        x, y = window.numbers()
        phase = np.choose(inner % 4, (x + y, x - y, x, y)) % HATCH  # neighbouring numbers differ in direction, too
        return np.where(phase < HATCH * 3 // 8, inner, 0).astype(np.uint8), table
    edge = np.zeros(inner.shape, bool)
    for step in range(1, REGION + 1):
        for down, across in ((-step, 0), (step, 0), (0, -step), (0, step)):
            edge |= inner != codes[REGION + down :, REGION + across :][: inner.shape[0], : inner.shape[1]]
    light, count = table.copy(), len(table) - 1
    light[1:, 3] = round(255 * LIGHT) if style == "light" else 0
    return np.where(edge & (inner > 0), inner + count, inner).astype(np.uint8), np.concatenate([light, table[1:]])


def unanalysed(tissue: Tissue, cells: Cells | None, window: Window) -> tuple[np.ndarray, float]:
    """Tissue that no patch covers, (h, w) bool, and its share of the tissue in the window."""
    corner = np.array([window.left, window.top])
    part = Tissue(*(tuple(shifted(polygon, corner) for polygon in group) for group in (tissue.regions, tissue.ignored)))
    mask = rasterise(part, (window.width, window.height), window.scale)
    missing = mask if cells is None else mask & (cells.under(window) < 0)
    return missing, float(missing.sum() / max(1, mask.sum()))


def shifted(polygon: Polygon, corner: np.ndarray | tuple[float, float]) -> Polygon:
    """A polygon in coordinates that begin at ``corner``."""
    return Polygon(polygon.outer - np.asarray(corner), tuple(hole - np.asarray(corner) for hole in polygon.holes))


def hatched(mask: np.ndarray, window: Window) -> np.ndarray:
    """Crossed lines on a mask (h, w)."""
    x, y = window.numbers()
    return mask & (((x + y) % HATCH == 0) | ((x - y) % HATCH == 0))


def grounded(picture: np.ndarray, ground: str) -> np.ndarray:
    """The slide (h, w, 3) below overlays: in colour, in pale grey, or white."""
    if ground == "none":
        return np.full_like(picture, WHITE)
    if ground == "colour":
        return picture
    grey = picture @ np.array([0.299, 0.587, 0.114])  # luma
    return np.repeat(np.round(WHITE - PALE * (WHITE - grey))[..., None], 3, -1).astype(np.uint8)


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


def segments(polygons: Sequence[Polygon]) -> np.ndarray:
    """Sides of polygons, (n, 2, 2): two ends, x and y."""
    rings = [np.asarray(ring, float) for polygon in polygons for ring in polygon.rings]
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
