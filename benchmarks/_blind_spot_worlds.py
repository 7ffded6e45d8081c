"""Cohorts whose classes differ in one thing only: where patches lie, one small lesion, or proportions, under one stain or several.

Slides are composed of features of tiles (`_planted_bank`), drawn or real; no tile is in a training slide and in a test slide. Used by
blind_spots.py.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from _planted_arrangements import Arrangement, of_shares, with_guests, with_needle
from _planted_bank import USUAL, Bank
from panther_demo.cohort import MIX

PATCHES = (900, 1000, 1100)  # a few lengths, so that bags of one length make a batch without padding
TRAIN, TEST = 120, 120
STEP = 256  # level-0 pixels
SITES = 2  # laboratories of the training patients, where there are several
OWN = 30  # tiles of each tissue that a patient has: patients differ, or test slides would differ from training slides and not from each other
JITTER = 0.25  # slides of one laboratory lie up to that far on the way to the usual stain

Shares = dict[str, float]
Plan = Callable[[np.random.Generator, int, int, dict[str, int]], Arrangement]  # rng, label, patches, numbers of tissues


@dataclass(frozen=True)
class Question:
    """What the class changes in a slide, and how laboratories differ."""

    kind: str  # space, needle, panoramic, site
    bank: str  # drawn or real tiles
    plan: Plan
    stains: bool = False  # training patients of several laboratories, test patients of one that is new
    confounding: float = 0.0  # 0.8: nine in ten training patients of a laboratory are of one class


@dataclass(frozen=True)
class Slide:
    """A composed slide."""

    x: Tensor  # (N, d)
    coords: np.ndarray  # (N, 2), level-0 pixels
    tissue: np.ndarray  # (N,), the truth
    label: int
    site: str


@dataclass(frozen=True)
class Cohort:
    """Slides, one of each patient."""

    slides: list[Slide]
    train: np.ndarray  # numbers of slides
    test: np.ndarray

    @property
    def labels(self) -> np.ndarray:
        """Class of each slide."""
        return np.array([slide.label for slide in self.slides])


def guests(
    host: str,
    beside: str,
    guest: str,
    more: Shares,
    rng: np.random.Generator,
    label: int,
    n: int,
    number: dict[str, int],
) -> Arrangement:
    """Lymphocytes in the tumour, or beside it."""
    shares = _varied(rng, {host: 0.40, beside: 0.37, guest: 0.15} | more, number)
    return with_guests(rng, n, shares, number[guest], number[host], ("excluded", "infiltrated")[label])


def needle(
    hosts: Shares, lesion: str, share: float, rng: np.random.Generator, label: int, n: int, number: dict[str, int]
) -> Arrangement:
    """A lesion that the other class does not have."""
    return with_needle(rng, n, _varied(rng, hosts, number), number[lesion], share * label)


def proportions(
    without: Shares, given: Shares, rng: np.random.Generator, label: int, n: int, number: dict[str, int]
) -> Arrangement:
    """More of one tissue and less of another."""
    return of_shares(rng, n, _varied(rng, given if label else without, number))


def subtypes(rng: np.random.Generator, label: int, n: int, number: dict[str, int]) -> Arrangement:
    """The demo's two subtypes, whose proportions overlap."""
    return of_shares(rng, n, rng.dirichlet([mix[label] for mix in MIX.values()]))


def _varied(rng: np.random.Generator, usual: Shares, number: dict[str, int]) -> np.ndarray:
    """Shares (T,) that lie around the usual ones."""
    found = np.zeros(len(number))
    for name, share in usual.items():
        found[number[name]] = share * rng.uniform(0.6, 1.4)
    return found / found.sum()


NODE = {"lymphocytes": 0.6, "stroma": 0.2, "adipose": 0.2}
_drawn_needle = partial(partial, needle, NODE, "glandular tumour")
_real_needle = partial(partial, needle, {"normal": 1.0}, "aca")
_kinds = partial(proportions, {"aca": 0.25, "scc": 0.05, "normal": 0.7}, {"aca": 0.05, "scc": 0.25, "normal": 0.7})
_amounts = partial(proportions, {"aca": 0.25, "normal": 0.75}, {"aca": 0.40, "normal": 0.60})
QUESTIONS = {
    "drawn: infiltrated or excluded": Question(
        "space", "drawn", partial(guests, "glandular tumour", "stroma", "lymphocytes", {"adipose": 0.08})
    ),
    "real: infiltrated or excluded": Question("space", "real", partial(guests, "aca", "normal", "scc", {})),
    **{f"drawn: lesion of {s:g} %": Question("needle", "drawn", _drawn_needle(s / 100)) for s in (0.3, 1, 3)},
    **{f"real: lesion of {s:g} %": Question("needle", "real", _real_needle(s / 100)) for s in (0.3, 1, 3)},
    "drawn: subtype": Question("panoramic", "drawn", subtypes),
    "real: kind of tumour": Question("panoramic", "real", _kinds),
    "real: share of tumour": Question("panoramic", "real", _amounts),
    **{
        f"{bank}: {name}": Question("site", bank, plan, *how)
        for bank, plan in (("drawn", subtypes), ("real", _amounts))
        for name, how in {
            "one stain": (False,),
            "another stain": (True,),
            "another stain, confounded": (True, 0.8),
        }.items()
    },
}


def make_cohort(question: Question, bank: Bank, seed: int) -> Cohort:
    """120 training patients and 120 test patients, who share no tile.

    Every cohort deals the tiles anew: one division for all would be luck that no interval shows.
    """
    return cohort_of(question, bank.dealt(2, np.random.default_rng([seed, 5])), seed)


def cohort_of(question: Question, halves: Sequence[Bank], seed: int) -> Cohort:
    """Training patients of the one bank, test patients of the other."""
    rng = np.random.default_rng([seed, sum(map(ord, question.bank + question.kind))])
    labs = list(rng.permutation([name for name in halves[0].features if name != USUAL]))
    slides = []
    for number in range(TRAIN + TEST):
        half, label = int(number >= TRAIN), number % 2
        lab = _laboratory(question, rng, labs, label, half)
        slides.append(_slide(question, halves[half], rng, label, lab))
    return Cohort(slides, np.arange(TRAIN), np.arange(TRAIN, TRAIN + TEST))


def _laboratory(question: Question, rng: np.random.Generator, labs: list[str], label: int, half: int) -> str:
    if not question.stains:
        return USUAL
    if half:
        return labs[SITES]
    own = rng.uniform() < (1 + question.confounding) / 2  # where labels and laboratories go together
    return labs[label if own else 1 - label]


def _slide(question: Question, bank: Bank, rng: np.random.Generator, label: int, lab: str) -> Slide:
    n = int(rng.choice(PATCHES))
    found = question.plan(rng, label, n, {name: k for k, name in enumerate(bank.names)})
    rows = np.empty(n, np.int64)
    for tissue in np.unique(found.tissue):
        own = found.tissue == tissue
        tiles = rng.choice(bank.rows_of(int(tissue)), OWN, replace=False)
        rows[own] = rng.choice(tiles, int(own.sum()))
    x = bank.features[lab][rows]
    if question.stains:  # batches of one laboratory differ too
        away = np.float32(rng.uniform(0, JITTER))
        x = (1 - away) * x + away * bank.features[USUAL][rows]
    return Slide(torch.from_numpy(np.ascontiguousarray(x)), found.cells * STEP, found.tissue, label, lab)
