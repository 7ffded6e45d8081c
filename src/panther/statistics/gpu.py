"""Launching the Triton kernels: bags one after the other in one tensor, without padding."""

from functools import cache, lru_cache, reduce
from typing import Any

import torch
from torch import Tensor

from panther.statistics.assign import NEGLIGIBLE, Logits
from panther.statistics.blocks import blocks
from panther.statistics.sums import Accumulated, Statistics
from panther.types import Ragged, Rows

CHUNK = 512  # rows whose sums are added in float32; their sums are added in float64
MOST_PROTOTYPES = 128  # the logits of a block of rows stay in registers
# found on an H200, 15,000 x 1024: rows of a block, features of a piece, warps, stages of the pipeline that loads ahead
ASSIGN = {"ROWS": 128, "PIECE": 32, "num_warps": 4, "num_stages": 3}
ADD = {"ROWS": 32, "COLUMNS": 64, "num_warps": 2, "num_stages": 3}
FINISH = {"SIZE": 1024, "AT_ONCE": 32}


@cache
def available() -> bool:
    """Whether Triton is there; it comes with torch on Linux, and not everywhere."""
    try:
        import triton  # noqa: F401
    except ImportError:
        return False
    return True


def suits(dtype: torch.dtype, assign: Logits, origin: Tensor) -> bool:
    """Whether these kernels can do it: float32 arithmetic on a GPU, few enough prototypes."""
    return (
        origin.is_cuda
        and origin.dtype == torch.float32
        and dtype in (torch.float32, torch.float16, torch.bfloat16)
        and assign.linear.shape[-1] <= MOST_PROTOTYPES
        and available()
    )


def accumulate_on_gpu(
    x: Rows | Ragged, assign: Logits, origin: Tensor, *, squares: bool, keep_assignment: bool, keep_scores: bool
) -> Accumulated:
    """See :func:`panther.statistics.accumulate`. Bags of a batch give the same bytes together and alone."""
    with torch.cuda.device(origin.device):  # Triton launches where the current device is
        return _accumulate(x, assign, origin, squares=squares, keep_assignment=keep_assignment, keep_scores=keep_scores)


def _accumulate(
    x: Rows | Ragged, assign: Logits, origin: Tensor, *, squares: bool, keep_assignment: bool, keep_scores: bool
) -> Accumulated:
    how = {"squares": squares, "keep_assignment": keep_assignment, "keep_scores": keep_scores}
    if isinstance(x, Ragged):
        return accumulate_ragged(x, assign, origin, **how)
    if isinstance(x, Tensor) and x.dim() == 3:
        ragged = Ragged(x.flatten(0, 1), (int(x.shape[1]),) * int(x.shape[0]))
        sums, *kept = accumulate_ragged(ragged, assign, origin, **how)
        return Accumulated(sums, *(None if t is None else t.unflatten(0, x.shape[:2]) for t in kept))
    found = [
        accumulate_ragged(Ragged(block, (len(block),)), assign, origin, **how) for block, _ in blocks(x, None, origin)
    ]
    parts = (Statistics(*(t.squeeze(0) for t in part.statistics)) for part in found)
    assignments = [part.assignment for part in found if part.assignment is not None]
    scores = [part.scores for part in found if part.scores is not None]
    return Accumulated(
        reduce(Statistics.merge, parts),
        torch.cat(assignments) if assignments else None,
        torch.cat(scores) if scores else None,
    )


def accumulate_ragged(
    x: Ragged, assign: Logits, origin: Tensor, *, squares: bool, keep_assignment: bool, keep_scores: bool
) -> Accumulated:
    """Statistics with a leading dimension for the bags; the assignment (rows, C) and the scores (rows,) of all rows."""
    from panther.statistics import triton_kernel as kernel

    rows, origin = x.rows.to(origin.device).contiguous(), origin.contiguous()
    (n, d), c, bags = rows.shape, assign.linear.shape[-1], len(x.lengths)
    padded = max(16, 1 << (c - 1).bit_length())
    chunks, firsts = _chunks(x.lengths, rows.device)
    linear, quadratic = _by_prototype(assign.linear), _by_prototype(assign.quadratic)
    bias = assign.bias.reshape(-1, c).contiguous()
    new: dict[str, Any] = {"dtype": torch.float32, "device": rows.device}
    blocks_of_chunk = CHUNK // ASSIGN["ROWS"]
    assignment, scores = torch.empty(n, padded, **new), torch.empty(n, **new)
    counted = torch.empty(len(chunks) * blocks_of_chunk, c + 1, dtype=torch.float64, device=rows.device)
    kernel.assign[(len(chunks), blocks_of_chunk)](
        *(rows, origin, linear, bias, quadratic, assign.common, chunks, assignment, scores, counted),
        *(d, c, c if len(bias) > 1 else 0, 1 / assign.temperature),
        PADDED=padded,
        QUADRATIC=quadratic is not None,
        COMMON=assign.common is not None,
        HARD=assign.hard,
        TEMPERED=assign.temperature != 1.0,
        NEGLIGIBLE=NEGLIGIBLE,
        **ASSIGN,
    )
    width = (2 if squares else 1) * c * d
    partial = torch.empty(len(chunks), width, **new)
    kernel.add[(len(chunks), -(-d // ADD["COLUMNS"]))](
        *(rows, origin, assignment, chunks, partial, d, c), PADDED=padded, SQUARES=squares, **ADD
    )
    sums = torch.empty(bags, width + c + 1, dtype=torch.float64, device=rows.device)
    kernel.finish[(bags, -(-width // FINISH["SIZE"]) + 1)](
        *(partial, counted, firsts, sums, width, c, blocks_of_chunk), COUNTS=1 << c.bit_length(), **FINISH
    )
    total, square = sums[:, : c * d].view(bags, c, d), sums[:, c * d : 2 * c * d]
    square = square.view(bags, c, d) if squares else torch.zeros_like(total)
    mass, score = sums[:, -c - 1 : -1], sums[:, -1]
    statistics = Statistics(mass, total, square, score, _counts(x.lengths, rows.device))
    return Accumulated(
        statistics,
        assignment[:, :c].contiguous() if keep_assignment else None,
        scores if keep_scores else None,
    )


def _by_prototype(parameters: Tensor | None) -> Tensor | None:
    return None if parameters is None else parameters.mT.contiguous()  # (..., C, d)


@lru_cache(maxsize=256)
def _chunks(lengths: tuple[int, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    """Bag, first and last row of every chunk, and the first chunk of every bag; no chunk has rows of two bags."""
    table, firsts, offset = [], [0], 0
    for bag, length in enumerate(lengths):
        table += [(bag, offset + start, offset + min(start + CHUNK, length)) for start in range(0, length, CHUNK)]
        firsts.append(len(table))
        offset += length
    return torch.tensor(table, device=device), torch.tensor(firsts, device=device)


@lru_cache(maxsize=256)
def _counts(lengths: tuple[int, ...], device: torch.device) -> Tensor:
    return torch.tensor(lengths, dtype=torch.float64, device=device)
