"""A sample of a slide's patches that is even in space, and the standard error of a mean over it.

The patches are put in order along a curve through the tissue, the curve is cut into stretches of equal length, and one patch of every
stretch is drawn at random: an equal chance for every patch, a fixed size, and no two neighbouring stretches left out. The variance of
a mean is then that of patches within a stretch, which the differences of successive sampled patches tell.
"""

import numpy as np
from scipy import ndimage

BITS = 20  # of a cell's position: a curve through 2^20 x 2^20 cells


def order_along_curve(coords: np.ndarray, step: int) -> np.ndarray:
    """Order (N,) of the patches at ``coords`` (N, 2): one connected piece after the other, each along Hilbert's curve.

    Patches whose cells on the grid of that ``step`` touch, at a corner at least, are connected.
    """
    if not len(coords):
        return np.empty(0, np.int64)
    cells = coords // step
    cells = cells - cells.min(0)
    occupied = np.zeros(cells.max(0) + 1, bool)
    occupied[cells[:, 0], cells[:, 1]] = True
    pieces = ndimage.label(occupied, np.ones((3, 3)))[0][cells[:, 0], cells[:, 1]]
    along = hilbert(cells)
    first = np.full(pieces.max() + 1, along.max())  # where the curve enters a piece
    np.minimum.at(first, pieces, along)
    return np.lexsort((coords[:, 1], coords[:, 0], along, first[pieces]))


def hilbert(cells: np.ndarray) -> np.ndarray:
    """Distance (N,) along Hilbert's curve of cells (N, 2): from coarse to fine, which quarter, and how the curve is turned in it."""
    x, y = cells.astype(np.int64).T
    distance = np.zeros(len(cells), np.int64)
    for bit in reversed(range(BITS)):
        side = 1 << bit
        right, upper = (x & side) > 0, (y & side) > 0
        distance += side * side * ((3 * right) ^ upper)
        x, y = x & (side - 1), y & (side - 1)
        mirrored = right & ~upper
        x, y = np.where(mirrored, side - 1 - x, x), np.where(mirrored, side - 1 - y, y)
        x, y = np.where(upper, x, y), np.where(upper, y, x)
    return distance


def draw_even(total: int, count: int, seed: int = 0, kept: np.ndarray | None = None) -> np.ndarray:
    """Positions on the curve (count,), ascending: one of each of ``count`` stretches of ``total`` patches.

    The curve is closed and the first stretch begins anywhere on it, so that every patch has the chance count / total whatever their
    quotient. A sample ``kept`` that was drawn with the same seed is part of the new one if its size divides ``count``.
    """
    # whole numbers over a whole number: a stretch's end is the same float among twice as many stretches
    ends = np.floor(np.random.default_rng(seed).random() * total + np.arange(count + 1) * total / count).astype(
        np.int64
    )
    lengths = np.diff(ends)
    drawn = ends[:-1] + np.floor(np.random.default_rng([seed, count]).random(count) * lengths).astype(np.int64)
    if kept is not None:
        unwound = np.where(kept < ends[0], kept + total, kept)
        drawn[np.searchsorted(ends, unwound, side="right") - 1] = unwound
    return np.sort(drawn % total)


def standard_error(values: np.ndarray, total: int) -> np.ndarray:
    r"""Standard error (C,) of the mean of ``values`` (n, C), one row per sampled patch in the order of the curve, of ``total`` patches.

    .. math:: SE^2 = (1 - f)\,\frac{s^2}{n}, \quad s^2 = \gamma_1 - \left(1 - \frac{L + 1}{3L}\right) (\gamma_2 - \gamma_1),
        \quad \gamma_k = \frac{1}{2} \overline{(v_{i+k} - v_i)^2}

    with :math:`f = n/N = 1/L`. :math:`\gamma_1` alone (successive differences) is the spread between neighbouring stretches and too
    large where tissue is coherent. What the spread gains from one stretch to the next is taken off for the smaller distances within
    a stretch; the part of the spread that distance does not explain remains.
    """
    count = len(values)
    if count >= total:
        return np.zeros(values.shape[1])
    if count < 3:
        return np.full(values.shape[1], np.nan)
    length = total / count
    within = (length + 1) / (3 * length)  # mean distance of two patches of a stretch, in stretches
    one, two = (np.square(values[lag:] - values[:-lag]).mean(0) / 2 for lag in (1, 2))
    spread = np.maximum(one - (1 - within) * np.maximum(two - one, 0), within * one)
    return np.sqrt((1 - count / total) * spread / count)
