"""How many cores there are, and how many threads a kernel may use whose bytes do not depend on them; torch's threads are another matter."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_allowed: ContextVar[int | None] = ContextVar("kernel_threads", default=None)
_most_cores: list[int] = []  # of this process, where others share the machine


def cores() -> int:
    """Cores that this process may use."""
    there = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min([there, *_most_cores])


def limit_cores(count: int) -> None:
    """Count only so many cores from now on: a Dask worker has as many threads as it was given, not as the machine has."""
    _most_cores[:] = [count]


def kernel_threads() -> int:
    """Threads for one walk over a bag: what was allowed, else as many as torch has."""
    allowed = _allowed.get()
    if allowed is not None:
        return allowed
    import torch  # here, because a worker that reads slides needs none

    return torch.get_num_threads()


@contextmanager
def allow_threads(count: int) -> Iterator[None]:
    """Let kernels that are called inside use so many threads."""
    token = _allowed.set(count)
    try:
        yield
    finally:
        _allowed.reset(token)
