"""Fast probes: logistic regression and ridge Cox, their regularisation chosen by inner cross-validation (`probe_search`)."""

from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from panther.cohort.targets import Classes, Survival
from panther.errors import InputError
from panther.models.probe_search import Probe, ProbeModel, Search, fit_searched
from panther.models.probe_solvers import Coefficients, cox_loss, logistic, ridge_cox


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
        return logistic(z[:, rows], labels[rows], n_classes, strength, start)

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
        beta = ridge_cox(z[:, rows], time[rows], event[rows], strength, None if start is None else start.beta[:, :, 0])
        return Coefficients(beta[:, :, None], np.zeros((len(z), 1)))

    def loss(model: Coefficients, z: np.ndarray, train: np.ndarray, test: np.ndarray) -> np.ndarray:
        risk = model.logits(z)[:, :, 0]
        return cox_loss(risk, time, event)[0] - cox_loss(risk[:, train], time[train], event[train])[0]

    return fit_searched(x, ProbeModel(event.astype(np.int64), solve, loss), Search(**search))


def fit_suitable(x: np.ndarray, target: Classes | Survival, **search: Any) -> Probe:
    """Fit the probe that suits the target, on training embeddings (n, D), scaled; options as of the two above."""
    if isinstance(target, Classes):
        return fit_logistic(x, target.labels, len(target.names), **search)
    return fit_cox(x, target.time, target.event, **search)
