"""What a worker process reads, and since when: the parent knows which file a worker died or got stuck in."""

import ctypes
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from panther.workers.memory import keep_freed_memory

READ_LIMIT = "PANTHER_READ_LIMIT"  # environment variable: seconds that one read may take
DEFAULT_LIMIT = 60.0
GRACE = 5.0  # seconds that running tasks get when the work is stopped
LONGEST_PATH = 1024


def read_limit() -> float:
    """Seconds that one read may take before the file is given up."""
    try:
        limit = float(os.environ.get(READ_LIMIT, DEFAULT_LIMIT))
    except ValueError:
        return DEFAULT_LIMIT
    return limit if limit > 0 else DEFAULT_LIMIT


class TaskLostError(Exception):
    """The worker of a task died or was stuck, and died or was stuck again when the task was tried alone."""

    def __init__(self, path: str, code: int | None, limit: float) -> None:
        super().__init__(path, code, limit)
        self.path, self.code, self.limit = path, code, limit  # file that was being read, if any; None: it was stuck

    def sentence(self, name: str) -> str:
        """What happened, for the user; ``name`` is what the task was about."""
        if self.code is None:
            return (
                f"{self.path or name}: one read takes longer than {self.limit:g} s and was given up; the file is damaged, or its "
                f"storage does not answer ({READ_LIMIT} sets the seconds). Make the file again, or take it out."
            )
        how = _signal_name(self.code)
        if self.code == -signal.SIGKILL:  # no library does that to itself
            return f"{self.path or name}: the process that worked on it was killed ({how}); most likely memory is too short for it."
        if self.path:
            return f"{self.path}: reading this file crashes the library that reads it ({how}); make it again, or take it out."
        return (
            f"{name}: the process that worked on it crashed twice ({how}); a file of it is damaged, or was changed while it was "
            "read. Make it again, or take it out."
        )


def _signal_name(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    with suppress(ValueError):
        return f"signal {-code}, {signal.Signals(-code).name}"
    return f"signal {-code}"


class Watch:
    """What a worker reads, and since when; in memory that it shares with its parent.

    The parent ends a worker that is stuck. Where the parent itself was killed, an alarm does: a library that loops holds Python's
    lock, so that no thread of the worker could.
    """

    def __init__(self, context: Any, limit: float) -> None:
        self._alarm = limit + GRACE
        self._since = context.RawValue(ctypes.c_double, 0.0)
        self._path = context.RawArray(ctypes.c_char, LONGEST_PATH)

    def begin(self, path: str) -> None:
        self._path.value = os.fsencode(path)[: LONGEST_PATH - 1]
        self._since.value = time.monotonic()  # the same clock in all processes
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, self._alarm)

    def end(self) -> None:
        self._since.value = 0.0
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, 0)

    @property
    def path(self) -> str:
        """File that is being read, or nothing."""
        return os.fsdecode(self._path.value) if self._since.value else ""

    def seconds(self) -> float:
        """How long this read takes already."""
        since = self._since.value
        return time.monotonic() - since if since else 0.0


_watch: Watch | None = None  # in a worker process: its own


def in_worker() -> bool:
    """Whether this process is a worker, whose reads are watched."""
    return _watch is not None


@contextmanager
def reading(path: os.PathLike[str] | str) -> Iterator[None]:
    """Say that one read of a file begins and ends, so that the parent can tell a worker that is stuck in it."""
    if _watch is None:
        yield
        return
    _watch.begin(str(path))
    try:
        yield
    finally:
        _watch.end()


def begin_worker(watch: Watch | None = None) -> None:
    """What a worker process does first: it leaves Ctrl-C to its parent, ends when that ends, and says what it reads."""
    global _watch
    _watch = watch
    keep_freed_memory()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # workers would only add their tracebacks
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A parent that was killed cannot end its workers, which would wait for work, and hold their memory, for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
