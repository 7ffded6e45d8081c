"""Exact search for the rows nearest to queries, in one pass and with the memory of one block."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from panther.errors import InputError
from panther.statistics.blocks import block_rows, compute_dtype
from panther.types import Rows

MANY = 16  # queries, up to which the block grows with their number
SOUND = 1e-12, 1e18  # norms whose squares keep all digits of float32


class Nearest(NamedTuple):
    """Rows and their nearness, the nearest first; ties in the order of the rows."""

    rows: np.ndarray  # (<= k,) int64
    nearness: np.ndarray  # (<= k,) float64


class Measure(Protocol):
    """Nearness of rows to queries (larger is nearer): quickly with an error bound, and exactly."""

    @property
    def queries(self) -> int:
        """Their number q."""

    def quick(self, block: Tensor) -> tuple[Tensor, Tensor | float]:
        """Nearness (q, n) of rows (n, d) and its error bound; NaN where only the exact measure is defined."""

    def exact(self, query: int, rows: np.ndarray) -> np.ndarray:
        """Nearness (n,) of rows (n, d) to one query, in float64; NaN where a row cannot be compared."""


class Apart(NamedTuple):
    """Rows excluded from the neighbours of a query: those of its group, e.g. its patient; -1 is no group."""

    queries: np.ndarray  # (q,) integers
    rows: np.ndarray  # (n,) integers


NONE_YET = Nearest(np.empty(0, np.int64), np.empty(0))


def nearest_rows(x: Rows, measure: Measure, k: int, apart: Sequence[Apart] = ()) -> list[Nearest]:
    """The ``k`` nearest rows of each query.

    Blocks are compared in the type of the kernel (float32 for half precision). Rows that may be among the best ``k`` within their error bound
    are compared again in float64 while their block is in memory, so the result is that of float64 and the file is read once.
    """
    count, dim = map(int, x.shape)
    dtype = compute_dtype(x.dtype)
    step = block_rows(dim, dtype.itemsize, "cpu") * min(measure.queries, MANY)
    memory = torch.empty(min(step, count), dim, dtype=dtype)
    best = [NONE_YET] * measure.queries
    for start in range(0, count, step):
        block = x[start : start + step]
        widened = block if block.dtype == dtype else memory[: len(block)].copy_(block)
        rough, slack = measure.quick(widened)
        wanted = _wanted(apart, measure.queries, start, len(block))
        lowest, highest = (rough - slack).numpy(), (rough + slack).numpy()
        for query in range(measure.queries):
            rows = _promising(lowest[query], highest[query], wanted[query], best[query], k)
            if len(rows):
                exact = measure.exact(query, block[torch.from_numpy(rows)].double().numpy())
                best[query] = merged(best[query], Nearest(rows + start, exact), k)
    return best


def merged(one: Nearest, other: Nearest, k: int) -> Nearest:
    """The best ``k`` of two lists; NaN is in none."""
    rows, nearness = (np.concatenate(pair) for pair in zip(one, other, strict=True))
    there = np.flatnonzero(~np.isnan(nearness))
    order = there[np.lexsort((rows[there], -nearness[there]))][:k]
    return Nearest(rows[order], nearness[order])


def _wanted(apart: Sequence[Apart], queries: int, start: int, length: int) -> np.ndarray:
    """Whether rows of a block may be neighbours of each query, (q, n)."""
    wanted = np.ones((queries, length), bool)
    for groups in apart:
        rows = groups.rows[start : start + length]
        wanted &= (groups.queries[:, None] != rows) | (rows < 0)
    return wanted


def _promising(lowest: np.ndarray, highest: np.ndarray, wanted: np.ndarray, best: Nearest, k: int) -> np.ndarray:
    """Rows of a block that may be among the best, or have no finite error bound."""
    sure = wanted & np.isfinite(lowest) & np.isfinite(highest)
    known = lowest[sure]
    edge = -np.inf if len(known) <= k else np.partition(known, len(known) - k)[len(known) - k]
    if len(best.rows) == k:
        edge = max(edge, best.nearness[-1])
    near = np.greater_equal(highest, edge, where=sure, out=np.zeros(len(highest), bool))
    return np.flatnonzero(near | (wanted & ~sure))


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
