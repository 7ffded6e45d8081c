"""Worker processes behind the interface of `concurrent.futures`; one that dies or hangs costs one task at most.

When a worker dies, or stays in one read for longer than the limit, the parent knows which task it had: the task is tried once more
when nothing else runs, and given up if that fails as well. The other tasks never notice.
"""

import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Future
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from panther.workers.team import SentOnce, Team
from panther.workers.watch import GRACE, TaskLostError, Watch, begin_worker, read_limit

ATTEMPTS = 2  # the second one alone
NAME = "panther worker"  # of the processes
UNGUARDED = 96  # exit code of a worker that was about to start workers of its own while it imported the script
FUNCTION = b"function"  # begins a message that is no task; a pickle begins otherwise


def _work(connection: Connection, watch: Watch, initializer: Callable[..., None] | None, initargs: tuple) -> None:
    """Life of a worker process: one task after the other, until the parent closes the connection."""
    begin_worker(watch)
    if initializer is not None:
        initializer(*initargs)
    function = SentOnce(b"")
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        connection.send_bytes(b"")  # ready
        while True:
            payload = connection.recv_bytes()
            if payload.startswith(FUNCTION):
                function = SentOnce(payload[len(FUNCTION) :])
            else:
                connection.send_bytes(_done(payload, function))


def _done(payload: bytes, sent: SentOnce) -> bytes:
    try:
        function, arguments, options = pickle.loads(payload)
        return pickle.dumps((True, (function or sent.value)(*arguments, **options)))
    except Exception as error:
        try:
            return pickle.dumps((False, error))
        except Exception:  # not every exception can be sent
            return pickle.dumps((False, RuntimeError(f"{type(error).__name__}: {error}")))


@dataclass
class _Task:
    future: "Future[Any]"
    payload: bytes
    function: SentOnce | None = None  # None: it is part of the payload
    attempts: int = 0


@dataclass(eq=False)
class _Worker:
    process: Any
    connection: Connection
    watch: Watch
    task: _Task | None = None
    ready: bool = False
    function: SentOnce | None = None  # what was sent to it last


class UnguardedScriptError(BrokenExecutor):
    """Workers import the script that starts them, and it does its work again instead of waiting to be asked."""

    def __init__(self) -> None:
        super().__init__(
            f"{Path(sys.argv[0]).name}: worker processes import this script, and it starts its work again when it is imported; put what "
            'it does under `if __name__ == "__main__":`, and what it defines above that.'
        )


def _give_up(task: _Task, error: Exception) -> None:
    if task.attempts or task.future.set_running_or_notify_cancel():
        task.future.set_exception(error)


PRELOAD = ("panther.execution", "h5py")  # what the fork server imports


def start_early(*preload: str) -> None:
    """Start the fork server before this process imports torch as well, so that both do it side by side."""
    if process_context(*preload).get_start_method() == "forkserver":
        resource_tracker.ensure_running()  # which the server needs; it would unblock the signal
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # the server inherits it, and ignores Ctrl-C
        try:
            forkserver.ensure_running()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_server() -> None:
    """End the fork server of this process at once, which may still be importing: a pipe that this command writes to is open until then."""
    own = getattr(forkserver._forkserver, "_forkserver_pid", None)
    if own is not None:
        with suppress(OSError):  # it is no child of ours any more, and its number may be another's
            if os.waitpid(own, os.WNOHANG)[0] == 0:  # it still runs
                os.kill(own, signal.SIGKILL)


def share_server() -> None:
    """Have the workers of this process, which a fork server has forked, forked by that server: it has imported everything already.

    Python means to do so, but forgets in the child that the server runs, and starts another one.
    """
    server: Any = forkserver._forkserver
    known = getattr(server, "_forkserver_address", None) and getattr(server, "_forkserver_authkey", b"none needed")
    if known and server._forkserver_pid is None:  # not started by this process
        server.ensure_running = forkserver.ensure_running = resource_tracker.ensure_running


def process_context(*preload: str) -> Any:
    """How worker processes are started: by a fork server that imports torch once.

    Forking this process itself, with its threads and open files, may deadlock.
    """
    method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    context = multiprocessing.get_context(method)
    if method == "forkserver":
        # one that runs already has imported its own
        context.set_forkserver_preload(["panther.workers.fork_server", *(preload or PRELOAD)])
    return context


@dataclass(eq=False)
class GuardedPool(Team):
    """Worker processes behind the interface of `concurrent.futures`; a task that is given up raises `TaskLostError`."""

    hand_out = 2e-4

    workers: int
    context: Any
    initializer: Callable[..., None] | None = None
    initargs: tuple = ()
    limit: float = field(default_factory=read_limit)

    def __post_init__(self) -> None:
        own = multiprocessing.current_process()
        if getattr(own, "_inheriting", False):  # as multiprocessing itself asks
            if own.name == NAME:
                os._exit(UNGUARDED)  # at once and without a word: the parent says what is wrong
            raise UnguardedScriptError  # a process that somebody else has started
        self._lock = threading.Lock()
        self._queue: deque[_Task] = deque()
        self._suspects: deque[_Task] = deque()
        self._team: list[_Worker] = []
        self._closing = False
        self._stillborn = 0  # workers that died before they were ready, one after the other
        self._wake_in, self._wake_out = multiprocessing.Pipe(duplex=False)
        self._thread = threading.Thread(target=self._serve_or_break, name="workers", daemon=True)
        self._thread.start()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        """Have a worker call the function, which may be a `SentOnce`."""
        sent = fn if isinstance(fn, SentOnce) else None
        task = _Task(Future(), pickle.dumps((None if sent else fn, args, kwargs)), sent)
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

    def _serve_or_break(self) -> None:
        """Serve; a mistake in here must not leave anybody waiting for ever."""
        try:
            self._serve()
        except BaseException:
            self._closing = True
            self._break()
            for worker in self._team:
                if worker.task is not None:
                    _give_up(worker.task, BrokenExecutor("what looks after the worker processes has failed"))
                worker.process.kill()
            raise

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
        """Give tasks to idle workers; one that has cost a worker its life only when no other is at work, so that a second crash is its own."""
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
            with suppress(BrokenPipeError, ConnectionResetError):  # it has just died; its sentinel says so
                if task.function is not None and task.function is not worker.function:
                    worker.function = task.function
                    worker.connection.send_bytes(FUNCTION + task.function.payload)
                worker.connection.send_bytes(task.payload)
        for _ in range(needed):
            one = self._start_if_possible()
            if one is not None:
                self._team.append(one)
            elif not self._team:  # else those that are at work go on
                self._break()

    def _start_if_possible(self) -> _Worker | None:
        """One more worker; None where there is no memory and are no handles for it."""
        for _ in range(ATTEMPTS):
            with suppress(
                OSError, EOFError
            ):  # EOFError: the fork server was killed at that moment; another one is started
                return self._start()
        return None

    def _start(self) -> _Worker:
        here, there = self.context.Pipe()
        watch = Watch(self.context, self.limit)
        arguments = (there, watch, self.initializer, self.initargs)
        process = self.context.Process(target=_work, name=NAME, args=arguments, daemon=True)
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
            if code == UNGUARDED:
                self._break(UnguardedScriptError())
            elif self._stillborn > ATTEMPTS:
                self._break()
        if task is None:
            return
        if task.attempts < ATTEMPTS:
            with self._lock:
                self._suspects.append(task)
        else:
            task.future.set_exception(TaskLostError(path, code, self.limit))

    def _break(self, why: BrokenExecutor | None = None) -> None:
        """Workers cannot even be started: there is no point in going on."""
        with self._lock:
            waiting = [*self._queue, *self._suspects]
            self._queue.clear()
            self._suspects.clear()
        for task in waiting:
            _give_up(task, why or BrokenExecutor("worker processes die before they begin"))

    def _end(self, worker: _Worker) -> None:
        worker.connection.close()  # an idle worker ends by itself
        if worker.task is not None or not worker.ready or worker.watch.seconds() > 0:
            worker.process.kill()
        worker.process.join(GRACE)
        if worker.process.is_alive():
            worker.process.kill()
            worker.process.join()
        worker.process.close()
