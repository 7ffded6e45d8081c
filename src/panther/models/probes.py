"""Fast probes: logistic regression, proportional odds, ridge regression, ridge Cox; inner cross-validation chooses the penalty (`probe_search`)."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from panther.cohort.targets import Target, Values
from panther.errors import InputError
from panther.models.presets import USUAL_LOSS
from panther.models.probe_search import Probe, ProbeModel, Search, fit_searched
from panther.models.probe_solvers import Coefficients, cox_loss, logistic, ridge_cox
from panther.models.smooth_solvers import cumulative, grade_likelihood, held_out_ridge, ridge


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

    # a class with one sample cannot be in both parts: it is scored, at a loss, where it was not seen
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
    Houwelingen 1993), which does not starve on few events as the left-out patients' own would.
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
        return cox_loss(risk, time, event)[0] - cox_loss(risk[:, train], time[train], event[train])[0]

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

    least = 1e-24 * float(np.var(values))  # an exact fit has no noise to be measured by

    def score(squares: float) -> float:
        # Gaussian noise of the variance that the left-out samples show
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
    """One logistic regression for each of several labels (n, L), on the samples of whom it is known (not NaN)."""
    each = []
    for column in labels.T:
        known = np.flatnonzero(~np.isnan(column))
        own = {**search, "groups": None if search.get("groups") is None else search["groups"][known]}
        each.append(fit_logistic(x[known], column[known].astype(np.int64), 2, **own))
    weight, bias = (
        np.stack([p[..., 1] - p[..., 0] for p in parts], -1)
        for parts in zip(*((p.weight, p.bias) for p in each), strict=True)
    )
    strength = float(np.exp(np.mean(np.log([probe.strength for probe in each]))))
    shares = {name: float(np.mean([p.shares.get(name, 0.0) for p in each])) for probe in each for name in probe.shares}
    return Probe(weight, bias, strength, {}, shares)


# by the loss that says what is fitted; a head of another loss has no closed form
PROBES: dict[str, Callable[..., Probe]] = {
    "cross-entropy": lambda x, target, **search: fit_logistic(x, target.labels, len(target.names), **search),
    "ordinal": lambda x, target, **search: fit_cumulative(x, target.labels, len(target.names), **search),
    "cox": lambda x, target, **search: fit_cox(x, target.time, target.event, **search),
    "mse": lambda x, target, **search: fit_ridge(x, _standardised(target.values), **search),
    "binary-cross-entropy": lambda x, target, **search: fit_labels(x, target.values, **search),
}


def fit_suitable(x: np.ndarray, target: Target, loss: str | None = None, **search: Any) -> Probe:
    """Fit the probe of a loss, or of the usual one of the target, on training embeddings (n, D), scaled; options as of those above.

    Its logits are those of the loss's task: numbers are in standard deviations about the training mean.
    """
    return PROBES[loss or USUAL_LOSS[target.kind]](x, target, **search)


def _standardised(values: np.ndarray) -> np.ndarray:
    spread = values.std()
    return (values - values.mean()) / (spread if spread > 0 else 1.0)
