r"""Penalised linear models of classes, ordered grades, survival and numbers by Newton's method, for several weightings of the same rows at once.

Rows are coordinates z (W, n, r): W weightings of the same n samples, which share labels or follow-up. Every model minimises its summed loss
:math:`+ \frac{\lambda}{2} \|\beta\|^2`; intercepts are not penalised.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve

NEWTON_STEPS = 50
NOTHING, LITTLE = 1e-14, 1e-7  # Newton decrements relative to the loss: converged before a step, and after one more
ROUNDED = 1e-6  # relative accuracy of products in float32
LARGEST = 1e15  # sums of squares of such numbers are finite in float32
ABSENT = -30.0  # logit of a class without training samples


class Coefficients(NamedTuple):
    """Linear models, one for each weighting."""

    beta: np.ndarray  # (W, r, K)
    bias: np.ndarray  # (W, K)

    def logits(self, z: np.ndarray) -> np.ndarray:
        """(W, m, K) of rows (W, m, r)."""
        return z @ self.beta + self.bias[:, None]

    def take(self, kept: np.ndarray) -> "Coefficients":
        """Models of some weightings."""
        return Coefficients(self.beta[kept], self.bias[kept])


Evaluate = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]  # parameters (W, P) -> loss (W,), and scores (W, n)
Product = Callable[[np.ndarray], np.ndarray]  # H x, (W, P) -> (W, P)
# parameters, their loss and their scores -> gradient and H^-1 gradient, (W, P) each
NewtonStep = Callable[[np.ndarray, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


def minimise(evaluate: Evaluate, newton_step: NewtonStep, start: np.ndarray) -> np.ndarray:
    """Parameters (W, P) of W convex problems, each by Newton's method with step halving.

    It takes a dozen steps for a weak penalty on separable patients, where gradient methods are slow. Convergence is quadratic, so the step
    after a small decrement is the last.
    """
    x = start
    now, scores = evaluate(x)
    unfinished = np.ones(len(x), bool)
    for _ in range(NEWTON_STEPS):
        gradient, step = newton_step(x, now, scores)
        decrement = (gradient * step).sum(1)
        scale = np.maximum(1.0, np.abs(now))
        unfinished &= decrement > NOTHING * scale
        size = unfinished.astype(np.float64)
        while unfinished.any():
            moved = x - size[:, None] * step
            then, scores = evaluate(moved)
            too_far = unfinished & ~(then <= now - 0.1 * size * decrement + NOTHING * scale)
            if not too_far.any():
                x, now = moved, then
                break
            size[too_far] /= 2
            unfinished &= size > 1e-8  # smaller steps are rounding
            size[~unfinished & too_far] = 0.0
        unfinished &= decrement > LITTLE * scale
        if not unfinished.any():
            break
    return x


def nearly_newton(product: Product, diagonal: np.ndarray, right: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Newton steps H^-1 g (W, P) by conjugate gradients, from products with the positive definite H and its diagonal (W, P) alone.

    The tolerance decreases towards the minimum (``value`` (W,) is the loss), for superlinear convergence. Products may be in float32, which
    takes half the time: the minimum depends on the gradient ``right`` only. Along the principal axes of the rows the diagonal is nearly the
    matrix, so a few products suffice for every penalty.
    """
    decrease = (right**2 / diagonal).sum(1) / np.maximum(1.0, np.abs(value))  # estimated decrease of the loss
    tolerance = np.clip(np.sqrt(decrease), ROUNDED, 0.1)
    x, residual = np.zeros_like(right), right
    direction = scaled = residual / diagonal
    size = np.vecdot(residual, scaled)
    goal = tolerance**2 * size
    for _ in range(10 * right.shape[1]):
        going = size > goal
        if not going.any():
            break
        moved = product(direction)
        length = (going * size / np.where(going, np.vecdot(direction, moved), 1.0))[:, None]
        x, residual = x + length * direction, residual - length * moved
        scaled = residual / diagonal
        now = np.vecdot(residual, scaled)
        direction = scaled + (now / np.where(going, size, np.inf))[:, None] * direction
        size = np.where(going, now, size)
    return x


def solve_positive(matrices: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Solutions (W, m, k) for positive definite matrices (W, m, m), which are overwritten."""
    factors = (cho_factor(matrix.T, lower=False, overwrite_a=True, check_finite=False) for matrix in matrices)
    return np.stack([cho_solve(f, b, check_finite=False) for f, b in zip(factors, right, strict=True)])


def logistic(
    z: np.ndarray, labels: np.ndarray, n_classes: int, strength: float, start: Coefficients | None = None
) -> Coefficients:
    """Logistic regression; absent classes have the logit `ABSENT`."""
    present = np.unique(labels)
    beta, bias = np.zeros((len(z), z.shape[2], n_classes)), np.full((len(z), n_classes), ABSENT)
    if len(present) > 2:
        return _many_classes(z, labels, Coefficients(beta, bias), strength, start)
    if len(present) == 1:
        bias[:, present] = 0.0
        return Coefficients(beta, bias)
    positive = labels == present[1]
    sign, y = np.where(positive, -1.0, 1.0), positive.astype(np.float64)
    rows = np.ones((*z.shape[:2], z.shape[2] + 1), _rough(z))
    rows[:, :, :-1] = z
    squares = rows**2
    penalty = np.append(np.full(z.shape[2], strength), 0.0)

    def evaluate(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        scores = times(z, x[:, :-1]) + x[:, -1:]
        return np.logaddexp(0, sign * scores).sum(1) + 0.5 * (penalty * x**2).sum(1), scores

    def newton_step(x: np.ndarray, value: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        p = 0.5 * (1 + np.tanh(0.5 * scores))
        gradient = np.concatenate([sums(p - y, z), (p - y).sum(1, keepdims=True)], 1) + penalty * x
        weight = (p * (1 - p)).astype(rows.dtype)
        # the curvature of the unpenalised intercept of a confident model may underflow
        diagonal = np.maximum(sums(weight, squares) + penalty, 1e-300)

        def product(direction: np.ndarray) -> np.ndarray:
            return sums(weight * times(rows, direction.astype(rows.dtype)), rows) + penalty * direction

        return gradient, nearly_newton(product, diagonal, gradient, value)

    x = np.zeros((len(z), rows.shape[2]))
    if start is not None:
        x = np.concatenate([start.beta[:, :, present[1]], start.bias[:, present[1:]]], 1)
    x = minimise(evaluate, newton_step, x)
    beta[:, :, present[1]], bias[:, present[0]], bias[:, present[1]] = x[:, :-1], 0.0, x[:, -1]
    return Coefficients(beta, bias)


def _rough(z: np.ndarray) -> type[np.floating[Any]]:
    """Type of inexact products: float32, unless squares could overflow."""
    return np.float32 if np.abs(z).max(initial=0.0) < LARGEST else np.float64


def times(rows: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Scores (W, n) of rows (W, n, P) for parameters (W, P)."""
    return np.asarray((rows @ x[:, :, None])[:, :, 0])


def sums(weight: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Weighted sums (W, P) of rows (W, n, P)."""
    return np.asarray((weight[:, None] @ rows)[:, 0])


def _many_classes(
    z: np.ndarray, labels: np.ndarray, absent: Coefficients, strength: float, start: Coefficients | None
) -> Coefficients:
    from sklearn.linear_model import LogisticRegression

    present, (beta, bias) = np.unique(labels), absent
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
    order = np.argsort(-time, kind="stable")
    z, risk_sets = z[:, order], RiskSets.of(time[order], event[order])
    rows = z.astype(_rough(z))
    squares = rows**2

    def evaluate(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        scores = times(z, x)
        return risk_sets.loss(scores) + 0.5 * strength * (x**2).sum(1), scores

    def newton_step(x: np.ndarray, value: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        curvature = CoxCurvature.of(scores, risk_sets)
        gradient = sums(curvature.hazard - risk_sets.died, z) + strength * x

        def product(direction: np.ndarray) -> np.ndarray:
            along = curvature.times(times(rows, direction.astype(rows.dtype)))
            return sums(along.astype(rows.dtype), rows) + strength * direction

        diagonal = sums(curvature.hazard.astype(rows.dtype), squares) + strength
        return gradient, nearly_newton(product, diagonal, gradient, value)

    return minimise(evaluate, newton_step, np.zeros((len(z), z.shape[2])) if start is None else start)


class RiskSets(NamedTuple):
    """Groups of equal times of patients in decreasing time, where risk sets are prefixes."""

    ends: np.ndarray  # (G,), last patient of each group
    group: np.ndarray  # (n,)
    deaths: np.ndarray  # (G,)
    died: np.ndarray  # (n,), 0 or 1

    @classmethod
    def of(cls, time: np.ndarray, event: np.ndarray) -> "RiskSets":
        """Risk sets of times in decreasing order."""
        ends = np.append(np.flatnonzero(np.diff(time)), len(time) - 1)
        group, died = np.searchsorted(ends, np.arange(len(time))), event.astype(np.float64)
        return cls(ends, group, np.bincount(group, weights=died, minlength=len(ends)), died)

    def at_risk(self, eta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Hazards (W, n) relative to the largest, and their sums (W, G) over those at risk."""
        weight = np.exp(eta - eta.max(1, keepdims=True))
        return weight, np.cumsum(weight, 1)[:, self.ends]

    def loss(self, eta: np.ndarray) -> np.ndarray:
        """Negative log partial likelihood (W,) of log-risks (W, n)."""
        return np.asarray(np.log(self.at_risk(eta)[1]) @ self.deaths - (eta - eta.max(1, keepdims=True)) @ self.died)

    def hazard(self, increments: np.ndarray) -> np.ndarray:
        """Cumulative hazard of each patient (W, n): sum of increments (W, G) over the times at risk."""
        return np.cumsum(increments[:, ::-1], 1)[:, ::-1][:, self.group]


def cox_loss(log_risk: np.ndarray, time: np.ndarray, event: np.ndarray) -> np.ndarray:
    """Negative log partial likelihood (Breslow, summed over events) (W,) of log-risks (W, n)."""
    order = np.argsort(-time, kind="stable")
    return RiskSets.of(time[order], event[order]).loss(log_risk[:, order])


class CoxCurvature(NamedTuple):
    r"""Second derivative of the Cox loss by the log-risks, as sums along the risk sets; patients in decreasing time.

    .. math:: A = \mathrm{diag}(e^\eta H) - \sum_k \frac{d_k}{S_k^2} w_k w_k^T,\quad w_k = e^\eta \text{ within risk set } k, \text{ else } 0
    """

    weight: np.ndarray  # (W, n), e^eta
    hazard: np.ndarray  # (W, n), e^eta H
    share: np.ndarray  # (W, G), d / S^2 of each group of equal times
    risk_sets: RiskSets

    @classmethod
    def of(cls, eta: np.ndarray, risk_sets: RiskSets) -> "CoxCurvature":
        """At log-risks (W, n)."""
        weight, at_risk = risk_sets.at_risk(eta)
        increments = risk_sets.deaths / at_risk
        return cls(weight, weight * risk_sets.hazard(increments), increments / at_risk, risk_sets)

    def times(self, x: np.ndarray) -> np.ndarray:
        """A x, (W, n)."""
        within = self.share * np.cumsum(self.weight * x, 1)[:, self.risk_sets.ends]
        return np.asarray(self.hazard * x - self.weight * self.risk_sets.hazard(within))


def ridge(z: np.ndarray, values: np.ndarray, strength: float) -> Coefficients:
    r"""Ridge regression of centred rows along their principal axes, where coefficients are independent:

    .. math:: \beta_j = \frac{\sum_i z_{ij} y_i}{\sum_i z_{ij}^2 + \lambda}
    """
    level = values.mean()
    beta = ((values - level) @ z) / ((z**2).sum(1) + strength)
    return Coefficients(beta[:, :, None], np.full((len(z), 1), level))


def held_out_ridge(z: np.ndarray, values: np.ndarray, strength: float, folds: Sequence[np.ndarray]) -> np.ndarray:
    r"""Squared errors (W,) of held-out samples, fold by fold, without further fits:

    .. math:: \sum_t \| (I - H)_{tt}^{-1} (y - H y)_t \|^2,\quad H = \frac{1}{n} 1 1^T + Z (Z^T Z + \lambda)^{-1} Z^T
    """
    centred = values - values.mean()
    total = np.zeros(len(z))
    for number, rows in enumerate(z):
        shrunk = rows / ((rows**2).sum(0) + strength)
        residual = centred - shrunk @ (centred @ rows)
        for test in folds:
            left = np.eye(len(test)) - 1 / len(rows) - shrunk[test] @ rows[test].T
            total[number] += np.square(np.linalg.solve(left, residual[test])).sum()
    return total


def cumulative(z: np.ndarray, labels: np.ndarray, n_classes: int, strength: float) -> Coefficients:
    r"""Proportional odds :math:`P(y \le k) = \sigma(\theta_k - z \beta)` with a ridge penalty, as a score and steps (W, r, K - 1).

    Concave in thresholds and coefficients together (Pratt 1981), so Newton's method finds the unique optimum. An absent grade has a step of
    almost 0.
    """
    present = np.unique(labels)
    grade, count = np.searchsorted(present, labels), len(present)
    edges, n = count - 1, z.shape[1]
    share = np.cumsum(np.bincount(grade, minlength=count))[:-1] / n
    start = np.zeros((len(z), edges + z.shape[2]))
    start[:, :edges] = np.log(share / (1 - share))
    penalty = np.append(np.zeros(edges), np.full(z.shape[2], strength))
    upper = np.eye(count, edges)[grade]  # (n, edges): threshold above each sample's grade, none above the highest
    lower = np.eye(count, edges, k=-1)[grade]  # that below it
    above, below = np.where(grade == edges, np.inf, 0.0), np.where(grade == 0, -np.inf, 0.0)  # thresholds at infinity

    def arguments(x: np.ndarray, score: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Distances (W, n) from the score to the threshold above and to that below."""
        return x[:, :edges] @ upper.T - score + above, x[:, :edges] @ lower.T - score + below

    def evaluate(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        score = (z @ x[:, edges:, None])[:, :, 0]
        return -_log_between(*arguments(x, score)).sum(1) + 0.5 * (penalty * x**2).sum(1), score

    def newton_step(x: np.ndarray, _: np.ndarray, score: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        u, v = arguments(x, score)
        log_p = _log_between(u, v)
        a, b = np.exp(_log_density(u) - log_p), np.exp(_log_density(v) - log_p)  # (W, n)
        # Hessian of -log p in u and v; its gradient is (-a, b)
        huu, hvv, huv = a * (a + np.tanh(0.5 * u)), b * (b - np.tanh(0.5 * v)), -a * b
        du = np.concatenate([np.broadcast_to(upper, (len(z), n, edges)), -z], 2)
        dv = np.concatenate([np.broadcast_to(lower, (len(z), n, edges)), -z], 2)
        gradient = (b[:, None] @ dv - a[:, None] @ du)[:, 0] + penalty * x
        hessian = du.transpose(0, 2, 1) @ (huu[:, :, None] * du + huv[:, :, None] * dv)
        hessian += dv.transpose(0, 2, 1) @ (huv[:, :, None] * du + hvv[:, :, None] * dv)
        hessian += np.diag(np.maximum(penalty, 1e-10))
        return gradient, solve_positive(hessian, gradient[:, :, None])[:, :, 0]

    fitted = minimise(evaluate, newton_step, start)  # thresholds, then coefficients (W, edges + r)
    beta = np.zeros((len(z), z.shape[2], n_classes - 1))
    beta[:, :, 0] = fitted[:, edges:]
    # the threshold between grades k and k + 1 is that between the adjacent present grades; before the first and after the last: far away
    theta = fitted[:, :edges]
    position = np.searchsorted(present, np.arange(1, n_classes)) - 1  # of the threshold below grade k + 1
    far = -ABSENT
    padded = np.concatenate([np.full((len(z), 1), -far), theta, np.full((len(z), 1), far)], 1)
    thresholds = padded[:, position + 1]  # (W, K - 1), not decreasing
    steps = np.maximum(np.diff(thresholds, axis=1), np.exp(ABSENT))
    return Coefficients(beta, np.concatenate([-thresholds[:, :1], steps + np.log(-np.expm1(-steps))], 1))  # softplus^-1


def grade_likelihood(outputs: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Log-probability (W, m) of the true grades from a score and steps (W, m, K - 1), as of `grade_log_probabilities`."""
    steps = np.logaddexp(0, outputs[..., 1:])
    thresholds = np.concatenate([np.zeros((*steps.shape[:-1], 1)), np.cumsum(steps, -1)], -1)
    eta = thresholds - outputs[..., :1]  # (W, m, K - 1): logit of P(y <= k)
    below, above = -np.logaddexp(0, -eta), -np.logaddexp(0, eta)
    width = np.log(-np.expm1(-steps))
    each = np.concatenate([below[..., :1], above[..., :-1] + below[..., 1:] + width, above[..., -1:]], -1)
    return np.maximum(each[:, np.arange(len(labels)), labels], ABSENT)


def _log_between(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    r"""log(sigma(u) - sigma(v)) as a product, without cancellation: :math:`\sigma(u)\, \sigma(-v)\, (1 - e^{v - u})`; NaN where u < v."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(-np.logaddexp(0, -u) - np.logaddexp(0, v) + np.log(-np.expm1(v - u)))


def _log_density(u: np.ndarray) -> np.ndarray:
    """log(sigma(u) (1 - sigma(u)))."""
    return np.asarray(-np.logaddexp(0, -u) - np.logaddexp(0, u))
