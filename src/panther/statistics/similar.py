"""Vectors most similar to others by the angle between them."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from panther.errors import InputError
from panther.statistics.nearest_rows import Apart, Nearest, nearest_rows
from panther.types import Rows

SOUND = 1e-12, 1e18  # norms whose squares keep all digits of float32


@dataclass(frozen=True)
class Cosine:
    r"""Cosine of the angle between rows and queries, :math:`s_n = x_n \cdot q / |x_n|\,|q|`.

    Rows without a direction (zeros, NaN, infinite numbers) are similar to nothing.
    """

    directions: np.ndarray  # (q, d) float64, of length 1

    @property
    def queries(self) -> int:
        """Their number."""
        return len(self.directions)

    @cached_property
    def _transposed(self) -> Tensor:
        return torch.from_numpy(self.directions.T.copy())

    def quick(self, block: Tensor) -> tuple[Tensor, float]:
        """Similarities (q, n); NaN where squares overflow or vanish."""
        norm = torch.linalg.vector_norm(block, dim=1, keepdim=True)
        sound = (norm > SOUND[0]) & (norm < SOUND[1])
        rough = ((block @ self._transposed.to(block.dtype)) / norm).masked_fill_(~sound, torch.nan).T
        # a sum of d products and the norm beside it are each off by less than d units in the last place
        return rough, 4 * self.directions.shape[1] * torch.finfo(block.dtype).eps

    def exact(self, query: int, rows: np.ndarray) -> np.ndarray:
        """Similarities (n,) in float64."""
        return cosine(rows, self.directions[query])


def most_similar(x: Rows, query: Tensor, k: int, leave_out: int | None = None) -> Nearest:
    """The ``k`` rows with the largest cosine similarity to ``query`` (d,), as float64 has it; not the row ``leave_out``, the query itself."""
    apart = [] if leave_out is None else [Apart(np.array([leave_out]), np.arange(int(x.shape[0])))]
    (nearest,) = nearest_rows(x, Cosine(unit(query)[None]), k, apart)
    return nearest


def unit(query: Tensor) -> np.ndarray:
    """Direction of a vector, in float64; one that has none is refused."""
    vector = query.double().numpy().reshape(-1)
    largest = np.abs(vector).max(initial=0.0)
    if not np.isfinite(vector).all() or largest == 0:
        raise InputError("The features of this patch are all zero, or not finite; nothing can be compared with them.")
    vector = vector / largest  # squares of very large or small numbers would be inf or 0
    return vector / np.sqrt((vector * vector).sum())


def cosine(x: np.ndarray, direction: np.ndarray) -> np.ndarray:
    """Similarity (n,) of rows (n, d) to a direction, in float64; NaN where a row has no direction of its own."""
    with np.errstate(invalid="ignore", divide="ignore"):
        x = x / np.abs(x).max(1, keepdims=True)
        # sums of numpy along rows, unlike a product of matrices, do not depend on the rows beside: equal rows stay equal
        return np.clip((x * direction).sum(1) / np.sqrt((x * x).sum(1)), -1.0, 1.0)
