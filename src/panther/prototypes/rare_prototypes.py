"""Prototypes for rare morphology: some of the C are found among the patches that the others serve worst, and stay there.

K-means goes where patches are many; its next passes would draw a rare prototype back to them (measured in `docs/decisions/0020`).
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from panther.errors import InputError
from panther.prototypes.kmeans import KMeansProblem, kmeans_many
from panther.statistics import squared_distances

TAIL = 0.02  # of the sample: where rare prototypes are looked for
LEAST = 20  # patches of it per rare prototype


class RareCost(NamedTuple):
    """Mean squared distance to the nearest prototype of patches of the sample that are not rare."""

    without: float  # rare prototypes: all are found together
    with_them: float

    def sentence(self, rare: list[int], share: float, count: int) -> str:
        """What is gained and what it costs."""
        names = ", ".join(f"C{c}" for c in rare)
        change = self.with_them / max(self.without, 1e-30) - 1
        much = f"{change:.1%} farther (squared) from" if change > 0 else f"{-change:.1%} nearer (squared) to"
        return (
            f"{names} are kept for rare morphology ({share:.2%} of the patches); the other patches lie {much} their prototypes than with "
            f"{count} common ones."
        )


def with_rare(problem: KMeansProblem, rare: int, usual: Tensor) -> tuple[Tensor, RareCost] | InputError:
    """Centroids (C, d), the last ``rare`` of them found on what lies farthest from the others, and the cost against C ``usual`` ones."""
    _, count, seed, restarts = problem
    x = problem.sample()
    (common,) = kmeans_many([KMeansProblem.on(x, count - rare, seed, restarts)])
    if isinstance(common, InputError):
        return common
    centroids = common[0].centroids
    origin = centroids.mean(0)
    far = squared_distances(x, centroids, origin).amin(-1)
    tail = x[far.topk(min(len(x), max(math.ceil(TAIL * len(x)), LEAST * rare))).indices]
    (found,) = kmeans_many([KMeansProblem.on(tail, rare, seed, restarts)])
    if isinstance(found, InputError):
        return InputError(
            f"The {len(tail)} patches of the sample that are farthest from the other prototypes are too alike to give {rare} rare ones; ask for "
            "fewer with `rare=`."
        )
    centroids = torch.cat([centroids, found[0].centroids])
    nearest, label = squared_distances(x, centroids, origin).min(-1)
    rest = label < count - rare
    before = squared_distances(x, usual, origin).amin(-1)[rest]
    return centroids, RareCost(float(before.double().mean()), float(nearest[rest].double().mean()))
