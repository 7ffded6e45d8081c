"""Layout of the tissues: smooth random fields, and an outline divided into warped cells with the given areas."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from PIL import Image
from scipy import ndimage

Shape = tuple[int, int]  # rows, columns
STRIP = 2**17  # pixels


def strips(shape: Shape) -> Iterator[slice]:
    """Strips of rows of a picture, whose intermediate results fit the processor's cache."""
    step = max(1, STRIP // shape[1])
    for top in range(0, shape[0], step):
        yield slice(top, min(top + step, shape[0]))


def enlarged(field: np.ndarray, shape: Shape, smooth: bool = True) -> np.ndarray:
    """Field (h, w) stretched to ``shape``, float32; Pillow's resize is many times faster than scipy's zoom."""
    resampling = Image.Resampling.BICUBIC if smooth else Image.Resampling.BILINEAR
    return np.asarray(Image.fromarray(np.asarray(field, np.float32)).resize(shape[::-1], resampling))


def smooth_noise(rng: np.random.Generator, shape: Shape, scale: float) -> np.ndarray:
    """Noise (h, w) of mean 0, about unit variance and a wavelength of ``scale`` pixels."""
    rows, columns = (max(2, round(side / scale) + 1) for side in shape)
    coarse = rng.standard_normal((rows, columns), np.float32)
    return enlarged(coarse, shape) * 1.35  # interpolation reduces the variance


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


SCALE = 8  # level-0 pixels a pixel of the mask
GLASS = 0  # label; tissues are 1, 2, ...


@dataclass(frozen=True)
class Layout:
    """Labels of a slide at 1/8 scale: 0 glass, t the t-th tissue."""

    labels: np.ndarray  # (h, w) uint8

    @property
    def shape(self) -> Shape:
        """Rows and columns at level 0."""
        return self.labels.shape[0] * SCALE, self.labels.shape[1] * SCALE

    def shares(self, tissues: int) -> np.ndarray:
        """Part of the tissue's area that is tissue 1, 2, ..., (T,); adds up to 1."""
        counts = np.bincount(self.labels.ravel(), minlength=tissues + 1)[1:]
        return counts / counts.sum()

    def weight(self, label: int) -> np.ndarray:
        """Part (h, w) that a tissue has in each pixel: 0 or 1 but for a soft border of about a pixel."""
        return ndimage.gaussian_filter((self.labels == label).astype(np.float32), 0.7)


def make_layout(rng: np.random.Generator, shares: np.ndarray, shape: Shape) -> Layout:
    """Divide a piece of tissue among tissues of these ``shares`` (T,); zero is left out."""
    small = shape[0] // SCALE, shape[1] // SCALE
    inside = _outline(rng, small)
    labels = np.zeros(small, np.uint8)
    present = np.flatnonzero(shares > 0)
    cells = _cells(rng, inside, shares[present] / shares[present].sum())
    labels[inside] = (present + 1)[cells]
    return Layout(labels)


def _outline(rng: np.random.Generator, small: Shape) -> np.ndarray:
    """Mask (h, w) of an ellipse whose rim is bent at two scales; one piece, without holes."""
    y, x = np.mgrid[: small[0], : small[1]].astype(np.float32)
    cy, cx = small[0] / 2, small[1] / 2
    angle, ratio = rng.uniform(0, np.pi), rng.uniform(0.86, 1.0)
    u = (x - cx) * np.cos(angle) + (y - cy) * np.sin(angle)
    v = ((y - cy) * np.cos(angle) - (x - cx) * np.sin(angle)) / ratio
    radius = np.sqrt(u * u + v * v) / (min(small) / 2)
    # glass on all sides, as on a scan: the section ends before the picture does
    radius = np.maximum(radius, 0.88 * np.maximum(np.abs(x - cx) / cx, np.abs(y - cy) / cy))
    bend = 0.05 * smooth_noise(rng, small, min(small) / 4) + 0.012 * smooth_noise(rng, small, min(small) / 24)
    mask = radius + bend < 0.82
    pieces, _ = ndimage.label(mask)
    return ndimage.binary_fill_holes(pieces == np.bincount(pieces[mask]).argmax())


def _cells(rng: np.random.Generator, inside: np.ndarray, shares: np.ndarray) -> np.ndarray:
    r"""Cell (n,) of each pixel of the mask: a power diagram :math:`\arg\min_t |p - s_t|^2 - b_t` in bent space.

    The offsets b are moved until each cell has its share of the area, to one part in five hundred.
    """
    points = np.argwhere(inside).astype(np.float32)  # (n, 2)
    side = np.sqrt(len(points))
    bends = [side * 0.06 * smooth_noise(rng, inside.shape, side / 4)[inside] for _ in range(2)]
    fine = [side * 0.009 * smooth_noise(rng, inside.shape, side / 14)[inside] for _ in range(2)]
    bent = (points + np.stack(bends, 1) + np.stack(fine, 1)) / side
    seeds = _spread(rng, bent, len(shares))
    squared = ((bent[:, None] - seeds[None]) ** 2).sum(-1)  # (n, T)
    offsets = np.zeros(len(shares))
    for step in range(200):
        cell = (squared - offsets).argmin(1)
        gap = shares - np.bincount(cell, minlength=len(shares)) / len(cell)
        if np.abs(gap).max() < 0.002:
            break
        offsets += gap * (0.5 / (1 + step / 40))
    return cell


def _spread(rng: np.random.Generator, points: np.ndarray, count: int, tries: int = 12) -> np.ndarray:
    """Points (count, 2) far from each other: the best of some draws."""
    draws = [points[rng.choice(len(points), count, replace=False)] for _ in range(tries)]

    def closest(draw: np.ndarray) -> float:
        gaps = np.linalg.norm(draw[:, None] - draw[None], axis=-1) + 9.0 * np.eye(count)
        return float(gaps.min())

    return max(draws, key=closest)
