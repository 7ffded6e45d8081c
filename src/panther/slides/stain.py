r"""Two stains in closed form (Macenko et al., ISBI 2009).

Light that passes stained tissue follows Beer and Lambert: the optical density :math:`-\log(I / I_0)` of a pixel is the sum of the
stains' vectors times their amounts. All pixels lie in the plane of two stains, spanned by the two largest eigenvectors of their
densities; the stains are the extreme directions in it. Normalisation keeps the amounts and replaces the vectors: of densities it is
one 3 x 3 matrix.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from panther.errors import InputError

WHITE = 240.0  # light that passes glass, of 255
FAINT = 0.15  # optical density below which a pixel is glass
OPAQUE = 1.9  # optical density above which hardly any light is left
EXTREME = 1.0  # per cent of pixels beyond a stain's direction
MOST = 99.0  # per cent of pixels with less of a stain than its strength
FEWEST = 1000  # stained pixels that are required
NARROW = 3.0  # degrees between two stains below which they are one
# Haematoxylin and eosin as published with the method, and their strengths
REFERENCE = np.array([[0.5626, 0.7201, 0.4062], [0.2159, 0.8012, 0.5581]])
REFERENCE_STRENGTH = np.array([1.9705, 1.0308])
_DENSITY = -np.log((np.arange(256) + 1) / (WHITE + 1)).astype(np.float32)  # of each value of a pixel


class NotStained(ValueError):  # noqa: N818  a property of the slide, not a fault
    """Reason why the stains of a slide cannot be estimated."""


@dataclass(frozen=True)
class StainFit:
    """The stains of one slide, in plain numbers: they are sent to workers and written as JSON."""

    vectors: tuple[tuple[float, ...], ...]  # haematoxylin, eosin: unit vectors of optical density (2, 3)
    strength: tuple[float, ...]  # 99th percentile of the amounts

    def matrix(self) -> np.ndarray:
        """Matrix (3, 3) that turns optical densities of this slide into those of the reference."""
        amounts = np.linalg.pinv(np.array(self.vectors))  # (3, 2)
        return np.asarray(amounts * (REFERENCE_STRENGTH / np.array(self.strength)) @ REFERENCE)

    def __call__(self, pixels: np.ndarray) -> np.ndarray:
        """Pixels (h, w, 3) uint8 as if they had the reference's stains."""
        density = _DENSITY[pixels] @ self.matrix().astype(np.float32)
        light = (WHITE + 1) * np.exp(-density) - 1
        return np.asarray(np.clip(np.rint(light), 0, 255).astype(np.uint8))


def fit_stains(pixels: np.ndarray) -> StainFit:
    """Stains of pixels (..., 3) uint8; NotStained where there are fewer than two."""
    density = _stained(_DENSITY[pixels].reshape(-1, 3)).astype(np.float64)
    if len(density) < FEWEST:
        raise NotStained("almost nothing in its patches is stained")
    _, axes = np.linalg.eigh(np.cov(density.T))
    plane = axes[:, [2, 1]]  # (3, 2), largest first
    plane = plane * np.where(density.mean(0) @ plane < 0, -1, 1)
    angle = np.arctan2(*(density @ plane).T[::-1])
    low, high = np.percentile(angle, [EXTREME, 100 - EXTREME])
    if np.degrees(high - low) < NARROW:
        raise NotStained("its patches have one colour, so two stains cannot be separated")
    both = np.array([plane @ [np.cos(a), np.sin(a)] for a in (low, high)])  # (2, 3)
    both = np.maximum(both, 0) / np.linalg.norm(np.maximum(both, 0), axis=1, keepdims=True)
    both = both[np.argsort(-both[:, 0])]  # haematoxylin takes more red light than eosin
    strength = np.percentile(density @ np.linalg.pinv(both), MOST, axis=0)
    if not np.isfinite(both).all() or (strength < FAINT).any():
        raise NotStained("its patches have only one stain")
    return StainFit(tuple(tuple(map(float, row.round(6))) for row in both), tuple(map(float, strength.round(6))))


def _stained(density: np.ndarray) -> np.ndarray:
    """Densities of pixels with haematoxylin or eosin, without glass and ink.

    Both stains absorb green light most, and blue light least; a green or blue pen absorbs red light more than green, a red one blue light
    as much as green. Pixels that let hardly any light of a colour pass (a dense pen, a fold) are left out.
    """
    red, green, blue = density.T
    return density[(density.min(1) > FAINT) & (density.max(1) < OPAQUE) & (green > 0.6 * red) & (green > 1.05 * blue)]


METHODS: dict[str, Callable[[np.ndarray], StainFit]] = {"macenko": fit_stains}
PATCHES = 64  # that are sampled
STEP = 4  # every fourth row and column of a patch is sampled


def fit_slide(method: str, read: Callable[[Any], np.ndarray], coords: np.ndarray) -> StainFit:
    """Stains of a sample of the patches at ``coords`` (N, 2); NotStained where they cannot be estimated."""
    samples = [np.zeros((0, 3), np.uint8)]
    for xy in coords[np.unique(np.linspace(0, len(coords) - 1, PATCHES).round().astype(int))] if len(coords) else ():
        with suppress(InputError):  # a damaged patch is reported where it is encoded
            samples.append(read(xy)[::STEP, ::STEP].reshape(-1, 3))
    return METHODS[method](np.concatenate(samples))
