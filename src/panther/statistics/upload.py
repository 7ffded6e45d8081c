"""Transfers to and from the GPU: rows of a file through pinned memory, each block copied while the next is read; results in one copy."""

import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from panther.statistics.gpu import on_device_of
from panther.store import read_into
from panther.types import Rows

HELD_BYTES = 8 << 30  # largest bag that is held on the GPU; larger ones are read in blocks
# of pinned memory, twice for every process: what all of them write should still be in the last-level cache when the GPU fetches it
BLOCK_BYTES = 4 << 20
_local = threading.local()  # pinned memory is slow to get: every thread takes its own once


class _Stage(NamedTuple):
    memory: Tensor  # (bytes,), pinned
    copied: torch.cuda.Event  # when it may be written again


class _Lane(NamedTuple):
    """Stream and pinned memory of a thread for copies to a device."""

    stream: torch.cuda.Stream
    stages: tuple[_Stage, _Stage]


def near(rows: Rows, device: str) -> Rows:
    """Rows (N, d) on the GPU if they fit, else in their file."""
    size = int(rows.shape[0]) * int(rows.shape[1]) * rows.dtype.itemsize
    return upload(rows, device) if torch.device(device).type == "cuda" and size <= HELD_BYTES else rows


def upload(rows: Rows, device: str) -> Tensor:
    """All rows (N, d) as stored, on the GPU; they are read once, in order."""
    with torch.cuda.device(device):
        lane, computing = _lane(torch.cuda.current_device()), torch.cuda.current_stream()
        there = _uploaded(rows, device, lane)
        computing.wait_stream(lane.stream)
        there.record_stream(computing)
        return there


def _uploaded(rows: Rows, device: str, lane: _Lane) -> Tensor:
    n, d = int(rows.shape[0]), int(rows.shape[1])
    with torch.cuda.stream(lane.stream):
        there = torch.empty(n, d, dtype=rows.dtype, device=device)
    row_bytes = d * there.element_size()
    if row_bytes > BLOCK_BYTES:  # a row that no stage can hold
        return there.copy_(rows[0:n])
    step = BLOCK_BYTES // row_bytes
    for number, start in enumerate(range(0, n, step)):
        stage = lane.stages[number % 2]
        end = min(start + step, n)
        stage.copied.synchronize()
        pinned = stage.memory[: (end - start) * row_bytes].view(there.dtype).view(end - start, d)
        read_into(rows, slice(start, end), pinned)
        with torch.cuda.stream(lane.stream):
            there[start:end].copy_(pinned, non_blocking=True)
            stage.copied.record()
    return there


def fetch(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Tensors copied from the GPU in one transfer, so that processes that share it wait once."""
    return send_for(tensors)()


def send_for(tensors: Sequence[Tensor]) -> Callable[[], list[Tensor]]:
    """Start the copy of tensors from the GPU and return a function that waits for it."""
    widest_first = sorted(range(len(tensors)), key=lambda i: -tensors[i].element_size())  # so that all stay aligned
    flat = [tensors[i].contiguous().view(-1).view(torch.uint8) for i in widest_first]
    with on_device_of(flat[0]):
        here = torch.cat(flat).to("cpu", non_blocking=True)  # pinned
        arrived = torch.cuda.current_stream().record_event() if flat[0].is_cuda else None

    def wait() -> list[Tensor]:
        if arrived is not None:
            arrived.synchronize()
        parts = dict(zip(widest_first, here.split([len(part) for part in flat]), strict=True))
        return [parts[i].view(t.dtype).view(t.shape) for i, t in enumerate(tensors)]

    return wait


def _lane(device: int) -> _Lane:
    held: dict[int, _Lane] = _local.__dict__.setdefault("lanes", {})
    if device not in held:
        memories = (torch.empty(BLOCK_BYTES, dtype=torch.uint8, pin_memory=True) for _ in range(2))
        first, second = (_Stage(memory, torch.cuda.Event()) for memory in memories)
        held[device] = _Lane(torch.cuda.Stream(device), (first, second))
    return held[device]
