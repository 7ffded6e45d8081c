"""What the atlas keeps of one slide: a few numbers and candidates per prototype, whatever the number of patches."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from panther.aggregators import build
from panther.errors import InputError
from panther.explain.atlas.exemplars import KINDS, Exemplar, Kind, Place, candidates, random_ranks
from panther.explain.geometry import Grid, grid
from panther.explain.scene import MapSettings, assign, prototype_distances
from panther.explain.touching import Touching, touching
from panther.types import Bag, Openable, Prototypes

EVEN = frozenset({"ot"})  # methods whose plan gives every prototype the share 1/C on every slide: no information


@dataclass(frozen=True)
class AtlasSettings:
    """How an atlas is made."""

    maps: MapSettings = field(default_factory=MapSettings)  # assignment, names and the images' resolutions: as in maps
    exemplars: int = 8  # patches per prototype, of every kind
    seed: int = 0
    kinds: tuple[Kind, ...] = KINDS


@dataclass(frozen=True)
class AtlasJob:
    """One slide of the cohort."""

    ref: Openable
    patient: str
    image: Path | None = None

    @property
    def sample(self) -> str:
        """Name of the slide."""
        return self.ref.sample


@dataclass(frozen=True)
class SlideFacts:
    """What comes back from a worker."""

    slide: str
    patient: str
    weights: np.ndarray  # (C,), pi; of methods in `EVEN` the members' part of the patches
    members: np.ndarray  # (C,), patches whose largest share it is
    exemplars: tuple[Exemplar, ...]  # candidates of all kinds
    touching: Touching | None = None  # None: no coordinates, or no grid
    reason: str = ""  # why there are none

    @property
    def patches(self) -> int:
        """Their number N."""
        return int(self.members.sum())


def describe_slide(job: AtlasJob, prototypes: Prototypes, settings: AtlasSettings) -> SlideFacts:
    """Share, members, neighbours and candidates of one slide."""
    bag = prototypes.prepared(job.ref.open())
    module = build(settings.maps.method, prototypes, settings.maps.options)
    assigned = assign(bag, module, settings.maps.device)
    posteriors = assigned.assignment.float().numpy()
    labels = posteriors.argmax(1)
    count = len(prototypes)
    members = np.bincount(labels, minlength=count)
    shares = members / len(bag) if settings.maps.method in EVEN else assigned.weights.numpy()
    placed, reason = _placed(bag)
    return SlideFacts(
        job.sample,
        job.patient,
        shares,
        members,
        tuple(_exemplars(job, bag, labels, prototypes, settings, placed)),
        None if placed is None else touching(posteriors, placed),
        reason,
    )


def _margins(distances: torch.Tensor, labels: np.ndarray) -> np.ndarray:
    """How much farther (N,) than its own prototype the next one is; infinite where there is no other."""
    own = torch.from_numpy(labels)[:, None]
    others = distances.scatter(1, own, torch.inf).min(1).values
    return (others - distances.gather(1, own)[:, 0]).abs().numpy()


def _exemplars(
    job: AtlasJob,
    bag: Bag,
    labels: np.ndarray,
    prototypes: Prototypes,
    settings: AtlasSettings,
    placed: Grid | None,
) -> list[Exemplar]:
    distances = prototype_distances(bag, prototypes)
    distance = distances.gather(1, torch.from_numpy(labels)[:, None])[:, 0].numpy()
    ranks: dict[str, Callable[[], np.ndarray]] = {
        "nearest": lambda: distance,
        "random": lambda: random_ranks(job.sample, len(bag), settings.seed),
        "borderline": lambda: _margins(distances, labels),
        "farthest": lambda: -distance,
    }
    corners = None if bag.places is None else np.asarray(bag.places(), float).reshape(-1, 2)
    side = _side(bag, placed)
    unit, mpp = bag.spec.coords_unit, bag.spec.mpp_level0
    found = []
    for kind in settings.kinds:
        order = ranks[kind]()
        for c, row in candidates(labels, order, len(prototypes), settings.exemplars):
            x, y = (float("nan"),) * 2 if corners is None else corners[row].tolist()
            place = Place(x, y, side, unit, mpp) if math.isfinite(x) and math.isfinite(y) else None
            rank = float(order[row])
            if math.isfinite(rank):
                found.append(Exemplar(c, kind, job.sample, job.patient, row, float(distance[row]), rank, place))
    return found


def _placed(bag: Bag) -> tuple[Grid | None, str]:
    """Patches' grid, or the reason why there is none: a slide without one still has shares."""
    if bag.places is None:
        return None, "the file has no coordinates"
    try:
        return grid(bag.places(), bag.spec), ""
    except InputError as error:
        return None, str(error).rstrip(".")


def _side(bag: Bag, placed: Grid | None) -> float | None:
    spec = bag.spec
    known = spec.size_level0 if spec.coords_unit == "px" else spec.mpp and spec.size and spec.mpp * spec.size
    if known:
        return float(known)
    return None if placed is None else placed.pitch
