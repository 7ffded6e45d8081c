"""What becomes of memory that a process has freed."""

import ctypes
import sys
from contextlib import suppress

TRIM, MMAP = -1, -3  # glibc's names: M_TRIM_THRESHOLD, M_MMAP_THRESHOLD
KEPT = 256 << 20  # bytes of free memory that a process keeps
ARRAY = 32 << 20  # larger arrays have pages of their own and go back at once; the most that glibc comes to by itself


def keep_freed_memory() -> None:
    """Keep some freed memory for the next array of this process instead of giving it back to the system.

    A network, or a formula over arrays, makes and frees arrays of megabytes all the time. By default glibc hands each of them back,
    and the system clears every page again before the next one gets it.
    """
    if sys.platform == "linux":
        with suppress(AttributeError, OSError):  # another C library
            libc = ctypes.CDLL(None)
            libc.mallopt(MMAP, ARRAY)
            libc.mallopt(TRIM, KEPT)
