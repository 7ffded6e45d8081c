"""Worker processes that may crash or hang on one file without taking the others with them.

The C libraries below (HDF5, OpenSlide, GLib) can be crashed, or sent into an endless loop, by a few wrong bytes in a file. So files
are read in worker processes. When one dies, or stays in one read for longer than the limit, the parent knows which task it had: the
task is tried once more when nothing else runs, and given up if that fails as well. The other tasks never notice.
"""

import ctypes
import multiprocessing
import os
import pickle
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any

READ_LIMIT = "PANTHER_READ_LIMIT"  # environment variable: seconds that one read may take
DEFAULT_LIMIT = 60.0
ATTEMPTS = 2  # the second one alone
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
        if self.path:
            return f"{self.path}: reading this file crashes the library that reads it ({how}); make it again, or take it out."
        if self.code == -signal.SIGKILL:
            return f"{name}: the process that worked on it was killed twice ({how}); most likely memory is too short for it."
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


class _Watch:
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


_watch: _Watch | None = None  # in a worker process: its own


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


def begin_worker() -> None:
    """What a worker process does first: it leaves Ctrl-C to its parent, and ends when that ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # workers would only add their tracebacks
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A parent that was killed cannot end its workers, which would wait for work, and hold their memory, for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _work(connection: Connection, watch: _Watch, initializer: Callable[..., None] | None, initargs: tuple) -> None:
    """Life of a worker process: one task after the other, until the parent closes the connection."""
    global _watch
    begin_worker()
    _watch = watch
    if initializer is not None:
        initializer(*initargs)
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        connection.send_bytes(b"")  # ready
        while True:
            payload = connection.recv_bytes()
            connection.send_bytes(_done(payload))


def _done(payload: bytes) -> bytes:
    try:
        function, arguments, options = pickle.loads(payload)
        return pickle.dumps((True, function(*arguments, **options)))
    except Exception as error:
        try:
            return pickle.dumps((False, error))
        except Exception:  # not every exception can be sent
            return pickle.dumps((False, RuntimeError(f"{type(error).__name__}: {error}")))


@dataclass
class _Task:
    future: "Future[Any]"
    payload: bytes
    attempts: int = 0


@dataclass(eq=False)
class _Worker:
    process: Any
    connection: Connection
    watch: _Watch
    task: _Task | None = None
    ready: bool = False


def _give_up(task: _Task, error: Exception) -> None:
    if task.attempts or task.future.set_running_or_notify_cancel():
        task.future.set_exception(error)


def process_context(*preload: str) -> Any:
    """How worker processes are started: by a fork server that imports torch once.

    Forking this process itself, with its threads and open files, may deadlock.
    """
    method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    context = multiprocessing.get_context(method)
    if method == "forkserver":
        context.set_forkserver_preload(list(preload))
    return context


@dataclass(eq=False)
class GuardedPool(Executor):
    """Worker processes behind the interface of `concurrent.futures`; a task that is given up raises `TaskLostError`."""

    workers: int
    context: Any
    initializer: Callable[..., None] | None = None
    initargs: tuple = ()
    limit: float = field(default_factory=read_limit)

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._queue: deque[_Task] = deque()
        self._suspects: deque[_Task] = deque()
        self._team: list[_Worker] = []
        self._closing = False
        self._stillborn = 0  # workers that died before they were ready, one after the other
        self._wake_in, self._wake_out = multiprocessing.Pipe(duplex=False)
        self._thread = threading.Thread(target=self._serve, name="workers", daemon=True)
        self._thread.start()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        """Have a worker call the function."""
        task = _Task(Future(), pickle.dumps((fn, args, kwargs)))
        with self._lock:
            if self._closing:
                raise RuntimeError("The workers have been ended.")
            self._queue.append(task)
        self._wake()
        return task.future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the workers; tasks that still run get a few seconds, tasks that wait are cancelled."""
        with self._lock:
            first, self._closing = not self._closing, True
            waiting = [*self._queue, *self._suspects]
            self._queue.clear()
            self._suspects.clear()
        for task in waiting:
            _give_up(task, BrokenExecutor("the work was stopped"))
        if first:
            self._wake()
        if wait:
            self._thread.join()

    def _wake(self) -> None:
        with suppress(OSError):
            self._wake_out.send_bytes(b"")

    def _serve(self) -> None:
        """Hand out tasks and collect results, in a thread of its own; nothing else touches the workers."""
        end: float | None = None
        while True:
            busy = [worker for worker in self._team if worker.task is not None]
            if self._closing:
                end = end or time.monotonic() + GRACE
                if not busy or time.monotonic() > end:
                    break
            else:
                self._hand_out()
            watched: list[Any] = [self._wake_in]
            for worker in self._team:
                watched += [worker.connection, worker.process.sentinel]
            happened = wait(watched, 0.5 if any(worker.task for worker in self._team) else None)
            while self._wake_in.poll():
                self._wake_in.recv_bytes()
            for worker in list(self._team):
                self._look_after(worker, happened)
        for worker in self._team:
            if worker.task is not None:
                _give_up(worker.task, BrokenExecutor("the work was stopped"))
            self._end(worker)
        self._wake_in.close()
        self._wake_out.close()

    def _hand_out(self) -> None:
        """Give tasks to idle workers; a suspect only when nobody works, so that it is alone with its memory and its fate."""
        with self._lock:
            alone = not self._queue and not any(worker.task for worker in self._team)
            waiting = self._queue if not alone else deque(list(self._suspects)[:1])
            idle = [worker for worker in self._team if worker.ready and worker.task is None]
            chosen = [(worker, waiting.popleft()) for worker in idle[: len(waiting)]]
            if alone and chosen:
                self._suspects.popleft()
            starting = sum(1 for worker in self._team if not worker.ready)
            needed = min(len(waiting) - starting, self.workers - len(self._team))
        for worker, task in chosen:
            if task.attempts == 0 and not task.future.set_running_or_notify_cancel():
                continue
            task.attempts += 1
            worker.task = task
            with suppress(BrokenPipeError, ConnectionResetError):  # it has just died; its sentinel tells
                worker.connection.send_bytes(task.payload)
        self._team += [self._start() for _ in range(needed)]

    def _start(self) -> _Worker:
        here, there = self.context.Pipe()
        watch = _Watch(self.context, self.limit)
        arguments = (there, watch, self.initializer, self.initargs)
        process = self.context.Process(target=_work, args=arguments, daemon=True)
        process.start()
        there.close()
        return _Worker(process, here, watch)

    def _look_after(self, worker: _Worker, happened: list[Any]) -> None:
        if worker.connection in happened:
            try:
                message = worker.connection.recv_bytes()
            except (EOFError, OSError):
                worker.process.join()
                self._lost(worker, worker.process.exitcode)
                return
            self._received(worker, message)
        elif worker.process.sentinel in happened:
            worker.process.join()
            self._lost(worker, worker.process.exitcode)
        elif worker.task is not None and worker.watch.seconds() > self.limit:
            self._lost(worker, None)

    def _received(self, worker: _Worker, message: bytes) -> None:
        if not worker.ready:
            worker.ready, self._stillborn = True, 0
            return
        task, worker.task = worker.task, None
        assert task is not None
        try:
            good, value = pickle.loads(message)
        except Exception as error:  # an exception of a library that cannot be made again from its arguments
            good, value = False, error
        if good:
            task.future.set_result(value)
        else:
            task.future.set_exception(value)

    def _lost(self, worker: _Worker, code: int | None) -> None:
        """Replace a worker that died or is stuck; its task is suspected, or given up."""
        path, task, worker.task = worker.watch.path, worker.task, None
        self._team.remove(worker)
        self._end(worker)
        if not worker.ready:
            self._stillborn += 1
            if self._stillborn > ATTEMPTS:
                self._break()
        if task is None:
            return
        if task.attempts < ATTEMPTS:
            with self._lock:
                self._suspects.append(task)
        else:
            task.future.set_exception(TaskLostError(path, code, self.limit))

    def _break(self) -> None:
        """Workers cannot even be started: there is no point in going on."""
        with self._lock:
            waiting = [*self._queue, *self._suspects]
            self._queue.clear()
            self._suspects.clear()
        for task in waiting:
            _give_up(task, BrokenExecutor("worker processes die before they begin"))

    def _end(self, worker: _Worker) -> None:
        worker.connection.close()  # an idle worker ends by itself
        if worker.task is not None or not worker.ready or worker.watch.seconds() > 0:
            worker.process.kill()
        worker.process.join(GRACE)
        if worker.process.is_alive():
            worker.process.kill()
            worker.process.join()
        worker.process.close()
