"""Neighbouring patches: prototypes that touch more or less often than by chance, as numbers, rows, sentences and a picture."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import torch

from panther.explain.geometry import Grid
from panther.patches import Places
from panther.statistics.neighbours import Neighbourhood, neighbourhood, side_by_side

FEWEST = 1.0  # expected touches from which a slide counts: posteriors leave a trace of every prototype everywhere
COLUMNS = (
    "prototype", "neighbour", "contacts", "expected", "log2_ratio", "share_of_border", "share_of_border_by_chance", "patches", "inside", "beside"
)  # fmt: skip
CLEAR = 1.5  # ratio to chance, or its inverse
RARE = 0.005  # share of the patches below which a prototype has no sentence
FEWEST_TOUCHES = 20.0  # touches of one with others, for a sentence about its border


@dataclass(frozen=True, eq=False)
class Touching:
    """Neighbours of C prototypes; those of slides add up."""

    neighbourhood: Neighbourhood  # of the posteriors
    members: np.ndarray  # (C,), patches by likeliest prototype
    inside: np.ndarray  # (C, C), patches of the row whose neighbours are mostly of the column
    beside: np.ndarray  # (C, C), patches of the row with some, but not mostly, neighbours of the column

    def merge(self, other: "Touching") -> "Touching":
        """Sum over two slides, or groups of slides."""
        counts = [getattr(self, name) + getattr(other, name) for name in ("members", "inside", "beside")]
        return Touching(self.neighbourhood.merge(other.neighbourhood), *counts)

    @property
    def touches(self) -> np.ndarray:
        """Number of touches (C, C): pairs of neighbours, each from both sides, by posteriors."""
        return self.neighbourhood.touches.cpu().numpy()

    @property
    def expected(self) -> np.ndarray:
        """Expected number if the patches of each slide were shuffled (C, C)."""
        return self.neighbourhood.expected.cpu().numpy()

    def log_ratio(self) -> np.ndarray:
        """Log2 of touches over expected touches (C, C): 1 is twice as often as by chance; NaN where fewer than one is expected.

        Apart from the base of the logarithm this is `touch` in an embedding with the block `space`.
        """
        ratio = self.neighbourhood.enrichment().cpu().numpy() / np.log(2)
        return np.where(self.expected >= FEWEST, ratio, np.nan)

    def border(self) -> np.ndarray:
        """Share of the column in the row's touches with other prototypes (C, C); NaN where it hardly touches any other."""
        return _parts_of_others(self.touches)

    def border_by_chance(self) -> np.ndarray:
        """The same if the patches of each slide were shuffled (C, C)."""
        return _parts_of_others(self.expected)


def touching(assignment: np.ndarray, grid: Grid) -> Touching:
    """Neighbours on one slide, from posteriors (N, C) and the places of the patches."""
    places = Places(grid.corners, grid.pitch, (len(assignment),))
    counted = neighbourhood(np.ascontiguousarray(assignment), places)
    adjacency = side_by_side(places.coords, places.step)
    size, count = len(adjacency.ahead), assignment.shape[1]
    label = np.empty(size, np.int64)
    label[adjacency.place] = assignment.argmax(1)
    at, way = np.nonzero(adjacency.ahead < size)
    ahead = adjacency.ahead[at, way]
    first, second = np.concatenate([at, ahead]), np.concatenate([ahead, at])
    neighbours = np.bincount(first, minlength=size)
    inside, beside = np.zeros((2, count, count), np.int64)
    for other in np.unique(label):
        of_other = np.bincount(first[label[second] == other], minlength=size)
        most = 2 * of_other > neighbours
        inside[:, other] = np.bincount(label[most], minlength=count)
        beside[:, other] = np.bincount(label[~most & (of_other > 0)], minlength=count)
    for matrix in (inside, beside):
        np.fill_diagonal(matrix, 0)
    return Touching(counted, np.bincount(label, minlength=count), inside, beside)


def no_touching(count: int) -> Touching:
    """Start of a sum over slides."""
    zero, none = torch.zeros(count, count, dtype=torch.float64), np.zeros((count, count), np.int64)
    line = torch.zeros(count, dtype=torch.float64)
    empty = Neighbourhood(touches=zero, expected=zero, mass=line, likeliest=line, regions=line)
    return Touching(empty, np.zeros(count, np.int64), none, none)


def _parts_of_others(touches: np.ndarray) -> np.ndarray:
    others = touches - np.diag(np.diag(touches))
    total = others.sum(1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where((total >= FEWEST) & ~np.eye(len(others), dtype=bool), others / total, np.nan)


def neighbour_rows(neighbours: Touching) -> list[list[Any]]:
    """One row per ordered pair, in the order of COLUMNS; None where a number is not defined."""
    matrices = [(neighbours.touches, 3), (neighbours.expected, 3)]  # and digits
    matrices += [(m, 6) for m in (neighbours.log_ratio(), neighbours.border(), neighbours.border_by_chance())]
    rows = []
    for a, b in np.ndindex(neighbours.inside.shape):
        numbers = [round(float(m[a, b]), digits) if math.isfinite(m[a, b]) else None for m, digits in matrices]
        around = [None if a == b else int(matrix[a, b]) for matrix in (neighbours.inside, neighbours.beside)]
        rows.append([f"C{a}", f"C{b}", *numbers, int(neighbours.members[a]), *around])
    return rows


def neighbour_sentences(neighbours: Touching, titles: Sequence[str], most: int = 4) -> list[str]:
    """Sentences about prototypes that lie in or along others, clearest first, then about those apart; at most ``most`` and half as many.

    Tissue in pieces touches everything else less often than by chance. Two prototypes are apart only where the border of the rarer
    one avoids the other, too.
    """
    members = neighbours.members
    times, border, by_chance = 2.0 ** neighbours.log_ratio(), neighbours.border(), neighbours.border_by_chance()
    others = neighbours.touches.sum(1) - np.diag(neighbours.touches)
    mixed: list[tuple[float, str]] = []  # smallest first
    along: list[tuple[float, str]] = []
    apart: list[tuple[float, str]] = []
    for a, b in combinations(np.flatnonzero(members >= max(1.0, RARE * members.sum())).tolist(), 2):
        rare, other = sorted((a, b), key=lambda c: int(members[c]))
        ratio, share, chance = (float(m[rare, other]) for m in (times, border, by_chance))
        if others[rare] < FEWEST_TOUCHES or not chance > 0:
            continue
        first, second = titles[rare], titles[other]
        if ratio >= CLEAR:
            parts = [100 * m[rare, other] / members[rare] for m in (neighbours.inside, neighbours.beside)]
            text = f"touches {second} {ratio:.1f} times as often as if patches lay at random: {parts[0]:.0f} % of its patches lie inside"
            mixed.append(
                (-ratio, f"{first} {text} {second} (most of their neighbours are), {parts[1]:.0f} % beside it.")
            )
        elif ratio < CLEAR and share >= CLEAR * chance:
            text = f"{100 * share:.0f} % of its border is with it, where {100 * chance:.0f} % would be so by chance."
            along.append((-share / chance, f"{first} lies along {second}: {text}"))
        if ratio <= 1 / CLEAR and share <= chance / CLEAR:
            text = (
                f"they touch {ratio:.2f} times as often as if patches lay at random, and {100 * share:.0f} % instead of"
            )
            text = f"{first} and {second} keep apart: {text} {100 * chance:.0f} % of the border of {first} is with it."
            apart.append((ratio, text))
    lists = [sorted(pairs, key=lambda pair: pair[0]) for pairs in (mixed, along, apart)]
    numbers = most, max(0, most - len(mixed)), most // 2
    return [text for pairs, number in zip(lists, numbers, strict=True) for _, text in pairs[:number]]


def draw_neighbours(neighbours: Touching, titles: Sequence[str]) -> Any:
    """Two matrices side by side, of the prototypes that are there; returns a matplotlib figure."""
    from panther.charts.prototypes import relation
    from panther.charts.to_matplotlib import draw

    present = np.flatnonzero(neighbours.members > 0).tolist()
    names, cells = [titles[c] for c in present], np.ix_(present, present)
    values = {"neighbours": neighbours.log_ratio()[cells], "borders": neighbours.border()[cells]}
    return draw([[relation(kind, names, matrix) for kind, matrix in values.items()]])
