"""Small items travel together: how many, and what becomes of those whose neighbour kills the worker."""

import os
import signal
from itertools import pairwise

from panther.engine import MAX_ITEMS, MAX_OVERHEAD, MAX_WAITING, Batches, map_slides, open_executor


class Idle:
    """A team of a size and a cost; nothing is handed to it."""

    def __init__(self, workers: int, hand_out: float) -> None:
        self.workers, self.seconds_per_task = workers, hand_out


def sizes(count: int, team: Idle, seconds: float, result: int = 100, ahead: int | None = None) -> list[int]:
    """Sizes of all tasks, where each is learnt from before the next is made."""
    batches, actual = Batches(range(count), team, ahead), []
    while batch := batches.next():
        actual.append(len(batch))
        batches.learn(len(batch), seconds * len(batch), result * len(batch))
    return actual


def test_long_items_travel_alone_and_short_ones_by_the_dozen():
    assert set(sizes(200, Idle(2, 1e-4), seconds=1.0)) == {1}
    assert max(sizes(20_000, Idle(2, 1e-4), seconds=1e-3)) in (100, 101)
    assert max(sizes(20_000, Idle(2, 1e-4), seconds=0.0)) == MAX_ITEMS


def test_the_more_workers_the_longer_the_tasks_so_that_handing_out_keeps_up():
    cost, seconds = 2e-3, 0.05
    for workers in (10, 50, 200):
        largest = max(sizes(200_000, Idle(workers, cost), seconds))
        tasks_per_second = workers / (largest * seconds)
        assert tasks_per_second * cost <= MAX_OVERHEAD * 1.1


def test_the_last_items_go_in_small_portions():
    actual = sizes(20_000, Idle(4, 1e-3), seconds=1e-4)
    assert actual[-1] == 1
    assert all(b <= a for a, b in pairwise(actual[1:]))


def test_large_results_bound_the_items_in_flight():
    team, large = Idle(4, 1e-3), MAX_WAITING // 100
    assert max(sizes(1000, team, seconds=1e-4, result=large)) <= 100 // 2
    batches = Batches(range(1000), team)
    batches.learn(1, 1e-4, large)
    assert batches.full(100)
    assert not batches.full(7)  # two for each worker, whatever they weigh


def test_one_long_item_ends_the_batching_at_once_and_is_forgotten_slowly():
    batches = Batches(range(100_000), Idle(2, 1e-4))
    batches.learn(1, 1e-4, 10)
    many = len(batches.next())
    batches.learn(1, 1.0, 10)
    assert len(batches.next()) == 1
    for _ in range(200):
        batches.learn(1, 1e-4, 10)
    assert len(batches.next()) == many


def kill_at_1500(number: int) -> int:
    if number == 1500:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def test_an_item_that_kills_its_worker_costs_none_of_those_that_travel_with_it():
    with open_executor(2) as pool:
        results = list(map_slides(kill_at_1500, range(3000), pool))
    assert [r.index for r in results if r.value is None] == [1500]
    assert results[1500].reason.startswith("1500: ")
    assert [r.value for r in results if r.value is not None] == [n for n in range(3000) if n != 1500]
