r"""Which patches lie side by side, and what their neighbourhood says about prototypes. Coordinates and posteriors in, numbers out.

With posteriors q (N, C) and the M pairs of neighbours n ~ m, each counted from both sides,

.. math:: A_{ce} = \sum_{n \sim m} (q_{nc} q_{me} + q_{ne} q_{mc}), \qquad e_{ce} = \log \frac{A_{ce} + k}{2 M \pi_c \pi_e + k}

is how much oftener (> 0) or rarer (< 0) two prototypes touch than patches laid out at random would; k pairs of prior keep it at 0 where there is
hardly anything to count.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from panther.errors import InputError

PRIOR = 10.0  # pairs, and patches, that are taken for granted
ON_GRID = 0.02  # of a step: coordinates are rounded to pixels
REACH = 1.25  # steps; off a grid: more than 1, less than the diagonal


class Neighbourhood(NamedTuple):
    """What space says about C prototypes."""

    enrichment: np.ndarray  # (C, C), symmetric
    regions: np.ndarray  # (C,), log of the number of connected regions, plus the prior's
    size: np.ndarray  # (C,), log of their mean number of patches
    border: np.ndarray  # (C,), share of a patch's sides that touch another prototype


def neighbour_pairs(
    coords: np.ndarray, step: float, lengths: Sequence[int] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of patches (M,), (M,) that share a side, each pair once.

    Parameters
    ----------
    coords : array (N, 2)
        Corners of the patches.
    step : float
        Distance of neighbours, in the same unit.
    lengths : sequence of int, optional
        Patches of each slide, where several follow each other: nothing touches across slides.
    """
    if not step > 0:
        raise InputError(f"`step={step}` is not the distance of two patches; it is a positive number of pixels.")
    ends = np.cumsum([len(coords)] if lengths is None else list(lengths))
    pairs = [
        _of_one_slide(coords[end - n : end], step, end - n)
        for n, end in zip(np.diff(ends, prepend=0), ends, strict=True)
    ]
    first, second = zip(*pairs, strict=True)
    return np.concatenate(first), np.concatenate(second)


def neighbourhood(q: np.ndarray, first: np.ndarray, second: np.ndarray) -> Neighbourhood:
    """Statistics of posteriors (N, C) over pairs of neighbours; regions and borders count each patch to its likeliest prototype."""
    pi = q.mean(0, dtype=np.float64)
    label = q.argmax(1)
    counts = np.bincount(label, minlength=q.shape[1]).astype(np.float64)
    regions = _regions(label, first, second, q.shape[1])
    return Neighbourhood(
        enrichment(touching(q, first, second), pi, len(first)),
        np.log(regions + 1.0),
        np.log((counts + PRIOR) / (regions + PRIOR)),
        _border(label, first, second, counts),
    )


def touching(q: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """How often prototypes touch (C, C), each pair from both sides; the sum is 2 M."""
    half = q[first].astype(np.float64).T @ q[second]
    return np.asarray(half + half.T)


def enrichment(touches: np.ndarray, pi: np.ndarray, pairs: int) -> np.ndarray:
    """Log of observed over expected touches (C, C), both with the prior's."""
    return np.asarray(np.log((touches + PRIOR) / (2.0 * pairs * np.outer(pi, pi) + PRIOR)))


def _of_one_slide(coords: np.ndarray, step: float, offset: int) -> tuple[np.ndarray, np.ndarray]:
    if len(coords) < 2:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    relative = (coords - coords.min(0)) / step
    cells = np.rint(relative).astype(np.int64)
    if np.abs(relative - cells).max() <= ON_GRID:
        first, second = _on_grid(cells)
    else:
        first, second = _anywhere(relative)
    return first + offset, second + offset


def _on_grid(cells: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Right and lower neighbours, found by the number of the cell."""
    width = int(cells[:, 0].max()) + 2  # a column more, so that no row runs on into the next
    number = cells[:, 1] * width + cells[:, 0]
    order = np.argsort(number, kind="stable")
    ordered = number[order]
    found = []
    for ahead in (1, width):
        place = np.minimum(np.searchsorted(ordered, ordered + ahead), len(ordered) - 1)
        there = ordered[place] == ordered + ahead
        found.append((order[there], order[place[there]]))
    return np.concatenate([a for a, _ in found]), np.concatenate([b for _, b in found])


def _anywhere(relative: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Patches within reach: outlines of tissue may have a grid of their own each."""
    from scipy.spatial import cKDTree

    pairs = cKDTree(relative).query_pairs(REACH, output_type="ndarray")
    return pairs[:, 0].astype(np.int64), pairs[:, 1].astype(np.int64)


def _regions(label: np.ndarray, first: np.ndarray, second: np.ndarray, count: int) -> np.ndarray:
    """Number of connected regions of each prototype (C,)."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    same = label[first] == label[second]
    ones = np.ones(int(same.sum()), np.int8)
    graph = coo_array((ones, (first[same], second[same])), shape=(len(label), len(label)))
    number, member = connected_components(graph, directed=False)
    owner = np.empty(number, np.int64)
    owner[member] = label
    return np.bincount(owner, minlength=count).astype(np.float64)


def _border(label: np.ndarray, first: np.ndarray, second: np.ndarray, counts: np.ndarray) -> np.ndarray:
    other = label[first] != label[second]
    ends = np.concatenate([label[first[other]], label[second[other]]])
    return np.asarray(np.bincount(ends, minlength=len(counts)) / (4.0 * (counts + PRIOR)))
