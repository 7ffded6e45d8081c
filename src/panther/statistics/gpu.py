"""Launching the Triton kernels: bags one after the other in one tensor, without padding."""

from contextlib import AbstractContextManager, nullcontext
from functools import cache, lru_cache, reduce
from typing import Any, NamedTuple

import torch
from torch import Tensor

from panther.statistics.assign import NEGLIGIBLE, Accumulated, Logits, Statistics
from panther.statistics.blocks import blocks
from panther.types import Ragged, Rows

CHUNK = 1024  # rows whose sums are added in float32; their sums are added in float64
MOST_PROTOTYPES = 128  # the logits of a block of rows stay in registers
PART = torch.bfloat16  # type of the three parts of a float32 number
OLDEST = (8, 0)  # compute capability whose tensor cores multiply them
HELD_BYTES = 1 << 30  # of the assignments of one launch
# found on an H200, 15,000 x 1024: rows of a block, features of a piece, warps, stages of the pipeline that loads ahead
ASSIGN = {"ROWS": 64, "PIECE": 64, "num_warps": 4, "num_stages": 3}
ADD = {"ROWS": 32, "COLUMNS": 64, "num_warps": 4, "num_stages": 3}
FINISH = {"SIZE": 256, "PARTS": 8, "BLOCKS": 128}


@cache
def available() -> bool:
    """Whether Triton is installed; it comes with torch on Linux."""
    try:
        import triton  # noqa: F401
    except ImportError:
        return False
    return True


@cache
def can_compute(device: torch.device) -> bool:
    """Whether the kernels run on a GPU."""
    return available() and torch.cuda.is_available() and torch.cuda.get_device_capability(device) >= OLDEST


def suits(dtype: torch.dtype, assign: Logits, origin: Tensor) -> bool:
    """Whether these kernels compute this: float32 arithmetic, a recent GPU, at most MOST_PROTOTYPES prototypes."""
    return (
        origin.is_cuda
        and origin.dtype == torch.float32
        and dtype in (torch.float32, torch.float16, torch.bfloat16)
        and assign.linear.shape[-1] <= MOST_PROTOTYPES
        and can_compute(origin.device)
    )


def accumulate_on_gpu(
    x: Rows | Ragged, assign: Logits, origin: Tensor, *, squares: bool, keep_assignment: bool, keep_scores: bool
) -> Accumulated:
    """See :func:`panther.statistics.accumulate`. Bags of a batch give the same bytes together and alone."""
    with on_device_of(origin):  # Triton launches where the current device is
        return _accumulate(x, assign, origin, squares=squares, keep_assignment=keep_assignment, keep_scores=keep_scores)


def on_device_of(tensor: Tensor) -> AbstractContextManager[Any]:
    """Make the GPU of a tensor the current one."""
    there = not tensor.is_cuda or torch.cuda.current_device() == tensor.device.index
    return nullcontext() if there else torch.cuda.device(tensor.device)


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
    parts = [_accumulate_one(block, assign, origin, **how) for block, _ in blocks(x, None, origin)]
    if len(parts) == 1:
        return parts[0]
    assignments = [part.assignment for part in parts if part.assignment is not None]
    scores = [part.scores for part in parts if part.scores is not None]
    return Accumulated(
        reduce(Statistics.merge, (part.statistics for part in parts)),
        torch.cat(assignments) if assignments else None,
        torch.cat(scores) if scores else None,
    )


def _accumulate_one(block: Tensor, *given: Any, **how: Any) -> Accumulated:
    sums, *kept = accumulate_ragged(Ragged(block, (len(block),)), *given, **how)
    return Accumulated(Statistics(*(t[0] for t in sums)), *kept)


def accumulate_ragged(
    x: Ragged, assign: Logits, origin: Tensor, *, squares: bool, keep_assignment: bool, keep_scores: bool
) -> Accumulated:
    """Statistics with a leading dimension for the bags; the assignment (rows, C) and the scores (rows,) of all rows."""
    rows = x.rows.to(origin.device).contiguous()
    sums, assignment, scores = _sums(rows, _chunks(x.lengths, rows.device), len(rows), assign, origin, squares)
    c = assign.linear.shape[-1]
    return Accumulated(
        _cut(sums, c, rows.shape[1], squares, _counts(x.lengths, rows.device)),
        assignment[..., :c].float().sum(0) if keep_assignment else None,
        scores if keep_scores else None,
    )


def accumulate_many(x: Tensor, assign: Logits, origin: Tensor) -> Statistics:
    """Statistics, without squares, of the same rows under each of several sets of factors (R, d, C)."""
    rows, (times, d, c) = x.contiguous(), assign.linear.shape
    at_once = max(1, HELD_BYTES // (len(rows) * _padded(c) * 2 * PART.itemsize))
    parts = []
    with on_device_of(origin):
        for first in range(0, times, at_once):
            some = slice(first, first + at_once)
            logits = Logits(assign.linear[some], assign.bias[some], hard=assign.hard)
            chunks = _chunks_again(len(rows), len(logits.linear), rows.device)
            parts.append(_sums(rows, chunks, len(rows) * len(logits.linear), logits, origin, squares=False)[0])
    return _cut(torch.cat(parts), c, d, False, _counts((len(rows),) * times, rows.device))


def _padded(c: int) -> int:
    """Number of prototypes with padding: tensor cores need at least sixteen."""
    return max(16, 1 << (c - 1).bit_length())


def _sums(
    rows: Tensor, chunks_of: "_Chunks", places: int, assign: Logits, origin: Tensor, squares: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Sums (bags, ...) in float64, the assignment in two parts (2, places, PADDED), and the scores (places,)."""
    from panther.statistics import triton_kernel as kernel

    chunks, spans, step = chunks_of
    d, c, bags = rows.shape[1], assign.linear.shape[-1], len(spans)
    linear, *rest = assign.parts or parts_of(assign)
    quadratic = rest[0] if assign.quadratic is not None else None
    padded, bias, origin = linear.shape[-2], assign.bias.reshape(-1, c).contiguous(), origin.contiguous()
    new: dict[str, Any] = {"dtype": torch.float32, "device": rows.device}
    blocks_of_chunk = CHUNK // ASSIGN["ROWS"]
    assignment = torch.empty(2, places, padded, dtype=PART, device=rows.device)
    scores = torch.empty(places, **new)
    counted = torch.empty(len(chunks) * blocks_of_chunk, c + 1, dtype=torch.float64, device=rows.device)
    kernel.assign[(len(chunks), blocks_of_chunk)](
        *(rows, origin, linear, bias, quadratic, assign.common, chunks, assignment, scores, counted),
        *(places * padded, d, c, len(bias), 1 / assign.temperature),
        EVEN=d % ASSIGN["PIECE"] == 0,
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
        *(rows, origin, assignment, chunks, partial, places * padded, d, c),
        EVEN=d % ADD["COLUMNS"] == 0,
        PADDED=padded,
        SQUARES=squares,
        **ADD,
    )
    sums = torch.empty(bags, width + c + 1, dtype=torch.float64, device=rows.device)
    kernel.finish[(bags, -(-width // FINISH["SIZE"]) + 1)](
        *(partial, counted, spans, sums, width, c, blocks_of_chunk, step), COUNTS=1 << c.bit_length(), **FINISH
    )
    return sums, assignment, scores


def _cut(sums: Tensor, c: int, d: int, squares: bool, patches: Tensor) -> Statistics:
    """Sums (bags, moments, masses and score) as statistics."""
    total, square = sums[:, : c * d].view(-1, c, d), sums[:, c * d : 2 * c * d]
    square = square.view(-1, c, d) if squares else torch.zeros_like(total)
    return Statistics(sums[:, -c - 1 : -1], total, square, sums[:, -1], patches)


def parts_of(assign: Logits) -> tuple[Tensor, ...]:
    """Linear factors and, where there are any, quadratic ones (..., d, C), in three parts and by prototype: (3, ..., PADDED, d)."""
    from panther.statistics import triton_kernel as kernel

    made = []
    for factors in (assign.linear, assign.quadratic):
        if factors is None:
            continue
        d, c = factors.shape[-2:]
        many, padded = factors.numel() // (d * c), _padded(c)
        parts = torch.empty(3, many, padded, d, dtype=PART, device=factors.device)
        kernel.split[(padded, many)](factors.contiguous(), parts, d, c, many, PADDED=padded, SIZE=1024)
        made.append(parts)
    return tuple(made)


class _Chunks(NamedTuple):
    """Chunks of rows that are added up together, as tables for the kernels."""

    table: Tensor  # (chunks, 4): which bag, first row, row after the last, place of the first row in the assignment
    spans: Tensor  # (bags, 2): first chunk of a bag, and how many it has ...
    step: int  # ... each so much farther than the one before


@lru_cache(maxsize=256)
def _chunks(lengths: tuple[int, ...], device: torch.device) -> _Chunks:
    """Bags one after the other; no chunk has rows of two bags."""
    table: list[tuple[int, ...]] = []
    spans, offset = [], 0
    for bag, length in enumerate(lengths):
        starts = range(offset, offset + length, CHUNK)
        spans.append((len(table), len(starts)))
        table += [(bag, start, min(start + CHUNK, offset + length), start) for start in starts]
        offset += length
    return _Chunks(torch.tensor(table, device=device), torch.tensor(spans, device=device), 1)


@lru_cache(maxsize=32)
def _chunks_again(n: int, times: int, device: torch.device) -> _Chunks:
    """The same rows several times with separate results; chunks that read the same rows are adjacent."""
    once, again = _chunks((n,), device).table, torch.arange(times, device=device)
    table = once[:, None] + again[:, None] * torch.tensor([1, 0, 0, n], device=device)  # (chunks, times, 4)
    return _Chunks(table.flatten(0, 1), torch.stack([again, torch.full_like(again, len(once))], -1), times)


@lru_cache(maxsize=256)
def _counts(lengths: tuple[int, ...], device: torch.device) -> Tensor:
    return torch.tensor(lengths, dtype=torch.float64, device=device)
