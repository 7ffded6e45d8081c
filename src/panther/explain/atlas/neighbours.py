r"""Which prototypes touch which: contacts of patches on the grid, against a slide whose patches were shuffled."""

from typing import NamedTuple

import numpy as np

from panther.explain.geometry import Grid

HALF = 0.5  # contacts added to both counts: "never touches" stays a number, and two contacts are no large ratio


class Contacts(NamedTuple):
    """Pairs of patches that share an edge; contacts of slides add up."""

    observed: np.ndarray  # (C, C) symmetric; [a, b] pairs of a patch of a and one of b, each counted once
    expected: np.ndarray  # (C, C), the same if the slide's patches were shuffled

    def merge(self, other: "Contacts") -> "Contacts":
        """Contacts of two slides together."""
        return Contacts(self.observed + other.observed, self.expected + other.expected)

    def log_ratio(self) -> np.ndarray:
        r"""Affinity :math:`\log_2 (O + 1/2) / (E + 1/2)`, (C, C): 1 is twice as often as by chance; NaN where none can be expected."""
        ratio = np.log2((self.observed + HALF) / (self.expected + HALF))
        return np.where(self.expected > 0, ratio, np.nan)


def no_contacts(count: int) -> Contacts:
    """Start of a sum over slides."""
    return Contacts(np.zeros((count, count)), np.zeros((count, count)))


def contacts(found: Grid, labels: np.ndarray, count: int) -> Contacts:
    """Contacts (C, C) of 4-neighbours on the patches' grid, and those expected by chance, for labels (N,) of ``count`` prototypes.

    Patches on different grids (CLAM starts one at every piece of tissue) never touch; a patch that is there twice counts once.
    """
    keys, width = _keys(found)
    keys, first = np.unique(keys, return_index=True)
    label = np.asarray(labels)[first].astype(np.int64)
    pairs = np.zeros((count, count))
    for step in (1, width):  # to the right, and below
        at = np.minimum(np.searchsorted(keys, keys + step), len(keys) - 1)
        here = keys[at] == keys + step
        tally = np.bincount(label[here] * count + label[at[here]], minlength=count * count)
        pairs += tally.reshape(count, count)
    observed = pairs + pairs.T - np.diag(np.diag(pairs))
    return Contacts(observed, expected_contacts(np.bincount(label, minlength=count), float(pairs.sum())))


def expected_contacts(members: np.ndarray, edges: float) -> np.ndarray:
    r"""Contacts expected when n patches with :math:`n_c` members each are shuffled over the same places, (C, C).

    .. math:: E_{ab} = L \frac{2 n_a n_b}{n (n - 1)}, \qquad E_{aa} = L \frac{n_a (n_a - 1)}{n (n - 1)}

    for L contacts in all. This is the exact mean over all permutations within the slide, so none need be drawn.
    """
    total = float(members.sum())
    if total < 2:
        return np.zeros((len(members), len(members)))
    size = members.astype(float)
    pairs = 2 * np.outer(size, size)
    np.fill_diagonal(pairs, size * (size - 1))
    return edges * pairs / (total * (total - 1))


def _keys(found: Grid) -> tuple[np.ndarray, int]:
    """One number per cell, in which the neighbour to the right is one more and the one below a width more; rows and grids never join."""
    cells = found.cells - found.cells.min(0)
    width, height = (int(side) + 2 for side in cells.max(0))
    return (found.layer * height + cells[:, 1]) * width + cells[:, 0], width
