"""The sample that K-means starts on: patches drawn uniformly over a cohort, for many fits from one walk over their bags.

Which patches a bag gives depends on the seed, the bag and their number alone, so folds draw mostly the same ones: they are held once.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor

from panther.engine import Work
from panther.errors import InputError, not_finite, too_large
from panther.prototypes.patches import Scan, example, in_order, scan_bags, walk
from panther.prototypes.sampling import allocate, choose_rows
from panther.prototypes.settings import KMeansSettings
from panther.statistics import can_be_squared, take
from panther.types import Openable


@dataclass(frozen=True)
class Draw:
    """How many patches each bag gives: all that is known of a sample before any is read. Equal draws give one and the same sample."""

    bags: tuple[Openable, ...]  # those with patches, in the order of their names
    sizes: tuple[int, ...]
    seed: int
    dim: int

    @property
    def nbytes(self) -> int:
        """Memory of the sample."""
        return sum(self.sizes) * self.dim * 4

    def parts(self) -> dict[Hashable, int]:
        """Memory of what it draws from each bag; draws hold together what they have in common."""
        each = zip(self.bags, self.sizes, strict=True)
        return {(bag, size, self.seed): size * self.dim * 4 for bag, size in each}


@dataclass
class PatchSample:
    """Sampled patches and where they are from."""

    dim: int
    parts: list["_Part"] = field(default_factory=list)  # in the order of the bags
    failures: dict[str, str] = field(default_factory=dict)  # slide or patient -> sentence

    def __len__(self) -> int:
        """Number of patches."""
        return sum(len(part.pick) for part in self.parts)

    def gathered(self) -> Tensor:
        """All patches (m, d) in float32, copied from what samples hold together."""
        x = torch.empty(len(self), self.dim)
        for part, rows in zip(self.parts, x.split([len(part.pick) for part in self.parts]), strict=True):
            torch.index_select(part.rows, 0, part.pick, out=rows)
        return x

    @property
    def owner(self) -> Tensor:
        """Index of each patch's bag in the draw, (m,)."""
        return torch.cat([torch.full((len(part.pick),), part.place) for part in self.parts])

    def add(self, taken: "_Taken", number: int, place: int, name: str) -> None:
        """Take in what draw ``number`` of a bag has taken."""
        why = taken.unusable[number]
        if why is None:
            self.parts.append(_Part(taken.rows, taken.picks[number], place))
        else:
            self.failures[name] = why


class _Part(NamedTuple):
    """What a sample has of one bag."""

    rows: Tensor  # (n, d), of all samples
    pick: Tensor  # those of this one
    place: int  # of the bag in the draw


def plan_draw(bags: Sequence[Openable], scan: Scan, settings: KMeansSettings) -> Draw:
    """Spread the sample over the bags that have patches."""
    infos, failures = scan
    if not bags:
        raise InputError("There are no slides to learn prototypes from: the list is empty.")
    usable = [bag for bag in in_order([bags]) if bag.sample in infos and infos[bag.sample].patches]
    if not usable:
        raise _nothing_usable(bags, failures)
    dim = infos[usable[0].sample].dim
    limit = min(settings.sample, int(settings.memory_gb * 1e9 / (dim * 4 * 2)))  # the sample and one copy of it
    sizes = allocate([infos[bag.sample].patches for bag in usable], limit, settings.share)
    return Draw(tuple(usable), tuple(sizes), settings.seed, dim)


def draw_patches(draws: Sequence[Draw], work: Work) -> list[PatchSample]:
    """All samples from one walk: a bag is opened once for all draws; one that fails is left out and listed."""
    samples = [PatchSample(draw.dim) for draw in draws]
    bags = in_order(draw.bags for draw in draws)
    takers: dict[Openable, list[tuple[int, int]]] = {bag: [] for bag in bags}  # draw, place of the bag in it
    for number, draw in enumerate(draws):
        for place, (bag, size) in enumerate(zip(draw.bags, draw.sizes, strict=True)):
            if size:
                takers[bag].append((number, place))
    jobs = [
        (bag, tuple((draws[number].sizes[place], draws[number].seed) for number, place in takers[bag]))
        for bag in bags
        if takers[bag]
    ]
    for result in walk(_take, jobs, "sampling patches", work):
        bag = jobs[result.index][0]
        for pick, (number, place) in enumerate(takers[bag]):
            if result.value is None:
                samples[number].failures[bag.sample] = str(result.reason)
            else:
                samples[number].add(result.value, pick, place, bag.sample)
    return samples


def sample_patches(
    bags: Sequence[Openable], settings: KMeansSettings, work: Work
) -> tuple[PatchSample, tuple[Openable, ...]]:
    """Sample of one cohort, and the bags that its owners count."""
    scan = scan_bags(bags, work)
    draw = plan_draw(bags, scan, settings)
    (sample,) = draw_patches([draw], work)
    sample = replace(sample, failures={**scan[1], **sample.failures})
    if not len(sample):
        raise _nothing_usable(bags, sample.failures)
    return sample, draw.bags


def _nothing_usable(bags: Sequence[Openable], failures: Mapping[str, str]) -> InputError:
    return InputError(f"None of the {len(bags)} slides has patches to learn prototypes from. {example(failures)}")


def check_enough(sample: PatchSample, failures: Mapping[str, str], settings: KMeansSettings) -> None:
    """Refuse a sample with fewer patches than prototypes."""
    if not len(sample):
        raise InputError(f"No slide has patches that prototypes can be learned from. {example(failures)}")
    if len(sample) < settings.n_prototypes:
        raise InputError(
            f"{len(sample)} patches cannot give {settings.n_prototypes} prototypes; ask for fewer with `n_prototypes=`. {example(failures)}"
        )


class _Taken(NamedTuple):
    """Rows of one bag for all draws; what several draws share travels once."""

    rows: Tensor  # (n, d)
    picks: list[Tensor]  # of each draw, indices into `rows`
    unusable: list[str | None]  # of each draw, what is wrong with its rows of the bag


def _take(job: tuple[Openable, tuple[tuple[int, int], ...]]) -> _Taken:
    ref, draws = job
    bag = ref.open()
    chosen = [choose_rows(ref.sample, len(bag), size, seed) for size, seed in draws]
    index = torch.cat(chosen).unique()
    rows = take(bag.features, index)
    single = rows.float()  # float64 holds numbers that this does not
    finite, fits = torch.isfinite(rows).all(-1), can_be_squared(single)
    picks = [torch.searchsorted(index, mine) for mine in chosen]
    return _Taken(single, picks, [_unusable(bag.source, index[p], finite[p], fits[p]) for p in picks])


def _unusable(source: str, index: Tensor, finite: Tensor, fits: Tensor) -> str | None:
    """What is wrong with these rows of a bag, if anything is: with their numbers, or only with their size."""
    if not bool(finite.all()):
        return str(not_finite(source, int(index[~finite][0])))
    return None if bool(fits.all()) else str(too_large(source))
