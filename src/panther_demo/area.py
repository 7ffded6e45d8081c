"""The part of a slide that one tissue covers, and what a tissue's painter gives back for it."""

from dataclasses import dataclass

import numpy as np
from scipy import ndimage

from panther_demo.layout import SCALE, Layout
from panther_demo.noise import Shape, enlarged, ramp, scattered
from panther_demo.nuclei import Nuclei

MARGIN = 4  # mask pixels around the tissue, so that nuclei at its border are whole


@dataclass(frozen=True)
class Area:
    """A box of the slide with one tissue in it; points are x, y from the box's corner."""

    top: int  # level-0 pixels
    left: int
    member: np.ndarray  # (h / 8, w / 8) bool, where the tissue is
    weight: np.ndarray  # (h, w) float32, 0 to 1, soft at the border

    @property
    def shape(self) -> Shape:
        """Rows and columns of the box at level 0."""
        return self.weight.shape[0], self.weight.shape[1]

    @property
    def box(self) -> tuple[slice, slice]:
        """Rows and columns of the slide."""
        return slice(self.top, self.top + self.shape[0]), slice(self.left, self.left + self.shape[1])

    def points(self, rng: np.random.Generator, spacing: float, jitter: float = 0.3, reach: float = 0.0) -> np.ndarray:
        """Scattered points (N, 2) inside the tissue, at least ``reach`` pixels from its border."""
        found = scattered(rng, self.shape, spacing, jitter)
        return found[self.holds(found, reach)]

    def holds(self, points: np.ndarray, reach: float = 0.0) -> np.ndarray:
        """Which points (N, 2) lie in the tissue."""
        member = self.member
        if reach >= SCALE:
            member = ndimage.distance_transform_edt(np.pad(member, 1))[1:-1, 1:-1] * SCALE > reach
        column, row = (np.floor(points / SCALE).astype(np.int64)).T
        valid = (row >= 0) & (column >= 0) & (row < member.shape[0]) & (column < member.shape[1])
        inside = np.zeros(len(points), bool)
        inside[valid] = member[row[valid], column[valid]]
        return inside


@dataclass(frozen=True)
class Texture:
    """What a painter gives: concentrations between nuclei (h, w), and the nuclei."""

    haematoxylin: np.ndarray
    eosin: np.ndarray
    nuclei: tuple[Nuclei, ...] = ()


def area_of(layout: Layout, label: int) -> Area:
    """Box around a tissue of a slide."""
    member = layout.labels == label
    rows, columns = np.flatnonzero(member.any(1)), np.flatnonzero(member.any(0))
    top, left = max(rows[0] - MARGIN, 0), max(columns[0] - MARGIN, 0)
    box = slice(top, rows[-1] + 1 + MARGIN), slice(left, columns[-1] + 1 + MARGIN)
    member = member[box]
    shape = member.shape[0] * SCALE, member.shape[1] * SCALE
    # sharper than the mask's own pixels: at a border of two tissues the two ramps still add up to one
    weight = ramp(enlarged(layout.weight(label)[box], shape, smooth=False), 0.3, 0.7)
    return Area(int(top) * SCALE, int(left) * SCALE, member, weight)
