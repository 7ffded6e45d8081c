"""Rows of a file onto the GPU: read into pinned memory block by block, each copied while the next is read."""

import threading
from typing import NamedTuple

import torch
from torch import Tensor

from panther.types import Rows

HELD_BYTES = 8 << 30  # of a bag that is held on the GPU while it is worked on; a larger one is read by blocks
BLOCK_BYTES = 8 << 20  # smaller ones cost more to launch than they gain by staying in a cache
_local = threading.local()  # pinned memory is slow to get: every thread takes its own once


class _Stage(NamedTuple):
    memory: Tensor  # (bytes,), pinned
    copied: torch.cuda.Event  # when it may be written again


def near(rows: Rows, device: str) -> Rows:
    """Rows (N, d) where a device reads them fast: on the GPU where they fit; else they stay in their file."""
    size = int(rows.shape[0]) * int(rows.shape[1]) * rows.dtype.itemsize
    return upload(rows, device) if torch.device(device).type == "cuda" and size <= HELD_BYTES else rows


def upload(rows: Rows, device: str) -> Tensor:
    """All rows (N, d) as stored, on the GPU; they are read once, in order."""
    with torch.cuda.device(device):  # the stream that copies and the one that is waited for are of one device
        return _uploaded(rows, device)


def _uploaded(rows: Rows, device: str) -> Tensor:
    n, d = int(rows.shape[0]), int(rows.shape[1])
    there = torch.empty(n, d, dtype=rows.dtype, device=device)
    row_bytes = d * there.element_size()
    step = max(1, BLOCK_BYTES // row_bytes)
    if row_bytes > BLOCK_BYTES:  # a row that no stage can hold
        return there.copy_(rows[0:n])
    for number, start in enumerate(range(0, n, step)):
        stage = _stages(torch.cuda.current_device())[number % 2]
        block = rows[start : start + step]
        stage.copied.synchronize()
        pinned = stage.memory[: len(block) * row_bytes].view(there.dtype).view(len(block), d)
        there[start : start + step].copy_(pinned.copy_(block), non_blocking=True)
        stage.copied.record()
    return there


def _stages(device: int) -> list[_Stage]:
    held: dict[int, list[_Stage]] = _local.__dict__.setdefault("stages", {})
    if device not in held:
        memories = (torch.empty(BLOCK_BYTES, dtype=torch.uint8, pin_memory=True) for _ in range(2))
        held[device] = [_Stage(memory, torch.cuda.Event()) for memory in memories]
    return held[device]
