r"""Penalised linear models by Newton's method, for several weightings of the same rows at once.

Rows come as coordinates z (W, n, r): W weightings of the same n samples, which share labels or follow-up. Every model minimises its summed loss
:math:`+ \frac{\lambda}{2} \|\beta\|^2`; intercepts are not penalised.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from panther.errors import InputError

NEWTON_STEPS = 50
ABSENT = -30.0  # logit of a class that was not seen: it never wins


class Coefficients(NamedTuple):
    """Linear models, one for each weighting."""

    beta: np.ndarray  # (W, r, K)
    bias: np.ndarray  # (W, K)

    def logits(self, z: np.ndarray) -> np.ndarray:
        """(W, m, K) of rows (W, m, r)."""
        return z @ self.beta + self.bias[:, None]

    def take(self, kept: np.ndarray) -> "Coefficients":
        """Those of some weightings."""
        return Coefficients(self.beta[kept], self.bias[kept])


Value = Callable[[np.ndarray], np.ndarray]  # parameters (W, P) -> (W,)
NewtonStep = Callable[
    [np.ndarray], tuple[np.ndarray, np.ndarray]
]  # parameters -> gradient and H^-1 gradient, (W, P) each


def minimise(value: Value, newton_step: NewtonStep, start: np.ndarray) -> np.ndarray:
    """Parameters (W, P) of W convex problems, each by Newton's method with step halving.

    A weak penalty on separable patients, where gradient methods crawl, takes it a dozen steps.
    """
    x, now = start, value(start)
    unfinished = np.ones(len(x), bool)
    for _ in range(NEWTON_STEPS):
        gradient, step = newton_step(x)
        decrement = (gradient * step).sum(1)
        unfinished &= decrement > 1e-14 * np.maximum(1.0, np.abs(now))
        size = unfinished.astype(np.float64)
        while unfinished.any():
            moved = x - size[:, None] * step
            then = value(moved)
            too_far = unfinished & ~(then <= now - 0.1 * size * decrement)
            if not too_far.any():
                x, now = moved, then
                break
            size[too_far] /= 2
            unfinished &= size > 1e-8  # smaller steps: as exact as the arithmetic is
            size[~unfinished & too_far] = 0.0
        if not unfinished.any():
            break
    return x


def solve_positive(matrices: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Solutions (W, m, k) for positive definite matrices (W, m, m), which are overwritten."""
    factors = (cho_factor(matrix.T, lower=False, overwrite_a=True, check_finite=False) for matrix in matrices)
    return np.stack([cho_solve(f, b, check_finite=False) for f, b in zip(factors, right, strict=True)])


def logistic(
    z: np.ndarray, labels: np.ndarray, n_classes: int, strength: float, start: Coefficients | None = None
) -> Coefficients:
    """Logistic regression; classes that are absent get a logit that never wins."""
    present = np.unique(labels)
    if len(present) == 2:
        found = _two_classes(z, labels == present[1], strength, None if start is None else _as_one(start, present))
        beta, bias = _nothing(z, n_classes)
        beta[:, :, present[1]], bias[:, present[0]], bias[:, present[1]] = found[:, :-1], 0.0, found[:, -1]
        return Coefficients(beta, bias)
    if len(present) == 1:
        beta, bias = _nothing(z, n_classes)
        bias[:, present] = 0.0
        return Coefficients(beta, bias)
    return _many_classes(z, labels, n_classes, strength, start)


def _nothing(z: np.ndarray, n_classes: int) -> tuple[np.ndarray, np.ndarray]:
    return np.zeros((len(z), z.shape[2], n_classes)), np.full((len(z), n_classes), ABSENT)


def _as_one(start: Coefficients, present: np.ndarray) -> np.ndarray:
    return np.concatenate([start.beta[:, :, present[1]], start.bias[:, present[1:]]], 1)


def _two_classes(z: np.ndarray, positive: np.ndarray, strength: float, start: np.ndarray | None) -> np.ndarray:
    r"""Coefficients and intercept (W, r + 1).

    With fewer samples than coordinates the step is found among the samples: :math:`\beta = Z^T a` and

    .. math:: (\lambda + W K) a = \zeta - b w,\quad \textstyle\sum a = 0,\quad K = Z Z^T,\ w = p (1 - p),\ \zeta = w \eta - (p - y)

    where :math:`(\lambda + W K)^{-1} = (1 - W^{1/2} (\lambda + W^{1/2} K W^{1/2})^{-1} W^{1/2} K) / \lambda` stays exact where w is nearly 0.
    """
    sign, y = np.where(positive, -1.0, 1.0), positive.astype(np.float64)
    rows = np.concatenate([z, np.ones((*z.shape[:2], 1))], 2)  # (W, n, r + 1)
    penalty = np.append(np.full(z.shape[2], strength), 0.0)
    gram = z @ z.transpose(0, 2, 1) if z.shape[2] >= z.shape[1] else None

    def value(x: np.ndarray) -> np.ndarray:
        eta = (rows @ x[:, :, None])[:, :, 0]
        return np.asarray(np.logaddexp(0, sign * eta).sum(1) + 0.5 * (penalty * x**2).sum(1))

    def newton_step(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        eta = (rows @ x[:, :, None])[:, :, 0]
        p = 0.5 * (1 + np.tanh(0.5 * eta))
        weight, slope = p * (1 - p), p - y
        gradient = (slope[:, None] @ rows)[:, 0] + penalty * x
        if gram is None:
            hessian = (rows * weight[:, :, None]).transpose(0, 2, 1) @ rows + np.diag(penalty)
            return gradient, solve_positive(hessian, gradient[:, :, None])[:, :, 0]
        both = np.stack([weight * eta - slope, weight], 2)  # (W, n, 2)
        root = np.sqrt(weight)[:, :, None]
        inner = root * gram * root.transpose(0, 2, 1)
        inner[:, np.arange(len(y)), np.arange(len(y))] += strength
        a, per_bias = np.moveaxis(both - root * solve_positive(inner, root * (gram @ both)), 2, 0)
        bias = a.sum(1) / per_bias.sum(1)
        beta = ((a - bias[:, None] * per_bias)[:, None] @ z)[:, 0] / strength
        return gradient, x - np.concatenate([beta, bias[:, None]], 1)

    return minimise(value, newton_step, np.zeros((len(z), rows.shape[2])) if start is None else start)


def _many_classes(
    z: np.ndarray, labels: np.ndarray, n_classes: int, strength: float, start: Coefficients | None
) -> Coefficients:
    from sklearn.linear_model import LogisticRegression

    present = np.unique(labels)
    beta, bias = _nothing(z, n_classes)
    for number, rows in enumerate(z):
        model = LogisticRegression(C=1 / strength, max_iter=5000, tol=1e-6, warm_start=True)
        if start is not None:
            model.coef_, model.intercept_ = start.beta[number][:, present].T, start.bias[number, present]
        model.fit(rows, labels)
        beta[number][:, present], bias[number, present] = model.coef_.T, model.intercept_
    return Coefficients(beta, bias)


def ridge_cox(
    z: np.ndarray, time: np.ndarray, event: np.ndarray, strength: float, start: np.ndarray | None = None
) -> np.ndarray:
    """Coefficients (W, r) of ridge Cox regression (Breslow ties)."""
    if strength <= 0:
        raise InputError(f"The ridge penalty is {strength}; it must be above 0.")
    order = np.argsort(-time, kind="stable")  # risk sets are prefixes
    z, time, event = z[:, order], time[order], event[order]

    def value(x: np.ndarray) -> np.ndarray:
        return cox_loss((z @ x[:, :, None])[:, :, 0], time, event)[0] + 0.5 * strength * (x**2).sum(1)

    def newton_step(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        eta = (z @ x[:, :, None])[:, :, 0]
        gradient = (cox_loss(eta, time, event)[1][:, None] @ z)[:, 0] + strength * x
        hessian = _cox_hessian(z, eta, time, event) + strength * np.eye(z.shape[2])
        return gradient, solve_positive(hessian, gradient[:, :, None])[:, :, 0]

    return minimise(value, newton_step, np.zeros((len(z), z.shape[2])) if start is None else start)


def cox_loss(log_risk: np.ndarray, time: np.ndarray, event: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Negative log partial likelihood (Breslow, summed over events) (W,) of log-risks (W, n), and its gradient (W, n)."""
    order = np.argsort(-time, kind="stable")
    eta, seen = log_risk[:, order], event[order].astype(np.float64)
    weight, ends, group, deaths = _risk_sets(eta, time[order], seen)
    at_risk = np.cumsum(weight, 1)[:, ends]
    value = np.log(at_risk) @ deaths - (eta - eta.max(1, keepdims=True)) @ seen
    gradient = np.empty_like(eta)
    gradient[:, order] = weight * _hazard(deaths / at_risk)[:, group] - seen
    return value, gradient


def _cox_hessian(z: np.ndarray, eta: np.ndarray, time: np.ndarray, event: np.ndarray) -> np.ndarray:
    r"""Sum over event times of d times the covariance of z in the risk set (W, r, r); patients in decreasing time.

    .. math:: Z^T \mathrm{diag}(e^\eta H) Z - \sum_k d_k \bar z_k \bar z_k^T
    """
    weight, ends, group, deaths = _risk_sets(eta, time, event.astype(np.float64))
    at_risk = np.cumsum(weight, 1)[:, ends]
    seen = deaths > 0
    means = np.cumsum(weight[:, :, None] * z, 1)[:, ends[seen]] / at_risk[:, seen, None]  # (W, G, r), of each risk set
    spread = np.sqrt(weight * _hazard(deaths / at_risk)[:, group])[:, :, None] * z
    middle = np.sqrt(deaths[seen])[:, None] * means
    return np.asarray(spread.transpose(0, 2, 1) @ spread - middle.transpose(0, 2, 1) @ middle)


def _risk_sets(
    eta: np.ndarray, time: np.ndarray, seen: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Of patients in decreasing time: relative hazards, last of each group of equal times, group of each, deaths in each group."""
    ends = np.append(np.flatnonzero(np.diff(time)), len(time) - 1)
    group = np.searchsorted(ends, np.arange(len(time)))
    relative = np.exp(eta - eta.max(1, keepdims=True))
    return relative, ends, group, np.bincount(group, weights=seen, minlength=len(ends))


def _hazard(increments: np.ndarray) -> np.ndarray:
    """Sum over the times at which a patient of that group was still at risk."""
    return np.cumsum(increments[:, ::-1], 1)[:, ::-1]
