"""Files are asked for before they are needed, so that a disk reads while something else is computed."""

import os
import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

BYTES = 256 << 20  # of a file: what is asked for too early has left memory again when it is needed
ONCE = 128 << 10  # Linux reads no more for one request where the device has no better size


def read_ahead(files: Iterable[Path]) -> None:
    """Have the system begin to read files, and go on; of what is in memory already nothing is read."""
    if hasattr(os, "posix_fadvise"):
        # asking waits where the disk has enough to do
        threading.Thread(target=_ask, args=(tuple(files),), name="reading ahead", daemon=True).start()


def _ask(files: Iterable[Path]) -> None:
    for file in files:
        with suppress(OSError), file.open("rb", buffering=0) as handle:  # who needs it will say what is wrong with it
            for start in range(0, min(BYTES, os.fstat(handle.fileno()).st_size), ONCE):
                os.posix_fadvise(handle.fileno(), start, ONCE, os.POSIX_FADV_WILLNEED)
