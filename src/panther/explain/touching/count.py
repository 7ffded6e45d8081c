"""Which prototypes touch which, against a slide whose patches were shuffled; and whether one lies inside another or beside it."""

from dataclasses import dataclass

import numpy as np
import torch

from panther.explain.geometry import Grid
from panther.places import Places
from panther.statistics.neighbours import Neighbourhood, neighbourhood, side_by_side

FEWEST = 1.0  # touches from which slides say something: posteriors leave a trace of every prototype everywhere


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
