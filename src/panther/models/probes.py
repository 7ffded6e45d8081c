"""Fast probes: logistic regression and ridge Cox, their regularisation chosen by inner cross-validation (`probe_search`)."""

from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from panther.cohort.targets import Classes, Survival
from panther.errors import InputError
from panther.models.probe_search import Loss, Probe, ProbeModel, Search, fit_searched

NEWTON_STEPS = 50


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

    def losses(z: np.ndarray) -> Loss:
        # a class with one sample cannot be in both parts: it is scored, at a loss, where it was not seen
        def loss(train: np.ndarray, test: np.ndarray, strength: float) -> float:
            beta, bias = _logistic(z[train], labels[train], n_classes, strength)
            logits = z[test] @ beta + bias
            peak = logits.max(1)
            total = np.log(np.exp(logits - peak[:, None]).sum(1)) + peak
            return float((total - logits[np.arange(len(test)), labels[test]]).sum())

        return loss

    model = ProbeModel(labels, losses, lambda z, strength: _logistic(z, labels, n_classes, strength))
    return fit_searched(x, model, Search(**search))


@threadpool_limits.wrap(limits=1)
def fit_cox(x: np.ndarray, time: np.ndarray, event: np.ndarray, **search: Any) -> Probe:
    """Ridge Cox regression (Breslow ties), its penalty chosen by cross-validated partial likelihood.

    A fold's score is the partial likelihood of all patients minus that of the fold's training patients (Verweij and van
    Houwelingen 1993), which does not starve on few events as the left-out patients' own would.
    """
    if not np.any(event):
        raise InputError(f"None of the {len(time)} training patients has an event, so no Cox model can be fitted.")

    def losses(z: np.ndarray) -> Loss:
        start: dict[int, np.ndarray] = {}  # strengths are tried from strong to weak, each from its neighbour's solution

        def loss(train: np.ndarray, test: np.ndarray, strength: float) -> float:
            if not event[train].any():
                return np.nan
            key = int(test[0])
            beta = start[key] = ridge_cox(z[train], time[train], event[train], strength, start.get(key))
            return cox_loss(z @ beta, time, event)[0] - cox_loss(z[train] @ beta, time[train], event[train])[0]

        return loss

    def solve(z: np.ndarray, strength: float) -> tuple[np.ndarray, np.ndarray]:
        return ridge_cox(z, time, event, strength)[:, None], np.zeros(1)

    return fit_searched(x, ProbeModel(event.astype(np.int64), losses, solve), Search(**search))


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


def fit_suitable(x: np.ndarray, target: Classes | Survival, **search: Any) -> Probe:
    """Fit the probe that suits the target, on training embeddings (n, D), scaled; options as of the two above."""
    if isinstance(target, Classes):
        return fit_logistic(x, target.labels, len(target.names), **search)
    return fit_cox(x, target.time, target.event, **search)
