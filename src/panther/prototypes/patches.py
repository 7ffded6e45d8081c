"""A glance at every bag before prototypes are learned from them: what all must have in common, and which differ."""

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from panther.encoder_names import same_encoder
from panther.engine import ItemResult, Work, map_slides
from panther.errors import InputError, value_of
from panther.types import Openable, PatchSpec

T = TypeVar("T")
R = TypeVar("R")


class BagInfo(NamedTuple):
    """What one glance at a bag tells."""

    patches: int
    dim: int
    encoder: str | None
    spec: PatchSpec = PatchSpec()
    allow_mixed_resolution: bool = False


Scan = tuple[dict[str, BagInfo], dict[str, str]]  # of usable bags, by name; a sentence for each of the others


def scan_bags(bags: Sequence[Openable], work: Work) -> Scan:
    """Glance at every bag; those that disagree with the majority in dimension, encoder or resolution are refused."""
    (scan,) = scan_cohorts([bags], work)
    return value_of(scan)


def scan_cohorts(cohorts: Sequence[Sequence[Openable]], work: Work) -> list[Scan | InputError]:
    """The same for several cohorts, each with a majority of its own, that may have bags in common: each is opened once."""
    bags = in_order(cohorts)
    found = dict(zip(bags, walk(_bag_info, bags, "looking at the files", work), strict=True))
    return [_voted({bag: found[bag] for bag in cohort}) for cohort in cohorts]


def in_order(cohorts: Iterable[Iterable[Openable]]) -> list[Openable]:
    """Every bag once, by name. Draws and sums follow this order, so that no result depends on how the slides were listed."""
    return sorted(dict.fromkeys(bag for bags in cohorts for bag in bags), key=lambda bag: bag.sample)


def walk(function: Callable[[T], R], items: Sequence[T], what: str, work: Work) -> Iterator[ItemResult[R]]:
    """What became of each item, in their order."""
    yield from work.track(map_slides(function, items, work.executor), what, len(items))


def _voted(found: Mapping[Openable, ItemResult[BagInfo]]) -> Scan | InputError:
    infos = {bag.sample: result.value for bag, result in found.items() if result.value is not None}
    failures = {
        bag.sample: result.reason
        for bag, result in found.items()
        if result.reason is not None and not (result.skipped and len(found) > 1)
    }
    try:
        for trait in TRAITS:
            failures |= _outvoted(infos, trait)
            infos = {name: info for name, info in infos.items() if name not in failures}
    except InputError as error:
        return error
    return infos, failures


class _Trait(NamedTuple):
    """What all bags of a cohort must have in common."""

    of: Callable[[BagInfo], Any]  # None where a bag does not tell it
    alike: Callable[[Any, Any], bool]
    words: Callable[[Any], str]
    remedy: str


def _resolution(info: BagInfo) -> PatchSpec | None:
    return None if info.allow_mixed_resolution or not info.spec.mpp else info.spec.scale


TRAITS = (
    _Trait(lambda info: info.dim, operator.eq, lambda dim: f"{dim} features per patch", "encode all slides alike"),
    _Trait(
        lambda info: info.encoder,
        same_encoder,
        lambda name: f"{name!r} as encoder",
        "encode all slides alike, or say that these are one encoder with `encoder_name=NAME`",
    ),
    _Trait(
        _resolution,
        PatchSpec.agrees,
        lambda spec: f"patches {spec.words()}",
        "extract all slides at one resolution, or allow it with `allow_mixed_resolution=True`",
    ),
)


def _outvoted(infos: Mapping[str, BagInfo], trait: _Trait) -> dict[str, str]:
    """Bags that differ from the majority, and why; where there is none, nobody can say which are meant."""
    camps: list[list[str]] = []  # bags that are alike
    for name, info in infos.items():
        if info.patches and trait.of(info) is not None:
            camp = next((c for c in camps if trait.alike(trait.of(infos[c[0]]), trait.of(info))), None)
            if camp is None:
                camps.append([name])
            else:
                camp.append(name)
    if len(camps) < 2:
        return {}
    camps.sort(key=len, reverse=True)
    usual = trait.of(infos[camps[0][0]])
    if len(camps[0]) == len(camps[1]):
        kinds = " or ".join(f"{trait.words(trait.of(infos[camp[0]]))} (e.g. {camp[0]})" for camp in camps)
        raise InputError(f"The slides have {kinds}, equally often; give those of one kind: {trait.remedy}.")
    return {
        name: f"{name}: has {trait.words(trait.of(info))}, the cohort {trait.words(usual)}; {trait.remedy}."
        for name, info in infos.items()
        if trait.of(info) is not None and not trait.alike(usual, trait.of(info))
    }


def example(failures: Mapping[str, str]) -> str:
    """One failure to show."""
    return f"{len(failures)} slides failed; the first: {next(iter(failures.values()))}" if failures else ""


def _bag_info(ref: Openable) -> BagInfo:
    bag = ref.open()
    return BagInfo(len(bag), bag.dim, bag.encoder, bag.spec, bag.allow_mixed_resolution)
