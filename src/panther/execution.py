"""Map a function over slides: in this process, in worker processes, or on a cluster, behind one interface.

Anything with the ``concurrent.futures.Executor`` interface will do.
"""

import logging
import pickle
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from panther.attempts import (
    Done,
    Launched,
    Result,
    attempt,
    attempt_all,
    attempt_and_pack,
    name_of,
    one_thread,
    settled,
)
from panther.errors import InputError
from panther.workers import (
    Batches,
    GuardedPool,
    SentOnce,
    TaskLostError,
    Team,
    UnguardedScriptError,
    cores,
    kernel_threads,
    process_context,
)

if TYPE_CHECKING:
    from panther.clusters.slurm import SlurmOptions

logger = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R")

Track = Callable[[Iterable[Any], str, int], Iterable[Any]]  # a progress bar around an iteration: items, what, how many


def untracked(items: Iterable[Any], what: str, total: int) -> Iterable[Any]:
    """No progress bar."""
    return items


@dataclass(frozen=True)
class Work:
    """How work is run: by which executor, on which device, with which progress bar. One value for everything that takes long."""

    executor: Executor | None = None  # None: this process
    device: str = "cpu"
    track: Track = untracked

    def on_cpu(self) -> "Work":
        """The same for work that a GPU is not for."""
        executor = self.executor.for_work(gpu=False) if isinstance(self.executor, Team) else self.executor
        return replace(self, device="cpu", executor=executor)


DASK_LOST = "KilledWorker"  # Dask's error where every worker that had the task died

HERE = Work()  # in this process, without a progress bar


@dataclass(frozen=True)
class ItemResult(Generic[R]):
    """What became of one item: a value, or the reason why there is none."""

    index: int  # position of the item
    value: R | None = None
    reason: str | None = None  # a sentence
    skipped: bool = False  # no failure: the item was never meant (a file of coordinates among bags)


def collect(
    function: Callable[[T], R | Launched[R]], items: Sequence[T], what: str, work: Work = HERE
) -> tuple[dict[str, R], dict[str, str]]:
    """Values by the names of their items, and a sentence for each item that failed."""
    failures: dict[str, str] = {}
    values = {name_of(items[index]): value for index, value in stream(function, items, what, work, failures)}
    return values, failures


def map_all(function: Callable[[T], R | Launched[R]], items: Sequence[T], what: str, work: Work = HERE) -> list[R]:
    """Values of all items, in their order; the first that fails is raised."""
    values = []
    for result in work.track(map_slides(function, items, work.executor), what, len(items)):
        if result.reason is not None:
            raise InputError(result.reason)
        values.append(result.value)
    return values


def stream(
    function: Callable[[T], R | Launched[R]],
    items: Sequence[T],
    what: str,
    work: Work,
    failures: dict[str, str],
    skipped: set[str] | None = None,
    ahead: int | None = None,
) -> Iterator[tuple[int, R]]:
    """Positions and values of the items that went well, in their order, as they come; the others are written into ``failures``.

    An item that was never meant (a file of coordinates among bags) is no failure, unless it was the only one asked for; its name is
    added to ``skipped``. ``ahead`` as in :func:`map_slides`.
    """
    for result in work.track(map_slides(function, items, work.executor, ahead), what, len(items)):
        name = name_of(items[result.index])
        if result.reason is None:
            yield result.index, result.value
        elif result.skipped and len(items) > 1:
            if skipped is not None:
                skipped.add(name)
        else:
            failures[name] = result.reason


def map_slides(
    function: Callable[[T], R | Launched[R]],
    items: Iterable[T],
    executor: Executor | None = None,
    ahead: int | None = None,
) -> Iterator[ItemResult[R]]:
    """Yield the result of each item, in the items' order, whatever the executor.

    Every call runs with one torch thread: many slides side by side beat many threads on one slide, and the bytes of a
    result do not depend on who computed it. Where there are fewer slides than workers, or this process is the only one, the
    compiled kernel, whose bytes do not depend on threads, has those that are idle. A function may return what it has
    launched on a GPU: it is waited for when the other items of the task have begun. An item that fails does not stop the others. A
    bounded number of items is in flight, so memory does not grow with the cohort; ``ahead`` bounds it further where
    results are large, though every core keeps its work.
    """
    for index, result in enumerate(_results(function, items, executor, ahead)):
        yield _as_result(index, result)


def _results(
    function: Callable[[T], R | Launched[R]], items: Iterable[T], executor: Executor | None, ahead: int | None
) -> "Iterator[Result]":
    """What comes back for each item, in the items' order."""
    if executor is None:
        threads = kernel_threads()
        with one_thread():
            for item in items:
                yield settled(attempt(function, item, threads), item)
        return
    batches = Batches(items, executor, ahead)
    task: Any = partial(attempt_all, function)
    if isinstance(executor, Team):
        count = len(items) if isinstance(items, Sized) and len(items) else executor.workers
        threads = max(1, executor.workers // count) if isinstance(executor, GuardedPool) else 1
        task = SentOnce.of(partial(attempt_and_pack, function, threads=threads))

    def submit(batch: list[T]) -> "Future[Done]":
        return executor.submit(task, batch)

    pending: deque[tuple[list[T], Future[Done]]] = deque()
    under_way = 0
    try:
        while batch := batches.next():
            pending.append((batch, submit(batch)))
            under_way += len(batch)
            while batches.full(under_way):
                under_way -= len(pending[0][0])
                yield from _collected(*pending.popleft(), batches, submit)
        while pending:
            yield from _collected(*pending.popleft(), batches, submit)
    except UnguardedScriptError as error:
        raise InputError(str(error)) from None
    except BrokenExecutor as error:
        raise InputError(
            "Worker processes cannot be started, or were ended; what was finished is kept: run the command again to go on, "
            "with fewer `workers=` if memory was short."
        ) from error
    finally:
        for _, future in pending:
            future.cancel()


def _collected(
    items: "list[T]", future: "Future[Done]", batches: "Batches[T]", submit: "Callable[[list[T]], Future[Done]]"
) -> "list[Result]":
    """Results of the items of a task, also where one of them cost the worker its life."""
    try:
        done = future.result()
    except Exception as error:
        if not isinstance(error, TaskLostError) and type(error).__name__ != DASK_LOST:
            raise
        if len(items) > 1:  # each alone: the one that did it is named, the others are done
            again = [([item], submit([item])) for item in items]
            return [result for one in again for result in _collected(*one, batches, submit)]
        name = name_of(items[0])
        if isinstance(error, TaskLostError):
            return [Result(None, error.sentence(name))]
        return [
            Result(None, f"{name}: every worker that had it died, again and again; memory may be too short for it.")
        ]
    batches.learn(len(items), done.seconds, done.size)
    return pickle.loads(done.results) if done.size else done.results


@contextmanager
def open_work(
    workers: int = 0, cluster: "str | SlurmOptions | None" = None, *, device: str = "cpu", track: Track = untracked
) -> Iterator[Work]:
    """The same as :func:`open_executor`, with a device and a progress bar."""
    with open_executor(workers, cluster) as executor:
        yield Work(executor, device, track)


@contextmanager
def open_executor(workers: int = 0, cluster: "str | SlurmOptions | None" = None) -> Iterator[Executor]:
    """Executor for ``workers`` processes (0: one per core), or for a Dask ``cluster`` (see :mod:`panther.clusters`).

    One worker is a process of its own, too: a file that crashes the library that reads it must not end the command.
    """
    if cluster is not None:
        from panther.clusters.opening import open_cluster

        with open_cluster(cluster, workers) as executor:
            yield executor
        return
    if getattr(sys.modules.get("__main__"), "__file__", None) == "<stdin>":  # as multiprocessing finds it
        raise InputError(
            "Worker processes import the script that starts them, and this one was typed or piped into python, which leaves no file: save it "
            "as a file, or leave out `workers=` to work in this process."
        )
    workers = workers or cores()
    if workers < 0:
        raise InputError(f"`workers={workers}` makes no sense; give 0 for one per core, or a number of processes.")
    pool = GuardedPool(workers, process_context())
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _as_result(index: int, result: Result) -> ItemResult[Any]:
    if result.skipped:
        logger.info("Passed over: %s", result.reason)
    elif result.traceback:
        logger.debug("%s", result.traceback)  # shown with -v
    return ItemResult(index, result.value, result.reason, result.skipped)
