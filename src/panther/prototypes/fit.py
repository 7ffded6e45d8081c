"""From a cohort of bags to prototypes: look, sample, k-means on the sample, Lloyd passes over everything, measure."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from panther.errors import InputError
from panther.execution import map_slides
from panther.prototypes.diagnostics import diagnose
from panther.prototypes.kmeans import kmeans, update, worst_served
from panther.prototypes.sampling import allocate, choose_rows, take
from panther.prototypes.settings import KMeansSettings
from panther.statistics import Statistics, accumulate, first_bad_row, nearest
from panther.types import Openable, Projection, Prototypes
from panther.version import __version__

Track = Callable[[Iterable[Any], str, int], Iterable[Any]]  # a progress bar around an iteration


class _Look(NamedTuple):
    """What one glance at a bag tells."""

    patches: int
    dim: int
    encoder: str | None
    fingerprint: str


@dataclass(frozen=True)
class PrototypeFit:
    """Fitted prototypes and what could not be used."""

    prototypes: Prototypes
    failures: dict[str, str]  # sample -> sentence
    empty: list[str]  # samples with zero patches: fine, but worth saying


def fit_prototypes(
    samples: Sequence[Openable],
    settings: KMeansSettings,
    *,
    executor: Executor | None = None,
    device: str = "cpu",
    track: Track = lambda items, what, total: items,
) -> PrototypeFit:
    """Fit prototypes on the training samples (slides or patients); a sample that fails is left out and listed."""
    looks, failures = _look_at_all(samples, executor, track)
    empty = [s.sample for s in samples if s.sample in looks and looks[s.sample].patches == 0]
    usable = [s for s in samples if s.sample in looks and looks[s.sample].patches > 0]
    if not usable:
        raise InputError(
            f"None of the {len(samples)} samples has patches to learn prototypes from. {_example(failures)}"
        )

    dim = looks[usable[0].sample].dim
    limit = min(settings.sample, int(settings.memory_gb * 1e9 / (dim * 4 * 2)))  # the sample and one copy of it
    sizes = allocate([looks[s.sample].patches for s in usable], limit, settings.share)
    jobs = [
        (s, choose_rows(s.sample, looks[s.sample].patches, size, settings.seed))
        for s, size in zip(usable, sizes, strict=True)
        if size
    ]
    x, bad = _gather(jobs, dim, executor, track)
    failures |= bad
    usable = [s for s in usable if s.sample not in failures]
    if len(x) < settings.n_prototypes:
        raise InputError(
            f"{len(x)} patches cannot give {settings.n_prototypes} prototypes; ask for fewer (-C). {_example(failures)}"
        )

    projection, x = _project(x, settings)
    x = x.to(device)
    best, inertias = kmeans(x, settings.n_prototypes, settings.seed, settings.restarts)
    centroids, measured = best.centroids, None
    for number in range(settings.passes + 1):
        what = f"pass {number + 1} of {settings.passes} over all patches" if number < settings.passes else "measuring"
        measured = _cohort_pass(usable, centroids, projection, executor, track, what, squares=number == settings.passes)
        failures |= measured.failures
        usable = [s for s in usable if s.sample not in failures]
        if not usable:
            raise InputError(f"No sample could be read to the end. {_example(failures)}")
        if number < settings.passes:
            centroids = _moved(measured, centroids, x)
    assert measured is not None
    return PrototypeFit(_finished(measured, centroids, projection, inertias, looks, settings), failures, empty)


def _look_at_all(
    samples: Sequence[Openable], executor: Executor | None, track: Track
) -> tuple[dict[str, _Look], dict[str, str]]:
    """Glance at every bag; those that disagree with the majority in dimension or encoder are refused."""
    looks: dict[str, _Look] = {}
    failures: dict[str, str] = {}
    for outcome in track(map_slides(_look, samples, executor), "looking at the files", len(samples)):
        name = samples[outcome.index].sample
        if outcome.value is None:
            failures[name] = outcome.reason
        else:
            looks[name] = outcome.value
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


def _look(sample: Openable) -> _Look:
    bag = sample.open()
    return _Look(len(bag), bag.dim, bag.encoder, bag.fingerprint())


def _gather(
    jobs: Sequence[tuple[Openable, Tensor]], dim: int, executor: Executor | None, track: Track
) -> tuple[Tensor, dict[str, str]]:
    """Sample the patches as one tensor (m, d) of float32, and the samples that failed."""
    x = torch.empty(sum(len(index) for _, index in jobs), dim)
    filled, failures = 0, {}
    for outcome in track(map_slides(_take, jobs, executor), "sampling patches", len(jobs)):
        if outcome.value is None:
            failures[jobs[outcome.index][0].sample] = outcome.reason
            continue
        x[filled : filled + len(outcome.value)] = outcome.value
        filled += len(outcome.value)
    return x[:filled], failures


def _take(job: tuple[Openable, Tensor]) -> Tensor:
    sample, index = job
    bag = sample.open()
    rows = take(bag.features, index)
    bad = ~torch.isfinite(rows).all(-1)
    if bool(bad.any()):
        raise InputError(_bad_row(bag.source, int(index[bad][0])))
    return rows


def _project(x: Tensor, settings: KMeansSettings) -> tuple[Projection, Tensor]:
    projection = Projection(normalise=settings.normalise)
    x = projection(x)
    if settings.pca is None:
        return projection, x
    if settings.pca > min(x.shape):
        raise InputError(
            f"PCA to {settings.pca} dimensions needs as many patches and features; the sample has {tuple(x.shape)}."
        )
    mean = x.mean(0, dtype=torch.float64)
    centred = x.double() - mean
    _, vectors = torch.linalg.eigh(centred.T @ centred)
    basis = vectors.flip(-1)[:, : settings.pca]
    basis = basis * torch.sign(
        basis.gather(0, basis.abs().argmax(0, keepdim=True))
    )  # a sign that does not depend on the solver
    projection = replace(projection, mean=mean.float(), basis=basis.float().contiguous())
    return projection, (centred @ basis).float()


@dataclass(frozen=True)
class _Pass:
    sums: Statistics
    origin: Tensor
    slide_mass: dict[str, Tensor]
    failures: dict[str, str]


def _cohort_pass(
    samples: Sequence[Openable],
    centroids: Tensor,
    projection: Projection,
    executor: Executor | None,
    track: Track,
    what: str,
    *,
    squares: bool,
) -> _Pass:
    """Statistics of all patches, added up in the samples' order so that the sum does not depend on who computed it."""
    origin = centroids.mean(0)
    function = partial(_sample_statistics, centroids=centroids, origin=origin, projection=projection, squares=squares)
    total: Statistics | None = None
    slide_mass: dict[str, Tensor] = {}
    failures: dict[str, str] = {}
    for outcome in track(map_slides(function, samples, executor), what, len(samples)):
        name = samples[outcome.index].sample
        if outcome.value is None:
            failures[name] = outcome.reason
            continue
        slide_mass[name] = outcome.value.mass
        total = outcome.value if total is None else total.merge(outcome.value)
    if total is None:
        raise InputError(f"No sample could be read to the end. {_example(failures)}")
    return _Pass(total, origin, slide_mass, failures)


def _sample_statistics(
    sample: Openable, *, centroids: Tensor, origin: Tensor, projection: Projection, squares: bool
) -> Statistics:
    bag = sample.open()
    rows = projection.view(bag.features)
    sums = accumulate(rows, nearest(centroids - origin), origin, squares=squares).statistics
    if not bool(torch.isfinite(sums.total).all()):
        bad = first_bad_row(bag.features)
        raise InputError(
            _bad_row(bag.source, bad) if bad is not None else f"{bag.source}: features are too large to add up."
        )
    return Statistics(*(t.cpu() for t in sums))


def _moved(measured: _Pass, centroids: Tensor, x: Tensor) -> Tensor:
    sums = Statistics(*(t.to(centroids.device) for t in measured.sums))
    moved = update(sums, centroids, measured.origin)
    empty = (sums.mass == 0).nonzero().flatten()
    if len(empty):
        moved[empty] = worst_served(x, moved, measured.origin, len(empty))
    return moved


def _finished(
    measured: _Pass,
    centroids: Tensor,
    projection: Projection,
    inertias: list[float],
    looks: dict[str, _Look],
    settings: KMeansSettings,
) -> Prototypes:
    sums, slides = measured.sums, tuple(measured.slide_mass)
    order = torch.argsort(-sums.mass, stable=True)  # C0 is the most common pattern
    centres = centroids.cpu().double() - measured.origin.cpu().double()
    about = (
        sums.square - 2 * centres * sums.total + sums.mass.unsqueeze(-1) * centres * centres
    )  # (C, d), about the centroids
    within = (about.clamp_min(0).sum(0) / sums.patches).float()
    centroids, occupancy = centroids.cpu()[order].contiguous(), sums.mass[order]
    slide_mass = {slide: mass[order] for slide, mass in measured.slide_mass.items()}
    parents = hashlib.blake2b("\n".join(f"{s} {looks[s].fingerprint}" for s in sorted(slides)).encode(), digest_size=16)
    return Prototypes(
        centroids,
        within,
        occupancy,
        projection,
        encoder=next((looks[s].encoder for s in slides if looks[s].encoder), None),
        slides=slides,
        settings={**asdict(settings), "patches": int(sums.patches)},
        diagnostics={
            "inertia": float(f"{float(about.sum()):.6g}"),
            **diagnose(centroids, within, occupancy, slide_mass, inertias),
        },
        parents=parents.hexdigest(),
        version=__version__,
    )


def _bad_row(source: str, row: int) -> str:
    return f"{source}: row {row} of the features holds NaN or an infinite number; extract this slide again."


def _example(failures: dict[str, str]) -> str:
    return f"{len(failures)} samples failed; the first: {next(iter(failures.values()))}" if failures else ""
