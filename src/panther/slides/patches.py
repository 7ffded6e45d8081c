"""Patches: their size in three units, their coordinates, their pixels."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from PIL import Image

from panther.errors import InputError
from panther.slides.polygons import Tissue, rasterise
from panther.slides.slide import Slide
from panther.types import PatchSpec

MIN_TISSUE = 0.25  # of a patch; see docs/how-to/slides.md for what other values do
ENLARGE = 1.25  # scanners' "20x" lies between 0.46 and 0.6 um/px; more would be invented detail
EDGES = ("drop", "pad")  # strips at the right and bottom that are narrower than a patch
CELLS = 32  # per patch side, for the fraction of tissue


def patch_spec(slide: Slide, size: int = 256, mpp: float = 0.5, overlap: int = 0) -> PatchSpec:
    r"""Sizes of a patch of ``size`` pixels at ``mpp`` on this slide.

    .. math:: s_0 = \mathrm{round}(s \cdot mpp / mpp_0), \quad s_\mathrm{read} = \mathrm{round}(s_0 / f_\mathrm{level})

    A patch covers whole level-0 pixels; its resolution differs from ``mpp`` by at most 1 / (2 s_0), 0.2 % for 256 pixels. The
    level is the coarsest one that is still as fine as ``mpp``.
    """
    factor = mpp / slide.mpp
    if factor * ENLARGE < 1:
        enlarged = f"patches at {mpp:g} um/px would be enlarged {1 / factor:.2g} times"
        raise InputError(f"{slide.name}: has {slide.mpp:g} um/px, {enlarged}; expected `mpp={slide.mpp:.3g}` or more")
    size_level0 = max(1, _half_up(size * factor))
    level = slide.best_level(size_level0 / size)
    size_read = max(1, _half_up(size_level0 / slide.level_downsamples[level]))
    return PatchSpec(mpp, size, size_read, size_level0, level, overlap)


@dataclass(frozen=True)
class PatchReader:
    """Reads patches of one size; pickles with its slide's path."""

    slide: Slide
    spec: PatchSpec

    def read(self, x0: int, y0: int, level: int | None = None) -> np.ndarray:
        """Pixels (size, size, 3) of the patch whose upper left corner is (x0, y0) at level 0.

        Where no resizing is needed they are the file's pixels. Else they are resampled once, antialiased (bicubic, its
        support scaled with the factor), from exactly the box that the patch covers, in fractions of the level's pixels.
        Another ``level`` than that of the spec is read where a tile is damaged.
        """
        level = (self.spec.level or 0) if level is None else level
        size, side = self.spec.size, self.spec.size_level0
        assert size is not None
        assert side is not None
        factor = self.slide.level_downsamples[level]
        box = (x0 / factor, y0 / factor, (x0 + side) / factor, (y0 + side) / factor)
        return self.slide.resampled(level, box, (size, size), Image.Resampling.BICUBIC)


class PatchGrid(NamedTuple):
    """Patches of a slide, and the strips at the right and bottom edge that they leave."""

    coords: np.ndarray  # (N, 2) at level 0
    strips: tuple[int, int]  # level-0 pixels at the right and at the bottom that no whole patch covers
    lost: float  # share of the tissue that lies in the strips without a patch


def tile_tissue(
    slide: Slide, spec: PatchSpec, tissue: Tissue, min_tissue: float = MIN_TISSUE, edge: str = EDGES[0]
) -> PatchGrid:
    """Place patches on the tissue, row by row: those of which the fraction ``min_tissue`` is tissue.

    The grid starts at the slide's corner and not at the tissue's, so that editing the tissue does not shift the other
    patches. Patches lie inside the slide; with ``edge`` "pad" also those are kept that begin on it and end beyond it, where
    they are white and count as glass.
    """
    side = spec.size_level0
    assert side is not None
    assert spec.size is not None
    step = max(1, side - _half_up(spec.overlap * side / spec.size))
    size = slide.dimensions
    ends = [(length - side) // step * step + side if length >= side else 0 for length in size]
    # padded: one patch more where the last whole one ends before the slide does
    xs, ys = (np.arange(0, length - side + (step if edge == "pad" else 1), step) for length in size)
    if edge == "pad":
        xs, ys = (starts if len(starts) else np.array([0]) for starts in (xs, ys))
    strips = (size[0] - ends[0], size[1] - ends[1])
    cell = max(1.0, side / CELLS)
    mask = rasterise(tissue, (math.ceil(size[0] / cell), math.ceil(size[1] / cell)), cell)
    if not len(xs) or not len(ys) or not mask.any():
        return PatchGrid(np.empty((0, 2), np.int64), strips, float(mask.any()))
    fraction = box_fraction(mask, xs / cell, ys / cell, side / cell)  # (len(ys), len(xs))
    # min_tissue=0 still requires some tissue
    rows, columns = np.nonzero((fraction >= min_tissue - 1e-9) & (fraction > 1e-9))
    coords = np.stack([xs[columns], ys[rows]], 1).astype(np.int64)
    return PatchGrid(coords, strips, _lost(mask, coords / cell, side / cell, (ends[0] / cell, ends[1] / cell)))


def _lost(mask: np.ndarray, corners: np.ndarray, side: float, ends: tuple[float, float]) -> float:
    """Share of the mask beyond the last whole patches that no patch covers; all in pixels of the mask."""
    left = mask.copy()
    left[: round(ends[1]), : round(ends[0])] = False
    for x, y in corners[((corners + side) > np.array(ends) + 1e-6).any(1)].tolist():
        left[round(y) : round(y + side), round(x) : round(x + side)] = False
    return float(left.sum() / mask.sum())


def box_fraction(mask: np.ndarray, xs: np.ndarray, ys: np.ndarray, side: float) -> np.ndarray:
    """Part of each square [x, x + side) x [y, y + side) that the mask covers, exact between pixels: (len(ys), len(xs))."""
    rows = _between(np.cumsum(mask, 0, dtype=np.int32), ys, ys + side)  # (len(ys), w)
    boxes = _between(np.cumsum(rows, 1).T, xs, xs + side)  # (len(xs), len(ys))
    return boxes.T / (side * side)


def _between(total: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Integral from ``low`` to ``high`` along the first axis, from the running total; linear within a pixel."""

    def at(position: np.ndarray) -> np.ndarray:
        position = np.clip(position, 0, len(total))
        whole = np.minimum(position.astype(np.int64), len(total) - 1)
        part = (position - whole)[:, None]  # 0 <= part <= 1
        before = np.where(whole[:, None] > 0, total[np.maximum(whole - 1, 0)], 0)
        return before + part * (total[whole] - before)

    return at(high) - at(low)


def _half_up(value: float) -> int:
    """Nearest integer, halves up (Python rounds them to even); 1e-9 guards against 256.49999999 from a division."""
    return math.floor(value + 0.5 + 1e-9)
