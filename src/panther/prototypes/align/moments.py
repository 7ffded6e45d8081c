"""Mean and variance of every slide's patches, from one walk over them."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from panther.content import HashedRows
from panther.execution import Work
from panther.prototypes.patches import in_order, walk
from panther.types import Openable

BLOCK = 4096  # patches read at once
PRIOR_PATCHES = 10  # so many patches of usual variance stand beside those of a slide: one patch has none of its own


class SlideMoments(NamedTuple):
    """What alignment has to know of a slide."""

    patches: int
    mean: np.ndarray  # (d,) float64
    variance: np.ndarray  # (d,)
    content: str  # hash of its features


def slide_moments(bags: Sequence[Openable], work: Work) -> dict[Openable, SlideMoments]:
    """Moments of every bag that can be read and is finite; the others are reported where they are worked on."""
    bags = in_order([bags])
    found = zip(bags, walk(_moments, bags, "measuring slides", work), strict=True)
    return {bag: result.value for bag, result in found if result.value is not None and result.value.patches}


def log_variances(moments: Sequence[SlideMoments]) -> np.ndarray:
    """Logarithms of the variances (n, d), steadied by the usual variance where a slide has few patches."""
    patches = np.array([m.patches for m in moments], np.float64)[:, None]
    variance = np.stack([m.variance for m in moments])
    usual = (patches * variance).sum(0) / patches.sum()
    steadied = (patches * variance + PRIOR_PATCHES * usual) / (patches + PRIOR_PATCHES)
    return np.asarray(np.log(np.maximum(steadied, 1e-30)))


@torch.no_grad()
def _moments(ref: Openable) -> SlideMoments:
    bag = ref.open()
    rows = HashedRows(bag.features)
    total, square, origin = (torch.zeros(bag.dim, dtype=torch.float64) for _ in range(3))
    for start in range(0, len(bag), BLOCK):
        x = rows[start : start + BLOCK].double()
        origin = x[0].clone() if start == 0 else origin  # near the patches, squares keep their digits
        x = x - origin  # never in place: float64 features are those of the user
        total += x.sum(0)
        square += (x * x).sum(0)
    n = max(len(bag), 1)
    mean = total / n
    variance = (square / n - mean * mean).clamp_min(0)
    usable = bool(torch.isfinite(mean).all() and torch.isfinite(variance).all())
    return SlideMoments(len(bag) if usable else 0, (mean + origin).numpy(), variance.numpy(), rows.digest())
