"""Where tissues lie on a grid of patches, arranged on purpose: classes differ in where patches lie, in one small lesion, or in proportions."""

from dataclasses import dataclass

import numpy as np
from scipy.ndimage import binary_dilation, gaussian_filter

INSIDE = {"infiltrated": (0.6, 0.9), "excluded": (0.1, 0.4)}  # share of the guests that lie inside the host


@dataclass(frozen=True)
class Arrangement:
    """Patches of one slide, row by row: their cells on the grid and what each of them shows."""

    cells: np.ndarray  # (N, 2), x and y
    tissue: np.ndarray  # (N,), number of the tissue

    def grid(self, empty: int = -1) -> np.ndarray:
        """Tissue of every cell (rows, columns); ``empty`` where there is glass."""
        found = np.full(self.cells.max(0)[::-1] + 1, empty)
        found[self.cells[:, 1], self.cells[:, 0]] = self.tissue
        return found


def section(rng: np.random.Generator, patches: int) -> np.ndarray:
    """Round piece of tissue with a bent rim, of exactly that many cells: a mask (side, side)."""
    side = int(np.ceil(np.sqrt(patches) * 1.3)) + 2
    y, x = np.mgrid[:side, :side] - (side - 1) / 2
    bend = gaussian_filter(rng.normal(size=(side, side)), side / 8)
    away = np.hypot(x, y * rng.uniform(0.9, 1.1)) + 0.04 * side * bend / bend.std()
    inside = np.zeros(side * side, bool)
    inside[np.argsort(away.ravel(), kind="stable")[:patches]] = True
    return inside.reshape(side, side)


def regions(rng: np.random.Generator, inside: np.ndarray, shares: np.ndarray, grain: float = 2.5) -> np.ndarray:
    """Tissue (side, side) of each cell: patches of several cells across, of these ``shares`` (T,) to the patch where that is possible."""
    fields = gaussian_filter(rng.normal(size=(len(shares), *inside.shape)), (0, grain, grain))
    fields /= fields.std((1, 2), keepdims=True)
    count = int(inside.sum())
    left = inside.copy()
    tissue = np.zeros(inside.shape, np.int64)
    wanted = np.diff(np.rint(np.concatenate([[0], np.cumsum(shares / shares.sum())]) * count)).astype(int)
    # the largest tissue is what is left over: small ones first, so that they find room where their field is high
    for number in np.argsort(wanted)[:-1]:
        where = np.flatnonzero(left)
        chosen = where[np.argsort(-fields[number].ravel()[where], kind="stable")[: wanted[number]]]
        tissue.ravel()[chosen] = number
        left.ravel()[chosen] = False
    tissue[left] = int(np.argmax(wanted))
    return tissue


def arranged(tissue: np.ndarray, inside: np.ndarray) -> Arrangement:
    """Arrangement of a labelled mask, rows from top to bottom as files have them."""
    rows, columns = np.nonzero(inside)
    return Arrangement(np.stack([columns, rows], 1), tissue[inside])


def with_guests(
    rng: np.random.Generator, patches: int, shares: np.ndarray, guest: int, host: int, kind: str
) -> Arrangement:
    """Guests (lymphocytes) inside the host (tumour), or beside it: `infiltrated` or `excluded`, with the same number of patches of everything.

    Neither is pure: of the guests 60 to 90 % are inside in the one kind and 10 to 40 % in the other.
    """
    inside = section(rng, patches)
    within = rng.uniform(*INSIDE[kind])
    counts = np.rint(shares / shares.sum() * patches).astype(int)
    within_count = round(counts[guest] * within)
    beside = int(np.argmax(np.where(np.isin(np.arange(len(shares)), (guest, host)), -1, counts)))
    before = counts.astype(float)
    before[guest] = 0  # whom the guests replace has that many patches more to begin with
    before[host] += within_count
    before[beside] += counts[guest] - within_count
    tissue = regions(rng, inside, before)
    own = np.flatnonzero((tissue == host) & inside)
    tissue.ravel()[rng.choice(own, min(within_count, len(own)), replace=False)] = guest
    _line_up(rng, tissue, inside, (guest, host, beside), counts[guest] - within_count)
    return arranged(tissue, inside)


def _line_up(
    rng: np.random.Generator, tissue: np.ndarray, inside: np.ndarray, kinds: tuple[int, int, int], count: int
) -> None:
    """Put guests into what lies beside the host, in clumps that need not touch it."""
    guest, _, beside = kinds
    clumps = gaussian_filter(rng.normal(size=tissue.shape), 1.2)
    free = np.flatnonzero((tissue == beside) & inside)
    tissue.ravel()[free[np.argsort(-clumps.ravel()[free], kind="stable")[:count]]] = guest


def with_needle(rng: np.random.Generator, patches: int, shares: np.ndarray, needle: int, share: float) -> Arrangement:
    """Tissues of these shares, and one lesion of ``share`` of the patches, all of it in one place; none with 0."""
    inside = section(rng, patches)
    tissue = regions(rng, inside, shares)
    if share > 0:
        count = max(1, round(share * patches))
        spot = np.zeros(inside.shape, bool)
        spot.ravel()[rng.choice(np.flatnonzero(inside))] = True
        while (spot & inside).sum() < count:
            spot = binary_dilation(spot)
        tissue.ravel()[rng.permutation(np.flatnonzero(spot & inside))[:count]] = needle
    return arranged(tissue, inside)


def of_shares(rng: np.random.Generator, patches: int, shares: np.ndarray) -> Arrangement:
    """Regions of tissues in these shares, nothing else planted."""
    inside = section(rng, patches)
    return arranged(regions(rng, inside, shares), inside)
