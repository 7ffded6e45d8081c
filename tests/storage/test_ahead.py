"""Reading ahead: what is asked for comes into memory by itself; what cannot be asked for is no failure."""

import ctypes
import mmap
import os
import time

import numpy as np
import pytest

from panther.storage.readers.ahead import read_ahead

pytestmark = pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="this system cannot be asked")


def share_in_memory(path) -> float:
    """How much of a file the system holds in memory; asking does not bring it there."""
    content = np.memmap(path, np.uint8, "r")
    pages = np.zeros(-(-len(content) // mmap.PAGESIZE), np.uint8)
    address, length = ctypes.c_void_p(content.ctypes.data), ctypes.c_size_t(len(content))
    assert ctypes.CDLL(None).mincore(address, length, ctypes.c_void_p(pages.ctypes.data)) == 0
    return float((pages & 1).mean())


def test_files_come_into_memory(tmp_path):
    path = tmp_path / "slide.npy"
    np.save(path, np.ones((20_000, 256), np.float32))
    with path.open("rb+", buffering=0) as handle:
        os.fsync(handle.fileno())
        os.posix_fadvise(handle.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if share_in_memory(path) > 0.5:
        pytest.skip("this file system keeps its files in memory")
    read_ahead([tmp_path / "missing.npy", path])
    deadline = time.monotonic() + 60
    while share_in_memory(path) < 1 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert share_in_memory(path) == 1
