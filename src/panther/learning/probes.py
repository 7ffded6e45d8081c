r"""Fast probes: logistic regression and ridge Cox, their regularisation chosen by inner cross-validation.

An L2 penalty does not notice a rotation. With n samples of D >> n numbers both models are therefore fitted in the n
coordinates of the Gram matrix :math:`K = X X^T = U \Lambda U^T`, :math:`Z = U \Lambda^{1/2}`: exactly the same solution,
:math:`w = X^T U \Lambda^{-1/2} \beta`, at the cost of one D-dimensional product. 1,000 x 32,784 takes seconds.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from panther.errors import InputError
from panther.learning.targets import Classes, Survival

STRENGTHS = tuple(float(s) for s in 10.0 ** np.arange(-3, 4))  # of the penalty, relative to the embeddings' variance
NEWTON_STEPS = 50


@dataclass(frozen=True)
class Probe:
    """A fitted linear model; its logits are what a `Task` predicts from."""

    weight: np.ndarray  # (D, K)
    bias: np.ndarray  # (K,)
    strength: float  # of the penalty, as chosen
    scores: dict[float, float]  # strength -> inner cross-validated loss, smaller is better; empty when none was needed

    def logits(self, x: np.ndarray) -> np.ndarray:
        """Logits (n, K) of rows (n, D)."""
        return np.asarray(x, np.float64) @ self.weight + self.bias


@dataclass(frozen=True)
class Rotation:
    """Rows about their mean, in as few coordinates as there are samples; distances and products stay the same."""

    mean: np.ndarray  # (D,)
    z: np.ndarray  # (n, r), of the training rows
    back: Callable[[np.ndarray], np.ndarray]  # coefficients (r, K) -> (D, K)

    @property
    def variance(self) -> float:
        """Mean square length of the rows; penalties count relative to it."""
        return float((self.z**2).sum(1).mean())


def rotate(x: np.ndarray) -> Rotation:
    """Coordinates of rows (n, D) in their own span."""
    x = np.asarray(x, np.float64)
    if not np.isfinite(x).all():
        row = int(np.flatnonzero(~np.isfinite(x).all(1))[0])
        raise InputError(f"Row {row} of the embeddings holds NaN or an infinite number; embed this sample again.")
    mean = x.mean(0)
    centred = x - mean
    if x.shape[1] <= x.shape[0]:
        return Rotation(mean, centred, lambda beta: beta)
    values, vectors = np.linalg.eigh(centred @ centred.T)
    kept = values > values.max() * 1e-12
    if not kept.any():
        raise InputError("All training embeddings are equal, so nothing can be learnt from them.")
    root, vectors = np.sqrt(values[kept]), vectors[:, kept]
    return Rotation(mean, vectors * root, lambda beta: centred.T @ (vectors @ (beta / root[:, None])))


# One thread: probes run side by side, small products with many threads on busy cores were 150 times slower, and the bytes
# of a result do not depend on the machine's cores.
@threadpool_limits.wrap(limits=1)
def fit_logistic(
    x: np.ndarray,
    labels: np.ndarray,
    n_classes: int,
    *,
    strengths: Sequence[float] = STRENGTHS,
    folds: int = 5,
    groups: np.ndarray | None = None,
    seed: int = 0,
) -> Probe:
    """Logistic regression (multinomial), its penalty chosen by cross-validated log loss.

    Parameters
    ----------
    x, labels : array
        Training embeddings (n, D), scaled, and their classes (n,).
    strengths : sequence of float
        Penalties to try, relative to the embeddings' variance, until weaker ones only get worse; one alone is used as it is.
    groups : array, optional
        Patient of each row (n,), where a patient has several: they stay in one inner fold.
    """
    counts = np.bincount(labels, minlength=n_classes)
    if (counts > 0).sum() < 2:
        raise InputError("All training samples have one class; a classifier needs at least two.")
    rotation = rotate(x)
    scale = np.sqrt(rotation.variance) or 1.0
    z = rotation.z / scale

    def loss(train: np.ndarray, test: np.ndarray, strength: float) -> float:
        beta, bias = _logistic(z[train], labels[train], n_classes, strength)
        logits = z[test] @ beta + bias
        peak = logits.max(1)
        return float(
            (np.log(np.exp(logits - peak[:, None]).sum(1)) + peak - logits[np.arange(len(test)), labels[test]]).sum()
        )

    # a class with one sample cannot be in both parts: it is scored, at a loss, where it was not seen
    scores = _cross_validated(loss, labels, strengths, folds, groups, seed)
    strength = min(scores, key=scores.__getitem__) if scores else float(strengths[0])
    beta, bias = _logistic(z, labels, n_classes, strength)
    weight = rotation.back(beta / scale)
    return Probe(weight, bias - rotation.mean @ weight, strength, scores)


@threadpool_limits.wrap(limits=1)
def fit_cox(
    x: np.ndarray,
    time: np.ndarray,
    event: np.ndarray,
    *,
    strengths: Sequence[float] = STRENGTHS,
    folds: int = 5,
    groups: np.ndarray | None = None,
    seed: int = 0,
) -> Probe:
    """Ridge Cox regression (Breslow ties), its penalty chosen by cross-validated partial likelihood.

    A fold's score is the partial likelihood of all patients minus that of the fold's training patients (Verweij and van
    Houwelingen 1993), which does not starve on few events as the left-out patients' own would.
    """
    if not np.any(event):
        raise InputError(f"None of the {len(time)} training patients has an event, so no Cox model can be fitted.")
    rotation = rotate(x)
    scale = np.sqrt(rotation.variance) or 1.0
    z = rotation.z / scale
    start: dict[int, np.ndarray] = {}  # strengths are tried from strong to weak, each from its neighbour's solution

    def loss(train: np.ndarray, test: np.ndarray, strength: float) -> float:
        if not event[train].any():
            return np.nan
        key = int(test[0])
        beta = start[key] = ridge_cox(z[train], time[train], event[train], strength, start.get(key))
        return cox_loss(z @ beta, time, event)[0] - cox_loss(z[train] @ beta, time[train], event[train])[0]

    scores = _cross_validated(loss, event.astype(np.int64), strengths, folds, groups, seed)
    strength = min(scores, key=scores.__getitem__) if scores else float(strengths[0])
    beta = ridge_cox(z, time, event, strength)
    weight = rotation.back(beta[:, None] / scale)
    return Probe(weight, -rotation.mean @ weight, strength, scores)


def ridge_cox(
    z: np.ndarray, time: np.ndarray, event: np.ndarray, alpha: float, start: np.ndarray | None = None
) -> np.ndarray:
    r"""Coefficients (r,) that minimise the negative log partial likelihood (Breslow) :math:`+ \frac{\alpha}{2} \|\beta\|^2`.

    Newton's method with step halving; a weak penalty on separable patients, where gradient methods crawl, takes it a
    dozen steps.
    """
    if alpha <= 0:
        raise InputError(f"The ridge penalty is {alpha}; it must be above 0.")
    order = np.argsort(-time, kind="stable")  # risk sets are prefixes
    z, time, event = z[order], time[order], event[order]
    beta = np.zeros(z.shape[1]) if start is None else start
    for _ in range(NEWTON_STEPS):
        value, slope = cox_loss(z @ beta, time, event)
        value += 0.5 * alpha * float(beta @ beta)
        gradient = z.T @ slope + alpha * beta
        step = cho_solve(cho_factor(_cox_hessian(z, z @ beta, time, event, alpha), overwrite_a=True), gradient)
        decrement = float(gradient @ step)
        if decrement <= 1e-14 * max(1.0, abs(value)):
            break
        size = 1.0
        while size > 1e-8:
            moved = beta - size * step
            now = cox_loss(z @ moved, time, event)[0] + 0.5 * alpha * float(moved @ moved)
            if now <= value - 0.1 * size * decrement:
                break
            size /= 2
        else:
            break  # as exact as the arithmetic is
        beta = moved
    return beta


def cox_loss(log_risk: np.ndarray, time: np.ndarray, event: np.ndarray) -> tuple[float, np.ndarray]:
    """Negative log partial likelihood (Breslow, summed over events) and its gradient (n,)."""
    order = np.argsort(-time, kind="stable")
    eta, seen = log_risk[order], event[order].astype(np.float64)
    weight, ends, group, deaths = _risk_sets(eta, time[order], seen)
    at_risk = np.cumsum(weight)[ends]
    value = float(deaths @ np.log(at_risk) - seen @ (eta - eta.max()))
    gradient = np.empty_like(eta)
    gradient[order] = weight * _hazard(deaths / at_risk)[group] - seen
    return value, gradient


def _cox_hessian(z: np.ndarray, eta: np.ndarray, time: np.ndarray, event: np.ndarray, alpha: float) -> np.ndarray:
    r"""Sum over event times of d times the covariance of z in the risk set, plus alpha; patients in decreasing time.

    .. math:: Z^T \mathrm{diag}(e^\eta H) Z - \sum_k d_k \bar z_k \bar z_k^T + \alpha I
    """
    weight, ends, group, deaths = _risk_sets(eta, time, event.astype(np.float64))
    at_risk = np.cumsum(weight)[ends]
    means = np.cumsum(weight[:, None] * z, 0)[ends] / at_risk[:, None]  # (G, r), of each risk set
    spread = np.sqrt(weight * _hazard(deaths / at_risk)[group])[:, None] * z
    seen = deaths > 0
    middle = np.sqrt(deaths[seen])[:, None] * means[seen]
    hessian = spread.T @ spread - middle.T @ middle
    hessian[np.diag_indices_from(hessian)] += alpha
    return hessian


def _risk_sets(
    eta: np.ndarray, time: np.ndarray, seen: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Of patients in decreasing time: relative hazards, last of each group of equal times, group of each, deaths in each group."""
    ends = np.append(np.flatnonzero(np.diff(time)), len(eta) - 1)
    group = np.searchsorted(ends, np.arange(len(eta)))
    return np.exp(eta - eta.max()), ends, group, np.bincount(group, weights=seen, minlength=len(ends))


def _hazard(increments: np.ndarray) -> np.ndarray:
    """Sum over the times at which a patient of that group was still at risk."""
    return np.cumsum(increments[::-1])[::-1]


def _logistic(z: np.ndarray, labels: np.ndarray, n_classes: int, strength: float) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients (r, K) and intercepts (K,); classes that are absent get a logit that never wins."""
    from sklearn.linear_model import LogisticRegression

    present = np.unique(labels)
    beta, bias = np.zeros((z.shape[1], n_classes)), np.full(n_classes, -30.0)
    if len(present) == 1:
        bias[present] = 0.0
        return beta, bias
    model = LogisticRegression(C=1 / strength, max_iter=5000, tol=1e-6).fit(z, labels)
    if len(present) == 2:  # scikit-learn keeps one column for two classes
        beta[:, present[1]], bias[present] = model.coef_[0], (0.0, float(model.intercept_[0]))
    else:
        beta[:, present], bias[present] = model.coef_.T, model.intercept_
    return beta, bias


def _cross_validated(
    loss: Callable[[np.ndarray, np.ndarray, float], float],
    strata: np.ndarray,
    strengths: Sequence[float],
    folds: int,
    groups: np.ndarray | None,
    seed: int,
) -> dict[float, float]:
    """Summed loss over inner folds, from strong to weak penalties until two in a row were worse; one strength needs no scores."""
    if len(strengths) == 1:
        return {}
    parts = inner_folds(strata, folds, groups, seed)
    every = np.arange(len(strata))
    scores: dict[float, float] = {}
    for strength in sorted(strengths, reverse=True):
        if len(scores) > 2 and min(list(scores.values())[-2:]) > min(scores.values()):
            break  # weaker ones only cost time
        losses = [loss(np.setdiff1d(every, part), part, float(strength)) for part in parts]
        scores[float(strength)] = float(np.nansum(losses)) if not np.isnan(losses).all() else np.inf
    return scores


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


def fit_suitable(x: np.ndarray, target: Classes | Survival, **options: Any) -> Probe:
    """Fit the probe that suits the target, on training embeddings (n, D), scaled; options as of the two above."""
    if isinstance(target, Classes):
        return fit_logistic(x, target.labels, len(target.names), **options)
    return fit_cox(x, target.time, target.event, **options)
