"""How far patches lie from their prototypes, and how typical of them they are."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from panther.statistics import compute_dtype, squared_distances
from panther.types import Bag, Prototypes


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
