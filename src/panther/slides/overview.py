"""The whole slide made small, also where the file is damaged: what one level cannot give another may, the rest stays white and is marked."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from panther.errors import InputError

if TYPE_CHECKING:
    from panther.slides.slide import Slide

BLOCK = 2048  # pixels of the level read at a time: a slide without a pyramid must not fill the memory
LEAF = 64  # a block that cannot be read is quartered down to this, so that little beside the damage is lost
COARSEST = 4.0  # times the level: how much coarser another one may be to stand in for it
WHITE = 255

Box = tuple[int, int, int, int]  # left, top, right, bottom in pixels of the overview


@dataclass(frozen=True)
class Overview:
    """A small picture of a slide."""

    image: np.ndarray  # (h, w, 3) uint8, white where nothing could be read
    unread: np.ndarray  # (h, w) bool, what no level could give


def overview(slide: "Slide", downsample: float) -> Overview:
    """Average areas of the whole slide, block by block; refused only where nothing at all can be read."""
    width, height = (max(1, math.ceil(side / downsample - 1e-9)) for side in slide.dimensions)
    image, unread = np.full((height, width, 3), WHITE, np.uint8), np.zeros((height, width), bool)
    painter = _Painter(slide, slide.best_level(downsample), image)
    failure = None
    for block in painter.parts((0, 0, width, height), BLOCK):
        for (left, top, right, bottom), why in painter.paint(block):
            unread[top:bottom, left:right], failure = True, why
    if failure is not None and unread.all():
        raise failure
    return Overview(image, unread)


def stand_ins(slide: "Slide", level: int) -> list[int]:
    """Levels that may stand in for one: finer ones first, they lose nothing; then coarser ones that are still more than a smear."""
    factors = slide.level_downsamples
    coarser = [other for other in range(level + 1, len(factors)) if factors[other] <= COARSEST * factors[level]]
    return [*range(level - 1, -1, -1), *coarser]


@dataclass(frozen=True)
class _Painter:
    slide: "Slide"
    level: int
    image: np.ndarray  # (h, w, 3), painted in place

    def paint(self, box: Box) -> Iterator[tuple[Box, InputError]]:
        """Fill a box; yields the parts of it that no level can give."""
        try:
            self._read(box, self.level)
        except InputError as error:
            parts = self._quarters(box)
            for part in parts:
                yield from self.paint(part)
            if not parts and not self._read_elsewhere(box):
                yield box, error

    def parts(self, box: Box, pixels: int) -> Iterator[Box]:
        """Boxes of at most so many pixels of the level, row by row."""
        left, top, right, bottom = box
        across, down = self._scale(self.level)
        step_x, step_y = max(1, int(pixels / across)), max(1, int(pixels / down))
        for y in range(top, bottom, step_y):
            for x in range(left, right, step_x):
                yield x, y, min(x + step_x, right), min(y + step_y, bottom)

    def _quarters(self, box: Box) -> list[Box]:
        """Two by two parts of a box; none where it is small enough."""
        longest = max((box[2] - box[0]) * self._scale(self.level)[0], (box[3] - box[1]) * self._scale(self.level)[1])
        if longest <= LEAF:
            return []
        parts = list(self.parts(box, max(LEAF, math.ceil(longest / 2))))
        return parts if len(parts) > 1 else []

    def _read_elsewhere(self, box: Box) -> bool:
        for level in stand_ins(self.slide, self.level):
            try:
                self._read(box, level)
            except InputError:
                continue
            return True
        return False

    def _read(self, box: Box, level: int) -> None:
        left, top, right, bottom = box
        across, down = self._scale(level)
        place = (left * across, top * down, right * across, bottom * down)
        self.image[top:bottom, left:right] = self.slide.resampled(level, place, (right - left, bottom - top))

    def _scale(self, level: int) -> tuple[float, float]:
        """Pixels of a level per pixel of the overview."""
        columns, rows = self.slide.level_dimensions[level]
        return columns / self.image.shape[1], rows / self.image.shape[0]
