"""Why a threshold can be off where slides are ranked well: how far unseen slides as a whole lie from training slides, and in which numbers.

Used by blind_spots.py. Tiles are few (some 124 of a tissue on each side), so that they differ from side to side by more than patients do, and
prototypes know the very tiles of the training slides.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

import _harness as harness
from _blind_spot_methods import C, bags_of
from _blind_spot_worlds import QUESTIONS, Cohort, cohort_of
from _planted_bank import Bank
from panther.aggregators import build
from panther.prototypes import KMeansSettings, fit_bags

STATISTICS = ("weight", "mean", "variance", "tail_share", "tail_excess", "tail_nearest", "tail_mean", "tail_variance")


class Moved(NamedTuple):
    """Of one statistic, how far test slides without a lesion lie from training slides without one."""

    by_chance: float  # squared, in units of what patients' own differences explain; 1 where test patients are like training patients
    to_lesion: float  # part of the way to the training slides with a lesion


def displacement(question: str, bank: Bank, seeds: Sequence[int]) -> None:
    """Print how far statistics are displaced, for three ways to deal tiles: mean over cohorts."""
    found: dict[str, list[dict[str, Moved]]] = {
        "other tiles": [],
        "prototypes of third tiles": [],
        "the same tiles": [],
    }
    asked = QUESTIONS[question]
    for seed in seeds:
        parts = bank.dealt(3, np.random.default_rng([seed, 5]))
        apart, third, same = (cohort_of(asked, [parts[a], parts[b]], seed) for a, b in ((0, 1), (2, 2), (0, 0)))
        for name, cohort, source in (
            ("other tiles", apart, apart),
            ("prototypes of third tiles", apart, third),
            ("the same tiles", same, same),
        ):
            found[name].append(moved(cohort, source, seed))
    rows = [[s, *(_shown([one[s] for one in found[name]]) for name in found)] for s in STATISTICS]
    harness.table(
        f"{question}: displacement of test slides without a lesion (squared, 1: by chance; part of the way to a lesion)",
        ["statistic", *found],
        rows,
    )


def _shown(cohorts: Sequence[Moved]) -> str:
    by_chance = np.mean([one.by_chance for one in cohorts])
    return f"{by_chance:.1f}; {np.mean([one.to_lesion for one in cohorts]):+.2f}"


def moved(cohort: Cohort, source: Cohort, seed: int) -> dict[str, Moved]:
    """Displacement of every statistic of PANTHER with a tail, on prototypes of another cohort's training slides."""
    known = bags_of(source)
    prototypes = fit_bags([known[i] for i in source.train], KMeansSettings(C, seed=seed)).prototypes
    module = build("panther", prototypes, {"blocks": ["tail"]})
    with torch.no_grad():
        x = torch.stack([module(slide.x).vector for slide in cohort.slides]).double().numpy()
    names = np.array([statistic for _, statistic, _ in module.columns()])
    lesion = cohort.labels == 1
    part = np.isin(np.arange(len(x)), cohort.train)
    groups = x[part & ~lesion], x[~part & ~lesion], x[part & lesion]
    return {s: _moved(*(group[:, names == s] for group in groups)) for s in STATISTICS}


def _moved(train: np.ndarray, test: np.ndarray, lesion: np.ndarray) -> Moved:
    away, gap = test.mean(0) - train.mean(0), lesion.mean(0) - train.mean(0)
    chance = float((train.var(0, ddof=1) / len(train) + test.var(0, ddof=1) / len(test)).sum())
    return Moved(float(away @ away) / chance if chance > 0 else 1.0, float(away @ gap) / float(gap @ gap))
