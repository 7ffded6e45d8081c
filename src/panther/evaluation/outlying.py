r"""Does a sample lie outside of what a model has seen? Mahalanobis' distance to the training embeddings, in few directions.

There are more columns than samples, so the covariance is that of the first k principal components, and what is left over counts as much as
they do together:

.. math:: d^2 = \sum_{j \le k} \frac{z_j^2}{\lambda_j} + k \frac{|r|^2}{\overline{|r|^2}}

A sample is farther from others than from itself, so the training samples' own distances are taken from folds that they were left out of;
a new sample is compared with those.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from panther.errors import InputError

COMPONENTS = 16  # at most
PER_COMPONENT = 4  # training samples that a direction needs
FOLDS = 10
RARELY = 0.05  # share of samples like the training's that are called unusual
FLOOR = 1e-12  # of variances: scaled embeddings are of the order of 1


@dataclass(frozen=True, eq=False)
class Cloud:
    """Where the training embeddings lie."""

    mean: np.ndarray  # (D,)
    basis: np.ndarray  # (D, k), orthonormal
    variance: np.ndarray  # (k,)
    rest: float  # mean squared length of what is left over
    distances: np.ndarray  # (n,), of the training samples, ascending, each from folds without its patient

    def distance(self, x: np.ndarray) -> np.ndarray:
        """Distance of each row (n,)."""
        return _distance(x, self.mean, self.basis, self.variance, self.rest)

    def p_value(self, x: np.ndarray) -> np.ndarray:
        """How often a sample like the training's is at least as far out; at least 1 / (n + 1)."""
        n = len(self.distances)
        farther = n - np.searchsorted(self.distances, self.distance(x), "left")
        return np.asarray((1 + farther) / (n + 1))


@threadpool_limits.wrap(limits=1)  # as probes, which this stands beside
def fit_cloud(x: np.ndarray, patients: np.ndarray, seed: int = 0) -> Cloud:
    """Cloud of training embeddings (n, D), scaled as the model sees them."""
    names, member = np.unique(np.asarray(patients).astype(str), return_inverse=True)
    if len(names) < 3:
        raise InputError(f"{len(names)} training patients do not say what is usual; at least 3 are needed.")
    x = np.asarray(x, np.float32)
    fold = np.random.default_rng(seed).permutation(len(names))[member] % min(FOLDS, len(names))
    held_out = [fold == k for k in np.unique(fold)]
    # as many directions in the folds as in the end: their number decides how large distances are
    k = max(1, min(COMPONENTS, (len(x) - max(own.sum() for own in held_out)) // PER_COMPONENT))
    gram = _gram(x)
    distances = np.concatenate([_held_out(gram, ~own, own, k) for own in held_out])
    everybody = np.ones(len(x), bool)
    values, vectors, rest = _components(_centred(gram, everybody, everybody), k)
    centre = x.mean(0)
    basis = (x - centre).T @ (vectors / np.sqrt(values * len(x))).astype(np.float32)
    return Cloud(centre, basis, values, rest, np.sort(distances))


def in_words(p_value: float, number: int) -> str:
    """`familiar`, `unusual` or `outside`: outside is farther out than every one of the training samples, or than 99 of 100."""
    if p_value <= max(0.01, 1 / (number + 1) + 1e-12):
        return "outside"
    return "unusual" if p_value <= RARELY else "familiar"


def _distance(x: np.ndarray, mean: np.ndarray, basis: np.ndarray, variance: np.ndarray, rest: float) -> np.ndarray:
    centred = np.asarray(x, np.float64) - mean
    z = centred @ basis
    left = np.maximum(np.square(centred).sum(1) - np.square(z).sum(1), 0.0)
    return np.asarray(np.sqrt((np.square(z) / variance).sum(1) + len(variance) * left / rest))


def _gram(x: np.ndarray) -> np.ndarray:
    """Inner products about the mean, (n, n): float32 products would lose what is left of large means."""
    centred = x - x.mean(0)
    return np.asarray(centred @ centred.T, np.float64)


def _centred(gram: np.ndarray, train: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Inner products (rows, train) about the mean of the training rows."""
    block = gram[np.ix_(rows, train)]
    return block - block.mean(1, keepdims=True) - gram[np.ix_(train, train)].mean(0) + gram[np.ix_(train, train)].mean()


def _components(gram: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Variances (k,), unit vectors over samples (n, k), and the mean squared length of what is left over."""
    n = len(gram)
    values, vectors = eigh(gram, subset_by_index=[n - k, n - 1])
    values, vectors = values[::-1] / n, vectors[:, ::-1]
    floor = max(1e-9 * values[0], FLOOR)
    return np.maximum(values, floor), vectors, float(max(np.trace(gram) / n - values.sum(), floor))


def _held_out(gram: np.ndarray, train: np.ndarray, test: np.ndarray, k: int) -> np.ndarray:
    """Distances of the test rows, from inner products alone."""
    values, vectors, rest = _components(_centred(gram, train, train), k)
    z = _centred(gram, train, test) @ vectors / np.sqrt(values * train.sum())
    own = np.diagonal(gram)[test] - 2 * gram[np.ix_(test, train)].mean(1) + gram[np.ix_(train, train)].mean()
    left = np.maximum(own - np.square(z).sum(1), 0.0)
    return np.asarray(np.sqrt((np.square(z) / values).sum(1) + len(values) * left / rest))
