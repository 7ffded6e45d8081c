"""What one number of prototypes is worth: likelihood and explained variance of unseen slides, and whether the prototypes come back."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from sklearn.metrics import adjusted_rand_score
from torch import Tensor

from panther.errors import value_of
from panther.prototypes.compare import match
from panther.prototypes.kmeans import KMeansProblem, block_mean, kmeans_many
from panther.prototypes.reproducibility import FitAgreement, agreement
from panther.prototypes.settings import KMeansSettings
from panther.statistics import squared_distances

Halves = Sequence[tuple[Tensor, Tensor]]  # rows of the two halves of each random halving


@dataclass(frozen=True)
class Candidate:
    """What is known of one number of prototypes: medians (likelihood, explained variance) or means over random halvings of the cohort."""

    n_prototypes: int
    held_out: float  # log-likelihood per patch, of slides the prototypes never saw
    held_out_error: float  # standard error over slides (or patients)
    explained: float  # share of the variance of unseen slides
    gain: float  # explained more than by the next smaller candidate; 0 for the smallest
    gain_spread: float  # standard deviation of the gain over the halvings
    bic: float  # per patch; lower is better
    stability_seeds: float  # adjusted Rand index between two seeds, on slides neither saw
    stability_halves: float  # between the prototypes of the two halves, on all slides
    centroid_agreement: float  # mean cosine of matched centroids of the two halves, about the cohort's mean
    come_back: float  # how many prototypes of one half are found again in the other
    come_back_spread: float  # standard deviation over the halvings

    @property
    def share_back(self) -> float:
        """Part of the prototypes that come back."""
        return self.come_back / self.n_prototypes


@dataclass(frozen=True)
class CandidateScores:
    """A candidate and what it is compared by."""

    candidate: Candidate
    by_unit: Tensor  # (units,), held-out log-likelihood of each slide or patient
    explained: Tensor  # (halvings,)


@dataclass(frozen=True)
class _Model:
    """K-means made a density: equal round groups, as K-means assumes them, in shares as found."""

    centroids: Tensor  # (C, d)
    origin: Tensor  # (d,), mean of the patches it was fitted on
    log_shares: Tensor  # (C,)
    variance: float  # of every dimension

    def distances(self, x: Tensor) -> Tensor:
        """(N, C); computed where the patches lie, told where everything small is."""
        return squared_distances(x, self.centroids, self.origin).cpu().double()

    def labels(self, x: Tensor) -> Tensor:
        return self.distances(x).argmin(-1)

    def log_density(self, distances: Tensor) -> Tensor:
        joint = self.log_shares - distances / (2 * self.variance)
        return joint.logsumexp(-1) - 0.5 * len(self.origin) * math.log(2 * math.pi * self.variance)


def judge(c: int, x: Tensor, owner: Tensor, halvings: Halves, settings: KMeansSettings) -> CandidateScores:
    """All criteria for one C: two fits for each halving, each judged on the half it never saw; and one fit with another seed."""
    n_units = int(owner.max()) + 1
    found = [_judge_halves(c, x, rows, settings, number) for number, rows in enumerate(halvings)]
    # K-means that ends in a poor local minimum on one half is not the number's fault: medians over the halvings
    by_unit = torch.stack([_mean_by_unit(f.unseen, owner, n_units) for f in found]).median(0).values
    explained = torch.tensor([f.explained for f in found], dtype=torch.float64)
    back = torch.tensor([f.agreement.come_back for f in found], dtype=torch.float64)
    seen, unseen = (x[half] for half in halvings[0])
    (other_seed,) = _fit([seen], c, settings.seed + len(found), settings.restarts)
    candidate = Candidate(
        c,
        float(by_unit.mean()),
        standard_error(by_unit),
        float(explained.median()),
        0.0,
        0.0,
        _mean([f.bic for f in found]),
        float(adjusted_rand_score(found[0].first.labels(unseen), other_seed.labels(unseen))),
        _mean([f.agreement.adjusted_rand for f in found]),
        _mean([f.cosine for f in found]),
        float(back.mean()),
        spread(back),
    )
    return CandidateScores(candidate, by_unit, explained)


@dataclass(frozen=True)
class _Halving:
    """Two fits, on the two halves of one halving."""

    first: _Model
    unseen: Tensor  # (N,), log-density of each patch by the fit that never saw it
    explained: float
    agreement: FitAgreement
    cosine: float
    bic: float


def _judge_halves(c: int, x: Tensor, rows: tuple[Tensor, Tensor], settings: KMeansSettings, number: int) -> _Halving:
    models = _fit([x[half] for half in rows], c, settings.seed + number, settings.restarts)
    distances = [model.distances(x) for model in models]  # (N, C) each
    unseen = torch.empty(len(x), dtype=torch.float64)
    for model, table, half in zip(models, distances, reversed(rows), strict=True):
        unseen[half] = model.log_density(table[half])
    centre = block_mean(x)
    return _Halving(
        models[0],
        unseen,
        _explained(x, models, distances, rows),
        agreement(distances[0].argmin(-1), distances[1].argmin(-1), c),
        float(match(*((model.centroids - centre).cpu() for model in models)).cosine.mean()),
        _bic(c, x.shape[1], models, distances, rows),
    )


def spread(values: Tensor) -> float:
    """Their standard deviation; 0 for one value."""
    return float(values.std()) if len(values) > 1 else 0.0


def standard_error(values: Tensor) -> float:
    """Of the mean."""
    return spread(values) / math.sqrt(len(values))


def _fit(parts: Sequence[Tensor], n_prototypes: int, seed: int, restarts: int) -> list[_Model]:
    """Fits on several parts of the sample, side by side."""
    solved = kmeans_many([KMeansProblem.on(x, n_prototypes, seed, restarts) for x in parts])
    return [_model(x, value_of(run)[0].centroids) for x, run in zip(parts, solved, strict=True)]


def _model(x: Tensor, centroids: Tensor) -> _Model:
    n_prototypes, origin = len(centroids), block_mean(x)
    least, labels = squared_distances(x, centroids, origin).double().min(-1)
    spread = float(least.sum()) / max((len(x) - n_prototypes) * x.shape[1], 1)
    shares = torch.bincount(labels.cpu(), minlength=n_prototypes).double() / len(x)
    return _Model(centroids, origin, shares.log(), max(spread, 1e-12))


def _explained(x: Tensor, models: Sequence[_Model], distances: Sequence[Tensor], rows: tuple[Tensor, Tensor]) -> float:
    """Share of the variance of each half, about the mean of the other, that the other's prototypes explain."""
    left = sum(float(table[half].amin(-1).sum()) for table, half in zip(distances, reversed(rows), strict=True))
    whole = sum(
        float(squared_distances(x[half], model.origin.unsqueeze(0), model.origin).sum(dtype=torch.float64))
        for model, half in zip(models, reversed(rows), strict=True)
    )
    return 1 - left / whole if whole > 0 else 0.0


def _bic(c: int, dim: int, models: Sequence[_Model], distances: Sequence[Tensor], rows: tuple[Tensor, Tensor]) -> float:
    """Bayesian information criterion per patch, mean of the two fits."""
    parameters = c * dim + c  # centroids, shares that add up to one, and one variance
    fits = zip(models, distances, rows, strict=True)
    return _mean(
        [
            -2 * float(m.log_density(t[half]).mean()) + parameters * math.log(len(half)) / len(half)
            for m, t, half in fits
        ]
    )


def _mean_by_unit(values: Tensor, owner: Tensor, n_units: int) -> Tensor:
    counts = torch.bincount(owner, minlength=n_units)
    return torch.bincount(owner, values, minlength=n_units) / counts


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
