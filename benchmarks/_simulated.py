"""A discrete-event simulation of a walk over many slides by many workers, from measured costs.

It follows `panther.engine` step by step: one process submits tasks and collects results in the order of the slides, by the rules of
the product itself (`panther.engine.Batches`); tasks wait in one queue and go to whoever is free first.
"""

import heapq
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from panther import engine
from panther.engine import Batches

BLOCK = 100_000  # durations drawn at a time


@dataclass(frozen=True)
class Costs:
    """What was measured."""

    task: float  # seconds of the process that hands out, for one task
    item: float  # seconds of that process for one item and its result
    delay: float = 0.0  # seconds between the end of a task and the begin of the next one on the same worker
    network: float = 1.25e9  # bytes a second into that process (10 Gbit/s)


@dataclass(frozen=True)
class Load:
    """What is to be done."""

    items: int
    seconds: float  # of one item, on average
    spread: float = 0.5  # of the logarithm; slides differ in size
    result: int = 1000  # bytes of one result


@dataclass(frozen=True)
class Outcome:
    """How it went."""

    seconds: float
    efficiency: float  # part of their time that the workers computed
    busy: float  # part of its time that the process that hands out was busy
    tasks: int
    largest: int  # items of a task
    waiting: int  # largest number of items on their way
    memory: float  # bytes of results that may wait at once


class _Simulated:
    def __init__(self, workers: int, hand_out: float) -> None:
        self.workers, self.seconds_per_task = workers, hand_out


@contextmanager
def one_per_task() -> Iterator[None]:
    """No batches: every item is a task."""
    most, engine.MAX_ITEMS = engine.MAX_ITEMS, 1
    try:
        yield
    finally:
        engine.MAX_ITEMS = most


def simulate(load: Load, workers: int, costs: Costs, hand_out: float, seed: int = 0) -> Outcome:
    """Walk over the items; ``hand_out`` is what the product believes a task costs."""
    portions = Batches(range(load.items), _Simulated(workers, hand_out))
    durations = _durations(load, seed)
    free = [0.0] * workers  # when each worker is free again
    pending: deque[tuple[int, float, float]] = deque()  # items, when they are done, how long they took
    clock = busy = work = 0.0
    under_way = most = tasks = largest = 0

    def spend(seconds: float) -> None:
        nonlocal clock, busy
        clock, busy = clock + seconds, busy + seconds

    def collect() -> None:
        nonlocal clock, under_way
        items, done, took = pending.popleft()
        clock = max(clock, done)
        spend(items * (costs.item + load.result / costs.network))
        under_way -= items
        portions.learn(items, took, items * load.result)

    while batch := portions.next():
        spend(costs.task)
        took = float(sum(next(durations) for _ in batch))
        begin = max(clock, heapq.heappop(free))
        heapq.heappush(free, begin + took + costs.delay)
        pending.append((len(batch), begin + took, took))
        work, tasks, largest = work + took, tasks + 1, max(largest, len(batch))
        under_way += len(batch)
        most = max(most, under_way)
        while portions.full(under_way):
            collect()
    while pending:
        collect()
    return Outcome(clock, work / (workers * clock), busy / clock, tasks, largest, most, most * load.result)


def _durations(load: Load, seed: int) -> Iterator[float]:
    """Times of items, drawn from a lognormal distribution with the given mean."""
    rng, centre = np.random.default_rng(seed), np.log(load.seconds) - load.spread**2 / 2
    while True:
        yield from rng.lognormal(centre, load.spread, BLOCK).tolist()
