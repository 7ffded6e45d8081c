"""Patches most similar to one patch: an exact search, in one pass and in the memory of one block."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from panther.errors import InputError
from panther.statistics.blocks import block_rows, compute_dtype
from panther.types import Rows


class Similar(NamedTuple):
    """Rows of a bag and how similar they are, the most similar first; equal ones in the order of the rows."""

    rows: np.ndarray  # (<= k,) int64
    similarity: np.ndarray  # (<= k,) float64, from -1 to 1


SOUND = 1e-12, 1e18  # norms whose squares keep all digits of float32
NONE_YET = Similar(np.empty(0, np.int64), np.empty(0))


def most_similar(x: Rows, query: Tensor, k: int, leave_out: int | None = None) -> Similar:
    r"""The ``k`` rows with the largest cosine similarity to ``query`` (d,).

    .. math:: s_n = \frac{x_n \cdot q}{|x_n|\,|q|}

    Blocks are compared in the type of the kernel (float32 for half precision). Whatever comes within its rounding error of the best ``k``
    is compared again in float64 while its block is at hand, so the result is that of float64 and the file is read once. Rows without a
    direction (zeros, NaN, infinite numbers) are similar to nothing and left out, as is the row ``leave_out``, the query itself.
    """
    direction = unit(query)
    dim, dtype = len(direction), compute_dtype(x.dtype)
    quick = torch.from_numpy(direction).to(dtype)
    # a sum of d products and the norm beside it are each off by less than d units in the last place
    slack = 4 * dim * torch.finfo(dtype).eps
    step = block_rows(dim, quick.element_size(), "cpu")
    memory = torch.empty(min(step, int(x.shape[0])), dim, dtype=dtype)
    best = NONE_YET
    for start in range(0, int(x.shape[0]), step):
        block = x[start : start + step]
        rough = _rough(block, quick, memory)
        wanted = np.ones(len(rough), bool)
        if leave_out is not None and start <= leave_out < start + len(rough):
            wanted[leave_out - start] = False
        rows = _promising(rough, wanted, best, k, slack)
        if len(rows):
            exact = cosine(block[torch.from_numpy(rows)].double().numpy(), direction)
            best = merged(best, Similar(rows + start, exact), k)
    return best


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


def merged(one: Similar, other: Similar, k: int) -> Similar:
    """The best ``k`` of two lists; NaN is in none."""
    rows, similarity = (np.concatenate(pair) for pair in zip(one, other, strict=True))
    there = np.flatnonzero(~np.isnan(similarity))
    order = there[np.lexsort((rows[there], -similarity[there]))][:k]
    return Similar(rows[order], similarity[order])


def _rough(block: Tensor, direction: Tensor, memory: Tensor) -> np.ndarray:
    """Similarities of a block to float32's precision; NaN where squares overflow or vanish, and float64 must look."""
    z = block if block.dtype == direction.dtype else memory[: len(block)].copy_(block)
    norm = torch.linalg.vector_norm(z, dim=1)
    sound = (norm > SOUND[0]) & (norm < SOUND[1])
    return ((z @ direction) / norm).masked_fill_(~sound, torch.nan).numpy()


def _promising(rough: np.ndarray, wanted: np.ndarray, best: Similar, k: int, slack: float) -> np.ndarray:
    """Rows of a block that may be among the best, or whose numbers were too large, too small or none."""
    sure = wanted & np.isfinite(rough)
    known = rough[sure]
    edge = -np.inf if len(known) <= k else np.partition(known, len(known) - k)[len(known) - k]
    if len(best.rows) == k:
        edge = max(edge, best.similarity[-1])
    # twice: the edge is off as well
    near = np.greater_equal(rough, edge - 2 * slack, where=sure, out=np.zeros(len(rough), bool))
    return np.flatnonzero(near | (wanted & ~sure))
