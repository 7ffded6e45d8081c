"""Choosing C from the data: held-out likelihood, BIC and stability, and one recommendation in a sentence."""

import math
from collections.abc import Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace

import torch
from sklearn.metrics import adjusted_rand_score
from torch import Tensor

from panther.errors import InputError
from panther.execution import Track, untracked
from panther.mixture import posterior
from panther.prototypes.compare import match
from panther.prototypes.kmeans import kmeans
from panther.prototypes.patches import sample_patches
from panther.prototypes.settings import KMeansSettings
from panther.statistics import accumulate, nearest
from panther.types import Mixture, Openable, Projection

COARSE, FINE = 9, 12  # candidates of the first grid; at most that many between its best ones afterwards


@dataclass(frozen=True)
class Candidate:
    """What is known of one number of prototypes."""

    n_prototypes: int
    held_out: float  # log-likelihood a patch, of slides the prototypes never saw
    held_out_error: float  # standard error over slides
    bic: float  # a patch; lower is better
    stability_seeds: float  # adjusted Rand index between two seeds, on slides neither saw
    stability_halves: float  # between the prototypes of the two halves of the cohort, on all slides
    centroid_agreement: float  # mean cosine of matched centroids of the two halves, about the cohort's mean


@dataclass(frozen=True)
class Choice:
    """All candidates and the recommended one."""

    candidates: tuple[Candidate, ...]
    recommended: int
    sentence: str
    still_rising: bool  # the likelihood still rose at the end of the range
    failures: dict[str, str]


@torch.no_grad()
def choose_c(
    samples: Sequence[Openable],
    smallest: int,
    largest: int,
    settings: KMeansSettings,
    *,
    executor: Executor | None = None,
    track: Track = untracked,
) -> Choice:
    """Compare numbers of prototypes on two halves of the slides, each judged on the other."""
    if not 1 <= smallest < largest:
        raise InputError(f"The range {smallest}:{largest} is empty; give two numbers, the smaller first, e.g. 4:64.")
    patches = sample_patches(samples, replace(settings, n_prototypes=largest), executor, track)
    x, owner = Projection(normalise=settings.normalise)(patches.x), patches.owner
    halves = _halves(owner, settings.seed)
    if min(len(owner[half]) for half in halves) < 2 * largest:
        raise InputError(
            f"{len(x)} patches of {len(owner.unique())} slides are too few to compare up to {largest} prototypes; give more, or a smaller range."
        )
    known: dict[int, tuple[Candidate, Tensor]] = {}
    for grid in (_coarse(smallest, largest), None):
        wanted = grid if grid is not None else _between(known, smallest, largest)
        for c in track(wanted, "comparing numbers of prototypes", len(wanted)):
            known[c] = _judge(c, x, owner, halves, settings)
    return _recommend(dict(sorted(known.items())), dict(patches.failures))


def _coarse(smallest: int, largest: int) -> list[int]:
    """A geometric grid."""
    steps = min(COARSE, largest - smallest + 1)
    return sorted({round(smallest * (largest / smallest) ** (i / (steps - 1))) for i in range(steps)})


def _between(known: dict[int, tuple[Candidate, Tensor]], smallest: int, largest: int) -> list[int]:
    """All numbers between the best one's neighbours on the grid, thinned if they are many."""
    grid = sorted(known)
    best = max(known, key=lambda c: known[c][0].held_out)
    place = grid.index(best)
    low, high = grid[max(place - 1, 0)], grid[min(place + 1, len(grid) - 1)]
    inside = [c for c in range(low + 1, high) if c not in known]
    return inside[:: math.ceil(len(inside) / FINE)] if inside else []


@dataclass(frozen=True)
class _Model:
    """A mixture with one variance a dimension shared by all prototypes: what K-means assumes, made a density."""

    origin: Tensor
    mixture: Mixture
    centroids: Tensor

    def log_density(self, x: Tensor) -> Tensor:
        z = x - self.origin
        _, score = posterior(self.mixture)(z, None)
        return score.double() - 0.5 * (z.double().square() / self.mixture.variances).sum(-1)

    def labels(self, x: Tensor) -> Tensor:
        assignment, _ = nearest(self.centroids - self.origin)(x - self.origin, None)
        return assignment.argmax(-1)


def _fit(x: Tensor, n_prototypes: int, seed: int, restarts: int) -> _Model:
    centroids = kmeans(x, n_prototypes, seed, restarts)[0].centroids
    origin = x.mean(0, dtype=torch.float64).to(x)
    sums = accumulate(x, nearest(centroids - origin), origin).statistics
    centres = (centroids - origin).double()
    about = sums.square - 2 * centres * sums.total + sums.mass.unsqueeze(-1) * centres.square()
    variance = (about.sum(0, keepdim=True) / len(x)).clamp_min(0)
    variance = variance.clamp_min(1e-6 * float(variance.mean()) or 1e-12)
    return _Model(origin, Mixture(sums.mass / len(x), centres, variance), centroids)


def _judge(
    c: int, x: Tensor, owner: Tensor, halves: tuple[Tensor, Tensor], settings: KMeansSettings
) -> tuple[Candidate, Tensor]:
    """All criteria for one C, and the held-out log-likelihood of each slide."""
    parts = [x[half] for half in halves]
    models = [_fit(part, c, settings.seed, settings.restarts) for part in parts]
    other_seed = _fit(parts[0], c, settings.seed + 1, settings.restarts)
    by_slide = torch.cat([_per_slide(models[1 - i].log_density(parts[i]), owner[halves[i]]) for i in (0, 1)])
    fitted = sum(float(models[i].log_density(parts[i]).mean()) for i in (0, 1)) / 2
    size, parameters = len(x) / 2, c * x.shape[1] + x.shape[1] + c - 1
    cosine = match(*(m.centroids - x.mean(0) for m in models)).cosine
    return Candidate(
        c,
        float(by_slide.mean()),
        float(by_slide.std() / math.sqrt(len(by_slide))) if len(by_slide) > 1 else 0.0,
        -2 * fitted + parameters * math.log(size) / size,
        float(adjusted_rand_score(models[0].labels(parts[1]), other_seed.labels(parts[1]))),
        float(adjusted_rand_score(models[0].labels(x), models[1].labels(x))),
        float(cosine.mean()),
    ), by_slide


def _per_slide(values: Tensor, owner: Tensor) -> Tensor:
    return torch.stack([values[owner == slide].mean() for slide in owner.unique()])


def _halves(owner: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Patches of two random halves of the slides; of two halves of the patches where there is only one slide."""
    slides = owner.unique()
    generator = torch.Generator().manual_seed(seed)
    if len(slides) < 2:
        chosen = torch.rand(len(owner), generator=generator) < 0.5
    else:
        chosen = torch.isin(owner, slides[torch.randperm(len(slides), generator=generator)[: len(slides) // 2]])
    return chosen.nonzero().flatten(), (~chosen).nonzero().flatten()


def _recommend(known: dict[int, tuple[Candidate, Tensor]], failures: dict[str, str]) -> Choice:
    """Smallest C whose held-out likelihood is, slide by slide, within one standard error of the best."""
    best = max(known, key=lambda c: known[c][0].held_out)
    recommended = next(c for c in known if _as_good(known[c][1], known[best][1]))
    largest = max(known)
    still_rising = recommended == largest
    found = known[recommended][0]
    sentence = (
        f"The likelihood of unseen slides still rises at the end of the range: {largest} is not an optimum but where the range "
        "ends; look further, or take the smallest number whose prototypes you can name."
        if still_rising
        else f"C = {recommended}: the smallest number whose likelihood on unseen slides is within one standard error of the best (C = {best})"
        f"; two seeds agree on {found.stability_seeds:.0%} and two halves of the cohort on {found.stability_halves:.0%} "
        "of the assignments beyond chance."
    )
    lowest = min(known, key=lambda c: known[c][0].bic)
    if not still_rising and abs(lowest - recommended) > 1:
        sentence += f" BIC is lowest at C = {lowest}" + (", the end of the range." if lowest == largest else ".")
    return Choice(tuple(candidate for candidate, _ in known.values()), recommended, sentence, still_rising, failures)


def _as_good(slides: Tensor, best: Tensor) -> bool:
    loss = best - slides
    error = float(loss.std()) / math.sqrt(len(loss)) if len(loss) > 1 else 0.0
    return float(loss.mean()) <= error


def parse_count(text: str) -> int:
    """`16` as a number."""
    try:
        return int(text)
    except ValueError as error:
        raise InputError(f"-C {text!r} is not understood; give a number, or auto.") from error


def parse_range(text: str) -> tuple[int, int]:
    """`4:64` as two numbers."""
    parts: Iterable[str] = text.split(":")
    try:
        smallest, largest = (int(part) for part in parts)
    except ValueError as error:
        raise InputError(f"The range {text!r} is not understood; give two numbers like 4:64.") from error
    return smallest, largest
