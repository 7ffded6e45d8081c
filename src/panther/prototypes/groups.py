"""Which fits walk over the cohort together: as many as their samples fit into memory."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from panther.machine import cores, free_memory
from panther.prototypes.draw import Draw
from panther.prototypes.kmeans import samples_at_work
from panther.prototypes.patches import Scan
from panther.prototypes.settings import KMeansSettings

WORKER_BYTES = 192 << 20  # of what is free, for each core's worker and K-means; samples may have the rest


class Plan(NamedTuple):
    """One fit before any patch of it was read."""

    number: int  # position among those asked for
    settings: KMeansSettings
    scan: Scan


Plans = Mapping[Draw, Sequence[Plan]]  # by the sample that they share


def groups(planned: Plans) -> Iterator[Plans]:
    """Fits whose samples fit into memory together, beside copies of those that K-means works on: each group is another round of walks."""
    there = free_memory() - WORKER_BYTES * cores()
    group = _Group(there)
    for draw, plans in planned.items():
        joined = group.joined(draw, plans)
        if group.plans and joined.nbytes > joined.room:
            yield group.plans
            joined = _Group(there).joined(draw, plans)
        group = joined
    if group.plans:
        yield group.plans


@dataclass(frozen=True)
class _Group:
    """Fits, and the memory of their samples."""

    room: float  # bytes that they may take
    plans: Plans = field(default_factory=dict)
    parts: Mapping[Hashable, int] = field(default_factory=dict)  # bytes of what is drawn from each bag, once for all
    projected: int = 0  # bytes of samples that are held as their fits see them

    @property
    def nbytes(self) -> int:
        """Memory that they take."""
        copies = samples_at_work(len(self.plans)) * max(draw.nbytes for draw in self.plans)
        return sum(self.parts.values()) + self.projected + copies

    def joined(self, draw: Draw, plans: Sequence[Plan]) -> "_Group":
        """The group with further fits on one sample."""
        views = {(plan.settings.normalise, plan.settings.pca) for plan in plans if plan.settings.projects}
        room = min(self.room, *(plan.settings.memory_gb * 1e9 for plan in plans))
        projected = self.projected + len(views) * draw.nbytes
        return _Group(room, {**self.plans, draw: plans}, {**self.parts, **draw.parts()}, projected)
