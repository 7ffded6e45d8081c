"""Neighbouring patches: prototypes that touch more or less often than by chance, as numbers, rows, sentences and a picture."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

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
    more: np.ndarray  # (C, C), slides on which the two touch more often than chance ...
    slides: np.ndarray  # (C, C), ... of those on which enough touches are expected

    def merge(self, other: "Touching") -> "Touching":
        """Sum over two slides, or groups of slides."""
        names = ("members", "inside", "beside", "more", "slides")
        counts = [getattr(self, name) + getattr(other, name) for name in names]
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
    members, inside, beside = _surroundings(assignment.argmax(1), places, assignment.shape[1])
    expected = counted.expected.cpu().numpy()
    known = expected >= FEWEST
    more = known & (counted.touches.cpu().numpy() > expected)
    return Touching(counted, members, inside, beside, more.astype(np.int64), known.astype(np.int64))


def no_touching(count: int) -> Touching:
    """Start of a sum over slides."""
    zero, none = torch.zeros(count, count, dtype=torch.float64), np.zeros((count, count), np.int64)
    line = torch.zeros(count, dtype=torch.float64)
    empty = Neighbourhood(touches=zero, expected=zero, mass=line, likeliest=line, regions=line)
    return Touching(empty, np.zeros(count, np.int64), none, none, none, none)


def _parts_of_others(touches: np.ndarray) -> np.ndarray:
    others = touches - np.diag(np.diag(touches))
    total = others.sum(1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where((total >= FEWEST) & ~np.eye(len(others), dtype=bool), others / total, np.nan)


def _surroundings(labels: np.ndarray, places: Places, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Members (C,), and their numbers inside (C, C) and beside (C, C) each other prototype."""
    adjacency = side_by_side(places.coords, places.step)
    size = len(adjacency.ahead)
    label = np.empty(size, np.int64)
    label[adjacency.place] = labels
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
    return np.bincount(label, minlength=count), inside, beside


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


class _Pair(NamedTuple):
    """The rarer prototype of two beside the other one."""

    rare: int
    other: int
    times: float  # touches against chance
    border: float  # share of its border
    by_chance: float  # the same by chance


def neighbour_sentences(neighbours: Touching, titles: Sequence[str], most: int = 4) -> list[str]:
    """Sentences about prototypes that lie in or along others, clearest first, then about those apart; at most ``most`` and half as many.

    Tissue in pieces touches everything else less often than by chance. Two prototypes are apart only where the border of the rarer
    one avoids the other, too.
    """
    pairs = _pairs(neighbours)
    mixed = sorted((pair for pair in pairs if pair.times >= CLEAR), key=lambda pair: -pair.times)[:most]
    along = [pair for pair in pairs if pair.times < CLEAR and pair.border >= CLEAR * pair.by_chance]
    along = sorted(along, key=lambda pair: -pair.border / pair.by_chance)[: most - len(mixed)]
    apart = [pair for pair in pairs if pair.times <= 1 / CLEAR and pair.border <= pair.by_chance / CLEAR]
    sentences = []
    for pair in mixed:
        members, other = int(neighbours.members[pair.rare]), titles[pair.other]
        parts = [float(m[pair.rare, pair.other]) / members for m in (neighbours.inside, neighbours.beside)]
        sentences.append(
            f"{titles[pair.rare]} touches {other} {pair.times:.1f} times as often as if patches lay at random{_on_slides(neighbours, pair)}: "
            f"{100 * parts[0]:.0f} % of its patches lie inside {other} (most of their neighbours are), {100 * parts[1]:.0f} % beside it."
        )
    sentences += [
        f"{titles[pair.rare]} lies along {titles[pair.other]}: {100 * pair.border:.0f} % of its border is with it, "
        f"where {100 * pair.by_chance:.0f} % would be so by chance."
        for pair in along
    ]
    sentences += [
        f"{titles[pair.rare]} and {titles[pair.other]} keep apart: they touch {pair.times:.2f} times as often as if patches lay at "
        f"random{_on_slides(neighbours, pair)}, and {100 * pair.border:.0f} % instead of {100 * pair.by_chance:.0f} % of the border of "
        f"{titles[pair.rare]} is with it."
        for pair in sorted(apart, key=lambda pair: pair.times)[: most // 2]
    ]
    return sentences


def _pairs(neighbours: Touching) -> list[_Pair]:
    """Pairs of prototypes with enough patches."""
    known = np.flatnonzero(neighbours.members >= max(1.0, RARE * neighbours.members.sum())).tolist()
    times, border, by_chance = 2.0 ** neighbours.log_ratio(), neighbours.border(), neighbours.border_by_chance()
    others = neighbours.touches.sum(1) - np.diag(neighbours.touches)
    pairs = []
    for b in known:
        for a in (c for c in known if c < b):
            rare, other = sorted((a, b), key=lambda c: int(neighbours.members[c]))
            if others[rare] >= FEWEST_TOUCHES and by_chance[rare, other] > 0:
                values = (times[rare, other], border[rare, other], by_chance[rare, other])
                pairs.append(_Pair(rare, other, *map(float, values)))
    return pairs


def _on_slides(neighbours: Touching, pair: _Pair) -> str:
    """Number of slides that agree, where there are several."""
    total, more = int(neighbours.slides[pair.rare, pair.other]), int(neighbours.more[pair.rare, pair.other])
    return f" (on {more if pair.times > 1 else total - more} of the {total} slides that have both)" if total > 1 else ""


def draw_neighbours(neighbours: Touching, titles: Sequence[str]) -> Any:
    """Two matrices side by side, of the prototypes that are there; returns a matplotlib figure."""
    from panther.charts.prototypes import relation
    from panther.charts.to_matplotlib import draw

    present = np.flatnonzero(neighbours.members > 0).tolist()
    names, cells = [titles[c] for c in present], np.ix_(present, present)
    values = {"neighbours": neighbours.log_ratio()[cells], "borders": neighbours.border()[cells]}
    return draw([[relation(kind, names, matrix) for kind, matrix in values.items()]])
