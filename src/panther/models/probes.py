r"""Probes: logistic regression, proportional odds, ridge and ridge Cox regression. Inner cross-validation chooses the penalty and the weights of
the statistics of an embedding.

An L2 penalty is invariant to rotations. With n samples of D >> n numbers a model is therefore fitted in the n coordinates of the Gram
matrix :math:`K = X X^T = U \Lambda U^T`, :math:`Z = U \Lambda^{1/2}`: exactly the same solution, :math:`w = X^T U \Lambda^{-1/2} \beta`, at the cost
of one D-dimensional product. 1,000 x 32,784 takes seconds.

Gram matrices of several statistics (blocks) add up, :math:`K = \sum_b c_b K_b`: other weights need no further product over D.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from panther.cohort.covariates import COVARIATES
from panther.cohort.targets import Target, Values
from panther.errors import InputError
from panther.models.probe_solvers import (
    Coefficients,
    cox_loss,
    cumulative,
    grade_likelihood,
    held_out_ridge,
    logistic,
    ridge,
    ridge_cox,
)
from panther.models.settings import USUAL_LOSS

# Chosen by the protocol of docs/decisions/0009; conservative, because a few dozen patients hardly determine weights
LARGEST_SHARE = 0.7  # of the block that a weighting favours
EQUAL_PRIOR = 0.5  # prior probability of equal weights
SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)  # of an embedding beside covariates
NOTHING_ADDED = 0.5  # prior probability that an embedding adds nothing to them
OPTIONAL = "+"  # prefix of the names of optional blocks
NOT_NEEDED = 0.9  # prior probability that all optional blocks are left out; docs/decisions/0020


class Weighting(NamedTuple):
    """Shares (B,) of the blocks in the variance that a probe sees, and their prior probability."""

    shares: np.ndarray
    prior: float


def block_weightings(names: Sequence[str]) -> list[Weighting]:
    """Weightings to try: of the statistics of an embedding equal ones first, then each alone, then each with most of the variance.

    With covariates: these alone, then with shares of an embedding whose statistics have equal weights. With optional blocks: weightings
    without them, then with one of them, then with all.
    """
    if COVARIATES in names:
        is_covariate = np.array([name == COVARIATES for name in names])
        shares = [np.where(is_covariate, 1 - share, share / (len(names) - 1)) for share in SHARES]
        return [Weighting(is_covariate.astype(np.float64), NOTHING_ADDED), *_uniform(shares, 1 - NOTHING_ADDED)]
    optional = [name for name in names if name.startswith(OPTIONAL)]
    if not 0 < len(optional) < len(names):
        return _of_statistics(np.ones(len(names), bool))
    required = np.array([name not in optional for name in names])
    choices = [[name == block for name in names] for block in optional]
    choices += [[name in optional for name in names]] if len(optional) > 1 else []
    weightings = [Weighting(w.shares, w.prior * NOT_NEEDED) for w in _of_statistics(required)]
    for chosen in choices:
        candidates = [w for w in _of_statistics(required | chosen) if w.shares[chosen].any()]
        total = sum(w.prior for w in candidates) * len(choices) / (1 - NOT_NEEDED)
        weightings += [Weighting(w.shares, w.prior / total) for w in candidates]
    return weightings


def _of_statistics(used: np.ndarray) -> list[Weighting]:
    """Weightings of the used blocks (B,): equal ones first, then each alone, then each with most of the variance."""
    alone = np.eye(len(used))[used]
    equal = used / used.sum()
    if len(alone) == 1:
        return [Weighting(equal, 1.0)]
    most = alone * LARGEST_SHARE + (used - alone) * (1 - LARGEST_SHARE) / (len(alone) - 1)
    return [Weighting(equal, EQUAL_PRIOR), *_uniform([*alone, *most], 1 - EQUAL_PRIOR)]


def _uniform(shares: Sequence[np.ndarray], prior: float) -> list[Weighting]:
    """Weightings with equal parts of a prior."""
    return [Weighting(weighting, prior / len(shares)) for weighting in shares]


STRENGTHS = tuple(float(s) for s in 10.0 ** np.arange(-3, 4))  # of the penalty, relative to the embeddings' variance
TEMPER = 0.5  # power of the cross-validated likelihood (docs/decisions/0009)
NEGLIGIBLE = 1e-3  # posterior probability


@dataclass(frozen=True)
class Probe:
    """A fitted linear model; a `Task` turns its logits into predictions."""

    weight: np.ndarray  # (D, K)
    bias: np.ndarray  # (K,)
    strength: float  # chosen penalty (of an average: the most probable one)
    scores: dict[float, float]  # strength -> inner cross-validated loss, smaller is better; empty for a single strength
    shares: dict[str, float] = field(default_factory=dict)  # statistic -> share of the variance after weighing

    def logits(self, x: np.ndarray) -> np.ndarray:
        """Logits (n, K) of rows (n, D)."""
        return np.asarray(x, np.float64) @ self.weight + self.bias


@dataclass(frozen=True)
class Search:
    """Settings of the choice of penalty and weights."""

    strengths: Sequence[float] = STRENGTHS  # tried until weaker ones only get worse; a single one is not validated
    folds: int = 5
    groups: np.ndarray | None = None  # (n,), patient of each row: a patient's rows stay in one inner fold
    blocks: np.ndarray | None = None  # (D,), statistic of each number; None: statistics are not weighed
    seed: int = 0


Loss = Callable[[Coefficients, np.ndarray, np.ndarray, np.ndarray], np.ndarray]  # model, z, train, test -> (W,)


class ProbeModel(NamedTuple):
    """A penalised linear model."""

    strata: np.ndarray  # (n,), balanced over inner folds
    # weightings z (W, n, r), their row numbers, penalty, start (the solution of another penalty, or None)
    solve: Callable[..., Coefficients]
    loss: Loss | None
    score: Callable[[float], float] = float  # loss summed over all folds -> negative log-likelihood
    # z, strength, rows of each fold -> loss (W,) summed over all folds, for models with a closed form
    held_out: Callable[[np.ndarray, float, Sequence[np.ndarray]], np.ndarray] | None = None


@dataclass(frozen=True)
class Rotation:
    """Centred rows in at most as many coordinates as there are samples; distances and inner products stay the same."""

    z: np.ndarray  # (n, r), of the training rows
    back: Callable[[np.ndarray], np.ndarray]  # coefficients (r, K) -> (D, K)


def fit_searched(x: np.ndarray, model: ProbeModel, search: Search) -> Probe:
    """Fit a model to rows (n, D): with the best penalty or, where blocks are weighed, averaged over penalties and weights.

    Models are averaged by prior times tempered cross-validated likelihood, because the best weighting alone overfits. An average of linear
    models is a linear model.
    """
    x = np.asarray(x, np.float64)
    mean = x.mean(0)
    centred = x - mean
    names = [] if search.blocks is None else list(dict.fromkeys(search.blocks.tolist()))
    blocks = {str(name): np.flatnonzero(search.blocks == name) for name in names}
    blocks = {name: columns for name, columns in blocks.items() if np.any(centred[:, columns])}  # that are not constant
    if len(blocks) < 2:
        rotation = rotate(centred)
        # rows with a mean squared length of 1, to which penalties are relative
        scale = np.sqrt(float((rotation.z**2).sum(1).mean())) or 1.0
        z = rotation.z[None] / scale
        scores = _cross_validated(z, model, search)[0]
        strength = min(scores, key=scores.__getitem__) if scores else float(search.strengths[0])
        fitted = model.solve(z, np.arange(len(x)), strength)
        weight = rotation.back(fitted.beta[0] / scale)
        return Probe(weight, fitted.bias[0] - mean @ weight, strength, scores)
    weightings = block_weightings(list(blocks))
    if len(search.strengths) == 1:
        weightings = [Weighting(np.full(len(blocks), 1 / len(blocks)), 1.0)]  # nothing is cross-validated
    weighed = WeighedBlocks(centred, list(blocks.values()))
    rotations = [weighed.rotation(weighting.shares) for weighting in weightings]
    width = max(rotation.z.shape[1] for rotation in rotations)  # others are padded with zeros
    z = np.stack([np.pad(r.z, ((0, 0), (0, width - r.z.shape[1]))) for r in rotations])
    all_scores = _cross_validated(z, model, search)
    candidates = []  # (number of the weighting, strength, log of prior and tempered likelihood)
    for number, (scores, weighting) in enumerate(zip(all_scores, weightings, strict=True)):
        losses = scores or {float(search.strengths[0]): 0.0}
        candidates += [(number, s, np.log(weighting.prior) - TEMPER * loss) for s, loss in losses.items()]
    numbers, strengths, log_weight = map(np.array, zip(*candidates, strict=True))
    probability = np.exp(log_weight - log_weight.max())
    probability[probability < NEGLIGIBLE * probability.sum()] = 0.0
    probability /= probability.sum()
    weight, bias = np.zeros(1), np.zeros(1)
    for number, rotation in enumerate(rotations):
        used = np.flatnonzero((numbers == number) & (probability > 0))
        beta = np.zeros(1)
        for p, strength in zip(probability[used], strengths[used].tolist(), strict=True):
            fitted = model.solve(rotation.z[None], np.arange(len(centred)), strength)
            beta, bias = beta + p * fitted.beta[0], bias + p * fitted.bias[0]
        if len(used):
            weight = weight + rotation.back(beta)
    shares = probability @ np.array([weightings[number].shares for number in numbers])
    likeliest = float(strengths[probability.argmax()])
    named = {name: float(share) for name, share in zip(blocks, shares, strict=True)}
    return Probe(weight, bias - mean @ weight, likeliest, all_scores[0] or {likeliest: 0.0}, named)


class WeighedBlocks:
    """Rows with weighed blocks of columns; the products over all columns are computed once."""

    def __init__(self, centred: np.ndarray, blocks: list[np.ndarray]) -> None:
        self.centred, self.blocks = centred, blocks  # (n, D), columns of each block
        self.wide = centred.shape[1] > centred.shape[0]
        parts = [centred[:, columns] for columns in blocks]
        self.variance = np.array([(part**2).sum(1).mean() for part in parts])
        self.grams = [part @ part.T for part in parts] if self.wide else []

    def rotation(self, shares: np.ndarray) -> Rotation:
        """Coordinates where the blocks have these shares of a total variance of 1."""
        factors = shares / self.variance  # (B,)
        columns = np.zeros(self.centred.shape[1])
        for factor, block in zip(factors, self.blocks, strict=True):
            columns[block] = factor
        if not self.wide:
            root = np.sqrt(columns)
            weighed = rotate(self.centred * root)
            return Rotation(weighed.z, lambda beta: root[:, None] * weighed.back(beta))
        z, rows = _principal(sum(factor * gram for factor, gram in zip(factors, self.grams, strict=True)))
        return Rotation(z, lambda beta: columns[:, None] * (self.centred.T @ (rows @ beta)))


def rotate(centred: np.ndarray) -> Rotation:
    """Coordinates of centred rows (n, D) along their principal axes."""
    if centred.shape[1] > centred.shape[0]:
        z, rows = _principal(centred @ centred.T)
        return Rotation(z, lambda beta: centred.T @ (rows @ beta))
    values, axes = np.linalg.eigh(centred.T @ centred)
    axes = axes[:, values >= values.max() * 1e-12]
    return Rotation(centred @ axes, lambda beta: axes @ beta)


def _principal(gram: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Coordinates z = U sqrt(L) (n, r) of a Gram matrix U L U^T, and U / sqrt(L), which maps coefficients back to the rows."""
    values, vectors = np.linalg.eigh(gram)
    kept = values > values.max() * 1e-12
    if not kept.any():
        raise InputError("All training embeddings are equal, so nothing can be learnt from them.")
    root, vectors = np.sqrt(values[kept]), vectors[:, kept]
    return vectors * root, vectors / root


def _cross_validated(z: np.ndarray, model: ProbeModel, search: Search) -> list[dict[float, float]]:
    """Loss of each weighting (W, n, r) summed over inner folds, from strong to weak penalties until two in a row are worse.

    A single strength is not validated.
    """
    scores: list[dict[float, float]] = [{} for _ in z]
    if len(search.strengths) == 1:
        return scores
    parts = inner_folds(model.strata, search.folds, search.groups, search.seed)
    trains = [np.setdiff1d(np.arange(z.shape[1]), test) for test in parts]
    folds = [z[:, train] for train in trains] if model.held_out is None else []
    starts: list[Coefficients | None] = [None] * len(parts)  # each penalty starts from the model of the stronger one
    active = np.arange(len(z))
    for strength in sorted(map(float, search.strengths), reverse=True):
        if model.held_out is not None:
            total = model.held_out(z, strength, parts)
        else:
            assert model.loss is not None
            losses = np.empty((len(parts), len(z)))
            for number, (train, test) in enumerate(zip(trains, parts, strict=True)):
                starts[number] = fitted = model.solve(folds[number], train, strength, starts[number])
                losses[number] = model.loss(fitted, z, train, test)
            total = np.where(np.isnan(losses).all(0), np.nan, np.nansum(losses, 0))
        for n, loss in zip(active, total, strict=True):
            scores[n][strength] = np.inf if np.isnan(loss) else model.score(loss)
        paths = [list(scores[n].values()) for n in active]
        better = np.array([len(path) <= 2 or min(path[-2:]) <= min(path) for path in paths])
        if not better.any():
            break
        if not better.all():
            active, z, folds = active[better], z[better], [fold[better] for fold in folds]
            starts = [start and start.take(better) for start in starts]
    return scores


def inner_folds(strata: np.ndarray, folds: int, groups: np.ndarray | None, seed: int) -> list[np.ndarray]:
    """Rows of each inner fold, balanced by strata; rows of a group (patient) stay together."""
    names, member = np.unique(np.arange(len(strata)) if groups is None else groups, return_inverse=True)
    folds = min(folds, len(names))
    if folds < 2:
        raise InputError(f"Choosing the penalty needs at least two patients; there are {len(names)}.")
    stratum = np.zeros(len(names), np.int64)
    stratum[member[::-1]] = strata[::-1]  # the first row's
    shuffled = np.random.default_rng(seed).permutation(len(names))
    dealt = shuffled[np.argsort(stratum[shuffled], kind="stable")]  # by stratum, random within
    fold = np.empty(len(names), np.int64)
    fold[dealt] = np.arange(len(names)) % folds
    return [np.flatnonzero(fold[member] == k) for k in range(folds)]


# One thread: probes run side by side, small products with many threads on busy cores were 150 times slower, and the bytes
# of a result do not depend on the machine's cores.
@threadpool_limits.wrap(limits=1)
def fit_logistic(x: np.ndarray, labels: np.ndarray, n_classes: int, **search: Any) -> Probe:
    """Logistic regression (multinomial), its penalty chosen by cross-validated log loss.

    Parameters
    ----------
    x, labels : array
        Training embeddings (n, D), scaled, and their classes (n,).
    **search
        Fields of `Search`: penalties to try, inner folds, patients, statistics to weigh against each other, seed.
    """
    counts = np.bincount(labels, minlength=n_classes)
    if (counts > 0).sum() < 2:
        raise InputError("All training samples have one class; a classifier needs at least two.")

    def solve(z: np.ndarray, rows: np.ndarray, strength: float, start: Coefficients | None = None) -> Coefficients:
        return logistic(z, labels[rows], n_classes, strength, start)

    # a class with one sample cannot be in both parts: it is scored where it was not trained on
    def loss(model: Coefficients, z: np.ndarray, train: np.ndarray, test: np.ndarray) -> np.ndarray:
        logits = model.logits(z[:, test])
        peak = logits.max(2)
        total = np.log(np.exp(logits - peak[:, :, None]).sum(2)) + peak
        return np.asarray((total - logits[:, np.arange(len(test)), labels[test]]).sum(1))

    return fit_searched(x, ProbeModel(labels, solve, loss), Search(**search))


@threadpool_limits.wrap(limits=1)
def fit_cox(x: np.ndarray, time: np.ndarray, event: np.ndarray, **search: Any) -> Probe:
    """Ridge Cox regression (Breslow ties), its penalty chosen by cross-validated partial likelihood.

    A fold's score is the partial likelihood of all patients minus that of the fold's training patients (Verweij and van
    Houwelingen 1993), which is defined for few events, unlike that of the left-out patients alone.
    """
    if not np.any(event):
        raise InputError(f"None of the {len(time)} training patients has an event, so no Cox model can be fitted.")

    def solve(z: np.ndarray, rows: np.ndarray, strength: float, start: Coefficients | None = None) -> Coefficients:
        if not event[rows].any():
            return Coefficients(np.full((len(z), z.shape[2], 1), np.nan), np.zeros((len(z), 1)))
        beta = ridge_cox(z, time[rows], event[rows], strength, None if start is None else start.beta[:, :, 0])
        return Coefficients(beta[:, :, None], np.zeros((len(z), 1)))

    def loss(model: Coefficients, z: np.ndarray, train: np.ndarray, test: np.ndarray) -> np.ndarray:
        risk = model.logits(z)[:, :, 0]
        return cox_loss(risk, time, event) - cox_loss(risk[:, train], time[train], event[train])

    return fit_searched(x, ProbeModel(event.astype(np.int64), solve, loss), Search(**search))


@threadpool_limits.wrap(limits=1)
def fit_ridge(x: np.ndarray, values: np.ndarray, **search: Any) -> Probe:
    """Ridge regression, its penalty chosen by the cross-validated squared error."""
    if len(np.unique(values)) < 2:
        raise InputError("All training samples have the same value, so there is nothing to fit.")

    def solve(z: np.ndarray, rows: np.ndarray, strength: float, start: Coefficients | None = None) -> Coefficients:
        return ridge(z, values[rows], strength)

    def held_out(z: np.ndarray, strength: float, folds: Sequence[np.ndarray]) -> np.ndarray:
        return held_out_ridge(z, values, strength, folds)

    least = 1e-24 * float(np.var(values))  # variance of the noise of an exact fit

    def score(squares: float) -> float:
        # Gaussian noise with the variance of the held-out residuals
        return float(0.5 * len(values) * np.log(max(squares / len(values), least)))

    model = ProbeModel(Values(values).strata(), solve, None, score, held_out)
    return fit_searched(x, model, Search(**search))


@threadpool_limits.wrap(limits=1)
def fit_cumulative(x: np.ndarray, labels: np.ndarray, n_classes: int, **search: Any) -> Probe:
    """Proportional odds of ordered grades, with a ridge penalty chosen by cross-validated log loss.

    Its K - 1 outputs are the score and the (constant) steps of :func:`panther.models.losses.grade_log_probabilities`.
    """

    def solve(z: np.ndarray, rows: np.ndarray, strength: float, start: Coefficients | None = None) -> Coefficients:
        return cumulative(z, labels[rows], n_classes, strength)

    def loss(model: Coefficients, z: np.ndarray, train: np.ndarray, test: np.ndarray) -> np.ndarray:
        return -grade_likelihood(model.logits(z[:, test]), labels[test]).sum(1)

    return fit_searched(x, ProbeModel(labels, solve, loss), Search(**search))


def fit_labels(x: np.ndarray, labels: np.ndarray, **search: Any) -> Probe:
    """One logistic regression for each of several labels (n, L), on the samples where it is known (not NaN)."""
    each = []
    for column in labels.T:
        known = np.flatnonzero(~np.isnan(column))
        options = {**search, "groups": None if search.get("groups") is None else search["groups"][known]}
        each.append(fit_logistic(x[known], column[known].astype(np.int64), 2, **options))
    weight, bias = (
        np.stack([p[..., 1] - p[..., 0] for p in parts], -1)
        for parts in zip(*((p.weight, p.bias) for p in each), strict=True)
    )
    strength = float(np.exp(np.mean(np.log([probe.strength for probe in each]))))
    shares = {name: float(np.mean([p.shares.get(name, 0.0) for p in each])) for probe in each for name in probe.shares}
    return Probe(weight, bias, strength, {}, shares)


# by the loss: fit function, and its arguments of a target
PROBES: dict[str, tuple[Callable[..., Probe], Callable[[Any], tuple[Any, ...]]]] = {
    "cross-entropy": (fit_logistic, lambda target: (target.labels, len(target.names))),
    "ordinal": (fit_cumulative, lambda target: (target.labels, len(target.names))),
    "cox": (fit_cox, lambda target: (target.time, target.event)),
    "mse": (fit_ridge, lambda target: ((target.values - target.values.mean()) / (target.values.std() or 1.0),)),
    "binary-cross-entropy": (fit_labels, lambda target: (target.values,)),
}


def fit_suitable(x: np.ndarray, target: Target, loss: str | None = None, **search: Any) -> Probe:
    """Fit the probe of a loss, by default the usual one of the target, on scaled training embeddings (n, D); ``search`` as above.

    Its logits are those of the loss's task: values are standardised by the training part.
    """
    fit, arguments = PROBES[loss or USUAL_LOSS[target.kind]]
    return fit(x, *arguments(target), **search)
