"""From cohorts of bags to prototypes: inspect, sample, K-means on the sample, Lloyd passes over all patches, measure.

Many fits (folds, seeds, numbers of prototypes) share the walks over their bags.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from panther.engine import LOCAL, Work
from panther.errors import InputError
from panther.machine import cores, free_memory, give_freed_memory_back
from panther.mixture import STARTING_VARIANCES, starting_variance, surprise_of
from panther.patches import in_common
from panther.prototypes.centre import AlignedBags, Sites, align, slide_means
from panther.prototypes.kmeans import (
    KMeansProblem,
    KMeansSettings,
    Sample,
    kmeans_many,
    samples_at_work,
    update_centroids,
)
from panther.prototypes.passes import CohortPass, PassRequest, pass_over
from panther.prototypes.patches import (
    BagInfo,
    Draw,
    PatchSample,
    check_enough,
    draw_patches,
    example,
    look_at,
    plan_draw,
    vote,
)
from panther.statistics import Statistics, squared_distances
from panther.statistics.tail import surprise_edges
from panther.store import hash_contents
from panther.types import Openable, Projection, Prototypes
from panther.version import __version__

REACHED = 50_000  # patches of the sample that say how far prototypes reach
WORKER_BYTES = 192 << 20  # of what is free, for each core's worker and K-means; samples may have the rest
DOMINATED = 0.95  # share of one prototype from which a slide counts as dominated by it
DUPLICATE = 0.01  # distance, in units of the within-cluster radius, below which two prototypes are one


@dataclass(frozen=True)
class PrototypeFit:
    """Fitted prototypes and what could not be used."""

    prototypes: Prototypes
    failures: dict[str, str]  # slide or patient -> reason
    empty: list[str]  # slides or patients with zero patches: fine, but worth a note


def fit_bags(
    bags: Sequence[Openable],
    settings: KMeansSettings,
    *,
    start: Prototypes | None = None,
    sites: Sites | None = None,
    work: Work = LOCAL,
) -> PrototypeFit:
    """Fit prototypes on the bags of training slides or patients, from ``start`` instead of k-means++; a bag that fails is left out and listed."""
    (fitted,) = fit_many([(bags, settings)], start=start, sites=sites, work=work)
    if isinstance(fitted, InputError):
        raise fitted
    return fitted


@torch.no_grad()
def fit_many(
    fits: Sequence[tuple[Sequence[Openable], KMeansSettings]],
    *,
    start: Prototypes | None = None,
    sites: Sites | None = None,
    work: Work = LOCAL,
) -> list[PrototypeFit | InputError]:
    """Many fits (folds, seeds, numbers of prototypes) from the same walks over their bags.

    Every bag is opened once to inspect it, once to sample from it, and once in each pass, whatever the number of fits that use it.
    Each result is, byte for byte, that of the fit alone. Patches that samples have in common are held once; fits whose samples do not fit
    into ``memory_gb`` together, or into the free memory, are computed in groups, one after the other.

    Parameters
    ----------
    fits : sequence of (bags, settings)
        The training bags of each fit, and how it is done. Bags that are equal are one bag.
    start : Prototypes, optional
        Prototypes that every fit starts from, in their projection and order, instead of k-means++ on a sample.
    sites : Sites, optional
        Sites of the samples, for fits that centre them by site; each learns from its training bags alone.
    work : Work
        How work is run.

    Returns
    -------
    list of PrototypeFit or InputError
        In the order of ``fits``. An impossible fit (no patches, too few of them) does not stop the others: its error stands in its place.
    """
    started = [Fit(bags, settings, start) for bags, settings in fits]
    infos = look_at((bag for fit in started for bag in fit.bags), work)
    for fit in started:
        with fit.catch():
            fit.infos, fit.failures = vote({bag: infos[bag] for bag in fit.bags})
    _align(started, sites, work)
    planned: dict[Draw, list[Fit]] = {}
    for fit in _without_error(started):
        with fit.catch():
            planned.setdefault(plan_draw(fit.bags, (fit.infos, fit.failures), fit.settings), []).append(fit)
    for group in groups(planned):
        _fit_group(group, work)
        give_freed_memory_back()  # of samples
    return [fit.result() for fit in started]


@dataclass(eq=False)
class Fit:
    """State of one fit; all fits of a group take the same steps at the same time."""

    bags: Sequence[Openable]  # that can still be read
    settings: KMeansSettings
    start: Prototypes | None = None
    infos: dict[str, BagInfo] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    aligned: AlignedBags | None = None
    projection: Projection = field(default_factory=Projection)
    sample: Sample = lambda: torch.empty(0)
    centroids: Tensor = field(default_factory=lambda: torch.empty(0))  # (C, d), once it is started
    inertias: list[float] = field(default_factory=list)  # of the restarts
    prototypes: Prototypes | None = None  # once it is measured
    error: InputError | None = None  # why it cannot go on

    @contextmanager
    def catch(self) -> Iterator[None]:
        """Keep an error: the other fits go on."""
        try:
            yield
        except InputError as error:
            self.error = error

    def begin(self, start: Prototypes, x: Tensor, device: str) -> None:
        """Begin at the prototypes ``start``, with a sample (n, d) in their projection."""
        start.check(self.bags[0].open())
        self.projection, projected = start.projection, start.projection(x).to(device)
        self.sample, self.centroids = lambda: projected, start.centroids.to(projected)
        origin = self.centroids.mean(0)
        self.inertias = [float(squared_distances(projected, self.centroids, origin).amin(-1).sum())]

    def request(self, number: int) -> PassRequest:
        """Request for pass ``number``; the last one measures."""
        centroids = self.centroids.cpu()
        return PassRequest(centroids, centroids.mean(0), self.projection, number == self.settings.passes)

    @torch.no_grad()
    def learn(self, passed: CohortPass, request: PassRequest) -> None:
        """Learn from a pass; bags that failed in it are left out from now on."""
        self.failures |= passed.failures
        self.bags = [bag for bag in self.bags if bag.sample not in self.failures]
        with self.catch():
            if passed.sums is None:
                raise InputError(f"No slide could be read to the end. {example(self.failures)}")
            if request.measure:
                self.prototypes = self._measured(passed, request, passed.sums)
            else:
                sums = Statistics(*(t.to(self.centroids.device) for t in passed.sums))
                self.centroids = update_centroids(sums, self.centroids, request.origin.to(self.centroids), self.sample)

    def _measured(self, passed: CohortPass, request: PassRequest, sums: Statistics) -> Prototypes:
        x = self.sample()
        some = x[:: max(1, len(x) // REACHED)].cpu()
        order = torch.argsort(-sums.mass, stable=True)  # C0 is the most common pattern
        if self.start is not None:  # whose names count on their order
            order = torch.arange(len(order))
        centres = request.centroids.double() - request.origin.double()
        # sums of squares about the centroids, (C, d)
        squares = sums.square - 2 * centres * sums.total + sums.mass.unsqueeze(-1) * centres * centres
        within = (squares.clamp_min(0).sum(0) / sums.patches).float()
        centroids, occupancy = request.centroids[order].contiguous(), sums.mass[order]
        slide_mass = {slide: mass[order] for slide, mass in passed.slide_mass.items()}
        used = [self.infos[slide] for slide in slide_mass]
        distance = squared_distances(some, centroids.to(some), request.origin.to(some)).amin(-1).sqrt()
        # what is usual and what is rare among patches of the sample (3, 2), for each variance that EM may start from
        starts = [starting_variance(name, some.shape[1], within) for name in STARTING_VARIANCES]
        edges = [surprise_edges(surprise_of(some, centroids.to(some), start)) for start in starts]
        aligned = self.aligned
        checkpoints = sorted({info.checkpoint for info in used if info.checkpoint})
        recorded = {"checkpoint": " ".join(checkpoints)} if checkpoints else {}
        recorded |= {} if self.start is None else {"start": self.start.content_hash()}
        contents = passed.contents if aligned is None else {name: aligned.contents[name] for name in slide_mass}
        return Prototypes(
            centroids,
            within,
            occupancy,
            self.projection,
            encoder=next((info.encoder for info in used if info.encoder), None),
            slides=tuple(slide_mass),
            settings={**asdict(self.settings), "patches": int(sums.patches), **recorded},
            diagnostics={
                "inertia": _rounded(squares.sum()),
                "reach": _rounded(distance.double().quantile(0.99)),  # what is farther is rare
                **diagnose(centroids, within, occupancy, slide_mass, self.inertias),
                **({} if aligned is None else {"alignment": dict(aligned.diagnostics)}),
            },
            parents=hash_contents(contents),
            version=__version__,
            spec=in_common([info.spec for info in used]),
            surprise=torch.tensor([[_rounded(value) for value in pair] for pair in edges]),
            alignment=None if aligned is None else aligned.alignment,
        )

    def result(self) -> PrototypeFit | InputError:
        """Prototypes, or why there are none."""
        if self.error is not None:
            return self.error
        assert self.prototypes is not None
        empty = [name for name, info in self.infos.items() if info.patches == 0]
        return PrototypeFit(self.prototypes, self.failures, empty)


Planned = Mapping[Draw, Sequence[Fit]]  # fits by the sample that they share


def _without_error(fits: Sequence[Fit]) -> list[Fit]:
    return [fit for fit in fits if fit.error is None]


def _align(fits: Sequence[Fit], sites: Sites | None, work: Work) -> None:
    """Centre the bags of fits that ask for it, each by its training bags alone.

    Fits on the same bags with the same alignment share it, and with it their samples and walks.
    """
    centred = {
        fit: [bag for bag in fit.bags if bag.sample in fit.infos and fit.infos[bag.sample].patches]
        for fit in _without_error(fits)
        if fit.settings.centre
    }
    bags = list(dict.fromkeys(bag for usable in centred.values() for bag in usable))
    means = slide_means(bags, work) if bags else {}
    aligned_bags: dict[Any, AlignedBags] = {}
    for fit, usable in centred.items():
        key = frozenset(fit.bags), fit.settings.centre
        with fit.catch():
            if usable and key not in aligned_bags:
                usable_means = {bag: means[bag] for bag in usable if bag in means}
                aligned_bags[key] = align(fit.bags, usable_means, fit.settings.centre, sites)
        if key in aligned_bags and fit.error is None:
            fit.aligned, fit.bags = aligned_bags[key], aligned_bags[key].bags


def groups(planned: Planned) -> Iterator[Planned]:
    """Fits whose samples fit into memory together, beside copies of those that K-means works on: each group is another round of walks."""
    room = free_memory() - WORKER_BYTES * cores()
    group: dict[Draw, Sequence[Fit]] = {}
    for draw, fits in planned.items():
        joined = {**group, draw: fits}
        limits = (fit.settings.memory_gb * 1e9 for members in joined.values() for fit in members)
        # what is drawn from each bag, once for all fits; samples that are held as their fits see them; and copies
        needed = sum({key: size for one in joined for key, size in one.parts().items()}.values())
        for one, members in joined.items():
            needed += one.nbytes * len({(f.settings.normalise, f.settings.pca) for f in members if f.settings.projects})
        needed += samples_at_work(len(joined)) * max(one.nbytes for one in joined)
        if group and needed > min(room, *limits):
            yield group
            joined = {draw: fits}
        group = joined
    if group:
        yield group


def _fit_group(planned: Planned, work: Work) -> None:
    """Fit a group in shared passes; a fit that fails keeps its error."""
    samples = draw_patches(list(planned), work)
    for draw, fits in planned.items():
        _set_samples(draw, fits, samples.pop(0), work.device, hold=len(planned) == 1)
    everything = _without_error([fit for members in planned.values() for fit in members])
    fits = [fit for fit in everything if fit.start is None]
    problems = [KMeansProblem(f.sample, f.settings.n_prototypes, f.settings.seed, f.settings.restarts) for f in fits]
    for fit, solved in zip(fits, kmeans_many(problems, work.track), strict=True):
        if isinstance(solved, InputError):
            fit.error = solved
        else:
            fit.centroids, fit.inertias = solved[0].centroids, solved[1]
    fits = _without_error(everything)
    last = max((fit.settings.passes for fit in fits), default=-1)
    for step in range(last + 1):
        what = f"pass {step + 1} of {last} over all patches" if step < last else "measuring"
        requests = [fit.request(step) for fit in fits]
        walks = [(fit.bags, request) for fit, request in zip(fits, requests, strict=True)]
        passed = pass_over(walks, work, what, backwards=step % 2 == 0)  # the sample was drawn forwards
        with ThreadPoolExecutor(cores()) as pool:  # what is measured on a sample takes a while
            list(pool.map(Fit.learn, fits, passed, requests))
        fits = [fit for fit in _without_error(fits) if fit.prototypes is None]


def _set_samples(draw: Draw, fits: Sequence[Fit], sample: PatchSample, device: str, *, hold: bool) -> None:
    """Set the sample of each fit, projected by its settings."""
    projected: dict[tuple[bool, int | None], tuple[Projection, Sample]] = {}
    for fit in fits:
        fit.failures = {**fit.failures, **sample.failures}
        fit.bags = [bag for bag in draw.bags if bag.sample not in fit.failures]
        with fit.catch():
            check_enough(sample, fit.failures, fit.settings.n_prototypes)
            if fit.start is not None:
                fit.begin(fit.start, sample.gathered(), device)
                continue
            key = fit.settings.normalise, fit.settings.pca
            if key not in projected:
                projected[key] = _projected(sample, fit.settings, device, hold=hold)
            fit.projection, fit.sample = projected[key]


def _projected(sample: PatchSample, settings: KMeansSettings, device: str, *, hold: bool) -> tuple[Projection, Sample]:
    """Projection of a fit, and its sample: gathered from shared patches at each use, or held where it was projected or is the only one."""
    if not (settings.projects or hold):
        return Projection(), lambda: sample.gathered().to(device)
    projection, x = project(sample.gathered(), settings)
    x = x.to(device)
    return projection, lambda: x


def project(x: Tensor, settings: KMeansSettings) -> tuple[Projection, Tensor]:
    """Normalisation and PCA by the settings, fitted to a sample; and the projected sample."""
    projection = Projection(normalise=settings.normalise)
    x = projection(x)
    if settings.pca is None:
        return projection, x
    if settings.pca > min(x.shape):
        raise InputError(
            f"pca: {settings.pca} dimensions are more than the sample has patches or features, {tuple(x.shape)}"
        )
    mean = x.mean(0, dtype=torch.float64)
    centred = x.double() - mean
    _, vectors = torch.linalg.eigh(centred.T @ centred)
    basis = vectors.flip(-1)[:, : settings.pca]
    # a sign that does not depend on the solver
    basis = basis * torch.sign(basis.gather(0, basis.abs().argmax(0, keepdim=True)))
    projection = replace(projection, mean=mean.float(), basis=basis.float().contiguous())
    return projection, (centred @ basis).float()


def diagnose(
    centroids: Tensor,
    within_variance: Tensor,
    occupancy: Tensor,
    slide_mass: Mapping[str, Tensor],
    inertias: list[float],
) -> dict[str, Any]:
    """Diagnostics of centroids (C, d) with pooled variance (d,), occupancy (C,), patches (C,) of each slide and inertia of each restart."""
    distance = torch.cdist(centroids.double(), centroids.double(), compute_mode="donot_use_mm_for_euclid_dist")
    distance.fill_diagonal_(torch.inf)
    has_neighbours = len(centroids) > 1
    to_nearest, neighbour = distance.min(1) if has_neighbours else (torch.zeros(1), torch.zeros(1, dtype=torch.long))
    radius = float(within_variance.double().sum().sqrt())
    pairs = (distance < max(DUPLICATE * radius, 1e-12)).nonzero().tolist()
    shares = {slide: mass / mass.sum() for slide, mass in slide_mass.items() if float(mass.sum()) > 0}
    dominated = {slide: int(share.argmax()) for slide, share in shares.items() if float(share.max()) >= DOMINATED}
    result = {
        "inertia_per_restart": [round(value, 3) for value in inertias],
        "restart_spread": _rounded((max(inertias) - min(inertias)) / max(min(inertias), 1e-30)),
        "occupancy_share": list(map(_rounded, occupancy / occupancy.sum())),
        "distance_to_nearest": list(map(_rounded, to_nearest)),
        "nearest": neighbour.tolist(),
        "within_radius": _rounded(radius),
        "near_duplicates": [[a, b] for a, b in pairs if a < b],
        "dominated_slides": dict(sorted(dominated.items())) if has_neighbours else {},
        "slides": len(shares),
        "effective_number": _rounded(torch.special.entr(occupancy / occupancy.sum()).sum().exp()),
    }
    return {**result, "warnings": warnings(result)}


def warnings(d: Mapping[str, Any]) -> list[str]:
    """Notes on numbers that suggest a problem."""
    shares, pairs, dominated = d["occupancy_share"], d["near_duplicates"], len(d["dominated_slides"])
    largest = max(range(len(shares)), key=shares.__getitem__)
    empty = ", ".join(f"C{c}" for c, share in enumerate(shares) if share == 0)
    is_collapsed = len(shares) > 1 and (shares[largest] > 0.9 or d["effective_number"] < 1 + (len(shares) - 1) / 8)
    pair = " and ".join(f"C{c}" for c in (pairs or [[]])[0])
    spread, are_dominated = d["restart_spread"], d["slides"] >= 4 and dominated > d["slides"] / 2
    # saved with the prototypes: other words are other bytes
    notes = {
        f"The prototypes look collapsed: C{largest} holds {shares[largest]:.0%} of the patches "
        f"(effective number {d['effective_number']:.1f} of {len(shares)}). "
        "Check for background patches or constant features; try `normalise=True` or another `n_prototypes=`.": is_collapsed,
        f"{len(pairs)} pairs of prototypes are nearly identical, e.g. {pair}: ask for fewer with `n_prototypes=`.": pairs,
        f"{empty} hold no patch: ask for fewer with `n_prototypes=`.": empty,
        f"{dominated} of {d['slides']} slides lie almost wholly in one prototype: prototypes may tell slides or "
        "sites apart rather than morphology.": are_dominated,
        f"Restarts disagree ({spread:.0%} in inertia): raise `restarts=` or `sample=`.": spread > 0.05,
    }
    return [text for text, holds in notes.items() if holds]


def _rounded(value: Any) -> float:
    """Six digits: enough to read, and the last bits of a sum are not worth storing."""
    return float(f"{float(value):.6g}")
