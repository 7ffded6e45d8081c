"""Choosing C from the data: which numbers of prototypes come back in both halves of a cohort, and what more of them would buy."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from panther.errors import InputError
from panther.execution import HERE, Work
from panther.prototypes.candidates import Judged, judge
from panther.prototypes.patches import sample_patches
from panther.prototypes.recommend import PARTS, Choice, Cohort, recommend
from panther.prototypes.reproducibility import random_halves
from panther.prototypes.settings import KMeansSettings
from panther.types import Openable, Projection

COARSE, FINE = 9, 12  # candidates of the first grid; at most that many beside the recommended one afterwards
HALVINGS = 5
LEAST_PATCHES = 2  # a prototype, in each half
SLIDE_PARTS = 20  # that stand for slides where there is only one


@torch.no_grad()
def choose_c(
    samples: Sequence[Openable],
    numbers: tuple[int, int],
    settings: KMeansSettings,
    *,
    patients: Mapping[str, str] | None = None,
    work: Work = HERE,
) -> Choice:
    """Compare numbers of prototypes on random halves of the cohort, each judged on the other.

    Parameters
    ----------
    samples : sequence of Openable
        Slides to sample patches from.
    numbers : tuple of int
        Smallest and largest C.
    settings : KMeansSettings
        Seed, size of the sample, restarts, normalisation.
    patients : mapping, optional
        Patient of each slide; halves are then halves of the patients.
    """
    smallest, largest = numbers
    if not 1 <= smallest < largest:
        raise InputError(f"The range {smallest}:{largest} is empty; give two numbers, the smaller first, e.g. 4:64.")
    patches = sample_patches(samples, replace(settings, n_prototypes=largest), work)
    x = Projection(normalise=settings.normalise)(patches.x)
    names = [sample.sample for sample in samples]
    owner, unit = _units(patches.owner, names, patients, settings.seed)
    cohort = Cohort(unit, int(owner.max()) + 1, HALVINGS, dict(patches.failures))
    halvings = list(random_halves(owner, settings.seed, HALVINGS))
    _check_size(min(len(half) for rows in halvings for half in rows), largest, cohort, len(x))
    known: dict[int, Judged] = {}
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


def _check_size(half: int, largest: int, cohort: Cohort, patches: int) -> None:
    if half < LEAST_PATCHES * largest:
        possible = half // LEAST_PATCHES
        advice = f"a range up to {possible}" if possible > 1 else "a fixed number (-C)"
        raise InputError(
            f"{patches} patches of {cohort.units} {cohort.unit} are too few to compare up to {largest} prototypes: the smaller half has {half}, "
            f"and {LEAST_PATCHES} for each prototype are needed; give more, or {advice}."
        )


def _coarse(smallest: int, largest: int) -> list[int]:
    """A geometric grid."""
    steps = min(COARSE, largest - smallest + 1)
    return sorted({round(smallest * (largest / smallest) ** (i / (steps - 1))) for i in range(steps)})


def _beside(known: Mapping[int, Judged], recommended: int) -> list[int]:
    """All numbers about the recommended one, thinned if they are many: from the grid's next smaller to its second larger.

    Two steps up, as prototypes may fail to come back at one number (four of five tissues, one of them cut in two) and come back at the next.
    """
    grid = sorted(known)
    place = grid.index(recommended)
    low, high = grid[max(place - 1, 0)], grid[min(place + 2, len(grid) - 1)]
    inside = [c for c in range(low + 1, high) if c not in known]
    return inside[:: math.ceil(len(inside) / FINE)] if inside else []


def parse_count(text: str) -> int:
    """`16` as a number."""
    try:
        return int(text)
    except ValueError as error:
        raise InputError(f"-C {text!r} is not understood; give a number, or auto.") from error


def parse_range(text: str) -> tuple[int, int]:
    """`4:64` as two numbers."""
    parts: Iterable[str] = text.split(":")
    try:
        smallest, largest = (int(part) for part in parts)
    except ValueError as error:
        raise InputError(f"The range {text!r} is not understood; give two numbers like 4:64.") from error
    return smallest, largest
