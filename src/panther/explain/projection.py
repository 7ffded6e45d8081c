"""Embeddings as points of a plane: principal components, and UMAP where it is installed."""

from importlib.util import find_spec

import numpy as np

SMALL = 500  # rows or columns up to which all eigenvectors are computed
FEWEST_UMAP = 16  # points; UMAP looks at the 15 nearest of each
Plane = tuple[np.ndarray, tuple[str, str]]  # (n, 2) and the names of its axes


def principal_components(x: np.ndarray) -> Plane:
    r"""First two principal components (n, 2) of x (n, D), with the share of the variance that each has.

    They are the eigenvectors of :math:`X X^\top` (n, n) or, where it is smaller, of :math:`X^\top X` (D, D) for centred X; of large
    matrices only the first two are computed, without the product.
    """
    if min(x.shape) < 2:  # one point, or points on a line
        position = np.zeros((len(x), 2))
        if len(x) > 1:
            position[:, 0] = (x - x.mean(0))[:, 0]
        return position, ("PC 1", "PC 2")
    values, first = (_small if min(x.shape) <= SMALL else _large)(x)
    # the sign of an eigenvector is arbitrary: the largest entry is made positive
    sign = np.sign(first[np.abs(first).argmax(0), [0, 1]])
    return first * sign, (f"PC 1 ({values[0]:.0%})", f"PC 2 ({values[1]:.0%})")


def umap_installed() -> bool:
    """Whether UMAP is installed."""
    return find_spec("umap") is not None


def umap(x: np.ndarray) -> Plane:
    """UMAP (n, 2) of x (n, D), the same in every run."""
    from umap import UMAP  # type: ignore[import-not-found]

    return UMAP(random_state=0, n_jobs=1).fit_transform(x), ("UMAP 1", "UMAP 2")


def _small(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Shares of the variance (2,) and positions (n, 2)."""
    centred = x - x.mean(0, dtype=np.float64)
    wide = x.shape[0] <= x.shape[1]
    values, vectors = np.linalg.eigh(centred @ centred.T if wide else centred.T @ centred)  # ascending
    values, two = np.maximum(values[::-1], 0.0), vectors[:, ::-1][:, :2]
    return values[:2] / max(values.sum(), 1e-30), two * np.sqrt(values[:2]) if wide else centred @ two


def _large(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same by Lanczos iteration; x stays as it is, perhaps a memory map."""
    from scipy.sparse.linalg import LinearOperator, eigsh

    mean = x.mean(0, dtype=np.float64)

    # in the type of x: otherwise all of it would be copied for every product
    def times(v: np.ndarray) -> np.ndarray:  # centred X v
        return x @ v.astype(x.dtype) - mean @ v

    def back(u: np.ndarray) -> np.ndarray:  # centred X^T u
        return x.T @ u.astype(x.dtype) - mean * u.sum()

    size = x.shape[1]
    start = np.random.default_rng(0).standard_normal(size)  # scipy's start differs from run to run
    values, two = eigsh(LinearOperator((size, size), matvec=lambda v: back(times(v.ravel())), dtype=np.float64), 2, v0=start, tol=1e-6)  # fmt: skip
    order = np.argsort(-values)
    total = sum(float(((x[i : i + SMALL] - mean) ** 2).sum()) for i in range(0, len(x), SMALL))
    return np.maximum(values[order], 0.0) / max(total, 1e-30), np.stack([times(v) for v in two[:, order].T], 1)
