r"""Choosing C from the data: which numbers of prototypes come back in both halves of a cohort, and what more of them would buy.

Two fits on disjoint halves of the patients are compared patch by patch. A prototype of one half *comes back* in the other when, of all patches
that either of the two calls so, at least half are called so by both: Jaccard overlap :math:`|A \cap B| / |A \cup B| \ge 1/2` of matched
prototypes. Below one half a cluster counts as dissolved (Hennig, *Cluster-wise assessment of cluster stability*, 2007); above it the partner
is the only one possible. Reproducibility recommends a number, the likelihood of unseen slides bounds it.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import adjusted_rand_score
from torch import Tensor

from panther.engine import LOCAL, Work
from panther.errors import InputError
from panther.prototypes.kmeans import KMeansProblem, KMeansSettings, block_mean, solve_all
from panther.prototypes.patches import sample_patches
from panther.statistics import squared_distances
from panther.types import Openable, Projection

COARSE, FINE = 9, 12  # candidates of the first grid; at most that many beside the recommended one afterwards
HALVINGS = 5
LEAST_PATCHES = 2  # a prototype, in each half
SLIDE_PARTS = 20  # that stand for slides where there is only one
NEARLY_ALL = 0.9  # part of the prototypes that must come back for a number to count as supported
LAST_STRETCH = 0.75  # of the range: a likelihood that needs more than this has not stopped rising
PARTS = "parts of the slide"
FEW_UNITS = 10  # slides or patients below which halves are too small to represent the cohort
COMES_BACK = 0.5  # overlap from which a prototype of one half counts as found again in the other


@dataclass(frozen=True)
class Candidate:
    """Criteria of one number of prototypes: medians (likelihood, explained variance) or means over random halvings of the cohort."""

    n_prototypes: int
    held_out: float  # log-likelihood per patch, of slides the prototypes never saw
    held_out_error: float  # standard error over slides (or patients)
    explained: float  # share of the variance of unseen slides
    gain: float  # explained more than by the next smaller candidate; 0 for the smallest
    gain_spread: float  # standard deviation of the gain over the halvings
    bic: float  # per patch; lower is better
    stability_seeds: float  # adjusted Rand index between two seeds, on slides neither saw
    stability_halves: float  # between the prototypes of the two halves, on all slides
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
class Choice:
    """All candidates and the recommended number."""

    candidates: tuple[Candidate, ...]
    recommended: int
    supported: tuple[int, int] | None  # smallest and largest number whose prototypes come back; None: no number does
    sufficient: int  # smallest number whose likelihood is as good as the best: more of them add nothing measurable
    still_rising: bool  # the likelihood had not stopped rising at the end of the range
    sentence: str  # the recommendation
    remarks: tuple[str, ...]  # its limits
    failures: Mapping[str, str]

    def to_lines(self) -> list[str]:
        """Lines for people."""
        return [
            "    C    come back   halves  seeds   explained     more than above   held-out/patch        BIC/patch",
            *(
                f"{'->' if c.n_prototypes == self.recommended else '  '}{c.n_prototypes:>3} {c.come_back:>6.1f} +-{c.come_back_spread:<4.1f}"
                f"{c.stability_halves:>7.2f}{c.stability_seeds:>7.2f} {c.explained:>10.1%}     {c.gain:>+7.1%} +-{c.gain_spread:<6.1%}"
                f"{c.held_out:>12.2f} +-{c.held_out_error:<7.2f}{c.bic:>10.2f}"
                for c in self.candidates
            ),
            self.sentence,
            *self.remarks,
        ]

    def to_json(self) -> dict[str, Any]:
        """The same for programs."""
        return {name: value for name, value in asdict(self).items() if name != "failures"}


@dataclass(frozen=True)
class _Cohort:
    """Patches that all candidates are fitted to, and the halves they are compared on."""

    x: Tensor  # (N, d)
    owner: Tensor  # (N,), number of the slide, patient or part that each patch belongs to
    unit: str  # "slides", "patients", or PARTS where there is one slide only
    halvings: Sequence[tuple[Tensor, Tensor]]  # rows of the two halves of each random halving
    seed: int
    restarts: int

    @property
    def units(self) -> int:
        """Number of slides, patients or parts."""
        return int(self.owner.max()) + 1


@torch.no_grad()
def compare_numbers(
    bags: Sequence[Openable],
    numbers: tuple[int, int],
    settings: KMeansSettings,
    *,
    patients: Mapping[str, str] | None = None,
    work: Work = LOCAL,
) -> Choice:
    """Compare numbers of prototypes, from the smallest to the largest, on random halves of the cohort, each judged on the other.

    ``patients`` is the patient of each slide; halves are then halves of the patients.
    """
    smallest, largest = numbers
    if not 1 <= smallest < largest:
        raise InputError(f"range: found {smallest}:{largest}, expected two numbers, the smaller first, e.g. 4:64")
    patches, drawn = sample_patches(bags, settings, work)
    x = Projection(normalise=settings.normalise)(patches.gathered()).to(work.device)
    owner, unit = _units(patches.owner, [bag.sample for bag in drawn], patients, settings.seed)
    halvings = list(random_halves(owner, settings.seed, HALVINGS))
    cohort = _Cohort(x, owner, unit, halvings, settings.seed, settings.restarts)
    half = min(len(half) for rows in halvings for half in rows)
    if half < LEAST_PATCHES * largest:
        raise InputError(
            f"range: found {half} patches in the smaller half of {cohort.units} {unit}, expected {LEAST_PATCHES * largest} "
            f"for {largest} prototypes"
        )
    # a geometric grid, then all numbers about the recommended one
    steps = min(COARSE, largest - smallest + 1)
    grid = sorted({round(smallest * (largest / smallest) ** (i / (steps - 1))) for i in range(steps)})
    scores: dict[int, CandidateScores] = {}
    for c in work.track(grid, "comparing numbers of prototypes", len(grid)):
        scores[c] = judge(c, cohort)
    # from the grid's next smaller to its second larger, thinned if they are many. Two steps up, as prototypes may fail to come back at one
    # number (four of five tissues, one of them cut in two) and come back at the next
    place = grid.index(recommend(scores, cohort).recommended)
    low, high = grid[max(place - 1, 0)], grid[min(place + 2, len(grid) - 1)]
    inside = [c for c in range(low + 1, high) if c not in grid]
    beside = inside[:: max(1, math.ceil(len(inside) / FINE))]
    for c in work.track(beside, "comparing numbers of prototypes", len(beside)):
        scores[c] = judge(c, cohort)
    return replace(recommend(scores, cohort), failures=dict(patches.failures))


def _units(owner: Tensor, names: Sequence[str], patients: Mapping[str, str] | None, seed: int) -> tuple[Tensor, str]:
    """Number, from 0, of the unit whose patches are kept together: a patient, else a slide, else a part of the only slide."""
    if patients is not None:
        numbers = {name: i for i, name in enumerate(dict.fromkeys(patients.get(n, n) for n in names))}
        owner = torch.tensor([numbers[patients.get(n, n)] for n in names])[owner]
    units = owner.unique(return_inverse=True)[1]
    if int(units.max()) > 0:
        return units, "slides" if patients is None else "patients"
    order = torch.randperm(len(owner), generator=torch.Generator().manual_seed(seed))
    return order % min(SLIDE_PARTS, len(owner)), PARTS


@dataclass(frozen=True)
class _Model:
    """K-means made a density: equal round groups, as K-means assumes them, in shares as found."""

    centroids: Tensor  # (C, d)
    origin: Tensor  # (d,), mean of the patches it was fitted on
    log_shares: Tensor  # (C,)
    variance: float  # of every dimension

    def distances(self, x: Tensor) -> Tensor:
        """(N, C); computed where the patches lie, returned to the CPU."""
        return squared_distances(x, self.centroids, self.origin).cpu().double()

    def log_density(self, distances: Tensor) -> Tensor:
        joint = self.log_shares - distances / (2 * self.variance)
        return joint.logsumexp(-1) - 0.5 * len(self.origin) * math.log(2 * math.pi * self.variance)


def judge(c: int, cohort: _Cohort) -> CandidateScores:
    """All criteria for one C: two fits for each halving, each judged on the half it never saw; and one fit with another seed."""
    x, explained, back, adjusted_rand, bic, log_density = cohort.x, [], [], [], [], []
    parameters = c * x.shape[1] + c  # centroids, shares that add up to one, and one variance
    first_fits = []
    for number, rows in enumerate(cohort.halvings):
        models = _fit([x[half] for half in rows], c, cohort.seed + number, cohort.restarts)
        first_fits.append(models[0])
        distances = [model.distances(x) for model in models]  # (N, C) each
        unseen = torch.empty(len(x), dtype=torch.float64)  # log-density of each patch by the fit that never saw it
        left, whole, criteria = 0.0, 0.0, []
        for model, table, seen, other in zip(models, distances, rows, reversed(rows), strict=True):
            unseen[other] = model.log_density(table[other])
            fit = -2 * float(model.log_density(table[seen]).mean())
            criteria.append(fit + parameters * math.log(len(seen)) / len(seen))
            left += float(table[other].amin(-1).sum())
            whole += float(
                squared_distances(x[other], model.origin.unsqueeze(0), model.origin).sum(dtype=torch.float64)
            )
        labels = [table.argmin(-1) for table in distances]
        log_density.append(unseen)
        explained.append(1 - left / whole if whole > 0 else 0.0)  # about the mean of the other half
        back.append(float((overlaps(labels[0], labels[1], c) >= COMES_BACK).sum()))
        adjusted_rand.append(float(adjusted_rand_score(*labels)))
        bic.append(_mean(criteria))
    # K-means may end in a poor local minimum on one half, whatever C: medians over the halvings
    counts = torch.bincount(cohort.owner)
    by_unit = torch.stack([torch.bincount(cohort.owner, one) / counts for one in log_density]).median(0).values
    shares, numbers = (torch.tensor(values, dtype=torch.float64) for values in (explained, back))
    seen, unseen = (x[half] for half in cohort.halvings[0])
    (other_seed,) = _fit([seen], c, cohort.seed + len(first_fits), cohort.restarts)
    of_seeds = [model.distances(unseen).argmin(-1) for model in (first_fits[0], other_seed)]
    candidate = Candidate(
        n_prototypes=c,
        held_out=float(by_unit.mean()),
        held_out_error=standard_error(by_unit),
        explained=float(shares.median()),
        gain=0.0,
        gain_spread=0.0,
        bic=_mean(bic),
        stability_seeds=float(adjusted_rand_score(*of_seeds)),
        stability_halves=_mean(adjusted_rand),
        come_back=float(numbers.mean()),
        come_back_spread=spread(numbers),
    )
    return CandidateScores(candidate, by_unit, shares)


def overlaps(first: Tensor, second: Tensor, n_prototypes: int) -> Tensor:
    """Jaccard overlap (C,) of prototypes by labels (N,) of the same patches; they are matched so that their overlaps add up to the most."""
    both = torch.bincount(first * n_prototypes + second, minlength=n_prototypes**2).reshape(n_prototypes, -1).double()
    overlap = both / (both.sum(1, keepdim=True) + both.sum(0) - both).clamp_min(1)  # (C, C)
    rows, columns = linear_sum_assignment(overlap.numpy(), maximize=True)
    return overlap[torch.as_tensor(rows), torch.as_tensor(columns)]


def spread(values: Tensor) -> float:
    """Their standard deviation; 0 for one value."""
    return float(values.std()) if len(values) > 1 else 0.0


def standard_error(values: Tensor) -> float:
    """Of the mean."""
    return spread(values) / math.sqrt(len(values))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _fit(parts: Sequence[Tensor], n_prototypes: int, seed: int, restarts: int) -> list[_Model]:
    """Fits on several parts of the sample, side by side."""
    models = []
    solved = solve_all([KMeansProblem.on(x, n_prototypes, seed, restarts) for x in parts])
    for x, (best, _) in zip(parts, solved, strict=True):
        origin = block_mean(x)
        least, labels = squared_distances(x, best.centroids, origin).double().min(-1)
        variance = float(least.sum()) / max((len(x) - n_prototypes) * x.shape[1], 1)
        shares = torch.bincount(labels.cpu(), minlength=n_prototypes).double() / len(x)
        models.append(_Model(best.centroids, origin, shares.log(), max(variance, 1e-12)))
    return models


def random_halves(owner: Tensor, seed: int, number: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Rows of two random halves of the owners (patients or slides), ``number`` times; of the rows where there is one owner only."""
    owners = owner.unique()
    generator = torch.Generator().manual_seed(seed)
    for _ in range(number):
        if len(owners) < 2:
            chosen = torch.rand(len(owner), generator=generator) < 0.5
        else:
            order = torch.randperm(len(owners), generator=generator)
            chosen = torch.isin(owner, owners[order[: len(owners) // 2]])
        yield chosen.nonzero().flatten(), (~chosen).nonzero().flatten()


def recommend(scores: Mapping[int, CandidateScores], cohort: _Cohort) -> Choice:
    """Choose the largest C whose prototypes come back in both halves, but no more than the likelihood of unseen slides asks for."""
    candidates: list[Candidate] = []
    for c in sorted(scores):
        candidate = scores[c].candidate
        if candidates:  # what it explains beyond the next smaller one
            more = scores[c].explained - scores[candidates[-1].n_prototypes].explained  # (halvings,)
            candidate = replace(candidate, gain=float(more.median()), gain_spread=spread(more))
        candidates.append(candidate)
    # smallest C whose held-out likelihood is, slide by slide, within one standard error of the best
    best, largest = max(scores, key=lambda c: scores[c].candidate.held_out), max(scores)
    losses = {c: scores[best].by_unit - scores[c].by_unit for c in sorted(scores)}
    as_good = [c for c, loss in losses.items() if float(loss.mean()) <= standard_error(loss)]
    sufficient = as_good[0]
    is_rising = largest in (best, as_good[-1]) and (sufficient == largest or sufficient > LAST_STRETCH * largest)
    back = [c.n_prototypes for c in candidates if c.share_back >= NEARLY_ALL]
    if back:  # reproducible only above what the likelihood asks for: the smallest of them
        recommended = max((c for c in back if c <= sufficient), default=min(back))
    else:
        recommended = max(candidates, key=lambda c: (c.share_back, c.n_prototypes)).n_prototypes
    supported = (min(back), max(back)) if back else None
    choice = Choice(tuple(candidates), recommended, supported, sufficient, is_rising, "", (), {})
    return replace(choice, sentence=_sentence(choice, cohort), remarks=tuple(_remarks(choice, cohort)))


def _sentence(choice: Choice, cohort: _Cohort) -> str:
    c, first, last = choice.recommended, choice.candidates[0].n_prototypes, choice.candidates[-1].n_prototypes
    chosen = next(candidate for candidate in choice.candidates if candidate.n_prototypes == c)
    evidence = (
        f"fitted on either half of the {cohort.units} {cohort.unit} ({HALVINGS} random halvings), {chosen.come_back:.1f} of {c} are found "
        f"again in the other, and {chosen.stability_halves:.0%} of the assignments agree beyond chance"
    )
    if choice.supported is None:
        return (
            f"No number from {first} to {last} gives prototypes that come back; C = {c} is nearest: {evidence}. "
            "Do not interpret single prototypes."
        )
    if c > choice.sufficient:
        reason = "the smallest number whose prototypes come back"
    elif c < choice.supported[1]:
        reason = f"more do not raise the likelihood of unseen {cohort.unit} by more than its standard error, and these come back"
    else:
        reason = "the largest number whose prototypes come back"
    return f"C = {c}: {reason}: {evidence}."


def _remarks(choice: Choice, cohort: _Cohort) -> Iterator[str]:
    c, largest = choice.recommended, choice.candidates[-1].n_prototypes
    chosen = next(candidate for candidate in choice.candidates if candidate.n_prototypes == c)
    if c < largest:
        more = max((one for one in choice.candidates if one.n_prototypes > c), key=lambda one: one.explained)
        yield (
            f"What more buys: C = {more.n_prototypes} explains {more.explained:.1%} of the variance of unseen {cohort.unit} instead of "
            f"{chosen.explained:.1%}, and {more.come_back:.1f} of its {more.n_prototypes} prototypes come back."
        )
    if choice.still_rising:
        limit = "; this is no reason for more prototypes than are reproducible" if c < largest else ""
        yield f"The likelihood of unseen {cohort.unit} still rises at C = {largest}, the end of the range{limit}."
    if choice.supported is not None and choice.supported[1] == largest:
        wider = f"range={choice.candidates[0].n_prototypes}:{2 * largest}"
        yield f"Prototypes are still reproducible at C = {largest}, the end of the range: extend it (`{wider}`)."
    if choice.supported is None and chosen.stability_seeds < NEARLY_ALL:
        yield (
            f"Two seeds on the same {cohort.unit} agree on {chosen.stability_seeds:.0%} of the assignments only: the features have no sharp "
            "groups, which more slides would not change."
        )
    if cohort.unit == PARTS:
        yield "There is one slide: halves of its patches do not show whether prototypes come back in other slides."
    elif cohort.units < FEW_UNITS:
        yield (
            f"{cohort.units} {cohort.unit} are few: halves of {cohort.units // 2} depend on their members, so fewer prototypes come back "
            "than a larger cohort would support."
        )
