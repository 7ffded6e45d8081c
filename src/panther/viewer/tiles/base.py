"""The slide's own pixels as JPEG tiles."""

import io
import math
from collections.abc import Sequence

import numpy as np
from PIL import Image

from panther.slides import Slide
from panther.viewer.tiles.pyramid import Window

QUALITY = 85
WHITE = 255
AT_ONCE = 4096  # pixels of a level across that are read at a time: slides without a pyramid must not fill the memory
OVERVIEW = 2048  # pixels of the longer side of a whole slide made small
FAR = 16  # pixels of the best level per pixel of a tile from which on the overview is taken


def pixels(slide: Slide, window: Window) -> np.ndarray:
    """Pixels (h, w, 3) of a part of the slide, averaged from the coarsest level that is fine enough; white outside."""
    out = np.full((window.height, window.width, 3), WHITE, np.uint8)
    width, height = slide.dimensions
    first = [max(0, math.floor(-start / window.scale)) for start in (window.left, window.top)]
    last = [
        min(count, math.ceil((side - start) / window.scale))
        for count, side, start in zip(
            (window.width, window.height), (width, height), (window.left, window.top), strict=True
        )
    ]
    level = slide.best_level(window.scale)
    per_pixel = window.scale / slide.level_downsamples[level]
    step = max(1, int(AT_ONCE / per_pixel))
    for row in range(first[1], last[1], step):
        for column in range(first[0], last[0], step):
            right, bottom = min(column + step, last[0]), min(row + step, last[1])
            corner = window.left / window.scale, window.top / window.scale
            box = tuple(
                (start + pixel) * per_pixel
                for start, pixel in zip(corner * 2, (column, row, right, bottom), strict=True)
            )
            out[row:bottom, column:right] = slide.resampled(level, box, (right - column, bottom - row))  # type: ignore[arg-type]
    return out


def needs_overview(level_downsamples: Sequence[float], best: int, window: Window, size: tuple[int, int]) -> bool:
    """Whether a tile would be made of very many pixels, because the slide has no pyramid: all coarse tiles share one overview then."""
    return window.scale / level_downsamples[best] > FAR and window.scale >= max(size) / OVERVIEW


def from_overview(overview: np.ndarray, size: tuple[int, int], window: Window) -> np.ndarray:
    """The same pixels from a picture of the whole slide of ``size``."""
    out = np.full((window.height, window.width, 3), WHITE, np.uint8)
    width, height = (
        min(count, math.ceil((side - start) / window.scale))
        for count, side, start in zip((window.width, window.height), size, (window.left, window.top), strict=True)
    )
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
