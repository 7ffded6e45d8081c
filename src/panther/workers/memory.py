"""Memory of a process: how much it may still take, and what becomes of what it has freed."""

import ctypes
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from panther.workers.threads import cores

TRIM, MMAP, ARENAS = -1, -3, -8  # glibc's names: M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX
KEPT = 256 << 20  # bytes of free memory that a process keeps at the most
SHARED = 2  # pools of free memory, whatever the number of threads: what one has freed is there for the others
SMALL = 16 << 20  # bytes that are taken without asking how much there is
ARRAY = 32 << 20  # larger arrays have pages of their own and go back at once; the most that glibc comes to by itself

GROUPS, TREE = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")  # of Linux; elsewhere there are none
VERSIONS = {  # limit, what is used of it, and what of that is only a copy of files and given back when it is needed
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", ("total_inactive_file", "total_active_file")),
    2: ("memory.max", "memory.current", ("inactive_file", "active_file")),
}


def keep_freed_memory() -> None:
    """Keep some freed memory for the next array of this process instead of giving it back to the system.

    A network, or a formula over arrays, makes and frees arrays of megabytes all the time. By default glibc hands each of them back,
    and the system clears every page again before the next one gets it.
    """
    if sys.platform == "linux":
        with suppress(AttributeError, OSError):  # another C library
            libc = ctypes.CDLL(None)
            libc.mallopt(MMAP, ARRAY)
            libc.mallopt(TRIM, min(KEPT, free_memory() // 16))
            libc.mallopt(ARENAS, SHARED)


def give_freed_memory_back() -> None:
    """Give back what this process has freed and kept, before others need it."""
    if sys.platform == "linux":
        with suppress(AttributeError, OSError):
            ctypes.CDLL(None).malloc_trim(0)


def is_spare(size: int) -> bool:
    """Whether a worker may take so many bytes to be faster: those of all cores want as much, and half of what is free is for the rest."""
    return size <= SMALL or size <= free_memory() // (2 * cores())


def free_memory() -> int:
    """Bytes that this process may still take, workers that it starts included: of the machine, or of what a job was given.

    SLURM and containers limit a job by control groups.
    """
    import psutil

    return min([psutil.virtual_memory().available, *_left(GROUPS, TREE)])


def _left(groups: Path, tree: Path) -> Iterator[int]:
    """Bytes that are left of the limit of each control group that this process is in, and of those around it."""
    for top, own, version in _memory_groups(groups, tree):
        limit, used, cached = VERSIONS[version]
        for group in (top / own, *(top / around for around in own.parents)):
            with suppress(OSError, ValueError, KeyError):  # "max", or a tree that a container does not see
                most, taken = (int((group / name).read_text()) for name in (limit, used))
                stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
                yield max(0, most - taken + sum(int(stat[name]) for name in cached))


def _memory_groups(groups: Path, tree: Path) -> Iterator[tuple[Path, Path, int]]:
    """Where the tree of groups is, which of them is this process's, and of which version they are."""
    with suppress(OSError):
        for line in groups.read_text().splitlines():
            _, kinds, path = line.split(":", 2)
            own = Path(path.lstrip("/"))
            if "memory" in kinds.split(","):
                yield tree / "memory", own, 1
            elif not kinds:
                yield tree, own, 2
