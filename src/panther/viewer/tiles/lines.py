"""Lines over a slide: borders of the patches, and the outline of the tissue."""

from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw

from panther.slides.polygons import Polygon
from panther.viewer.tiles.cells import Cells
from panther.viewer.tiles.png import encode
from panther.viewer.tiles.pyramid import Window

LINE = np.array([[0, 0, 0, 0], [34, 34, 34, 255]], np.uint8)
SMALLEST = 4  # pixels of a patch: borders of smaller ones would hide everything
OUTLINE = (0, 114, 178)  # as of the contours that QuPath opens
WIDTH = 2  # pixels
FINER = 2  # lines are drawn so many times larger and averaged, which smooths them


def borders(cells: Cells, window: Window, pitch: float) -> np.ndarray:
    """Which pixels are the first of a patch, or the last before no patch, (h, w) bool."""
    if pitch < SMALLEST * window.scale:
        return np.zeros((window.height, window.width), bool)
    found = cells.under(window.wider(1))
    here, left, above = found[1:-1, 1:-1], found[1:-1, :-2], found[:-2, 1:-1]
    right, below = found[1:-1, 2:], found[2:, 1:-1]
    first = (here != left) | (here != above)
    return (here >= 0) & (first | (right < 0) | (below < 0))


def border_tile(cells: Cells, window: Window, pitch: float) -> bytes:
    """PNG of the patches' borders."""
    return encode(borders(cells, window, pitch).astype(np.uint8), LINE)


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
    picture = Image.new("L", (window.width * FINER, window.height * FINER), 0)
    draw = ImageDraw.Draw(picture)
    for ends in ((near - (window.left, window.top)) * (FINER / window.scale)).reshape(-1, 4).tolist():
        draw.line(ends, fill=255, width=WIDTH * FINER)
    return np.asarray(picture.reduce(FINER))


def outline_tile(sides: np.ndarray, window: Window) -> bytes:
    """PNG of the tissue's outline."""
    table = np.empty((256, 4), np.uint8)
    table[:, :3], table[:, 3] = OUTLINE, np.arange(256)
    return encode(outline_alpha(sides, window), table)
