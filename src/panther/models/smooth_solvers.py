r"""Penalised linear models of numbers and of ordered grades, for several weightings of the same rows at once (see `probe_solvers`)."""

from collections.abc import Sequence

import numpy as np

from panther.models.probe_solvers import ABSENT, Coefficients, minimise, solve_positive


def ridge(z: np.ndarray, values: np.ndarray, strength: float) -> Coefficients:
    r"""Ridge regression of rows about their mean, along their principal axes, where every coefficient stands alone:

    .. math:: \beta_j = \frac{\sum_i z_{ij} y_i}{\sum_i z_{ij}^2 + \lambda}
    """
    level = values.mean()
    beta = ((values - level) @ z) / ((z**2).sum(1) + strength)
    return Coefficients(beta[:, :, None], np.full((len(z), 1), level))


def held_out_ridge(z: np.ndarray, values: np.ndarray, strength: float, folds: Sequence[np.ndarray]) -> np.ndarray:
    r"""Squared errors (W,) of samples that were left out, fold by fold, of the same rows, without another fit:

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

    Concave in thresholds and coefficients together (Pratt 1981), so Newton's method finds the one optimum. A grade that does not occur has no
    width: its step is as good as none.
    """
    present = np.unique(labels)
    grade = np.searchsorted(present, labels)
    found = _fitted(z, grade, len(present), strength)
    beta = np.zeros((len(z), z.shape[2], n_classes - 1))
    beta[:, :, 0] = found[:, len(present) - 1 :]
    # threshold between grades k and k + 1 is that between the present grades on its two sides; before the first and after the last: far away
    theta = found[:, : len(present) - 1]
    position = np.searchsorted(present, np.arange(1, n_classes)) - 1  # of the threshold below grade k + 1
    far = -ABSENT
    padded = np.concatenate([np.full((len(z), 1), -far), theta, np.full((len(z), 1), far)], 1)
    thresholds = padded[:, position + 1]  # (W, K - 1), not decreasing
    bias = np.concatenate([-thresholds[:, :1], _inverse_softplus(np.diff(thresholds, axis=1))], 1)
    return Coefficients(beta, bias)


def _inverse_softplus(steps: np.ndarray) -> np.ndarray:
    """Output whose softplus is that step; a step of nothing is one that nothing can be seen of."""
    steps = np.maximum(steps, np.exp(ABSENT))
    return steps + np.log(-np.expm1(-steps))


def grade_likelihood(outputs: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Log-probability (W, m) of the true grades from a score and steps (W, m, K - 1), as of `grade_log_probabilities`."""
    steps = np.logaddexp(0, outputs[..., 1:])
    thresholds = np.concatenate([np.zeros((*steps.shape[:-1], 1)), np.cumsum(steps, -1)], -1)
    eta = thresholds - outputs[..., :1]  # (W, m, K - 1): logit of P(y <= k)
    below, above = -np.logaddexp(0, -eta), -np.logaddexp(0, eta)
    width = np.log(-np.expm1(-steps))
    each = np.concatenate([below[..., :1], above[..., :-1] + below[..., 1:] + width, above[..., -1:]], -1)
    return np.maximum(each[:, np.arange(len(labels)), labels], ABSENT)


def _fitted(z: np.ndarray, grade: np.ndarray, count: int, strength: float) -> np.ndarray:
    """Thresholds, then coefficients (W, count - 1 + r)."""
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

    return minimise(evaluate, newton_step, start)


def _log_between(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    r"""log(sigma(u) - sigma(v)) as a product, in which nothing cancels: :math:`\sigma(u)\, \sigma(-v)\, (1 - e^{v - u})`; NaN where u < v."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(-np.logaddexp(0, -u) - np.logaddexp(0, v) + np.log(-np.expm1(v - u)))


def _log_density(u: np.ndarray) -> np.ndarray:
    """log(sigma(u) (1 - sigma(u)))."""
    return np.asarray(-np.logaddexp(0, -u) - np.logaddexp(0, u))
