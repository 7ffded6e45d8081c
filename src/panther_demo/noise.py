"""Smooth random fields, scattered points and warped distances: what textures and region borders are made of."""

from collections.abc import Iterator

import numpy as np
from PIL import Image

Shape = tuple[int, int]  # rows, columns
STRIP = 2**17  # pixels


def strips(shape: Shape) -> Iterator[slice]:
    """Rows of a picture, some at a time: what is computed of a strip stays in the processor's cache rather than in main memory."""
    step = max(1, STRIP // shape[1])
    for top in range(0, shape[0], step):
        yield slice(top, min(top + step, shape[0]))


def enlarged(field: np.ndarray, shape: Shape, smooth: bool = True) -> np.ndarray:
    """Field (h, w) stretched to ``shape``, float32; Pillow's resize is many times faster than scipy's zoom."""
    kind = Image.Resampling.BICUBIC if smooth else Image.Resampling.BILINEAR
    return np.asarray(Image.fromarray(np.asarray(field, np.float32)).resize(shape[::-1], kind))


def smooth_noise(rng: np.random.Generator, shape: Shape, scale: float) -> np.ndarray:
    """Noise (h, w) without mean, about unit variance, that changes over ``scale`` pixels."""
    rows, columns = (max(2, round(side / scale) + 1) for side in shape)
    coarse = rng.standard_normal((rows, columns), np.float32)
    return enlarged(coarse, shape) * 1.35  # a bicubic mean of neighbours varies less than they do


def scattered(rng: np.random.Generator, shape: Shape, spacing: float, jitter: float = 0.3) -> np.ndarray:
    """Points (N, 2) as x, y: a hexagonal lattice, each point moved at random by ``jitter`` of the spacing."""
    step = spacing * np.sqrt(0.75)
    rows = np.arange(0.0, shape[0], step)
    columns = np.arange(0.0, shape[1], spacing)
    x, y = np.meshgrid(columns, rows)
    x[1::2] += spacing / 2
    points = np.stack([x.ravel(), y.ravel()], 1)
    return points + rng.normal(0, jitter * spacing, points.shape)


def ramp(values: np.ndarray, low: float, high: float) -> np.ndarray:
    """0 at ``low``, 1 at ``high``, straight between them, constant beyond; ``low`` may be the larger."""
    part = values - low
    part /= high - low
    return np.clip(part, 0.0, 1.0, out=part)
