"""Neighbouring patches: which prototypes touch, more or less often than by chance; as numbers, rows, sentences and a picture."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from panther.explain.geometry import Grid
from panther.places import Places
from panther.statistics.neighbours import Neighbourhood, neighbourhood, side_by_side

FEWEST = 1.0  # touches from which slides say something: posteriors leave a trace of every prototype everywhere
COLUMNS = (
    "prototype", "neighbour", "contacts", "expected", "log2_ratio", "share_of_border", "share_of_border_by_chance", "patches", "inside", "beside"
)  # fmt: skip
CLEAR = 1.5  # times as often, or as seldom
RARE = 0.005  # share of the places below which a prototype is not spoken of
FEWEST_TOUCHES = 20.0  # touches of one with others, for its border to be spoken of


@dataclass(frozen=True, eq=False)
class Touching:
    """Neighbours of C prototypes; those of slides add up."""

    neighbourhood: Neighbourhood  # of the posteriors
    members: np.ndarray  # (C,), places whose likeliest prototype it is
    inside: np.ndarray  # (C, C), of the row's those of whose neighbours most are the column's
    beside: np.ndarray  # (C, C), of the row's those with a neighbour of the column's, but not most of them
    more: np.ndarray  # (C, C), slides on which the two touch more often than chance ...
    slides: np.ndarray  # (C, C), ... of those that say something about it

    def merge(self, other: "Touching") -> "Touching":
        """Those of two slides, or groups of slides, together."""
        return Touching(
            self.neighbourhood.merge(other.neighbourhood),
            self.members + other.members,
            self.inside + other.inside,
            self.beside + other.beside,
            self.more + other.more,
            self.slides + other.slides,
        )

    @property
    def touches(self) -> np.ndarray:
        """How often the two touch (C, C): pairs of neighbours, each from both sides, by posteriors."""
        return self.neighbourhood.touches.cpu().numpy()

    @property
    def expected(self) -> np.ndarray:
        """The same if the slides' patches were shuffled within each (C, C)."""
        return self.neighbourhood.expected.cpu().numpy()

    def log_ratio(self) -> np.ndarray:
        """Touches over what is expected, as log2 (C, C): 1 is twice as often as by chance; NaN where hardly one can be expected.

        The same number, but for the base of the logarithm, as `touch` in an embedding with the block `space`.
        """
        ratio = self.neighbourhood.enrichment().cpu().numpy() / np.log(2)
        return np.where(self.expected >= FEWEST, ratio, np.nan)

    def border(self) -> np.ndarray:
        """Of the row's touches with other prototypes the column's part (C, C); NaN where it hardly touches any other."""
        return _parts_of_others(self.touches)

    def border_by_chance(self) -> np.ndarray:
        """The same if the slides' patches were shuffled (C, C): tissue in pieces touches all other tissue seldom, its border does not care."""
        return _parts_of_others(self.expected)


def touching(assignment: np.ndarray, placed: Grid) -> Touching:
    """Neighbours on one slide, from posteriors (N, C) and the places of the patches."""
    places = Places(placed.corners, placed.pitch, (len(assignment),))
    found = neighbourhood(np.ascontiguousarray(assignment), places)
    members, inside, beside = _surroundings(assignment.argmax(1), places, assignment.shape[1])
    expected = found.expected.cpu().numpy()
    known = expected >= FEWEST
    more = known & (found.touches.cpu().numpy() > expected)
    return Touching(found, members, inside, beside, more.astype(np.int64), known.astype(np.int64))


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
    """Members (C,), and how many of them lie inside (C, C) and beside (C, C) each other prototype."""
    found = side_by_side(places.coords, places.step)
    size = len(found.ahead)
    own = np.empty(size, np.int64)
    own[found.place] = labels
    at, way = np.nonzero(found.ahead < size)
    first, second = np.concatenate([at, found.ahead[at, way]]), np.concatenate([found.ahead[at, way], at])
    neighbours = np.bincount(first, minlength=size)
    inside, beside = np.zeros((2, count, count), np.int64)
    for other in np.unique(own):
        theirs = np.bincount(first[own[second] == other], minlength=size)
        most = 2 * theirs > neighbours
        inside[:, other] = np.bincount(own[most], minlength=count)
        beside[:, other] = np.bincount(own[~most & (theirs > 0)], minlength=count)
    for matrix in (inside, beside):
        np.fill_diagonal(matrix, 0)
    return np.bincount(own, minlength=count), inside, beside


def neighbour_rows(neighbours: Touching) -> list[list[Any]]:
    """One row per ordered pair; empty where a number is not defined."""
    touches, expected, ratio = neighbours.touches, neighbours.expected, neighbours.log_ratio()
    border, by_chance = neighbours.border(), neighbours.border_by_chance()
    count = len(touches)
    return [
        [
            f"C{a}",
            f"C{b}",
            round(float(touches[a, b]), 3),
            round(float(expected[a, b]), 3),
            _known(ratio[a, b]),
            _known(border[a, b]),
            _known(by_chance[a, b]),
            int(neighbours.members[a]),
            int(neighbours.inside[a, b]) if a != b else None,
            int(neighbours.beside[a, b]) if a != b else None,
        ]
        for a in range(count)
        for b in range(count)
    ]


def _known(value: float) -> float | None:
    return round(float(value), 6) if math.isfinite(value) else None


class _Pair(NamedTuple):
    """The rarer prototype of two beside the other one."""

    of: int
    with_: int
    times: float  # touches against chance
    border: float  # share of its border
    by_chance: float  # what that would be


def neighbour_sentences(neighbours: Touching, titles: Sequence[str], most: int = 4) -> list[str]:
    """What lies in or along what, clearest first, then what keeps apart; at most so many of each.

    Tissue that lies in pieces touches everything else more seldom than chance. That two keep apart is said only where the border of the rarer
    one avoids the other, too.
    """
    pairs = _pairs(neighbours)
    mixed = [pair for pair in pairs if pair.times >= CLEAR]
    along = [pair for pair in pairs if pair.times < CLEAR and pair.border >= CLEAR * pair.by_chance]
    apart = [pair for pair in pairs if pair.times <= 1 / CLEAR and pair.border <= pair.by_chance / CLEAR]
    mixed.sort(key=lambda pair: -pair.times)
    along.sort(key=lambda pair: -pair.border / pair.by_chance)
    apart.sort(key=lambda pair: pair.times)
    return [
        *(_mixed(neighbours, pair, titles) for pair in mixed[:most]),
        *(_along(pair, titles) for pair in along[: most - len(mixed[:most])]),
        *(_apart(neighbours, pair, titles) for pair in apart[: most // 2]),
    ]


def _pairs(neighbours: Touching) -> list[_Pair]:
    """Pairs of prototypes of which there is enough."""
    known = np.flatnonzero(neighbours.members >= max(1.0, RARE * neighbours.members.sum()))
    times, border, by_chance = 2.0 ** neighbours.log_ratio(), neighbours.border(), neighbours.border_by_chance()
    others = neighbours.touches.sum(1) - np.diag(neighbours.touches)
    pairs = []
    for b in known:
        for a in known[known < b]:
            small, large = sorted((int(a), int(b)), key=lambda c: int(neighbours.members[c]))
            if others[small] >= FEWEST_TOUCHES and by_chance[small, large] > 0:
                values = (times[small, large], border[small, large], by_chance[small, large])
                pairs.append(_Pair(small, large, *map(float, values)))
    return pairs


def _mixed(neighbours: Touching, pair: _Pair, titles: Sequence[str]) -> str:
    members, other = int(neighbours.members[pair.of]), titles[pair.with_]
    inside, beside = (
        _percent(matrix[pair.of, pair.with_] / members) for matrix in (neighbours.inside, neighbours.beside)
    )
    return (
        f"{titles[pair.of]} touches {other} {pair.times:.1f} times as often as if patches lay at random{_on_slides(neighbours, pair, more=True)}: "
        f"{inside} of its patches lie inside {other} (most of their neighbours are), {beside} beside it."
    )


def _along(pair: _Pair, titles: Sequence[str]) -> str:
    return (
        f"{titles[pair.of]} lies along {titles[pair.with_]}: {_percent(pair.border)} of its border is with it, "
        f"where {_percent(pair.by_chance)} would be so by chance."
    )


def _apart(neighbours: Touching, pair: _Pair, titles: Sequence[str]) -> str:
    seldom = f"{1 / pair.times:.1f} times more seldom than if patches lay at random{_on_slides(neighbours, pair, more=False)}"
    return (
        f"{titles[pair.of]} and {titles[pair.with_]} keep apart: they touch {seldom}, and {_percent(pair.border)} instead of "
        f"{_percent(pair.by_chance)} of the border of {titles[pair.of]} is with it."
    )


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _on_slides(neighbours: Touching, pair: _Pair, *, more: bool) -> str:
    """On how many slides it is so, where there are several."""
    total, over = int(neighbours.slides[pair.of, pair.with_]), int(neighbours.more[pair.of, pair.with_])
    return f" (on {over if more else total - over} of the {total} slides that have both)" if total > 1 else ""


def draw_neighbours(neighbours: Touching, titles: Sequence[str]) -> Any:
    """Two matrices side by side, of the prototypes that are there; returns a matplotlib figure."""
    from panther.charts.prototypes import borders, contacts
    from panther.charts.to_matplotlib import draw

    there = np.flatnonzero(neighbours.members > 0).tolist()
    names, cells = [titles[c] for c in there], np.ix_(there, there)
    return draw([[contacts(names, neighbours.log_ratio()[cells]), borders(names, neighbours.border()[cells])]])
