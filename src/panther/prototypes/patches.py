"""The patches prototypes are learned from: a scan of every bag, then a uniform sample over the cohort."""

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from panther.encoder_names import same_encoder
from panther.errors import InputError, not_finite
from panther.execution import Work, collect, stream
from panther.prototypes.sampling import allocate, choose_rows, take
from panther.prototypes.settings import KMeansSettings
from panther.types import Openable, PatchSpec


class BagInfo(NamedTuple):
    """What one glance at a bag tells."""

    patches: int
    dim: int
    encoder: str | None
    spec: PatchSpec = PatchSpec()
    any_resolution: bool = False


@dataclass(frozen=True)
class PatchSample:
    """Sampled patches and where they are from."""

    x: Tensor  # (m, d) float32
    owner: Tensor  # (m,), index of each patch's bag among those given
    infos: Mapping[str, BagInfo]  # of all usable bags
    failures: Mapping[str, str]  # slide or patient -> sentence


def sample_patches(bags: Sequence[Openable], settings: KMeansSettings, work: Work) -> PatchSample:
    """Sample patches uniformly over a cohort; a bag that cannot be read is left out and listed."""
    infos, failures = scan_bags(bags, work)
    usable = [(i, s) for i, s in enumerate(bags) if s.sample in infos and infos[s.sample].patches > 0]
    if not usable:
        raise InputError(f"None of the {len(bags)} slides has patches to learn prototypes from. {example(failures)}")
    dim = infos[usable[0][1].sample].dim
    limit = min(settings.sample, int(settings.memory_gb * 1e9 / (dim * 4 * 2)))  # the sample and one copy of it
    sizes = allocate([infos[s.sample].patches for _, s in usable], limit, settings.share)
    jobs = [
        (i, s, choose_rows(s.sample, infos[s.sample].patches, size, settings.seed))
        for (i, s), size in zip(usable, sizes, strict=True)
        if size
    ]
    x, owner = torch.empty(sum(sizes), dim), torch.empty(sum(sizes), dtype=torch.long)
    filled = 0
    for index, taken in stream(_take, jobs, "sampling patches", work, failures):
        end = filled + len(taken)
        x[filled:end], owner[filled:end] = taken, jobs[index][0]
        filled = end
    if filled < settings.n_prototypes:
        raise InputError(
            f"{filled} patches cannot give {settings.n_prototypes} prototypes; ask for fewer with `n_prototypes=`. {example(failures)}"
        )
    return PatchSample(x[:filled], owner[:filled], infos, failures)


def scan_bags(bags: Sequence[Openable], work: Work) -> tuple[dict[str, BagInfo], dict[str, str]]:
    """Glance at every bag; those that disagree with the majority in dimension, encoder or resolution are refused."""
    infos, failures = collect(_bag_info, bags, "looking at the files", work)
    for trait in TRAITS:
        failures |= _outvoted(infos, trait)
        infos = {name: info for name, info in infos.items() if name not in failures}
    return infos, failures


class _Trait(NamedTuple):
    """What all bags of a cohort must have in common."""

    of: Callable[[BagInfo], Any]  # None where a bag does not tell it
    alike: Callable[[Any, Any], bool]
    words: Callable[[Any], str]
    remedy: str


def _resolution(info: BagInfo) -> PatchSpec | None:
    return None if info.any_resolution or not info.spec.mpp else info.spec.scale


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
        "extract all slides at one resolution, or allow it with `any_resolution=True`",
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
    return BagInfo(len(bag), bag.dim, bag.encoder, bag.spec, bag.any_resolution)


def _take(job: tuple[int, Openable, Tensor]) -> Tensor:
    _, ref, index = job
    bag = ref.open()
    rows = take(bag.features, index)
    bad = ~torch.isfinite(rows).all(-1)
    if bool(bad.any()):
        raise not_finite(bag.source, int(index[bad][0]))
    return rows
