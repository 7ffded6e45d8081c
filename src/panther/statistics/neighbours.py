r"""Adjacent patches, and statistics of the contacts between prototypes, from coordinates and posteriors.

With posteriors q (N, C) and the M pairs of neighbours n ~ m of a slide, each counted from both sides,

.. math:: A_{ce} = \sum_{n \sim m} (q_{nc} q_{me} + q_{ne} q_{mc}), \qquad
          E_{ce} = \frac{2 M}{N (N - 1)} \sum_{n \ne m} q_{nc} q_{me}, \qquad e_{ce} = \log \frac{A_{ce} + k}{E_{ce} + k}

is how much oftener (> 0) or rarer (< 0) two prototypes touch than they do, on average, when the slide's patches are shuffled over its places;
k pairs of prior keep it at 0 where there is hardly anything to count. Sums of slides add up.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from panther.errors import InputError
from panther.patches import Places
from panther.statistics.compiled import compiled_kernel, crisp, regions_compiled, suits_tensor, touch_compiled

PRIOR = 10.0  # pairs and patches added as a prior
PER = 1000.0  # patches per which regions are counted
LARGEST_SIDE = 1 << 24  # steps: largest extent of a slide
FRACTIONS = 64  # of a step: resolution at which offsets of grids differ
DENSE = 16  # cells per patch, up to which a table of all cells is faster than sorting
BLOCK = 1 << 12  # places whose products are added in float32
TABLE = 1 << 16  # cells that a table may always have


class Beside(NamedTuple):
    """Places of one slide. Patches within half a step of each other have the same place: they overlap or are duplicates."""

    place: np.ndarray  # (N,), number of each patch's place, row by row
    ahead: np.ndarray  # (P, 2), place to the right and below (P, 4: and on both sides of that); P where there is none

    @property
    def pairs(self) -> int:
        """Number of pairs M."""
        return int(np.count_nonzero(self.ahead < len(self.ahead)))


class Neighbourhood(NamedTuple):
    """What space says about C prototypes; numbers of slides add up."""

    touches: Tensor  # (C, C), how often they touch, each pair from both sides: the sum is 2 M
    expected: Tensor  # (C, C), the same if the slide's patches were shuffled
    mass: Tensor  # (C,), expected number of places
    likeliest: Tensor  # (C,), places whose likeliest prototype it is
    regions: Tensor  # (C,), connected regions of these

    def merge(self, other: "Neighbourhood") -> "Neighbourhood":
        """Neighbourhood of two slides together: nothing touches across them."""
        return Neighbourhood(*(a + b for a, b in zip(self, other, strict=True)))

    def enrichment(self) -> Tensor:
        """Log of observed over expected touches (C, C), both with the prior's."""
        return torch.log((self.touches + PRIOR) / (self.expected + PRIOR))

    def region_number(self) -> Tensor:
        """Log of 1 + the number of regions per thousand patches (C,), shrunk where there are fewer."""
        return torch.log1p(PER * self.regions / (self.mass.sum() + PER))

    def region_size(self) -> Tensor:
        """Log of the mean number of patches in a region (C,), 0 where there is none."""
        return torch.log((self.likeliest + PRIOR) / (self.regions + PRIOR))

    def border(self) -> Tensor:
        """Share of its touches that are with another prototype (C,), 0 where there is none."""
        every = self.touches.sum(1)
        return (every - self.touches.diagonal()) / (every + PRIOR)


def neighbourhood(q: Tensor | np.ndarray, places: Places, *, corners: bool = False) -> Neighbourhood:
    """Neighbourhood of posteriors (N, C), slide by slide; regions count each place to its likeliest prototype.

    With ``corners`` patches that share no more than a corner touch too: twice as many pairs, and so steadier numbers.
    """
    rows = torch.as_tensor(q)
    if len(rows) != len(places.coords) or len(rows) == 0:
        raise InputError(
            f"There are {len(rows)} patches but coordinates of {len(places.coords)}; give one pair for each."
        )
    merged: Neighbourhood | None = None
    for block, where in zip(rows.split(places.lengths), places.slides(), strict=True):
        if len(block):
            one = _of_one_slide(block, side_by_side(where, places.step, corners=corners))
            merged = one if merged is None else merged.merge(one)
    assert merged is not None
    return merged


def side_by_side(coords: np.ndarray, step: float, *, corners: bool = False) -> Beside:
    """Places of patches at ``coords`` (N, 2), and which of them share a side, or with ``corners`` at least a corner.

    Coordinates are rounded to a grid of that step, laid so that most of them lie on it: pieces of tissue may have grids of their own.
    """
    if not 0 < step < np.inf:
        raise InputError(f"A step of {step} is not the distance of two patches; it is a positive number of pixels.")
    column, row = _cells(np.asarray(coords, np.float64).reshape(-1, 2), step)
    width = int(column.max(initial=0)) + 2  # a column more, so that no row runs on into the next
    number = row * width + column
    jumps = (1, width, width - 1, width + 1) if corners else (1, width)
    if int(number.max(initial=0)) <= DENSE * len(number) + TABLE:
        return _by_table(number, width, jumps)
    taken, place = np.unique(number, return_inverse=True)
    return Beside(place.reshape(-1), np.stack([_where(taken, taken + jump) for jump in jumps], 1))


def _cells(coords: np.ndarray, step: float) -> np.ndarray:
    """Column and row of each patch (2, N), from 0."""
    if not len(coords):
        return np.zeros((2, 0), np.int64)
    axes = np.ascontiguousarray(coords.T)
    relative = (axes - axes.min(1, keepdims=True)) / step
    if not relative.max() < LARGEST_SIDE:
        raise InputError(
            f"The coordinates span {relative.max():.3g} steps of {step:g}, more than a slide has; "
            "they are of another unit than the size of the patches: extract the patches again."
        )
    whole = np.rint(relative)
    if (whole == relative).all():  # one grid, as most slides have
        return np.asarray(whole.astype(np.int64))
    rest = np.floor((relative - np.floor(relative)) * FRACTIONS + 0.5).astype(np.int64) % FRACTIONS
    offset = np.array([[np.bincount(one).argmax() / FRACTIONS] for one in rest])
    # halves round up, always: those of one grid must all go the same way
    cells = np.floor(relative - offset + 0.5).astype(np.int64)
    return np.asarray(cells - cells.min(1, keepdims=True))


def _by_table(number: np.ndarray, width: int, jumps: Sequence[int]) -> Beside:
    taken = np.zeros(int(number.max(initial=0)) + width + 2, bool)
    taken[number] = True
    cells = np.flatnonzero(taken)
    names = np.full(len(taken), len(cells), np.int32)
    names[cells] = np.arange(len(cells))
    return Beside(names[number], np.stack([names[jump:].take(cells) for jump in jumps], 1))


def _where(taken: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    at = np.minimum(np.searchsorted(taken, wanted), len(taken) - 1)
    return np.where(taken[at] == wanted, at, len(taken)).astype(np.int32)


def _of_one_slide(q: Tensor, beside: Beside) -> Neighbourhood:
    rows, ahead = _by_place(q, beside), beside.ahead  # (P, C), (P, 2 or 4)
    library = compiled_kernel() if suits_tensor(rows) else None
    if library is None or not crisp(rows):
        half, gram, mass = _touch(rows, ahead)
    else:
        half, gram, mass = touch_compiled(library, rows, ahead)
    likeliest, regions = _regions(rows, ahead) if library is None else regions_compiled(library, rows, ahead)
    apart = torch.outer(mass, mass) - gram  # sum over ordered pairs of different places
    return Neighbourhood(
        half + half.T,
        apart * (2.0 * beside.pairs / max(len(rows) * (len(rows) - 1), 1)),
        mass,
        likeliest.to(mass),
        regions.to(mass),
    )


def _touch(rows: Tensor, ahead: np.ndarray) -> tuple[Tensor, Tensor, Tensor]:
    """Products (C, C) of each place (P, C) with those ahead of it, and with itself; the mass (C,)."""
    padded = torch.cat([rows, rows.new_zeros(1, rows.shape[1])])
    # gathered and added in one go, four times as fast as one neighbour after the other
    near = torch.nn.functional.embedding_bag(torch.from_numpy(ahead).to(rows.device), padded, mode="sum")
    half, gram = torch.zeros(2, rows.shape[1], rows.shape[1], dtype=torch.float64, device=rows.device)
    for block, beside in zip(rows.split(BLOCK), near.split(BLOCK), strict=True):
        half = half + (block.T @ beside).double()
        gram = gram + (block.T @ block).double()
    return half, gram, rows.sum(0, dtype=torch.float64)


def _by_place(q: Tensor, beside: Beside) -> Tensor:
    """Posteriors of the places (P, C), the mean where several patches lie."""
    q = q if q.dtype in (torch.float32, torch.float64) else q.float()
    count = len(beside.ahead)
    if count == len(q):
        if bool((beside.place[1:] > beside.place[:-1]).all()):
            return q  # the file goes row by row
        patch = np.empty(count, np.int64)
        patch[beside.place] = np.arange(count)
        return q.index_select(0, torch.from_numpy(patch).to(q.device))
    place = torch.from_numpy(beside.place).to(q.device)
    rows = q.new_zeros(count, q.shape[1]).index_add(0, place, q)
    return rows / torch.bincount(place, minlength=count).to(rows).unsqueeze(1)


def _regions(rows: Tensor, ahead: np.ndarray) -> tuple[Tensor, Tensor]:
    """Places (C,) whose likeliest prototype it is, and the connected regions (C,) that they form."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    label = rows.detach().cpu().numpy().argmax(1)
    same = np.append(label, -1)[ahead] == label[:, None]  # (P, 2 or 4)
    start = np.append(0, np.cumsum(same.sum(1))).astype(np.int32)
    near = ahead[same]
    graph = csr_array((np.ones(len(near)), near, start), shape=(len(label), len(label)))
    number, member = connected_components(graph, directed=False)
    owner = np.empty(number, np.int64)
    owner[member] = label
    likeliest, regions = (np.bincount(one, minlength=rows.shape[1]) for one in (label, owner))
    return torch.from_numpy(likeliest), torch.from_numpy(regions)
