"""Training data of prototypes: every bag is opened once for its size and origin, then patches are sampled over the cohort.

All bags of a cohort must agree in dimension, encoder and resolution. Which patches a bag gives depends on the seed, the bag and their number
alone, every patch being eligible, so folds draw mostly the same ones: they are held once.
"""

import operator
import zlib
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from panther.engine import ItemResult, Work, run
from panther.errors import InputError, not_finite, too_large
from panther.patches import same_encoder
from panther.prototypes.kmeans import KMeansSettings
from panther.statistics import can_be_squared, take
from panther.types import Openable, PatchSpec


class BagInfo(NamedTuple):
    """Size and origin of a bag, known without reading its patches."""

    patches: int
    dim: int
    encoder: str | None
    spec: PatchSpec = PatchSpec()
    allow_mixed_resolution: bool = False
    checkpoint: str | None = None


Scan = tuple[dict[str, BagInfo], dict[str, str]]  # of usable bags, by name; the reason for each of the others


def scan_bags(bags: Sequence[Openable], work: Work) -> Scan:
    """Look at every bag; those that disagree with the majority in dimension, encoder or resolution are refused."""
    return vote(look_at(bags, work))


def look_at(bags: Iterable[Openable], work: Work) -> dict[Openable, ItemResult[BagInfo]]:
    """Size and origin of each bag."""
    bags = in_order([bags])
    return dict(zip(bags, run(_bag_info, bags, "looking at the files", work), strict=True))


def in_order(cohorts: Iterable[Iterable[Openable]]) -> list[Openable]:
    """Every bag once, by name. Draws and sums follow this order, so that no result depends on how the slides were listed."""
    return sorted(dict.fromkeys(bag for bags in cohorts for bag in bags), key=lambda bag: bag.sample)


def vote(cohort: Mapping[Openable, ItemResult[BagInfo]]) -> Scan:
    """Bags that agree, and why the others cannot be used."""
    infos = {bag.sample: result.value for bag, result in cohort.items() if result.value is not None}
    failures = {
        bag.sample: result.reason
        for bag, result in cohort.items()
        if result.reason is not None and not (result.skipped and len(cohort) > 1)
    }
    for trait in TRAITS:
        failures |= _outvoted(infos, trait)
        infos = {name: info for name, info in infos.items() if name not in failures}
    return infos, failures


class _Trait(NamedTuple):
    """What all bags of a cohort must have in common."""

    value: Callable[[BagInfo], Any]  # None where it is not known
    agree: Callable[[Any, Any], bool]
    describe: Callable[[Any], str]
    remedy: str


def _resolution(info: BagInfo) -> PatchSpec | None:
    return None if info.allow_mixed_resolution or not info.spec.mpp else info.spec.scale


TRAITS = (
    _Trait(
        lambda info: info.dim, operator.eq, lambda dim: f"{dim} features per patch", "use one encoder for all slides"
    ),
    _Trait(
        lambda info: info.encoder,
        same_encoder,
        lambda name: f"{name!r} as encoder",
        "use one encoder for all slides, or name it with `encoder_name=NAME`",
    ),
    _Trait(
        _resolution,
        PatchSpec.agrees,
        lambda spec: f"patches {spec.words()}",
        "extract all slides at one resolution, or allow it with `allow_mixed_resolution=True`",
    ),
)


def _outvoted(infos: Mapping[str, BagInfo], trait: _Trait) -> dict[str, str]:
    """Bags that differ from the majority, and why; a cohort without a majority is refused."""
    values = {name: value for name, info in infos.items() if (value := trait.value(info)) is not None}
    groups: list[list[str]] = []  # bags whose values agree
    for name, value in values.items():
        if infos[name].patches:
            group = next((group for group in groups if trait.agree(values[group[0]], value)), None)
            if group is None:
                groups.append(group := [])
            group.append(name)
    if len(groups) < 2:
        return {}
    groups.sort(key=len, reverse=True)
    usual = values[groups[0][0]]
    if len(groups[0]) == len(groups[1]):
        kinds = " or ".join(f"{trait.describe(values[group[0]])} (e.g. {group[0]})" for group in groups)
        raise InputError(f"features: found {kinds}, equally often, expected one kind; {trait.remedy}")
    return {
        name: f"{name}: has {trait.describe(value)}, the cohort {trait.describe(usual)}; {trait.remedy}."
        for name, value in values.items()
        if not trait.agree(usual, value)
    }


def example(failures: Mapping[str, str]) -> str:
    """Number of failures and the first of them."""
    return f"{len(failures)} slides failed; the first: {next(iter(failures.values()))}" if failures else ""


def _bag_info(ref: Openable) -> BagInfo:
    bag = ref.open()
    return BagInfo(len(bag), bag.dim, bag.encoder, bag.spec, bag.allow_mixed_resolution, bag.checkpoint)


def allocate(counts: Sequence[int], size: int, share: str) -> list[int]:
    """How many patches to take from each slide so that ``size`` are taken in all.

    ``proportional`` gives every patch of the cohort the same chance; ``equal`` takes the same number from every slide (a slide
    with too few patches gives all it has and the others make up for it).
    """
    available = np.asarray(counts, dtype=np.int64)
    size = int(min(size, available.sum()))
    ideal = (
        np.minimum(available, _level(available, size))
        if share == "equal"
        else available * (size / max(int(available.sum()), 1))
    )
    taken = np.floor(ideal).astype(np.int64)
    remainder = np.where(taken < available, ideal - taken, -1.0)
    for index in np.argsort(-remainder, kind="stable")[: size - int(taken.sum())]:
        taken[index] += 1
    return [int(n) for n in taken]


def choose_rows(slide: str, count: int, size: int, seed: int) -> Tensor:
    """Sorted indices of ``size`` of a slide's ``count`` rows; they depend on the seed and the slide alone."""
    generator = np.random.default_rng([seed, zlib.crc32(slide.encode())])
    return torch.from_numpy(np.sort(generator.choice(count, size=size, replace=False)))


def _level(available: np.ndarray, size: int) -> float:
    """Water level at which min(available, level) sums to ``size``."""
    remaining, ordered = float(size), np.sort(available)
    for index, count in enumerate(ordered):
        level = remaining / (len(ordered) - index)
        if count >= level:
            return level
        remaining -= float(count)
    return float(ordered[-1])


@dataclass(frozen=True)
class Draw:
    """Plan of a sample: how many patches are taken from each bag. Equal draws give the same sample."""

    bags: tuple[Openable, ...]  # those with patches, in the order of their names
    sizes: tuple[int, ...]
    seed: int
    dim: int

    @property
    def nbytes(self) -> int:
        """Memory of the sample."""
        return sum(self.sizes) * self.dim * 4

    def parts(self) -> dict[Hashable, int]:
        """Memory of the patches of each bag; patches with equal keys are shared by draws."""
        sizes = zip(self.bags, self.sizes, strict=True)
        return {(bag, size, self.seed): size * self.dim * 4 for bag, size in sizes}


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


class _Part(NamedTuple):
    """Patches of one bag in a sample."""

    rows: Tensor  # (n, d), of all samples
    pick: Tensor  # those of this one
    place: int  # of the bag in the draw


def plan_draw(bags: Sequence[Openable], scan: Scan, settings: KMeansSettings) -> Draw:
    """Spread the sample over the bags that have patches."""
    infos, failures = scan
    usable = [bag for bag in in_order([bags]) if bag.sample in infos and infos[bag.sample].patches]
    check_enough(usable, failures, 0)
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
    for (bag, _), result in zip(jobs, run(_take, jobs, "sampling patches", work), strict=True):
        reasons: list[Tensor | str] = [str(result.reason)] * len(takers[bag])
        rows, picks = result.value or (torch.empty(0), reasons)
        for pick, (number, place) in zip(picks, takers[bag], strict=True):
            if isinstance(pick, str):
                samples[number].failures[bag.sample] = pick
            else:
                samples[number].parts.append(_Part(rows, pick, place))
    return samples


def sample_patches(
    bags: Sequence[Openable], settings: KMeansSettings, work: Work
) -> tuple[PatchSample, tuple[Openable, ...]]:
    """Sample of one cohort, and the bags that its owners count."""
    scan = scan_bags(bags, work)
    draw = plan_draw(bags, scan, settings)
    (sample,) = draw_patches([draw], work)
    sample.failures = {**scan[1], **sample.failures}
    check_enough(sample, sample.failures, 1)
    return sample, draw.bags


def check_enough(sample: Sized, failures: Mapping[str, str], least: int) -> None:
    """Refuse a sample with fewer patches than prototypes."""
    if not len(sample):
        raise InputError(f"features: no slide has patches. {example(failures)}".rstrip())
    if len(sample) < least:
        raise InputError(f"n_prototypes: {least} exceeds the {len(sample)} patches. {example(failures)}".rstrip())


def _take(job: tuple[Openable, tuple[tuple[int, int], ...]]) -> tuple[Tensor, list[Tensor | str]]:
    """Rows of one bag for all draws (size, seed), and the indices of each draw into them, or why its rows cannot be used."""
    ref, draws = job
    bag = ref.open()
    chosen = [choose_rows(ref.sample, len(bag), size, seed) for size, seed in draws]
    index = torch.cat(chosen).unique()  # rows that several draws share are sent once
    rows = take(bag.features, index)
    single = rows.float()  # float64 holds numbers that this does not
    finite, fits = torch.isfinite(rows).all(-1), can_be_squared(single)
    picks: list[Tensor | str] = []
    for rows_of_draw in chosen:
        pick = torch.searchsorted(index, rows_of_draw)
        if not bool(finite[pick].all()):
            picks.append(str(not_finite(bag.source, int(rows_of_draw[~finite[pick]][0]))))
        elif not bool(fits[pick].all()):
            picks.append(str(too_large(bag.source)))
        else:
            picks.append(pick)
    return single, picks
