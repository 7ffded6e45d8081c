"""Rare morphology: the patches that are far from every prototype."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from panther.errors import InputError, not_finite
from panther.execution import HERE, Work, stream
from panther.statistics import compute_dtype, squared_distances
from panther.types import Bag, Openable, Prototypes


class RarePatch(NamedTuple):
    """A patch and how far it is from the nearest prototype."""

    sample: str
    row: int
    x: float | None  # level-0 pixels, or what the file's coordinates count in
    y: float | None
    distance: float  # in units of the within-cluster radius where it is known
    nearest: int  # prototype


@dataclass(frozen=True)
class RareReport:
    """The farthest patches of a cohort, farthest first."""

    patches: list[RarePatch]
    failures: dict[str, str]


def rare_patches(
    bags: Sequence[Openable],
    prototypes: Prototypes,
    count: int = 100,
    *,
    work: Work = HERE,
) -> RareReport:
    """Return the ``count`` patches of a cohort that no prototype stands for; memory does not grow with the cohort."""
    farthest: list[RarePatch] = []
    failures: dict[str, str] = {}
    function = partial(_farthest, prototypes=prototypes, count=count, device=work.device)
    for _, found in stream(function, bags, "looking for rare patches", work, failures):
        farthest = heapq.nlargest(count, [*farthest, *found], key=lambda p: (p.distance, p.sample, p.row))
    if failures and len(failures) == len(bags):
        raise InputError(f"None of the {len(bags)} slides can be read. {next(iter(failures.values()))}")
    return RareReport(farthest, failures)


@torch.no_grad()
def distance_to_nearest(bag: Bag, prototypes: Prototypes, device: str = "cpu") -> tuple[Tensor, Tensor]:
    """Distance of every patch of a prepared bag to its nearest prototype (N,), and which that is (N,)."""
    centroids = prototypes.centroids.to(device, compute_dtype(bag.features.dtype))
    distance, nearest = squared_distances(bag.features, centroids, centroids.mean(0)).cpu().min(-1)
    if not bool(torch.isfinite(distance).all()):
        raise not_finite(bag.source, int((~torch.isfinite(distance)).nonzero()[0]))
    return distance.sqrt(), nearest


def share_beyond(ref: Openable, *, prototypes: Prototypes, reach: float) -> float:
    """Share of a bag's patches that are farther from every prototype than ``reach``."""
    bag = prototypes.prepared(ref.open())
    return float((distance_to_nearest(bag, prototypes)[0] > reach).double().mean()) if len(bag) else 0.0


@torch.no_grad()
def _farthest(ref: Openable, *, prototypes: Prototypes, count: int, device: str) -> list[RarePatch]:
    bag = prototypes.prepared(ref.open())
    if len(bag) == 0:
        return []
    distance, nearest = distance_to_nearest(bag, prototypes, device)
    radius = 1.0 if prototypes.within_variance is None else float(prototypes.within_variance.sum().sqrt()) or 1.0
    values, rows = distance.div(radius).topk(min(count, len(bag)))
    places = [[None, None]] * len(bag) if bag.places is None else bag.places().tolist()
    return [
        RarePatch(bag.slide_id, row, places[row][0], places[row][1], round(float(value), 4), int(nearest[row]))
        for value, row in zip(values, rows.tolist(), strict=True)
    ]
