"""How far apart neighbouring patches lie: what the file says, corrected by what the coordinates show."""

import math

import numpy as np

from panther.errors import InputError
from panther.patch_spec import PatchSpec

TOLERANCE = 2.0  # level-0 pixels: tools round a step with overlap in different ways


def stated_side(spec: PatchSpec) -> float | None:
    """Side of a patch in the unit of the coordinates; None where the file does not say it."""
    return spec.side if spec.coords_unit == "um" else spec.size_level0


def stated_step(spec: PatchSpec) -> float | None:
    """Distance of neighbours in the unit of the coordinates, the overlap taken off; None where the file does not say it."""
    side = stated_side(spec)
    if side is None or not spec.overlap or not spec.size:
        return None if side is None else float(side)
    step = side - spec.overlap * side / spec.size
    return max(step, 1e-9) if spec.coords_unit == "um" else float(max(1, side - math.floor(side - step + 0.5)))


def shown_step(points: np.ndarray, stated: float | None) -> float:
    """Step of the grid: the stated one, corrected by what neighbours show; without it, the commonest distance."""
    if stated is not None and _one_after_the_other(points, stated):
        return float(stated)
    gaps = row_gaps(points)
    if stated is not None:
        close = gaps[np.abs(gaps - stated) <= TOLERANCE]
        return commonest(close) if len(close) and not (close == stated).any() else float(stated)
    if not len(gaps):
        raise InputError(
            "The file does not tell the patches' size and no two patches lie in one row, so it cannot be inferred; "
            "extract the patches again with `panther slides`."
        )
    return commonest(gaps)


def neighbour_step(points: np.ndarray, spec: PatchSpec) -> tuple[float, bool]:
    """Distance of patches that lie side by side, and whether only the coordinates say it: also where patches were cut with gaps between them."""
    stated = stated_step(spec)
    if len(points) < 2:
        return stated or 1.0, False  # nothing that could be near or far
    if stated is not None and not _one_after_the_other(points, stated):
        gaps = row_gaps(points)
        if len(gaps) and gaps.min() > stated + TOLERANCE:
            return commonest(gaps), True
    return shown_step(points, stated), stated is None


def row_gaps(points: np.ndarray) -> np.ndarray:
    """Distances of neighbours within the same row or the same column."""
    parts = []
    for along, across in ((0, 1), (1, 0)):
        ordered = points[np.lexsort((points[:, along], points[:, across]))]
        same = ordered[1:, across] == ordered[:-1, across]
        parts.append((ordered[1:, along] - ordered[:-1, along])[same])
    gaps = np.concatenate(parts)
    return gaps[gaps > 0]


def commonest(values: np.ndarray) -> float:
    """Value that is there most often, the smallest of several."""
    levels, counts = np.unique(values, return_counts=True)
    return float(levels[counts.argmax()])


def _one_after_the_other(points: np.ndarray, step: float) -> bool:
    """Whether two patches that follow each other in the file are neighbours at exactly that distance: usual, and found without sorting."""
    apart = np.abs(np.diff(points, axis=0))
    return bool(((apart.min(1) == 0) & (apart.max(1) == step)).any()) if len(apart) else False
