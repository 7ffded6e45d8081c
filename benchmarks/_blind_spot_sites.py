"""What a user meets: a model of a few laboratories, and an external cohort of several others.

On one new laboratory a stain moves all patients alike, which moves a threshold and not their order. So patients of five new laboratories are
judged together (pooled AUC: laboratories that are displaced differently get mixed up), each by itself, and at the threshold that was trained.
Reached by `blind_spots.py --sites`.
"""

import argparse
from collections.abc import Container, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
import torch

from _blind_spot_cells import Cell, Job, judged
from _blind_spot_methods import Row, answers
from _blind_spot_site_banks import bank_path, make_site_banks
from _blind_spot_site_tables import tell_sites
from _blind_spot_worlds import JITTER, OWN, STEP, Cohort, Plan, Slide, proportions, subtypes
from _planted_bank import USUAL, Bank

SPREADS = (2.5, 6.0)  # how much stronger stains differ than the demo's sites: strong, and stronger than one should meet
TRAIN_SITES, TEST_SITES = 3, 5
TRAIN, TEST = 30, 20  # patients of each site
PATCHES = (280, 300, 320)
DIMS = 128
EVEN = (0.5,) * TRAIN_SITES
TOGETHER = (0.1, 0.9, 0.5)  # share of class 1 in the training laboratories, where label and site go together
DIFFERENT = (0.1, 0.3, 0.5, 0.7, 0.9)  # in the new laboratories, where they send other patients

FAST = {"sample": 6000, "restarts": 2, "passes": 1}  # of K-means
NORMALISED = "PANTHER, tiles normalised (Macenko)"
ROWS = {
    "PANTHER": Row("panther", {}, FAST),
    "PANTHER, centred by slide": Row("panther", {}, {**FAST, "centre": "slide"}),
    "PANTHER, centred by site": Row("panther", {}, {**FAST, "centre": "site"}),
    NORMALISED: Row("panther", {}, FAST),
    "DeepSets": Row("deepsets", {}, FAST),
    "ProtoCounts": Row("protocounts", {}, FAST),
}

PLANS: dict[str, Plan] = {
    "drawn": subtypes,
    "real": lambda *given: proportions({"aca": 0.25, "normal": 0.75}, {"aca": 0.40, "normal": 0.60}, *given),
}


@dataclass(frozen=True)
class SiteQuestion:
    """How laboratories differ, in stain and in patients."""

    bank: str  # drawn or real tiles
    spread: float  # of stains; 0: all have the usual one
    train: tuple[float, ...] = EVEN  # share of class 1 in each training laboratory
    test: tuple[float, ...] = (0.5,) * TEST_SITES

    def patients(self) -> tuple[np.ndarray, np.ndarray]:
        """Number of the laboratory (those of training first) and class of every patient."""
        sizes = [TRAIN] * TRAIN_SITES + [TEST] * TEST_SITES
        positive = [round(n * share) for n, share in zip(sizes, (*self.train, *self.test), strict=True)]
        labels = [np.arange(n) < p for n, p in zip(sizes, positive, strict=True)]
        return np.repeat(np.arange(len(sizes)), sizes), np.concatenate(labels).astype(int)

    def tested(self) -> tuple[np.ndarray, np.ndarray]:
        """The same of the test patients."""
        sites, labels = self.patients()
        return sites[TRAIN * TRAIN_SITES :], labels[TRAIN * TRAIN_SITES :]


def questions() -> dict[str, SiteQuestion]:
    """Every question: without a shift, with one, with one that goes with the label, and with sites that send other patients."""
    found = {}
    for bank in PLANS:
        for spread in (0.0, *SPREADS):
            name = f"{bank}, {f'stains {spread:g}' if spread else 'one stain'}"
            found[name] = SiteQuestion(bank, spread)
            if spread:
                found[f"{name}, confounded"] = SiteQuestion(bank, spread, train=TOGETHER)
            found[f"{name}, other patients"] = SiteQuestion(bank, spread, test=DIFFERENT)
    return found


def make_site_cohort(question: SiteQuestion, bank: Bank, seed: int) -> Cohort:
    """Slides of 90 training and 100 test patients, who share no tile; the same tiles whatever the bank's stains are.

    Every cohort deals the tiles anew: one division for all would be luck that no interval shows.
    """
    halves = bank.dealt(2, np.random.default_rng([seed, 5]))
    rng = np.random.default_rng([seed, 18, sum(map(ord, question.bank))])
    labs = list(rng.permutation(sorted(name for name in bank.features if name != USUAL)))
    sites, labels = question.patients()
    slides = [
        _slide(question, halves[int(site >= TRAIN_SITES)], rng, labs[site], int(label))
        for site, label in zip(sites, labels, strict=True)
    ]
    cut = TRAIN * TRAIN_SITES
    return Cohort(slides, np.arange(cut), np.arange(cut, len(slides)))


def _slide(question: SiteQuestion, bank: Bank, rng: np.random.Generator, lab: str, label: int) -> Slide:
    n = int(rng.choice(PATCHES))
    found = PLANS[question.bank](rng, label, n, {name: k for k, name in enumerate(bank.names)})
    rows = np.empty(n, np.int64)
    for tissue in np.unique(found.tissue):
        own = found.tissue == tissue
        tiles = rng.choice(bank.rows_of(int(tissue)), OWN, replace=False)
        rows[own] = rng.choice(tiles, int(own.sum()))
    away = np.float32(rng.uniform(0, JITTER) if question.spread else 1.0)  # batches of one laboratory differ too
    x = (1 - away) * bank.features[lab][rows] + away * bank.features[USUAL][rows]
    return Slide(torch.from_numpy(np.ascontiguousarray(x)), found.cells * STEP, found.tissue, label, lab)


@lru_cache(maxsize=4)
def small_bank(path: Path) -> Bank:
    """Principal components of a bank's features over all its stains: a tenth of the numbers, so that two cores can judge many cohorts."""
    bank = Bank.load(path)
    every = np.concatenate(list(bank.features.values()))
    mean = every.mean(0)
    _, axes = np.linalg.eigh(np.cov(every.T))
    basis = axes[:, : -DIMS - 1 : -1].astype(np.float32)
    return replace(bank, features={lab: (x - mean) @ basis for lab, x in bank.features.items()})


def judge(name: str, seed: int, methods: list[str], how: argparse.Namespace) -> list[tuple[Cell, list[float]]]:
    """Logits of the test patients by rows."""
    torch.set_num_threads(1)
    question = questions()[name]
    found = []
    for normalised in (False, True):
        rows = {method: ROWS[method] for method in methods if (method == NORMALISED) == normalised}
        path = bank_path(how.banks, question.bank, question.spread or SPREADS[0], normalised)
        if rows:
            found += answers(rows, make_site_cohort(question, small_bank(path), seed), seed)
    return [((name, seed, method), np.round(logits, 4).tolist()) for method, logits in found]


def asked_of(how: argparse.Namespace) -> dict[str, SiteQuestion]:
    """Questions that are asked, and can be of the tiles there are."""
    kinds = ("drawn",) if how.tiles is None else ("drawn", "real")
    spreads = (0.0, *SPREADS[:1]) if how.quick else (0.0, *SPREADS)
    return {n: q for n, q in questions().items() if how.only in n and q.bank in kinds and q.spread in spreads}


def jobs(how: argparse.Namespace, done: Container[Cell]) -> Iterator[Job]:
    """What is missing, seed by seed."""
    methods = [method for method in ROWS if how.macenko or method != NORMALISED]
    for seed in range(how.first_seed, how.first_seed + how.seeds):
        for name in asked_of(how):
            missing = [method for method in methods if (name, seed, method) not in done]
            if missing:
                yield name, seed, missing


def run_sites(how: argparse.Namespace) -> None:
    """Judge what is missing and print all of it."""
    make_site_banks(how, sorted({(q.bank, q.spread or SPREADS[0]) for q in asked_of(how).values()}))
    tell_sites(judged(judge, partial(jobs, how), how), questions(), list(ROWS))
