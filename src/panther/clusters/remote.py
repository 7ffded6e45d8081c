"""What runs inside a Dask worker. It only passes bytes on: torch and the files are the business of its guarded process."""

import multiprocessing
import os
import pickle
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from typing import Any

from panther.errors import InputError
from panther.workers import GuardedPool, SentOnce, TaskLostError, limit_cores, process_context


@dataclass(frozen=True)
class OnPickles:
    """A function of pickled arguments that gives a pickled value, so that whoever passes them on need not know what they hold."""

    payload: bytes  # the function, pickled
    folder: str = field(default_factory=os.getcwd)  # that relative paths count from

    def __call__(self, arguments: bytes) -> bytes:
        """Unpack, call, pack."""
        try:
            os.chdir(self.folder)
        except OSError as error:
            raise InputError(
                f"{self.folder}: a worker on {socket.gethostname()} does not see this folder ({error.strerror}); all machines must see "
                "the files under the same path."
            ) from error
        return pickle.dumps(self.function(*pickle.loads(arguments)))

    @cached_property
    def function(self) -> Callable[..., Any]:
        """The function."""
        return pickle.loads(self.payload)

    def close(self) -> None:
        """End what it keeps between calls."""
        function = self.function
        while isinstance(function, partial):
            function = function.args[0]
        if hasattr(function, "close"):
            function.close()


@dataclass
class Helper:
    """What a Dask worker keeps between tasks: its guarded processes, and functions that run in the worker itself.

    Several commands may use a worker at the same time; what one of them has running is not taken away by another that ends.
    """

    guard: threading.Condition = field(default_factory=threading.Condition)
    pool: GuardedPool | None = None
    functions: dict[bytes, OnPickles] = field(default_factory=dict)
    running: Counter[bytes] = field(default_factory=Counter)  # tasks by their function; nothing: the pool's

    @contextmanager
    def guarded(self, limit: float) -> Iterator[GuardedPool]:
        """Processes of this worker, as many as it has threads."""
        with self.guard:
            if self.pool is None or (self.pool.limit != limit and not self.running[POOL]):
                self._end_pool()
                _allow_children()
                self.pool = GuardedPool(_threads(), process_context(), limit=limit)
            pool = self.pool
            self.running[POOL] += 1
        try:
            yield pool
        finally:
            with self.guard:
                self.running[POOL] -= 1

    @contextmanager
    def held(self, payload: bytes) -> Iterator[Any]:
        """A function that runs in this process, one at a time; the same for all its tasks, because it may have loaded a network."""
        with self.guard:
            self.guard.wait_for(lambda: not any(self.running[other] for other in self.functions if other != payload))
            if payload not in self.functions:
                self._close_functions()
                _allow_children()
                limit_cores(_threads())  # others may work on this machine
                self.functions[payload] = pickle.loads(payload)
            function = self.functions[payload]
            self.running[payload] += 1
        try:
            yield function
        finally:
            with self.guard:
                self.running[payload] -= 1
                self.guard.notify_all()

    def release(self) -> None:
        """Give back processes and memory that nobody uses."""
        with self.guard:
            if not self.running[POOL]:
                self._end_pool()
            self._close_functions()

    def _end_pool(self) -> None:
        if self.pool is not None:
            self.pool.shutdown()
        self.pool = None

    def _close_functions(self) -> None:
        for payload in [payload for payload in self.functions if not self.running[payload]]:
            self.functions.pop(payload).close()


POOL = b""
HELPER = Helper()  # one per Dask worker, which is a process


def compute_guarded(function: bytes, arguments: bytes, version: str, limit: float) -> bytes | Exception:
    """Have a guarded process call the function; what it costs is a value, because it is no business of Dask's."""
    if refused := _other_version(version):
        return refused
    try:
        with HELPER.guarded(limit) as pool:
            return pool.submit(_sent(function), arguments).result()
    except Exception as error:
        return _sendable(error)


def compute_here(function: bytes, arguments: bytes, version: str, limit: float) -> bytes | Exception:
    """Call the function in the Dask worker itself: it guards what it reads by itself, and keeps its network for the next task."""
    if refused := _other_version(version):
        return refused
    try:
        with HELPER.held(function) as call:
            return call(arguments)
    except Exception as error:
        return _sendable(error)


def release() -> None:
    """End what a Dask worker keeps, when a command has finished."""
    HELPER.release()


def same(value: bytes) -> bytes:
    """A function too large to be sent with every task is the result of this one, which Dask brings to each worker once."""
    return value


class OtherVersionError(Exception):
    """A worker runs another version of the package, whose results might differ."""


def _other_version(version: str) -> Exception | None:
    from panther.version import __version__

    return None if version == __version__ else OtherVersionError(__version__)


def _sendable(error: Exception) -> Exception:
    if isinstance(error, TaskLostError):
        return error
    try:
        pickle.loads(pickle.dumps(error))
        return error
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")


@lru_cache(maxsize=4)  # the same object for the same bytes: the pool sends it once to each of its processes
def _sent(payload: bytes) -> Any:
    return SentOnce(payload)


def _allow_children() -> None:
    """Let this process start others. Dask's are daemons, which by Python's rule may not, because nobody would end them; ours end with
    their parent, however that ends.
    """
    multiprocessing.current_process()._config["daemon"] = False  # type: ignore[attr-defined]


def _threads() -> int:
    from distributed import get_worker

    return int(get_worker().state.nthreads)
