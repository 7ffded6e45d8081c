"""The patches prototypes are learned from: a look at every bag, then a uniform sample over the cohort."""

from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from panther.errors import InputError, not_finite
from panther.execution import Track, map_slides
from panther.prototypes.sampling import allocate, choose_rows, take
from panther.prototypes.settings import KMeansSettings
from panther.types import Openable


class Look(NamedTuple):
    """What one glance at a bag tells."""

    patches: int
    dim: int
    encoder: str | None
    fingerprint: str


@dataclass(frozen=True)
class PatchSample:
    """Sampled patches and where they are from."""

    x: Tensor  # (m, d) float32
    owner: Tensor  # (m,), index of each patch's sample among the samples given
    looks: Mapping[str, Look]  # of all usable samples
    failures: Mapping[str, str]  # sample -> sentence


def sample_patches(
    samples: Sequence[Openable], settings: KMeansSettings, executor: Executor | None, track: Track
) -> PatchSample:
    """Sample patches uniformly over a cohort; a sample that cannot be read is left out and listed."""
    looks, failures = look_at_all(samples, executor, track)
    usable = [(i, s) for i, s in enumerate(samples) if s.sample in looks and looks[s.sample].patches > 0]
    if not usable:
        raise InputError(
            f"None of the {len(samples)} samples has patches to learn prototypes from. {example(failures)}"
        )
    dim = looks[usable[0][1].sample].dim
    limit = min(settings.sample, int(settings.memory_gb * 1e9 / (dim * 4 * 2)))  # the sample and one copy of it
    sizes = allocate([looks[s.sample].patches for _, s in usable], limit, settings.share)
    jobs = [
        (i, s, choose_rows(s.sample, looks[s.sample].patches, size, settings.seed))
        for (i, s), size in zip(usable, sizes, strict=True)
        if size
    ]
    x, owner = torch.empty(sum(sizes), dim), torch.empty(sum(sizes), dtype=torch.long)
    filled = 0
    for outcome in track(map_slides(_take, jobs, executor), "sampling patches", len(jobs)):
        number, sample, _ = jobs[outcome.index]
        if outcome.value is None:
            failures[sample.sample] = outcome.reason or ""
            continue
        end = filled + len(outcome.value)
        x[filled:end], owner[filled:end] = outcome.value, number
        filled = end
    if filled < settings.n_prototypes:
        raise InputError(
            f"{filled} patches cannot give {settings.n_prototypes} prototypes; ask for fewer (-C). {example(failures)}"
        )
    return PatchSample(x[:filled], owner[:filled], looks, failures)


def look_at_all(
    samples: Sequence[Openable], executor: Executor | None, track: Track
) -> tuple[dict[str, Look], dict[str, str]]:
    """Glance at every bag; those that disagree with the majority in dimension or encoder are refused."""
    looks: dict[str, Look] = {}
    failures: dict[str, str] = {}
    for outcome in track(map_slides(_look, samples, executor), "looking at the files", len(samples)):
        name = samples[outcome.index].sample
        if outcome.value is not None:
            looks[name] = outcome.value
        elif not outcome.passed_over:
            failures[name] = outcome.reason
    for field, noun in (("dim", "features a patch"), ("encoder", "as encoder")):
        votes = Counter(
            getattr(look, field) for look in looks.values() if getattr(look, field) is not None and look.patches
        )
        if len(votes) < 2:
            continue
        (usual, most), (_, second) = votes.most_common(2)
        if most == second:
            raise InputError(
                f"The samples have {' or '.join(map(repr, votes))} {noun}, equally often; give those of one encoder."
            )
        for name, look in list(looks.items()):
            if getattr(look, field) not in (usual, None):
                failures[name] = (
                    f"{name}: has {getattr(look, field)!r} {noun}, the cohort {usual!r}; encode all slides alike."
                )
                del looks[name]
    return looks, failures


def example(failures: Mapping[str, str]) -> str:
    """One failure to show."""
    return f"{len(failures)} samples failed; the first: {next(iter(failures.values()))}" if failures else ""


def _look(sample: Openable) -> Look:
    bag = sample.open()
    return Look(len(bag), bag.dim, bag.encoder, bag.fingerprint())


def _take(job: tuple[int, Openable, Tensor]) -> Tensor:
    _, sample, index = job
    bag = sample.open()
    rows = take(bag.features, index)
    bad = ~torch.isfinite(rows).all(-1)
    if bool(bad.any()):
        raise not_finite(bag.source, int(index[bad][0]))
    return rows
