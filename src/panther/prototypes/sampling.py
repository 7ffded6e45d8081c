"""Uniform sampling of patches over a cohort: seeded, every patch eligible, independent of order and workers."""

import zlib
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor


def allocate(counts: Sequence[int], size: int, share: str) -> list[int]:
    """How many patches to take from each slide so that ``size`` are taken in all.

    ``proportional`` gives every patch of the cohort the same chance; ``equal`` takes the same number from every slide (a slide
    with too few patches gives all it has and the others make up for it).
    """
    available = np.asarray(counts, dtype=np.int64)
    size = int(min(size, available.sum()))
    ideal = (
        np.minimum(available, _level(available, size))
        if share == "equal"
        else available * (size / max(int(available.sum()), 1))
    )
    taken = np.floor(ideal).astype(np.int64)
    remainder = np.where(taken < available, ideal - taken, -1.0)
    for index in np.argsort(-remainder, kind="stable")[: size - int(taken.sum())]:
        taken[index] += 1
    return [int(n) for n in taken]


def choose_rows(slide: str, count: int, size: int, seed: int) -> Tensor:
    """Sorted indices of ``size`` of a slide's ``count`` rows; they depend on the seed and the slide alone."""
    generator = np.random.default_rng([seed, zlib.crc32(slide.encode())])
    return torch.from_numpy(np.sort(generator.choice(count, size=size, replace=False)))


def _level(available: np.ndarray, size: int) -> float:
    """Water level at which min(available, level) sums to ``size``."""
    remaining, ordered = float(size), np.sort(available)
    for index, count in enumerate(ordered):
        level = remaining / (len(ordered) - index)
        if count >= level:
            return level
        remaining -= float(count)
    return float(ordered[-1])
