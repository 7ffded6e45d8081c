r"""How a linear probe finds its penalty, and how much each statistic of an embedding counts, by inner cross-validation.

An L2 penalty does not notice a rotation. With n samples of D >> n numbers a model is therefore fitted in the n coordinates of the Gram
matrix :math:`K = X X^T = U \Lambda U^T`, :math:`Z = U \Lambda^{1/2}`: exactly the same solution, :math:`w = X^T U \Lambda^{-1/2} \beta`, at the cost
of one D-dimensional product. 1,000 x 32,784 takes seconds.

Where an embedding has several statistics (blocks), their Gram matrices add, :math:`K = \sum_b c_b K_b`: weighing them anew costs no product over D.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np

from panther.errors import InputError
from panther.models.blocks.weightings import Weighting, block_weightings
from panther.models.probe_solvers import Coefficients

STRENGTHS = tuple(float(s) for s in 10.0 ** np.arange(-3, 4))  # of the penalty, relative to the embeddings' variance
TEMPER = 0.5  # power of the cross-validated likelihood (docs/decisions/0009)
NEGLIGIBLE = 1e-3  # posterior probability


@dataclass(frozen=True)
class Probe:
    """A fitted linear model; its logits are what a `Task` predicts from."""

    weight: np.ndarray  # (D, K)
    bias: np.ndarray  # (K,)
    strength: float  # of the penalty, as chosen (the likeliest, where several are averaged)
    scores: dict[float, float]  # strength -> inner cross-validated loss, smaller is better; empty when none was needed
    shares: dict[str, float] = field(default_factory=dict)  # statistic -> its share of the variance that the probe sees

    def logits(self, x: np.ndarray) -> np.ndarray:
        """Logits (n, K) of rows (n, D)."""
        return np.asarray(x, np.float64) @ self.weight + self.bias


@dataclass(frozen=True)
class Search:
    """How penalty and weights are chosen."""

    strengths: Sequence[float] = STRENGTHS  # tried until weaker ones only get worse; one alone is used as it is
    folds: int = 5
    groups: np.ndarray | None = None  # (n,), patient of each row: a patient's rows stay in one inner fold
    blocks: np.ndarray | None = None  # (D,), statistic of each number, where statistics are weighed; None: as they are
    seed: int = 0


class Solve(Protocol):
    """Fit weightings z (W, n, r) of samples, which are these rows of all, with a penalty, from a neighbour's solution where there is one."""

    def __call__(
        self, z: np.ndarray, rows: np.ndarray, strength: float, start: Coefficients | None = None
    ) -> Coefficients: ...


Loss = Callable[[Coefficients, np.ndarray, np.ndarray, np.ndarray], np.ndarray]  # model, z, train, test -> (W,)


class ProbeModel(NamedTuple):
    """A penalised linear model."""

    strata: np.ndarray  # (n,), what inner folds have alike
    solve: Solve
    loss: Loss | None
    score: Callable[[float], float] = float  # loss summed over all folds -> minus the log-likelihood
    # z, strength, rows of each fold -> loss (W,) summed over all folds, of a model that need not be fitted again for it
    held_out: Callable[[np.ndarray, float, Sequence[np.ndarray]], np.ndarray] | None = None


@dataclass(frozen=True)
class Rotation:
    """Rows about their mean, in as few coordinates as there are samples; distances and products stay the same."""

    z: np.ndarray  # (n, r), of the training rows
    back: Callable[[np.ndarray], np.ndarray]  # coefficients (r, K) -> (D, K)

    @property
    def variance(self) -> float:
        """Mean square length of the rows; penalties count relative to it."""
        return float((self.z**2).sum(1).mean())

    def of_unit_variance(self) -> "Rotation":
        """The same rows, of mean square length 1."""
        scale = np.sqrt(self.variance) or 1.0
        return Rotation(self.z / scale, lambda beta: self.back(beta / scale))


class _Tried(NamedTuple):
    """One weighting of the blocks with one penalty."""

    weighting: int
    strength: float
    log_weight: float  # unnormalised, of prior and cross-validated likelihood


def fit_searched(x: np.ndarray, model: ProbeModel, search: Search) -> Probe:
    """Fit a model to rows (n, D): with the best penalty or, where blocks are weighed, averaged over penalties and weights."""
    x = np.asarray(x, np.float64)
    if not np.isfinite(x).all():
        row = int(np.flatnonzero(~np.isfinite(x).all(1))[0])
        raise InputError(f"Row {row} of the embeddings holds NaN or an infinite number; embed this sample again.")
    mean = x.mean(0)
    centred = x - mean
    blocks = _varying_blocks(centred, search.blocks)
    if len(blocks) < 2:
        rotation = rotate(centred).of_unit_variance()
        z = rotation.z[None]
        scores = _cross_validated(z, model, search)[0]
        strength = min(scores, key=scores.__getitem__) if scores else float(search.strengths[0])
        found = model.solve(z, np.arange(len(x)), strength)
        weight = rotation.back(found.beta[0])
        return Probe(weight, found.bias[0] - mean @ weight, strength, scores)
    return _averaged(centred, mean, blocks, model, search)


def _averaged(
    centred: np.ndarray, mean: np.ndarray, blocks: dict[str, np.ndarray], model: ProbeModel, search: Search
) -> Probe:
    """Average of the models with all weightings and penalties, by prior times tempered cross-validated likelihood.

    The best weighting alone follows noise; an average of linear models is one linear model as well.
    """
    weightings = block_weightings(list(blocks))
    if len(search.strengths) == 1:
        weightings = [Weighting(np.full(len(blocks), 1 / len(blocks)), 1.0)]  # nothing is cross-validated
    weighed = WeighedBlocks(centred, list(blocks.values()))
    rotations = [weighed.rotation(weighting.shares) for weighting in weightings]
    scores = _cross_validated(_stacked(rotations), model, search)
    tried: list[_Tried] = []
    for number, (own, weighting) in enumerate(zip(scores, weightings, strict=True)):
        found = own or {float(search.strengths[0]): 0.0}
        tried += [_Tried(number, s, np.log(weighting.prior) - TEMPER * loss) for s, loss in found.items()]
    log_weight = np.array([t.log_weight for t in tried])
    probability = np.exp(log_weight - log_weight.max())
    probability[probability < NEGLIGIBLE * probability.sum()] = 0.0
    probability /= probability.sum()
    weight, bias = _mean_model(rotations, model, tried, probability)
    shares = probability @ np.array([weightings[t.weighting].shares for t in tried])
    likeliest = tried[int(probability.argmax())].strength
    named = {name: float(share) for name, share in zip(blocks, shares, strict=True)}
    return Probe(weight, bias - mean @ weight, likeliest, scores[0] or {likeliest: 0.0}, named)


def _mean_model(
    rotations: list["Rotation"], model: ProbeModel, tried: list[_Tried], probability: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Weights (D, K) and intercepts (K,), averaged; one product over D for each weighting."""
    weight, bias = np.zeros(1), np.zeros(1)
    every = np.arange(len(model.strata))
    for number, rotation in enumerate(rotations):
        own = [(t, p) for t, p in zip(tried, probability, strict=True) if t.weighting == number and p > 0]
        if not own:
            continue
        beta = np.zeros(1)
        for one, p in own:
            found = model.solve(rotation.z[None], every, one.strength)
            beta, bias = beta + p * found.beta[0], bias + p * found.bias[0]
        weight = weight + rotation.back(beta)
    return weight, bias


def _stacked(rotations: list["Rotation"]) -> np.ndarray:
    """Coordinates (W, n, r), those of fewer filled up with zeros, which change nothing."""
    width = max(rotation.z.shape[1] for rotation in rotations)
    return np.stack([np.pad(r.z, ((0, 0), (0, width - r.z.shape[1]))) for r in rotations])


class WeighedBlocks:
    """Rows whose blocks of columns are weighed, again and again, without another product over all columns."""

    def __init__(self, centred: np.ndarray, blocks: list[np.ndarray]) -> None:
        self.centred, self.blocks = centred, blocks  # (n, D), columns of each block
        self.wide = centred.shape[1] > centred.shape[0]
        parts = [centred[:, columns] for columns in blocks]
        self.variance = np.array([(part**2).sum(1).mean() for part in parts])
        self.grams = [part @ part.T for part in parts] if self.wide else []

    def rotation(self, shares: np.ndarray) -> Rotation:
        """Coordinates in which the blocks have these shares of a total variance of 1."""
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
    """Coordinates of rows (n, D) about their mean along their principal axes."""
    if centred.shape[1] > centred.shape[0]:
        z, rows = _principal(centred @ centred.T)
        return Rotation(z, lambda beta: centred.T @ (rows @ beta))
    values, axes = np.linalg.eigh(centred.T @ centred)
    axes = axes[:, values >= values.max() * 1e-12]
    return Rotation(centred @ axes, lambda beta: axes @ beta)


def _principal(gram: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Coordinates z = U sqrt(L) (n, r) of a Gram matrix U L U^T, and what brings coefficients back to the rows, U / sqrt(L)."""
    values, vectors = np.linalg.eigh(gram)
    kept = values > values.max() * 1e-12
    if not kept.any():
        raise InputError("All training embeddings are equal, so nothing can be learnt from them.")
    root, vectors = np.sqrt(values[kept]), vectors[:, kept]
    return vectors * root, vectors / root


def _varying_blocks(centred: np.ndarray, blocks: np.ndarray | None) -> dict[str, np.ndarray]:
    """Columns of each block that varies at all."""
    if blocks is None:
        return {}
    if len(blocks) != centred.shape[1]:
        raise InputError(f"The embeddings have {centred.shape[1]} numbers but {len(blocks)} names of their blocks.")
    found = {str(name): np.flatnonzero(blocks == name) for name in dict.fromkeys(blocks.tolist())}
    return {name: columns for name, columns in found.items() if np.any(centred[:, columns])}


def _cross_validated(z: np.ndarray, model: ProbeModel, search: Search) -> list[dict[float, float]]:
    """Of each weighting (W, n, r): summed loss over inner folds, from strong to weak penalties until two in a row were worse.

    One strength needs no scores.
    """
    scores: list[dict[float, float]] = [{} for _ in z]
    if len(search.strengths) == 1:
        return scores
    parts = inner_folds(model.strata, search.folds, search.groups, search.seed)
    held_out, going = _HeldOut(z, model, parts), np.arange(len(z))
    for strength in sorted(map(float, search.strengths), reverse=True):
        for own, loss in zip(going, held_out.losses(strength), strict=True):
            scores[own][strength] = np.inf if np.isnan(loss) else model.score(loss)
        worse = np.array([_only_worse(list(scores[own].values())) for own in going])
        if worse.all():
            break
        if worse.any():
            going = going[~worse]
            held_out.keep(~worse)
    return scores


class _HeldOut:
    """How well inner folds are foretold by models without them, each fitted from that of the stronger penalty."""

    def __init__(self, z: np.ndarray, model: ProbeModel, parts: Sequence[np.ndarray]) -> None:
        self.z, self.model, self.parts = z, model, parts
        self.trains = [np.setdiff1d(np.arange(z.shape[1]), test) for test in parts]
        self.folds = [z[:, train] for train in self.trains] if model.held_out is None else []
        self.starts: list[Coefficients | None] = [None] * len(parts)

    def losses(self, strength: float) -> np.ndarray:
        """Loss (W,) summed over the folds that have one; NaN where none has."""
        if self.model.held_out is not None:
            return self.model.held_out(self.z, strength, self.parts)
        assert self.model.loss is not None
        losses = np.empty((len(self.parts), len(self.z)))
        for number, (train, test) in enumerate(zip(self.trains, self.parts, strict=True)):
            found = self.model.solve(self.folds[number], train, strength, self.starts[number])
            self.starts[number], losses[number] = found, self.model.loss(found, self.z, train, test)
        return np.where(np.isnan(losses).all(0), np.nan, np.nansum(losses, 0))

    def keep(self, kept: np.ndarray) -> None:
        """Go on with some of the weightings."""
        self.z, self.folds = self.z[kept], [fold[kept] for fold in self.folds]
        self.starts = [one and one.take(kept) for one in self.starts]


def _only_worse(losses: list[float]) -> bool:
    """Whether weaker penalties only cost time."""
    return len(losses) > 2 and min(losses[-2:]) > min(losses)


def inner_folds(strata: np.ndarray, folds: int, groups: np.ndarray | None, seed: int) -> list[np.ndarray]:
    """Rows of each inner fold, strata dealt out evenly; rows of one group (patient) stay together."""
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
