"""map_slides and the loops over it: order, failures, executors, threads. What becomes of worker processes is in test_worker_processes.py."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import NamedTuple

import pytest
import torch

from panther.engine import (
    LOCAL,
    Launched,
    attempt_all,
    collect,
    map_all,
    map_slides,
    open_executor,
    open_work,
    parse_workers,
    stream,
)
from panther.errors import InputError, NotABagError
from panther.machine import allow_threads, kernel_threads


def square(n: int) -> int:
    if n == 3:
        raise InputError("three is refused")
    if n == 5:
        raise KeyError("bug")
    return n * n


def threads(_: int) -> int:
    return torch.get_num_threads()


@pytest.fixture(scope="module", params=[None, 2], ids=["in this process", "two workers"])
def work(request):
    with nullcontext(LOCAL) if request.param is None else open_work(request.param) as work:
        yield work


@pytest.mark.parametrize("workers", [1, 2])
def test_outcomes_come_in_order_and_a_failure_does_not_stop_the_others(workers):
    with open_executor(workers) as executor:
        outcomes = list(map_slides(square, range(8), executor))
    assert [o.index for o in outcomes] == list(range(8))
    assert [o.value for o in outcomes] == [0, 1, 4, None, 16, None, 36, 49]
    assert outcomes[3].reason == "three is refused"
    assert outcomes[5].reason.startswith("5: unexpected KeyError")


_begun: list[int] = []  # by this process, and not waited for


def launch(number: int) -> int | Launched[tuple[int, int]]:
    """Begin with a number; its square, and how many had begun when it was taken. The GPU has done one when the second after it begins."""
    if number == 3:
        raise InputError("three is refused")
    if number == 4:
        return 16
    _begun.append(number)

    def wait() -> tuple[int, int]:
        if number == 6:
            raise InputError("six has failed on the GPU")
        return number * number, len(_begun)

    return Launched(wait, lambda: _begun[-1] >= number + 2)


def test_launched_values_are_taken_when_ready_and_awaited_after_all_items_began():
    _begun.clear()
    done = attempt_all(launch, list(range(8)))
    values = [(0, 3), (1, 4), (4, 4), None, 16, (25, 6), None, (49, 6)]
    assert [result.value for result in done] == values
    assert [done[n].reason for n in (3, 6)] == ["three is refused", "six has failed on the GPU"]
    assert attempt_all(launch, []) == []


def test_no_launched_value_is_returned_before_it_is_ready(work):
    outcomes = list(map_slides(launch, range(8), work.executor))
    values = [
        outcome.value if outcome.value is None else outcome.value[0] for outcome in outcomes if outcome.index != 4
    ]
    assert values == [0, 1, 4, None, 25, None, 49]
    assert outcomes[6].reason == "six has failed on the GPU"


def only_even(number: int) -> int:
    """Odd numbers hold something else; three is damaged."""
    if number == 3:
        raise InputError("3: damaged.")
    if number % 2:
        raise NotABagError(f"{number}: no bag.")
    return number * number


class Slide(NamedTuple):
    """An item that has a name of its own."""

    sample: str
    number: int


def square_of(slide: Slide) -> int:
    return square(slide.number)


def test_values_and_failures_are_collected_under_the_names_of_their_items(work):
    slides = [Slide(name, number) for number, name in enumerate("abcdef")]
    values, failures = collect(square_of, slides, "squaring", work)
    assert values == {"a": 0, "b": 1, "c": 4, "e": 16}
    assert list(failures) == ["d", "f"]
    assert failures["d"] == "three is refused"
    assert failures["f"].startswith("f: unexpected KeyError")


def test_a_stream_yields_values_and_collects_failures_and_skipped_items(work):
    failures: dict[str, str] = {}
    skipped: set[str] = set()
    actual = list(stream(only_even, range(6), "squaring", work, failures, skipped))
    assert actual == [(0, 0), (2, 4), (4, 16)]
    assert failures == {"3": "3: damaged."}
    assert skipped == {"1", "5"}


def test_a_stream_hands_on_each_value_before_the_next_is_worked_on():
    worked = []
    values = stream(lambda n: worked.append(n) or n, range(3), "counting", LOCAL, {})
    next(values)
    assert worked == [0]


def test_all_values_come_in_order_or_the_first_failure_is_raised(work):
    assert map_all(square, [2, 1, 0], "squaring", work) == [4, 1, 0]
    with pytest.raises(InputError, match="three is refused"):
        map_all(square, range(8), "squaring", work)


def test_every_call_has_one_thread_and_the_caller_keeps_its_threads():
    torch.set_num_threads(2)
    assert [o.value for o in map_slides(threads, range(2))] == [1, 1]
    assert torch.get_num_threads() == 2
    with open_executor(2) as executor:
        assert {o.value for o in map_slides(threads, range(4), executor)} == {1}


def threads_of_kernels(_: int) -> int:
    return kernel_threads()


def test_compiled_kernels_use_idle_threads():
    with open_executor(2) as pool:
        assert [r.value for r in map_slides(threads_of_kernels, [0], pool)] == [2]
        assert [r.value for r in map_slides(threads_of_kernels, range(3), pool)] == [1, 1, 1]
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        assert [r.value for r in map_slides(threads_of_kernels, range(2))] == [3, 3]
        with allow_threads(2):
            assert [r.value for r in map_slides(threads_of_kernels, range(2))] == [2, 2]
    finally:
        torch.set_num_threads(before)


def test_only_a_bounded_number_of_items_is_in_flight():
    pulled = []
    items = (pulled.append(i) or i for i in range(10_000))
    with ThreadPoolExecutor(2) as executor:
        next(map_slides(threads, items, executor))
    assert len(pulled) < 1000


@pytest.mark.parametrize(
    ("workers", "place"),
    [(3, 3), ("0", 0), ("tcp://host:8786", "tcp://host:8786"), ("slurm:options.yaml", "slurm:options.yaml")],
)
def test_workers_are_processes_or_the_place_of_a_cluster(workers, place):
    assert parse_workers(workers) == place


@pytest.mark.parametrize("workers", [-1, "-1", "two", "local", "slurm", "slurm:", "tcp://"])
def test_workers_of_no_kind_are_refused_by_name(workers):
    with pytest.raises(InputError, match="workers"):
        parse_workers(workers)


def test_the_only_item_fails_where_it_is_no_bag():
    assert collect(only_even, [1], "squaring") == ({}, {"1": "1: no bag."})
