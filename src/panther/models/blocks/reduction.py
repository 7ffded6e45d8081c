"""Rows that are reduced by what training slides say: PCA of the mean of all patches.

The matrix of such a row is that of another method; the reduction is fitted with the scaling, on training rows and on nothing else.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from panther.errors import InputError, suggestion
from panther.models.named import Named

COMPONENTS = 64
GIVEN = "given"  # vectors that somebody else's slide encoder made


class Reduction(NamedTuple):
    """A fitted reduction of rows, x -> (x - mean) basis."""

    mean: Tensor  # (D,)
    basis: Tensor  # (D, k)

    def __call__(self, x: Tensor) -> Tensor:
        """Reduce rows (..., D) to (..., k)."""
        return (x - self.mean.to(x)) @ self.basis.to(x)


@dataclass(frozen=True)
class Reduced:
    """A row that reduces the matrix of another method."""

    title: str  # as papers write it
    of: Named  # method that makes the matrix
    options: tuple[str, ...]
    fit: Callable[..., Reduction]  # training rows (n, D), settings


def principal_components(x: Tensor | np.ndarray, components: int = COMPONENTS) -> Reduction:
    r"""Mean and the first principal directions of rows (n, D), largest variance first; at most n - 1 of them, and D.

    .. math:: X - m = U S V^T,\quad B = V_{:, :k}

    The sign of each direction is such that its largest entry is positive.
    """
    rows = torch.as_tensor(np.asarray(x)).double()
    mean = rows.mean(0)
    if not bool(torch.isfinite(mean).all()):
        raise InputError("A training row holds NaN or an infinite number; embed this sample again.")
    count = max(1, min(components, len(rows) - 1, rows.shape[1]))
    _, _, directions = torch.linalg.svd(rows - mean, full_matrices=False)
    basis = directions[:count].T  # (D, k)
    largest = basis.gather(0, basis.abs().argmax(0, keepdim=True))
    return Reduction(mean.float(), (basis * torch.where(largest < 0, -1.0, 1.0)).float())


def fit_reduction(method: Named, x: Tensor | np.ndarray) -> Reduction | None:
    """Reduction of training rows (n, D), where the method has one."""
    return REDUCED[method.name].fit(x, **method.options) if method.name in REDUCED else None


REDUCED: dict[str, Reduced] = {
    "pca": Reduced("PCA of the mean", Named(name="mean"), ("components",), principal_components),
}


def made_by(method: Named) -> Named:
    """Method that makes the matrix of a row."""
    if method.name == GIVEN:  # of new samples: one row per slide, and the mean of them is the patient's
        return Named(name="mean")
    return REDUCED[method.name].of if method.name in REDUCED else method


def check_reduced(name: str, options: Mapping[str, Any]) -> None:
    """Refuse settings that a reduction does not take."""
    for option, value in options.items():
        if option not in REDUCED[name].options:
            raise InputError(f"{name} has no setting {option!r}; {suggestion(option, REDUCED[name].options)}.")
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InputError(f"{option} is {value!r}; it is a number, 1 or more.")
