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
EXACT = 300  # rows up to which eigenvectors are computed as such
# of the multiplied subspace: further directions, and steps from random directions and from those of all rows
SPARE, COLD, WARM = 8, 12, 3
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
    k = max(1, min(COMPONENTS, (len(x) - max(left_out.sum() for left_out in held_out)) // PER_COMPONENT))
    centre = x.mean(0)
    centred = x - centre  # float32 products would lose what is left of large means
    gram = np.asarray(centred @ centred.T, np.float64)
    start = np.random.default_rng(seed).normal(size=(len(x), k + SPARE))
    rough = gram.astype(np.float32)
    values, vectors, _, rest = _components(gram, rough, np.ones(len(x), bool), start, COLD)
    known = np.column_stack([vectors, start[:, k:]])
    distances = [_held_out(gram, rough, ~left_out, known) for left_out in held_out]
    basis = centred.T @ (vectors / np.sqrt(values * len(x))).astype(np.float32)
    return Cloud(centre, basis, values, rest, np.sort(np.concatenate(distances)))


def familiarity_level(p_value: float, number: int) -> str:
    """`familiar`, `unusual` or `outside`: outside is farther out than every training sample was from the others, or than 99 of 100 were.

    Distances to all of them are compared with distances to the others: an extreme training sample may be outside itself.
    """
    if p_value <= max(0.01, 1 / (number + 1) + 1e-12):
        return "outside"
    return "unusual" if p_value <= RARELY else "familiar"


def _distance(x: np.ndarray, mean: np.ndarray, basis: np.ndarray, variance: np.ndarray, rest: float) -> np.ndarray:
    centred = np.asarray(x, np.float64) - mean
    z = centred @ basis
    left = np.maximum(np.square(centred).sum(1) - np.square(z).sum(1), 0.0)
    return np.asarray(np.sqrt((np.square(z) / variance).sum(1) + len(variance) * left / rest))


def _components(
    gram: np.ndarray, rough: np.ndarray, inside: np.ndarray, start: np.ndarray, steps: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Variances (k,) of the rows inside, unit vectors v over all rows (n, k), 0 outside, the products of the rows with these (n, k), and the
    mean squared length of what is left over.

    A thousand rows are too many for all eigenvectors in every fold of every model: a subspace is multiplied a few times instead, by the
    ``rough`` products in float32; what lies in it is found with the exact ones.
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
    """Distances of those who are not in the training rows, from inner products alone."""
    values, _, along, rest = _components(gram, rough, train, start, WARM)
    number = train.sum()
    # the vectors add up to 0, so the mean of their own rows does not matter
    z = (along - along[train].mean(0))[~train] / np.sqrt(values * number)
    to_mean = gram @ train / number
    squared = np.diagonal(gram) - 2 * to_mean + to_mean[train].mean()
    left = np.maximum(squared[~train] - np.square(z).sum(1), 0.0)
    return np.asarray(np.sqrt((np.square(z) / values).sum(1) + len(values) * left / rest))
