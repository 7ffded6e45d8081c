"""One loop over items for everything: in this process, in local worker processes, or on a Dask cluster.

The C libraries below (HDF5, OpenSlide, GLib) can be crashed, or sent into an endless loop, by a few wrong bytes in a file. So files are read in
worker processes; an item that crashes or blocks its worker is tried once more, alone, and then named; the others go on.
"""

import logging
import math
import multiprocessing
import os
import pickle
import re
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from concurrent.futures import BrokenExecutor, Future, ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import count, islice
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from panther.errors import DiskFullError, InputError, NotABagError, describe, note
from panther.machine import (
    allow_threads,
    cores,
    enable_read_limit,
    exit_reason,
    keep_freed_memory,
    kernel_threads,
    process_context,
    read_limit,
)
from panther.registry import PLUGINS, load_plugins

logger = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

MAX_OVERHEAD = 0.25  # largest share of its time that this process may spend on submitting tasks
MIN_SECONDS = 0.1  # of a task, however few the workers are: a worker waits a millisecond or two for the next one
MAX_ITEMS = 512  # of a task
TASKS_PER_WORKER = 4  # running or waiting, so that no worker is idle while results are collected
MIN_IN_FLIGHT = 64  # items that are submitted at least: one that takes long must not stop those after it
MAX_WAITING = 512 << 20  # bytes of results that may wait for an earlier one
LOCK_SECONDS = 10.0  # a worker that is killed while it takes a task keeps the lock of the pipe; pebble waits a minute for it, twice
ATTEMPTS = 2  # of an item that crashes its worker; the second one alone
UNGUARDED = 96  # exit code of a worker that was about to start workers while it imported the script

Track = Callable[[Iterable[Any], str, int], Iterable[Any]]  # a progress bar around an iteration: items, what, how many


def untracked(items: Iterable[Any], what: str, total: int) -> Iterable[Any]:
    """No progress bar."""
    return items


class WorkerLostError(Exception):
    """The worker of a task died or did not finish a read; the text completes `NAME: ...`."""


class Pool:
    """Where tasks run. ``ship`` makes a function known to all workers once; ``submit`` calls it on a batch of items."""

    workers: int  # tasks that run at the same time
    seconds_per_task = 0.0  # that this process spends on each task (benchmarks/scale.py)

    def ship(self, function: Callable[[Any], Any]) -> AbstractContextManager[Any]:
        """Context manager: a handle of the function for `submit`."""
        return nullcontext(function)

    def submit(self, handle: Any, batch: Sequence[Any], threads: int, first: int) -> "Future[Any]":
        """Run the function on every item of a batch, whose first item has position ``first``."""
        raise NotImplementedError

    def result(self, future: "Future[Any]") -> Any:
        """List of ItemResult, pickled with the seconds of the task where it comes from another process; WorkerLostError where its worker died."""
        return future.result()


@dataclass(frozen=True)
class Work:
    """How work is run: by which pool, on which device, with which progress bar. One value for everything that takes long."""

    executor: Any = None  # a Pool; None: this process
    device: str = "cpu"
    track: Track = untracked

    def on_cpu(self) -> "Work":
        """The same for work that does not use a GPU."""
        executor = self.executor.for_work(gpu=False) if hasattr(self.executor, "for_work") else self.executor
        return replace(self, device="cpu", executor=executor)


LOCAL = Work()  # in this process, without a progress bar


@dataclass(frozen=True)
class ItemResult(Generic[R]):
    """Value of one item, or the reason why there is none: text, because not every exception can be pickled."""

    index: int  # position of the item
    value: R | None = None
    reason: str | None = None
    skipped: bool = False  # no failure: the item holds something else (a file of coordinates among bags)
    traceback: str = ""


@dataclass(frozen=True)
class Launched(Generic[R_co]):
    """A value that a GPU is still computing; the next items of the task begin before it is waited for."""

    wait: Callable[[], R_co]
    is_ready: Callable[[], bool]


Function = Callable[[T], R | Launched[R]]


def run(
    function: Function[T, R], items: Sequence[T], what: str, work: Work = LOCAL, ahead: int | None = None
) -> Iterable[ItemResult[R]]:
    """Results of all items in their order, counted by the progress bar ``what``; ``ahead`` as in :func:`map_slides`."""
    return work.track(map_slides(function, items, work.executor, ahead), what, len(items))


def collect(
    function: Function[T, R], items: Sequence[T], what: str, work: Work = LOCAL
) -> tuple[dict[str, R], dict[str, str]]:
    """Values by the names of their items, and the reason for each item that failed."""
    failures: dict[str, str] = {}
    values = {name_of(items[index]): value for index, value in stream(function, items, what, work, failures)}
    return values, failures


def map_all(function: Function[T, R], items: Sequence[T], what: str, work: Work = LOCAL) -> list[R]:
    """Values of all items, in their order; the first failure is raised."""
    values = []
    for result in run(function, items, what, work):
        if result.reason is not None:
            raise InputError(result.reason)
        values.append(cast(R, result.value))
    return values


def stream(
    function: Function[T, R],
    items: Sequence[T],
    what: str,
    work: Work,
    failures: dict[str, str],
    skipped: set[str] | None = None,
    ahead: int | None = None,
) -> Iterator[tuple[int, R]]:
    """Positions and values of the items that succeed, in their order, as they come; the others are written into ``failures``.

    An item that holds something else (a file of coordinates among bags) is no failure, unless it is the only item; its name is
    added to ``skipped``.
    """
    for result in run(function, items, what, work, ahead):
        if result.reason is None:
            yield result.index, cast(R, result.value)
        elif result.skipped and len(items) > 1:
            if skipped is not None:
                skipped.add(name_of(items[result.index]))
        else:
            failures[name_of(items[result.index])] = result.reason


def map_slides(
    function: Function[T, R], items: Iterable[T], pool: Any = None, ahead: int | None = None
) -> Iterator[ItemResult[R]]:
    """Yield the result of each item, in the items' order, whatever the pool.

    Every call runs with one torch thread: many slides side by side beat many threads on one slide, and the bytes of a
    result do not depend on the worker. Where there are fewer slides than workers, or this process is the only one, the
    compiled kernel, whose bytes do not depend on threads, uses the idle ones. A bounded number of items is in flight, so memory does
    not grow with the cohort; ``ahead`` bounds it further where results are large, though every core keeps its work.
    """
    if pool is None:
        return map(partial(attempt, function, kernel_threads()), count(), items)
    return _pooled(function, items, ThreadPool(pool) if isinstance(pool, ThreadPoolExecutor) else pool, ahead)


def _pooled(function: Function[T, R], items: Iterable[T], pool: Pool, ahead: int | None) -> Iterator[ItemResult[R]]:
    threads = max(1, pool.workers // (len(items) if isinstance(items, Sized) and len(items) else pool.workers))
    batches = Batches(items, pool, ahead)
    pending: deque[tuple[int, list[T], Future[Any]]] = deque()  # position of the first item, items, task
    first = done = 0  # items that were submitted, items whose results were collected

    def results_of(first: int, batch: list[T], task: "Future[Any]", attempts: int = 1) -> list[ItemResult[R]]:
        """Results of a task; where its worker died, of each item alone."""
        try:
            results = pool.result(task)
        except WorkerLostError as error:
            if attempts == ATTEMPTS:
                return [ItemResult(first, reason=f"{name_of(batch[0])}: {error}")]
            again = [(n, [item], pool.submit(handle, [item], threads, n)) for n, item in enumerate(batch, first)]
            return [result for retry in again for result in results_of(*retry, attempts + 1)]
        if not isinstance(results, bytes):
            return results
        size = len(results)
        results, seconds = pickle.loads(results)
        batches.learn(len(batch), seconds, size)
        return list(map(_logged, results))

    with pool.ship(function) as handle:
        try:
            while (batch := [] if batches.full(first - done) else batches.next()) or pending:
                if batch:
                    pending.append((first, batch, pool.submit(handle, batch, threads, first)))
                    first += len(batch)
                else:
                    done += len(pending[0][1])
                    yield from results_of(*pending.popleft())
        except BrokenExecutor as error:
            reason = str(error) or type(error).__name__
            raise InputError(
                f'worker processes: failed ({reason}); a script that uses them works under `if __name__ == "__main__":`'
            ) from error
        finally:
            for _, _, task in pending:
                task.cancel()


def attempt(function: Function[T, R], threads: int, index: int, item: T, *, wait: bool = True) -> ItemResult[R]:
    """Result of one item, computed with one torch thread and ``threads`` threads of the compiled kernel."""
    try:
        with one_thread(), allow_threads(threads):
            value = function(item)
            return ItemResult(index, value.wait() if wait and isinstance(value, Launched) else cast(R, value))
    except DiskFullError:  # every item after this one would fail too
        raise
    except Exception as error:  # one slide must not stop ten thousand
        skipped = isinstance(error, NotABagError)
        return _logged(ItemResult(index, None, describe(error, name_of(item)), skipped, traceback.format_exc()))


def attempt_all(function: Function[T, R], items: Sequence[T], threads: int = 1, first: int = 0) -> list[ItemResult[R]]:
    """Results of the items of a task; values that a GPU computes are taken when ready, and waited for when all items have begun."""
    results: list[ItemResult[Any]] = []
    launched: deque[tuple[int, Launched[R]]] = deque()  # and the item's place

    def take() -> None:
        place, value = launched.popleft()
        results[place] = attempt(lambda _: value.wait(), threads, first + place, items[place])

    for place, item in enumerate(items):
        results.append(attempt(function, threads, first + place, item, wait=False))
        if isinstance(pending := results[place].value, Launched):
            launched.append((place, pending))
        while launched and launched[0][1].is_ready():
            take()
    while launched:
        take()
    return results


def attempt_and_pickle(function: Function[T, R], items: Sequence[T], threads: int, first: int) -> bytes:
    """The same with the seconds it took, pickled for another process, so that their size is known."""
    start = time.perf_counter()
    results = attempt_all(function, items, threads, first)
    return pickle.dumps((results, time.perf_counter() - start))


def _logged(result: ItemResult[R]) -> ItemResult[R]:
    """The result, after its error was logged in this process (shown with -v)."""
    if result.skipped:
        logger.info("Passed over: %s", result.reason)
    elif result.traceback:
        logger.debug("%s", result.traceback)
    return result


def name_of(item: Any) -> str:
    """Name of an item in a message: of the slide or patient that it is, or holds."""
    parts = (item, *item) if isinstance(item, tuple) else (item,)
    return str(next((part.sample for part in parts if hasattr(part, "sample")), item))


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit torch to one thread."""
    import torch  # here: starting workers needs none

    before = torch.get_num_threads()
    if before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Batches(Generic[T]):
    """Items in their order, a few at a time: how many is learned from the time and the size of the first results.

    One process submits all tasks. With w workers and tasks of t seconds it submits w / t of them per second, so tasks must be the longer
    the more workers there are, or the workers wait for it. ``ahead`` bounds the items in flight, as far as no worker is idle because of it.
    """

    def __init__(self, items: Iterable[T], pool: Any, ahead: int | None = None) -> None:
        self._items, self._pool, self._ahead = iter(items), pool, ahead
        self._left = len(items) if isinstance(items, Sized) else None
        self._seconds, self._bytes = 0.0, 0.0  # of one item; 0 bytes: none has come back, or their size is not known

    def next(self) -> list[T]:
        """Return the items of the next task; none at the end."""
        batch = list(islice(self._items, self._size()))
        if self._left is not None:
            self._left -= len(batch)
        return batch

    def full(self, in_flight: int) -> bool:
        """Whether results should be collected before more items are submitted."""
        wanted = max(MIN_IN_FLIGHT, TASKS_PER_WORKER * self._pool.workers * self._size())
        return in_flight >= max(min(wanted, self._room()), 2 * self._pool.workers)

    def learn(self, items: int, seconds: float, size: int) -> None:
        """Account for a task of ``items`` items that took ``seconds`` and has results of ``size`` bytes."""
        # one that took longer counts at once and is forgotten slowly: large slides among small ones must not travel by the dozen
        self._seconds = max(seconds / items, 0.9 * self._seconds + 0.1 * seconds / items)
        self._bytes = max(size / items, 0.9 * self._bytes + 0.1 * size / items)

    def _size(self) -> int:
        if self._bytes == 0:
            return 1
        seconds, workers, overhead = max(self._seconds, 1e-9), self._pool.workers, self._pool.seconds_per_task
        if overhead:
            # Two tasks for each of w workers, so long that submitting keeps up, hold 2 w (w overhead / MAX_OVERHEAD / seconds) results.
            # Where these do not fit, fewer workers are kept busy instead of all of them waiting often.
            workers = min(workers, max(1, math.isqrt(int(self._room() * MAX_OVERHEAD * seconds / overhead / 2))))
        task = max(MIN_SECONDS, workers * overhead / MAX_OVERHEAD)
        size = min(MAX_ITEMS, math.ceil(task / seconds), self._room() // (2 * workers))
        if self._left is not None:  # the last ones in small portions, so that all workers end together
            size = min(size, self._left // (2 * self._pool.workers))
        return max(1, size)

    def _room(self) -> int:
        room = int(MAX_WAITING / max(self._bytes, 1.0))
        return room if self._ahead is None else min(room, self._ahead)


class ThreadPool(Pool):
    """Threads of this process, for functions that wait for something else: several GPUs, or worker processes of their own."""

    def __init__(self, threads: ThreadPoolExecutor) -> None:
        self._threads, self.workers = threads, max(cores(), 16)

    def submit(self, handle: Callable[[Any], Any], batch: Sequence[Any], threads: int, first: int) -> "Future[Any]":
        """Run it in a thread."""
        return self._threads.submit(attempt_all, handle, batch, 1, first)


class ProcessPool(Pool):
    """Worker processes of this machine; a worker that crashes or blocks costs the items of its task at most (pebble)."""

    seconds_per_task = 3e-4

    def __init__(
        self,
        workers: int,
        initializer: Callable[..., None] | None = None,
        initargs: tuple = (),
        preload: Sequence[str] = (),
    ) -> None:
        import pebble

        if getattr(multiprocessing.current_process(), "_inheriting", False):
            os._exit(UNGUARDED)  # a script that starts its work when a worker imports it: the parent reports it
        pebble.CONSTS.channel_lock_timeout = LOCK_SECONDS
        self.workers = workers
        arguments = (read_limit(), tuple(PLUGINS), initializer, initargs)
        context: Any = process_context(*preload)
        self._start = partial(
            pebble.ProcessPool, workers, initializer=_begin_worker, initargs=arguments, context=context
        )
        self._pool = self._start()
        self._lock = threading.Lock()
        self._broken = 0  # pools one after the other that broke without a result

    @contextmanager
    def ship(self, function: Callable[[Any], Any]) -> Iterator[str]:
        """Pickle the function once, into a file that each worker loads once: it may hold a whole table, or many prototypes."""
        handle, path = tempfile.mkstemp(prefix="panther-")
        try:
            with open(handle, "wb") as file:
                pickle.dump(function, file)
            yield path
        finally:
            Path(path).unlink(missing_ok=True)

    def submit(self, handle: str, batch: Sequence[Any], threads: int, first: int) -> "Future[Any]":
        """Run the shipped function in a worker."""
        return self.schedule(_run_shipped, handle, batch, threads, first)

    def schedule(self, function: Callable[..., Any], *arguments: Any) -> "Future[Any]":
        """Call any function in a worker."""
        with self._lock:
            if not self._pool.active:  # all idle workers were killed
                self._replace()
            return self._pool.schedule(function, args=arguments)

    def result(self, future: "Future[Any]") -> Any:
        """Result of a task."""
        import pebble

        try:
            value = future.result()
        except pebble.ProcessExpired as error:
            raise WorkerLostError(exit_reason(error.exitcode)) from error
        except BrokenExecutor as error:
            with self._lock:
                if not self._pool.active:  # by an earlier task, it has been replaced already
                    self._broken += 1
                    self._replace()
                if self._broken >= ATTEMPTS:
                    raise
            raise WorkerLostError("all worker processes were killed; memory may be too short") from error
        self._broken = 0
        return value

    def close(self) -> None:
        """End the workers; tasks that run are stopped."""
        self._pool.stop()
        self._pool.join()

    def _replace(self) -> None:
        """Start a new pool in the place of a broken one, of which workers may be left."""
        self.close()
        self._pool = self._start()


def _run_shipped(path: str, *task: Any) -> bytes:
    return attempt_and_pickle(_load_shipped(path), *task)


@lru_cache(maxsize=4)
def _load_shipped(path: str) -> Callable[[Any], Any]:
    return pickle.loads(Path(path).read_bytes())


def _begin_worker(
    limit: float, plugins: Sequence[Path], initializer: Callable[..., None] | None, initargs: tuple
) -> None:
    """First call in a worker process: it leaves Ctrl-C to its parent and ends with it."""
    import pebble

    pebble.CONSTS.channel_lock_timeout = LOCK_SECONDS
    keep_freed_memory()
    enable_read_limit(limit)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    load_plugins(plugins)
    if initializer is not None:
        initializer(*initargs)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


AUTO = "auto"
SMALL_JOB = 500e6  # bytes of features that one process reads faster than several start
GPU_PROCESSES = 15  # that feed a GPU by default, at most
GPU_MEMORY = 1e9  # bytes of a GPU's memory for each of them
MANY_CORES = 8


def parse_workers(workers: int | str) -> int | str:
    """Number of processes (0: one per core), "auto", or the place of a cluster, ``tcp://HOST:PORT`` or ``slurm:OPTIONS.yaml``."""
    if isinstance(workers, str) and (workers == AUTO or re.fullmatch(r"\w+://.+|slurm:.+", workers)):
        return workers
    try:
        count = int(workers)
    except ValueError:
        count = -1
    if count < 0:
        raise InputError(
            f"workers: found {workers!r}, expected auto, a number of processes (0: one per core), tcp://HOST:PORT or slurm:OPTIONS.yaml"
        )
    return count


def part_of(items: tuple[T, ...], part: str) -> tuple[T, ...]:
    """Items of one task of a job array: every n-th, `2/8` from the second on; all of them for an empty ``part``."""
    if not part:
        return items
    match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", part)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise InputError(f"part: found {part!r}, expected k/n with k from 1 to n, e.g. 2/8")
    return items[int(match[1]) - 1 :: int(match[2])]


@contextmanager
def open_executor(workers: int | str = 0) -> Iterator[Any]:
    """Pool of ``workers`` processes of this machine, or of the workers of a Dask cluster (see :func:`parse_workers`)."""
    workers = parse_workers(workers)
    if isinstance(workers, str) and workers != AUTO:
        from panther.cluster import open_cluster

        with open_cluster(workers) as pool:
            yield pool
        return
    if getattr(sys.modules.get("__main__"), "__file__", None) == "<stdin>":  # as multiprocessing sees it
        raise InputError("workers: a script on standard input cannot start worker processes; save it as a file")
    processes = ProcessPool(cores() if workers in (0, AUTO) else int(workers))
    try:
        yield processes
    finally:
        processes.close()


@dataclass
class Session:
    """Defaults of this process, set by the command line."""

    track: Track = untracked
    is_command: bool = False


SESSION = Session()


@contextmanager
def open_work(
    workers: int | str = AUTO, bags: Iterable[Any] | None = None, *, device: str = AUTO, track: Track | None = None
) -> Iterator[Work]:
    """Pool and device of a verb: 1 worker is this process, "auto" as many processes as suit these bags (None: one per core)."""
    track = track or SESSION.track
    if is_cluster(workers):
        with open_executor(workers) as pool:
            device = cluster_device(pool, device)
            yield Work(pool.for_work(gpu=device != "cpu"), device, track)
        return
    device = find_device(device)
    processes = count_processes(workers, bags, device)
    with open_executor(processes) if processes else nullcontext() as executor:
        yield Work(executor, device, track)


def is_cluster(workers: int | str) -> bool:
    """Whether the workers are those of a Dask cluster."""
    workers = parse_workers(workers)
    return isinstance(workers, str) and workers != AUTO


def count_processes(workers: int | str, bags: Iterable[Any] | None, device: str = "cpu") -> int:
    """Number of worker processes of this machine, for "auto" as many as suit these bags; 0 is this process.

    A GPU is fed by as many processes as there are cores; of many cores one is for this process, which collects the results.
    Every worker imports the script that started it, so scripts, which may lack a guard, default to this process.
    """
    workers = parse_workers(workers)
    if not isinstance(workers, str):
        return {0: cores(), 1: int(SESSION.is_command)}.get(workers, workers)
    is_small = bags is not None and sum(p.stat().st_size for b in bags for p in b.files if p.exists()) < SMALL_JOB
    if not SESSION.is_command and (is_small or not hasattr(sys, "ps1")):  # a notebook is no script
        return 0
    if is_small:
        return 1  # which survives, unlike this one, a file that crashes its reader
    if device == "cpu":
        return cores()
    import torch

    most = min(GPU_PROCESSES, cores() - (cores() >= MANY_CORES))
    if torch.device(device).type == "cuda":  # others do not report free memory
        most = min(most, int(torch.cuda.mem_get_info(device)[0] / GPU_MEMORY))
    return max(1, most)


def cluster_device(pool: Any, device: str) -> str:
    """Device of the workers of a cluster: their GPUs where they announce any, else their CPUs."""
    if device == AUTO and pool.has_gpus:
        note("computing on the workers that announce a GPU; device=cpu uses the others")
    if device.partition(":")[0] == "cuda" and not pool.has_gpus:
        raise InputError(
            f"device: found {device}, but no worker of {pool.address} announces a GPU (dask worker ... --resources GPU=1)"
        )
    return ("cuda" if pool.has_gpus else "cpu") if device == AUTO else device


def find_device(device: str) -> str:
    """Device to compute on, tried before the work; `auto` is a GPU that works, else the CPU."""
    if device == "cpu":
        return device
    import torch

    if device == AUTO and not torch.cuda.is_available():
        return "cpu"
    used = "cuda" if device == AUTO else device
    try:
        torch.zeros(1, device=used).item()  # `meta` is a device that holds no numbers
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        if device == AUTO:  # a card that is there but full, or broken
            note(f"computing on the CPU, the GPU cannot be used ({reason})")
            return "cpu"
        raise InputError(f"device: {device} cannot be used here ({reason})") from error
    if device == AUTO:
        note(f"computing on the GPU ({torch.cuda.get_device_name()}); device=cpu leaves it alone")
    return used


def side_by_side(calls: Sequence[Callable[[], R]]) -> list[R]:
    """Values of calls that mostly wait for workers, each in a thread; the first error is raised.

    The threads are daemons: an interrupted command does not wait for them, and they end with the workers.
    """
    futures: list[Future[R]] = [Future() for _ in calls]

    def run(future: "Future[R]", call: Callable[[], R]) -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    for task in zip(futures, calls, strict=True):
        threading.Thread(target=run, args=task, daemon=True).start()
    for future in as_completed(futures):
        future.result()  # raises the first error
    return [future.result() for future in futures]
