"""Rows of a file onto the GPU: read into pinned memory block by block, each copied while the next is read."""

import threading
from typing import NamedTuple

import torch
from torch import Tensor

from panther.types import Rows

BLOCK_BYTES = 8 << 20  # smaller ones cost more to launch than they gain by staying in a cache
_local = threading.local()  # pinned memory is slow to get: every thread takes its own once


class _Stage(NamedTuple):
    memory: Tensor  # (bytes,), pinned
    copied: torch.cuda.Event  # when it may be written again


def upload(rows: Rows, device: str) -> Tensor:
    """All rows (N, d) as stored, on the GPU; they are read once, in order."""
    n, d = int(rows.shape[0]), int(rows.shape[1])
    there = torch.empty(n, d, dtype=rows.dtype, device=device)
    row_bytes = d * there.element_size()
    step = max(1, BLOCK_BYTES // row_bytes)
    if row_bytes > BLOCK_BYTES:  # a row that no stage can hold
        return there.copy_(rows[0:n])
    for number, start in enumerate(range(0, n, step)):
        stage = _stages()[number % 2]
        block = rows[start : start + step]
        stage.copied.synchronize()
        pinned = stage.memory[: len(block) * row_bytes].view(there.dtype).view(len(block), d)
        there[start : start + step].copy_(pinned.copy_(block), non_blocking=True)
        stage.copied.record()
    return there


def _stages() -> tuple[_Stage, _Stage]:
    if not hasattr(_local, "stages"):
        _local.stages = tuple(
            _Stage(torch.empty(BLOCK_BYTES, dtype=torch.uint8, pin_memory=True), torch.cuda.Event()) for _ in range(2)
        )
    return _local.stages
