"""Choosing C from the data: which numbers of prototypes come back in both halves of a cohort, and what more of them would buy."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from panther.engine import HERE, Work
from panther.errors import InputError
from panther.limits import plain
from panther.prototypes.candidates import CandidateScores, judge
from panther.prototypes.draw import sample_patches
from panther.prototypes.recommend import PARTS, Choice, HalvedCohort, recommend
from panther.prototypes.reproducibility import random_halves
from panther.prototypes.settings import KMeansSettings, kmeans_settings
from panther.storage.bags import BagsLike
from panther.storage.clinical import USUAL, ColumnsLike, select_training_slides
from panther.types import Openable, Projection

if TYPE_CHECKING:
    import pandas as pd

COARSE, FINE = 9, 12  # candidates of the first grid; at most that many beside the recommended one afterwards
HALVINGS = 5
LEAST_PATCHES = 2  # a prototype, in each half
SLIDE_PARTS = 20  # that stand for slides where there is only one


def choose_c(
    features: BagsLike,
    smallest: int = 2,
    largest: int = 64,
    *,
    table: "Path | str | pd.DataFrame | None" = None,
    split: str | None = None,
    columns: ColumnsLike = USUAL,
    seed: int = 0,
    work: Work = HERE,
    **settings: Any,
) -> Choice:
    """Recommend a number of prototypes: which come back in both halves of the cohort, and what more would buy.

    Parameters
    ----------
    features : path, list, mapping or Listing
        Features, as :func:`panther.storage.bags.as_bags` takes them.
    smallest, largest : int
        Range of numbers that are compared.
    table : path or DataFrame, optional
        Clinical table: only its slides are used, and halves are halves of its patients.
    split : str, optional
        Part of the table, e.g. "train".
    columns : Columns or dict
        Names of the table's slide and patient columns, where they are not the usual ones.
    seed : int
        Same seed and features: same choice.
    work : Work
        How work is run.
    **settings
        Further settings of :class:`panther.prototypes.KMeansSettings`: `sample`, `share`, `restarts`, `normalise`.

    Returns
    -------
    Choice
        The `recommended` number, a `sentence` that says why, the `candidates` with their criteria, and `failures`.

    Examples
    --------
    >>> import numpy as np
    >>> from panther import choose_c
    >>> rng = np.random.default_rng(0)
    >>> tissues = rng.normal(size=(4, 1, 16)) * 3
    >>> bags = [(tissues + rng.normal(size=(4, 40, 16))).reshape(-1, 16).astype("float32") for _ in range(6)]
    >>> choose_c(bags, 2, 8).recommended
    4
    """
    if "n_prototypes" in settings:
        raise InputError("The number of prototypes is what is looked for; give the range, `smallest=` and `largest=`.")
    how = kmeans_settings(settings, seed=seed, restarts=3)
    chosen = select_training_slides(features, table, split, columns=columns)
    choice = compare_numbers(chosen.refs, (smallest, largest), how, patients=chosen.patients(), work=work)
    return replace(choice, failures={**chosen.problems, **choice.failures})


@torch.no_grad()
def compare_numbers(
    bags: Sequence[Openable],
    numbers: tuple[int, int],
    settings: KMeansSettings,
    *,
    patients: Mapping[str, str] | None = None,
    work: Work = HERE,
) -> Choice:
    """Compare numbers of prototypes, from the smallest to the largest, on random halves of the cohort, each judged on the other.

    ``patients`` is the patient of each slide; halves are then halves of the patients.
    """
    smallest, largest = plain(numbers)
    if not (isinstance(smallest, int) and isinstance(largest, int)):
        raise InputError(
            f"The range is from {smallest!r} to {largest!r}; give two whole numbers, `smallest=` and `largest=`, e.g. 2 and 64."
        )
    if not 1 <= smallest < largest:
        raise InputError(f"The range {smallest}:{largest} is empty; give two numbers, the smaller first, e.g. 4:64.")
    patches, drawn = sample_patches(bags, settings, work)
    x = Projection(normalise=settings.normalise)(patches.gathered()).to(work.device)
    owner, unit = _units(patches.owner, [bag.sample for bag in drawn], patients, settings.seed)
    cohort = HalvedCohort(unit, int(owner.max()) + 1, HALVINGS, dict(patches.failures))
    halvings = list(random_halves(owner, settings.seed, HALVINGS))
    _check_size(min(len(half) for rows in halvings for half in rows), largest, cohort, len(x))
    known: dict[int, CandidateScores] = {}
    for refine in (False, True):
        wanted = _beside(known, recommend(known, cohort).recommended) if refine else _coarse(smallest, largest)
        for c in work.track(wanted, "comparing numbers of prototypes", len(wanted)):
            known[c] = judge(c, x, owner, halvings, settings)
    return recommend(known, cohort)


def _units(owner: Tensor, names: Sequence[str], patients: Mapping[str, str] | None, seed: int) -> tuple[Tensor, str]:
    """Whose patches are kept together, numbered from 0: patients, else slides, else parts of the one slide there is."""
    if patients is not None:
        numbers = {name: i for i, name in enumerate(dict.fromkeys(patients.get(n, n) for n in names))}
        owner = torch.tensor([numbers[patients.get(n, n)] for n in names])[owner]
    units = owner.unique(return_inverse=True)[1]
    if int(units.max()) > 0:
        return units, "slides" if patients is None else "patients"
    order = torch.randperm(len(owner), generator=torch.Generator().manual_seed(seed))
    return order % min(SLIDE_PARTS, len(owner)), PARTS


def _check_size(half: int, largest: int, cohort: HalvedCohort, patches: int) -> None:
    if half < LEAST_PATCHES * largest:
        possible = half // LEAST_PATCHES
        advice = f"a range up to {possible}" if possible > 1 else "a fixed number to `panther prototypes -C`"
        raise InputError(
            f"{patches} patches of {cohort.units} {cohort.unit} are too few to compare up to {largest} prototypes: the smaller half has {half}, "
            f"and {LEAST_PATCHES} for each prototype are needed; give more, or {advice}."
        )


def _coarse(smallest: int, largest: int) -> list[int]:
    """A geometric grid."""
    steps = min(COARSE, largest - smallest + 1)
    return sorted({round(smallest * (largest / smallest) ** (i / (steps - 1))) for i in range(steps)})


def _beside(known: Mapping[int, CandidateScores], recommended: int) -> list[int]:
    """All numbers about the recommended one, thinned if they are many: from the grid's next smaller to its second larger.

    Two steps up, as prototypes may fail to come back at one number (four of five tissues, one of them cut in two) and come back at the next.
    """
    grid = sorted(known)
    place = grid.index(recommended)
    low, high = grid[max(place - 1, 0)], grid[min(place + 2, len(grid) - 1)]
    inside = [c for c in range(low + 1, high) if c not in known]
    return inside[:: math.ceil(len(inside) / FINE)] if inside else []
