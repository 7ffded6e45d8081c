"""Cores, threads and memory of this process; how worker processes start, and the time limit of one read in them."""

import ctypes
import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

READ_LIMIT = "PANTHER_READ_LIMIT"  # environment variable: seconds that one read may take in a worker process
DEFAULT_LIMIT = 60.0

TRIM, MMAP, ARENAS = -1, -3, -8  # glibc's names: M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX
KEPT = 256 << 20  # bytes of free memory that a process keeps at the most
SHARED = 2  # pools of free memory, whatever the number of threads: memory freed by one is available to the others
SMALL = 16 << 20  # bytes that are taken without looking at the free memory
ARRAY = 32 << 20  # larger arrays are returned to the system at once; the largest threshold that glibc reaches by itself

GROUPS, TREE = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")  # of Linux; elsewhere there are none
VERSIONS = {  # limit, usage, and the part of the usage that is a cache of files and given back on demand
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", ("total_inactive_file", "total_active_file")),
    2: ("memory.max", "memory.current", ("inactive_file", "active_file")),
}

_allowed: ContextVar[int | None] = ContextVar("kernel_threads", default=None)
_most_cores: list[int] = []  # of this process, where others share the machine
_limit: list[float] = []  # seconds of one read, in worker processes


def cores() -> int:
    """Cores that this process may use."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min([count, *_most_cores])


def limit_cores(count: int) -> None:
    """Count at most ``count`` cores from now on: a Dask worker has the threads that it was started with, not all of the machine."""
    _most_cores[:] = [count]


def kernel_threads() -> int:
    """Threads for one walk over a bag: those that `allow_threads` allows, else as many as torch has."""
    allowed = _allowed.get()
    if allowed is not None:
        return allowed
    import torch  # here: a process that reads slides needs none

    return torch.get_num_threads()


@contextmanager
def allow_threads(count: int) -> Iterator[None]:
    """Let kernels that are called inside use ``count`` threads; their bytes do not depend on the number."""
    token = _allowed.set(count)
    try:
        yield
    finally:
        _allowed.reset(token)


def read_limit() -> float:
    """Seconds that one read may take in a worker process."""
    with suppress(ValueError):
        limit = float(os.environ.get(READ_LIMIT, DEFAULT_LIMIT))
        return limit if limit > 0 else DEFAULT_LIMIT
    return DEFAULT_LIMIT


def enable_read_limit(limit: float) -> None:
    """Let the system end this worker process (SIGALRM) where one read takes longer; a library that loops holds Python's lock, so no thread could."""
    if hasattr(signal, "setitimer"):
        _limit[:] = [limit]


def in_worker() -> bool:
    """Whether reads of this process are limited: it is a worker, which a damaged file may crash."""
    return bool(_limit)


@contextmanager
def reading() -> Iterator[None]:
    """Bound the time of one read of a file where `enable_read_limit` was called."""
    if not _limit:
        yield
        return
    before, _ = signal.setitimer(signal.ITIMER_REAL, _limit[0])
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, before)  # of a read around this one


def exit_reason(code: int | None) -> str:
    """How a worker died, to complete `NAME: ...`."""
    name = ""
    with suppress(ValueError):
        name = signal.Signals(-(code or 0)).name
    if name == "SIGALRM":
        return f"not read within {read_limit():g} s ({READ_LIMIT}); the file is damaged, or its storage does not answer"
    if name == "SIGKILL":  # no library does that to itself
        return "its worker process was killed (SIGKILL); memory may be too short"
    return f"crashed its worker process ({name or f'exit code {code}'}); the file is damaged"


def keep_freed_memory() -> None:
    """Keep some freed memory for the next array of this process instead of returning it to the system.

    A network, or a formula over arrays, allocates and frees arrays of megabytes all the time. By default glibc returns each of them,
    and the system clears every page again before its next use.
    """
    if sys.platform == "linux":
        with suppress(AttributeError, OSError):  # another C library
            libc = ctypes.CDLL(None)
            libc.mallopt(MMAP, ARRAY)
            libc.mallopt(TRIM, min(KEPT, free_memory() // 16))
            libc.mallopt(ARENAS, SHARED)


def give_freed_memory_back() -> None:
    """Return freed memory that this process has kept to the system."""
    if sys.platform == "linux":
        with suppress(AttributeError, OSError):
            ctypes.CDLL(None).malloc_trim(0)


def is_spare(size: int) -> bool:
    """Whether a worker may use ``size`` bytes to be faster: all workers may at the same time, and half of the free memory is kept."""
    return size <= SMALL or size <= free_memory() // (2 * cores())


def free_memory() -> int:
    """Bytes that this process and its workers may still allocate: of the machine, or of its control group (SLURM, containers)."""
    import psutil

    return min([psutil.virtual_memory().available, *_memory_left(GROUPS, TREE)])


def _memory_left(groups: Path, tree: Path) -> Iterator[int]:
    """Bytes left of the memory limit of each control group that this process is in, and of the groups around it."""
    for line in groups.read_text().splitlines() if groups.is_file() else ():
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        top, (limit, used, cached) = (tree / "memory", VERSIONS[1]) if controllers else (tree, VERSIONS[2])
        group = Path(path.lstrip("/"))
        for folder in (top / group, *(top / parent for parent in group.parents)):
            with suppress(OSError, ValueError, KeyError):  # "max", or a tree that a container does not see
                size, taken = (int((folder / name).read_text()) for name in (limit, used))
                stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
                yield max(0, size - taken + sum(int(stat[name]) for name in cached))


PRELOAD = ("torch", "panther.engine", "h5py")  # imported by the fork server


def process_context(*preload: str) -> Any:
    """Start method of worker processes: a fork server that imports torch once.

    Forking this process itself, with its threads and open files, may deadlock.
    """
    method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    context = multiprocessing.get_context(method)
    if method == "forkserver":
        context.set_forkserver_preload(["panther.fork_server", *(preload or PRELOAD)])
    return context


def start_early(*preload: str) -> None:
    """Start the fork server before this process imports torch as well, so that both do it side by side."""
    from multiprocessing import forkserver, resource_tracker

    if process_context(*preload).get_start_method() == "forkserver":
        resource_tracker.ensure_running()  # which the server needs; it would unblock the signal
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # the server inherits it, and ignores Ctrl-C
        try:
            forkserver.ensure_running()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_server() -> None:
    """End the fork server of this process at once; it may still be importing, and keeps a pipe open that this command writes to."""
    from multiprocessing import forkserver

    pid = getattr(forkserver._forkserver, "_forkserver_pid", None)
    if pid is not None:
        with suppress(OSError):  # it is no child of this process any more, and its number may be another's
            if os.waitpid(pid, os.WNOHANG)[0] == 0:  # it still runs
                os.kill(pid, signal.SIGKILL)
