r"""Detection of unfamiliar samples: Mahalanobis distance to the training embeddings in a few principal components.

There are more columns than samples, so the covariance is that of the first k principal components; the residual r counts as much as
they do together:

.. math:: d^2 = \sum_{j \le k} \frac{z_j^2}{\lambda_j} + k \frac{|r|^2}{\overline{|r|^2}}

New samples are farther away than those that the components were fitted on, so distances of training samples are cross-validated;
a new sample is compared with these.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from panther.errors import InputError

COMPONENTS = 16  # at most
PER_COMPONENT = 4  # training samples per component
FOLDS = 10
EXACT = 300  # rows, up to which eigenvectors are computed exactly
# subspace iteration: extra directions, and steps from random directions and from those of all rows
SPARE, COLD, WARM = 8, 12, 3
RARELY = 0.05  # share of samples of the training distribution that are called unusual
FLOOR = 1e-12  # of variances: scaled embeddings are of the order of 1


@dataclass(frozen=True, eq=False)
class Cloud:
    """Distribution of the training embeddings."""

    mean: np.ndarray  # (D,)
    basis: np.ndarray  # (D, k), orthonormal
    variance: np.ndarray  # (k,)
    rest: float  # mean squared length of the residuals
    distances: np.ndarray  # (n,), of the training samples, ascending, each from folds without its patient

    def distance(self, x: np.ndarray) -> np.ndarray:
        """Distance of each row (n,)."""
        centred = np.asarray(x, np.float64) - self.mean
        z = centred @ self.basis
        return _distance(np.square(centred).sum(1), z, self.variance, self.rest)

    def p_value(self, x: np.ndarray) -> np.ndarray:
        """Probability of a distance at least as large for a sample of the training distribution; at least 1 / (n + 1)."""
        n = len(self.distances)
        farther = n - np.searchsorted(self.distances, self.distance(x), "left")
        return np.asarray((1 + farther) / (n + 1))


@threadpool_limits.wrap(limits=1)  # as probes
def fit_cloud(x: np.ndarray, patients: np.ndarray, seed: int = 0) -> Cloud:
    """Cloud of scaled training embeddings (n, D)."""
    names, member = np.unique(np.asarray(patients).astype(str), return_inverse=True)
    if len(names) < 3:
        raise InputError(f"There are {len(names)} training patients; at least 3 are needed.")
    x = np.asarray(x, np.float32)
    fold = np.random.default_rng(seed).permutation(len(names))[member] % min(FOLDS, len(names))
    held_out = [fold == k for k in np.unique(fold)]
    # as many components in the folds as in the end, because distances depend on their number
    k = max(1, min(COMPONENTS, (len(x) - max(left_out.sum() for left_out in held_out)) // PER_COMPONENT))
    centre = x.mean(0)
    centred = x - centre  # float32 products of large means would be inexact
    gram = np.asarray(centred @ centred.T, np.float64)
    start = np.random.default_rng(seed).normal(size=(len(x), k + SPARE))
    rough = gram.astype(np.float32)
    values, vectors, _, rest = _components(gram, rough, np.ones(len(x), bool), start, COLD)
    directions = np.column_stack([vectors, start[:, k:]])
    distances = [_held_out(gram, rough, ~left_out, directions) for left_out in held_out]
    basis = centred.T @ (vectors / np.sqrt(values * len(x))).astype(np.float32)
    return Cloud(centre, basis, values, rest, np.sort(np.concatenate(distances)))


def familiarity_level(p_value: float, number: int) -> str:
    """`familiar`, `unusual` or `outside`: outside is a distance above those of all training samples, or of 99 of 100.

    Training distances are cross-validated, so an extreme training sample may be outside too.
    """
    if p_value <= max(0.01, 1 / (number + 1) + 1e-12):
        return "outside"
    return "unusual" if p_value <= RARELY else "familiar"


def _distance(squared: np.ndarray, z: np.ndarray, variance: np.ndarray, rest: float) -> np.ndarray:
    """Distances (n,) from squared lengths (n,) and principal components (n, k)."""
    residual = np.maximum(squared - np.square(z).sum(1), 0.0)
    return np.asarray(np.sqrt((np.square(z) / variance).sum(1) + len(variance) * residual / rest))


def _components(
    gram: np.ndarray, rough: np.ndarray, inside: np.ndarray, start: np.ndarray, steps: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Variances (k,) of the rows inside, unit vectors v over all rows (n, k), 0 outside, the products of the rows with these (n, k), and the
    mean squared length of the residuals.

    Above `EXACT` rows by subspace iteration with the ``rough`` products in float32; the exact products are used within the subspace.
    """
    k = start.shape[1] - SPARE
    n = int(inside.sum())
    if n <= EXACT:
        products = gram[np.ix_(inside, inside)]
        products = products - products.mean(0) - products.mean(1, keepdims=True) + products.mean()
        eigenvalues, block = eigh(products, subset_by_index=[n - k, n - 1])
        vectors = np.zeros((len(gram), k))
        vectors[inside] = block
        along = gram @ vectors
    else:
        q = start.astype(np.float32)
        for _ in range(steps):
            q = np.linalg.qr(_about_mean(rough @ _about_mean(q, inside), inside))[0]
        q = np.linalg.qr(_about_mean(q.astype(np.float64), inside))[0]
        multiplied = gram @ q
        eigenvalues, turned = eigh(q.T @ multiplied)
        eigenvalues, turned = eigenvalues[-k:], turned[:, -k:]
        vectors, along = q @ turned, multiplied @ turned
    values = eigenvalues[::-1] / n
    total = (np.diagonal(gram)[inside].sum() - inside @ gram @ inside / n) / n
    floor = max(1e-9 * values[0], FLOOR)
    rest = float(max(total - values.sum(), floor))
    return np.maximum(values, floor), vectors[:, ::-1], along[:, ::-1], rest


def _about_mean(v: np.ndarray, inside: np.ndarray) -> np.ndarray:
    return np.asarray((v - v[inside].mean(0)) * inside[:, None])


def _held_out(gram: np.ndarray, rough: np.ndarray, train: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Distances of the rows outside of the training rows, from inner products."""
    values, _, along, rest = _components(gram, rough, train, start, WARM)
    number = train.sum()
    # the vectors add up to 0, so the mean of the training rows cancels
    z = (along - along[train].mean(0))[~train] / np.sqrt(values * number)
    to_mean = gram @ train / number
    squared = np.diagonal(gram) - 2 * to_mean + to_mean[train].mean()
    return _distance(squared[~train], z, values, rest)
