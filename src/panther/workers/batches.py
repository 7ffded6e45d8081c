"""Small items travel together. How many is known once the first have come back: by the time they take, and the room of their results.

One process hands out all tasks. With w workers and tasks of t seconds it does so w / t times a second, so tasks must be the longer the
more workers there are, or the workers wait for it.
"""

import math
from collections.abc import Iterable, Sized
from concurrent.futures import Executor
from itertools import islice
from typing import Generic, TypeVar

from panther.workers.team import Team
from panther.workers.threads import cores

T = TypeVar("T")

BUSY = 0.25  # most of its time that the process may spend on handing out
SHORTEST = 0.1  # seconds of a task, however few the workers are: for the next one a worker waits a millisecond or two
MOST = 512  # items of a task
EACH = 4  # tasks in hand or waiting for each worker, so that none is idle while results are collected
LEAST = 64  # items on their way at least: one that takes long must not stop those after it
WAITING = 512 << 20  # bytes of results that may wait for an earlier one


class Batches(Generic[T]):
    """Items in their order, a few at a time; it learns from those that are done how many the next are.

    ``ahead`` bounds the items that are on their way, as far as no worker gets idle by it.
    """

    def __init__(self, items: Iterable[T], executor: Executor, ahead: int | None = None) -> None:
        self._items, self._executor, self._ahead = iter(items), executor, ahead
        self._left = len(items) if isinstance(items, Sized) else None
        self._seconds, self._bytes = 0.0, 0.0  # of one item; 0 bytes: none has come back, or their size is not known

    def next(self) -> list[T]:
        """Return the items of the next task; none at the end."""
        batch = list(islice(self._items, self._size()))
        if self._left is not None:
            self._left -= len(batch)
        return batch

    def full(self, under_way: int) -> bool:
        """Whether results should be collected before more items are handed out."""
        wanted = max(LEAST, EACH * self._workers * self._size())
        return under_way >= max(min(wanted, self._room()), 2 * self._workers)

    def learn(self, items: int, seconds: float, size: int) -> None:
        """Say that a task of so many items took so long, and its results so many bytes."""
        # one that took longer counts at once and is forgotten slowly: large slides among small ones must not travel by the dozen
        self._seconds = _slowly_down(self._seconds, seconds / items)
        self._bytes = _slowly_down(self._bytes, size / items)

    def _size(self) -> int:
        if self._bytes == 0:
            return 1
        seconds, workers = max(self._seconds, 1e-9), self._workers
        if self._hand_out:
            # Two tasks for each of w workers, so long that handing out keeps up, hold 2 w (w hand_out / BUSY / seconds) results.
            # Where these do not fit, fewer workers are fed well instead of all of them badly.
            workers = min(workers, max(1, math.isqrt(int(self._room() * BUSY * seconds / self._hand_out / 2))))
        task = max(SHORTEST, workers * self._hand_out / BUSY)
        size = min(MOST, math.ceil(task / seconds), self._room() // (2 * workers))
        if self._left is not None:  # the last ones in small portions, so that all workers end together
            size = min(size, self._left // (2 * self._workers))
        return max(1, size)

    def _room(self) -> int:
        room = int(WAITING / max(self._bytes, 1.0))
        return room if self._ahead is None else min(room, self._ahead)

    @property
    def _workers(self) -> int:
        return self._executor.workers if isinstance(self._executor, Team) else max(cores(), 16)

    @property
    def _hand_out(self) -> float:
        return self._executor.hand_out if isinstance(self._executor, Team) else 0.0


def _slowly_down(old: float, new: float) -> float:
    return max(new, 0.9 * old + 0.1 * new)
