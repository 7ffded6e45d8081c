"""Embeddings as the published PANTHER code writes them."""

from pathlib import Path

import numpy as np

from panther.errors import InputError
from panther.storage.pickles import load_arrays


def load_published_embeddings(path: Path) -> dict[str, np.ndarray]:
    """Embeddings of the published PANTHER code: a pickle {split: {X, y}}, X = [pi | mu | Sigma]."""
    content = load_arrays(path)
    if (
        not isinstance(content, dict)
        or not content
        or not all(isinstance(part, dict) and "X" in part for part in content.values())
    ):
        raise InputError(f"{path}: expected a pickle of {{split: {{X, y}}}}, as the published code writes.")
    return {str(split): np.asarray(part["X"], np.float32) for split, part in content.items()}


def from_published_order(x: np.ndarray, n_prototypes: int) -> np.ndarray:
    """Reorder [pi | mu | Sigma] to the paper's [pi_1, mu_1, Sigma_1, ..., pi_C, mu_C, Sigma_C]; x is (n, C(1+2d))."""
    n, width = x.shape
    dim, rest = divmod(width // n_prototypes - 1, 2)
    if width % n_prototypes or rest or dim < 1:
        raise InputError(
            f"{width} numbers are not C(1+2d) for C = {n_prototypes}; give the number of prototypes that was used."
        )
    weights = x[:, :n_prototypes].reshape(n, n_prototypes, 1)
    means, variances = x[:, n_prototypes:].reshape(n, 2, n_prototypes, dim).transpose(1, 0, 2, 3)
    return np.concatenate([weights, means, variances], axis=2).reshape(n, width)
