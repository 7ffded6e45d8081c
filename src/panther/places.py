"""Where patches lie, for what reads their neighbourhood."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from panther.errors import InputError
from panther.grid_step import neighbour_step
from panther.patch_spec import PatchSpec


@dataclass(frozen=True, eq=False)
class Places:
    """Where the patches of a slide, or of all slides of a patient, lie."""

    coords: np.ndarray  # (N, 2), upper left corners
    step: float  # distance of patches that lie side by side, in the same unit
    lengths: tuple[int, ...]  # patches of each slide: nothing touches across slides
    inferred: bool = False  # no file says the step: it was taken from the coordinates

    def slides(self) -> list[np.ndarray]:
        """Corners of each slide's patches."""
        return np.split(self.coords, np.cumsum(self.lengths)[:-1])


def places_of(coords: np.ndarray, spec: PatchSpec, source: str) -> Places:
    """Places of one slide's patches; messages call it ``source``."""
    points = np.asarray(coords, np.float64).reshape(-1, 2)
    if not np.isfinite(points).all():
        raise InputError(f"{source}: the coordinates hold NaN or infinite numbers; extract the patches again.")
    try:
        step, inferred = neighbour_step(points, spec)
    except InputError as error:
        raise InputError(f"{source}: {error}") from error
    return Places(points, step, (len(points),), inferred)


def joined_places(parts: Sequence[Places]) -> Places:
    """Places of several slides one after the other; where their steps differ, coordinates count in steps."""
    lengths = tuple(length for part in parts for length in part.lengths)
    inferred = any(part.inferred for part in parts)
    if len({part.step for part in parts}) == 1:
        return Places(np.concatenate([part.coords for part in parts]), parts[0].step, lengths, inferred)
    return Places(np.concatenate([part.coords / part.step for part in parts]), 1.0, lengths, inferred)
