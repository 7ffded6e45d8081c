"""Patches that show what a prototype looks like: the nearest ones, from as many patients as possible, and members at random.

For those who look closer also the doubtful ones: members that lie nearly as close to another prototype, and the farthest of all.
"""

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from panther.errors import InputError
from panther.slides import Slide, open_slide

Kind = Literal["nearest", "random", "borderline", "farthest"]
KINDS: tuple[Kind, ...] = ("nearest", "random")  # of an atlas on disk
LARGEST = 160  # pixels of a picture's side


@dataclass(frozen=True)
class Place:
    """Square of a patch on its slide."""

    x: float
    y: float
    side: float | None  # None: the file does not tell, and it could not be inferred
    unit: str = "px"  # of all three: "px" at level 0, or "um"
    mpp: float | None = None  # of the slide's level 0, where the feature file records it


@dataclass(frozen=True)
class Exemplar:
    """One patch of a prototype."""

    prototype: int
    kind: Kind
    slide: str
    patient: str
    row: int  # of the feature file
    distance: float  # Euclidean, to the prototype, after its projection
    rank: float  # what candidates are ordered by, the smallest first: the distance, a random number, ...
    place: Place | None = None


def candidates(labels: np.ndarray, rank: np.ndarray, count: int, number: int) -> list[tuple[int, int]]:
    """Prototype and row of the members (by labels (N,)) with the smallest ranks (N,), at most ``number`` for each of ``count``."""
    rows = []
    for c in range(count):
        members = np.flatnonzero(labels == c)
        if len(members) > number:  # the few smallest first: sorting all of a large slide is slow
            members = members[np.argpartition(rank[members], number - 1)[:number]]
        rows += [(c, row) for row in members[np.lexsort((members, rank[members]))].tolist()]
    return rows


def random_ranks(slide: str, count: int, seed: int) -> np.ndarray:
    """Random numbers (N,) of a slide's patches: those of the smallest, over all slides, are a fair sample of the cohort.

    They depend on the seed and the slide's name alone, so neither the order of slides nor the number of workers matters.
    """
    name = int.from_bytes(hashlib.blake2b(slide.encode(), digest_size=8).digest(), "little")
    return np.random.default_rng([seed, name]).random(count)


def most_varied(exemplars: Iterable[Exemplar], number: int) -> list[Exemplar]:
    """Choose ``number`` exemplars of one prototype: the nearest of each patient, then of their other slides, then second ones.

    Keeping only these while slides stream by loses nothing: a candidate with ``number`` others before it stays behind them.
    """
    by_slide: dict[tuple[str, str], list[Exemplar]] = {}
    for one in sorted(exemplars, key=_order):
        by_slide.setdefault((one.patient, one.slide), []).append(one)
    keyed = []
    slides_before: dict[tuple[str, int], int] = {}
    # slides of a patient count from the one whose patch of this round is nearest
    rounds = [(turn, one) for members in by_slide.values() for turn, one in enumerate(members)]
    for turn, one in sorted(rounds, key=lambda pair: (pair[0], _order(pair[1]))):
        place = slides_before.get((one.patient, turn), 0)
        slides_before[one.patient, turn] = place + 1
        keyed.append(((turn, place, *_order(one)), one))
    return [one for _, one in sorted(keyed, key=lambda pair: pair[0])[:number]]


def fair_sample(exemplars: Iterable[Exemplar], number: int) -> list[Exemplar]:
    """Choose members at random: the smallest random numbers of all slides."""
    return sorted(exemplars, key=_order)[:number]


CHOOSE = {"nearest": most_varied, "random": fair_sample, "borderline": most_varied, "farthest": most_varied}


@dataclass(frozen=True)
class PatchesToRead:
    """Patches to read from one slide's image; ``mpp`` corrects a wrong tag."""

    sample: str  # name of the slide
    image: Path
    mpp: float | None
    places: tuple[Place, ...]


def read_patches(patches: PatchesToRead) -> list[np.ndarray]:
    """Pixels (s, s, 3) of patches, at most `LARGEST` a side, read from the level that suits."""
    with open_slide(patches.image, patches.mpp) as slide:
        return [_read(slide, place) for place in patches.places]


def _read(slide: Slide, place: Place) -> np.ndarray:
    factor = 1.0 if place.unit == "px" else 1 / slide.mpp
    if place.side is None:
        raise InputError(f"{slide.path.name}: the feature file does not tell the patches' size; there are no pictures.")
    x, y, side = place.x * factor, place.y * factor, place.side * factor
    width, height = slide.dimensions
    if not (0 <= x + side / 2 <= width and 0 <= y + side / 2 <= height):
        raise InputError(
            f"{slide.path.name}: a patch at ({x:g}, {y:g}) lies outside the image ({width} x {height} pixels), "
            "expected coordinates at level 0 of the slide that the features were made from"
        )
    size = max(1, min(LARGEST, math.floor(side + 0.5)))
    level = slide.best_level(side / size)
    down = slide.level_downsamples[level]
    box = (x / down, y / down, (x + side) / down, (y + side) / down)
    return slide.resampled(level, box, (size, size))


def _order(one: Exemplar) -> tuple[float, str, int]:
    return one.rank, one.slide, one.row
