"""One pass over a cohort for many fits at once: every bag is opened and read once, each block serves all fits that learn from it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from panther.engine import Work, run
from panther.errors import not_finite, too_large
from panther.prototypes.patches import in_order
from panther.statistics import Logits, Statistics, accumulate, block_rows, can_be_squared, first_bad_row, nearest
from panther.store import HashedRows
from panther.types import Openable, Projection

# blocks of the kernel that are read at once: each is walked over in the second cache, and all of them stay in the third
READ_BLOCKS = {"cpu": 8}
# a larger sum may hold a number that cannot be squared in float32: its bag is checked, ROWS patches at a time
SUSPECT, ROWS = 1e15, 4096


class PassRequest(NamedTuple):
    """What a pass computes for one fit; small enough to send."""

    centroids: Tensor  # (C, d), on the CPU: each worker moves them to the device itself
    origin: Tensor  # (d,)
    projection: Projection
    measure: bool  # squares and hashes of the features as well

    def on(self, device: str) -> tuple[Logits, Tensor]:
        """Assignment and origin, on the device."""
        origin = self.origin.to(device)
        return nearest(self.centroids.to(device) - origin), origin


@dataclass
class CohortPass:
    """Result of one pass for one fit."""

    sums: Statistics | None = None  # added up in the order of the walk, whichever worker computed them; None: of no bag
    slide_mass: dict[str, Tensor] = field(default_factory=dict)
    contents: dict[str, str] = field(default_factory=dict)  # slide or patient -> hash of its features, if measured
    failures: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, sums: Statistics, content: str | None) -> None:
        """Add one bag."""
        self.slide_mass[name] = sums.mass
        self.sums = sums if self.sums is None else self.sums.merge(sums)
        if content is not None:
            self.contents[name] = content


def pass_over(
    fits: Sequence[tuple[Sequence[Openable], PassRequest]], work: Work, what: str, *, backwards: bool = False
) -> list[CohortPass]:
    """Statistics of all patches of every fit (bags, request).

    Bags are read in the order of their names, or ``backwards``: the bags that the pass before read last are still in the page cache, and
    of a cohort larger than the memory no others are.
    """
    fits_of: dict[Openable, tuple[int, ...]] = dict.fromkeys(in_order(bags for bags, _ in fits), ())
    for number, (bags, _) in enumerate(fits):
        for bag in bags:
            fits_of[bag] += (number,)
    jobs = list(reversed(fits_of.items()) if backwards else fits_of.items())
    function = partial(_sums_of_bag, requests=[request for _, request in fits], device=work.device)
    passes = [CohortPass() for _ in fits]
    for (bag, numbers), result in zip(jobs, run(function, jobs, what, work), strict=True):
        reasons: list[Statistics | str] = [str(result.reason)] * len(numbers)
        sums_of_fits, content = result.value or (reasons, None)
        for number, sums in zip(numbers, sums_of_fits, strict=True):
            if isinstance(sums, str):
                passes[number].failures[bag.sample] = sums
            else:
                passes[number].add(bag.sample, sums, content if fits[number][1].measure else None)
    for passed in passes:  # by name, whatever the order of the walk
        passed.slide_mass, passed.contents = (
            dict(sorted(passed.slide_mass.items())),
            dict(sorted(passed.contents.items())),
        )
        passed.failures = dict(sorted(passed.failures.items()))
    return passes


@torch.no_grad()
def _sums_of_bag(
    job: tuple[Openable, tuple[int, ...]], *, requests: Sequence[PassRequest], device: str
) -> tuple[list[Statistics | str], str | None]:
    """Sums of each fit that uses the bag, or why there are none; and the hash of its features where a fit measures."""
    bag = job[0].open()
    wanted = [requests[number] for number in job[1]]
    hashed = HashedRows(bag.features) if any(request.measure for request in wanted) else None
    rows = bag.features if hashed is None else hashed
    kernels = [request.on(device) for request in wanted]
    sums: list[Statistics | None] = [None] * len(wanted)
    kind = torch.device(device).type
    step = block_rows(bag.dim, 4, kind) * READ_BLOCKS.get(kind, 1)
    for start in range(0, max(len(bag), 1), step):  # an empty bag is refused by the kernel
        block = rows[start : start + step].to(device)
        for place, (request, (assign, origin)) in enumerate(zip(wanted, kernels, strict=True)):
            part = accumulate(request.projection(block), assign, origin, squares=request.measure).statistics
            if not request.measure:
                part = part._replace(square=part.score.new_zeros(()))  # unused, and all sums are sent
            before = sums[place]
            sums[place] = part if before is None else before.merge(part)
    known = [s for s in sums if s is not None]
    finite = [bool(torch.isfinite(s.total).all() and torch.isfinite(s.square).all()) for s in known]
    if any(float(s.total.abs().max()) > SUSPECT for s in known):  # squares are summed in the last pass only
        fits = all(bool(can_be_squared(bag.features[i : i + ROWS]).all()) for i in range(0, len(bag), ROWS))
        finite = [good and fits for good in finite]
    reason = ""
    if not all(finite):
        row = first_bad_row(bag.features)
        reason = str(too_large(bag.source) if row is None else not_finite(bag.source, row))
    usable = [Statistics(*(t.cpu() for t in s)) if good else reason for s, good in zip(known, finite, strict=True)]
    return usable, None if hashed is None else hashed.digest()
