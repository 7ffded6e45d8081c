"""One fit on its way from a sample to prototypes: projection, centroids after each pass, what is measured in the last one."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

import torch
from torch import Tensor

from panther.errors import InputError
from panther.mixture import STARTING_VARIANCES, starting_variance, surprise_of
from panther.patch_spec import in_common
from panther.prototypes.diagnostics import diagnose
from panther.prototypes.kmeans import KMeansProblem, Sample, Solved
from panther.prototypes.lloyd import moved
from panther.prototypes.passes import CohortPass, PassRequest
from panther.prototypes.patches import BagInfo, example
from panther.prototypes.settings import KMeansSettings
from panther.statistics import Statistics, squared_distances
from panther.statistics.tail import surprise_edges
from panther.store import hash_contents
from panther.types import Openable, Projection, Prototypes
from panther.version import __version__

REACHED = 50_000  # patches of the sample that say how far prototypes reach


@dataclass
class FitProgress:
    """Where one fit is; all fits of a group take the same steps at the same time."""

    settings: KMeansSettings
    infos: Mapping[str, BagInfo]
    bags: Sequence[Openable]  # that can still be read
    failures: dict[str, str]
    projection: Projection
    sample: Sample  # projected
    centroids: Tensor = field(default_factory=lambda: torch.empty(0))  # (C, d), once it is started
    inertias: list[float] = field(default_factory=list)  # of the restarts
    prototypes: Prototypes | None = None  # once it is measured

    @property
    def empty(self) -> list[str]:
        """Bags with zero patches."""
        return [name for name, info in self.infos.items() if info.patches == 0]

    @property
    def problem(self) -> KMeansProblem:
        """K-means on the sample."""
        return KMeansProblem(self.sample, self.settings.n_prototypes, self.settings.seed, self.settings.restarts)

    def start(self, solved: Solved) -> None:
        """Go on from the solution of the problem."""
        best, self.inertias = solved
        self.centroids = best.centroids

    def request(self, number: int) -> PassRequest:
        """What pass ``number`` is to do; the last one measures."""
        centroids = self.centroids.cpu()
        return PassRequest(centroids, centroids.mean(0), self.projection, number == self.settings.passes)

    def take(self, found: CohortPass, request: PassRequest) -> None:
        """Learn from a pass; bags that failed in it are left out from now on."""
        self.failures |= found.failures
        self.bags = [bag for bag in self.bags if bag.sample not in self.failures]
        if found.sums is None:
            raise InputError(f"No slide could be read to the end. {example(self.failures)}")
        if request.measure:
            self.prototypes = self._measured(found, request, found.sums)
        else:
            sums = Statistics(*(t.to(self.centroids.device) for t in found.sums))
            self.centroids = moved(sums, self.centroids, request.origin.to(self.centroids), self.sample)

    def _measured(self, found: CohortPass, request: PassRequest, sums: Statistics) -> Prototypes:
        slides, some = tuple(found.slide_mass), _some(self.sample())
        order = torch.argsort(-sums.mass, stable=True)  # C0 is the most common pattern
        centres = request.centroids.double() - request.origin.double()
        about = (
            sums.square - 2 * centres * sums.total + sums.mass.unsqueeze(-1) * centres * centres
        )  # (C, d), about the centroids
        within = (about.clamp_min(0).sum(0) / sums.patches).float()
        centroids, occupancy = request.centroids[order].contiguous(), sums.mass[order]
        slide_mass = {slide: mass[order] for slide, mass in found.slide_mass.items()}
        return Prototypes(
            centroids,
            within,
            occupancy,
            self.projection,
            encoder=next((self.infos[s].encoder for s in slides if self.infos[s].encoder), None),
            slides=slides,
            settings={**asdict(self.settings), "patches": int(sums.patches)},
            diagnostics={
                "inertia": float(f"{float(about.sum()):.6g}"),
                "reach": _reach(some, centroids, request.origin),
                **diagnose(centroids, within, occupancy, slide_mass, self.inertias),
            },
            parents=hash_contents(found.contents),
            version=__version__,
            spec=in_common([self.infos[s].spec for s in slides]),
            surprise=_surprise(some, centroids, within),
        )


def _reach(some: Tensor, centroids: Tensor, origin: Tensor) -> float:
    """Distance to the nearest prototype that 99 of 100 patches of the sample keep: what is farther is rare."""
    distance = squared_distances(some, centroids.to(some), origin.to(some)).amin(-1).sqrt()
    return float(f"{float(distance.double().quantile(0.99)):.6g}")


def _surprise(some: Tensor, centroids: Tensor, within: Tensor) -> Tensor:
    """What is usual and what is rare among patches of the sample (3, 2), for each variance that EM may start from."""
    edges = [
        surprise_edges(surprise_of(some, centroids.to(some), starting_variance(name, some.shape[1], within)))
        for name in STARTING_VARIANCES
    ]
    return torch.tensor([[float(f"{value:.6g}") for value in pair] for pair in edges])


def _some(x: Tensor) -> Tensor:
    return x[:: max(1, len(x) // REACHED)].cpu()


def project(x: Tensor, settings: KMeansSettings) -> tuple[Projection, Tensor]:
    """Normalisation and PCA as the settings say, learned from a sample; and the sample seen through them."""
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
