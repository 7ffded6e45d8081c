"""Assignment of patches to prototypes by the method of the embedding, and distances to the centroids."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from panther.aggregators.embed import run_on
from panther.aggregators.sharing import placed
from panther.errors import InputError, not_finite
from panther.statistics import compute_dtype, first_bad_row, squared_distances
from panther.statistics.upload import near
from panther.types import Aggregator, Bag, Prototypes


class Assigned(NamedTuple):
    """Patches' shares of the prototypes, and the slide's."""

    assignment: Tensor  # (N, C), rows add up to 1
    weights: Tensor  # (C,), pi of the embedding where the method has one, else the mean of the rows


def assign(bag: Bag, module: Aggregator, device: str = "cpu") -> Assigned:
    """Assignment (N, C) of a prepared bag (`Prototypes.prepared`); one without patches or with NaN is refused.

    PANTHER's is the posterior :math:`q(c|z_n)` that made the parameters; a row of OT's plan is divided by its mass 1/N; the nearest
    prototype's methods (H2T, ProtoCounts) give ones and zeros. The result is in this process's memory, whatever ``device`` computes it.
    """
    check_patches(bag)
    there = replace(bag, features=near(bag.features, device))
    embedding = run_on(there, placed(module, torch.device(device)), with_assignment=True)
    rows = embedding.assignment
    # only methods with prototypes have a per-prototype view or masses
    if rows is None or "mass" not in embedding.aux:
        raise InputError(
            f"The method {type(module).__name__} does not assign patches to prototypes; use panther, ot, h2t or protocounts."
        )
    rows = (rows / rows.sum(-1, keepdim=True)).cpu()
    # a hard assignment looks sound even for NaN, the embedding does not
    if not bool(torch.isfinite(rows).all()) or not bool(torch.isfinite(embedding.vector).all()) or _bad(bag, rows):
        bad = first_bad_row(bag.features)
        if bad is None:
            raise InputError(f"{bag.source}: features are too large to square in float32; rescale them.")
        raise not_finite(bag.source, bad)
    weights = embedding.aux.get("weights")
    return Assigned(rows, rows.double().mean(0) if weights is None else weights.detach().cpu().double())


def check_patches(bag: Bag) -> None:
    """Refuse a bag without patches."""
    if len(bag) == 0:
        raise InputError(f"{bag.source}: zero patches; there is nothing to map.")


def _bad(bag: Bag, rows: Tensor) -> bool:
    """Counts of a hard assignment forget NaN: there the features themselves must be looked at."""
    hard = bool(((rows == 0) | (rows == 1)).all())
    return hard and first_bad_row(bag.features) is not None


@dataclass(frozen=True, eq=False)
class Distances:
    """Distances of the patches of one slide: a few numbers a patch, whatever the number of prototypes."""

    own: np.ndarray  # (N,), to the prototype that the patch belongs to
    nearest: np.ndarray  # (N,), the nearest prototype; most often the same
    to_nearest: np.ndarray  # (N,)


def prototype_distances(bag: Bag, prototypes: Prototypes) -> Tensor:
    """Euclidean distance (N, C) of every patch of a prepared bag to every prototype.

    Posteriors cannot order members: in a thousand dimensions nearly all of them are 1.
    """
    x = bag.features
    centroids = prototypes.centroids.to(compute_dtype(x.dtype))
    return squared_distances(x, centroids, centroids.mean(0)).double().sqrt()


def distances(bag: Bag, prototypes: Prototypes, labels: np.ndarray) -> Distances:
    """Distances of the patches of a prepared bag, which belong to the prototypes ``labels`` (N,)."""
    apart = prototype_distances(bag, prototypes)
    own = apart.gather(1, torch.from_numpy(labels)[:, None])[:, 0]
    least, nearest = apart.min(1)
    return Distances(own.numpy(), nearest.numpy(), least.numpy())


def share_farther(own: np.ndarray, labels: np.ndarray, patch: int) -> float | None:
    """Share of the other patches of the same prototype that lie farther from it: near 1 is typical; None where it is the only one."""
    others = labels == labels[patch]
    others[patch] = False
    return float((own[others] > own[patch]).mean()) if others.any() else None
