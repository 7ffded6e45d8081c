"""A function called on items where the work is done: what comes of each, a value or the reason why there is none."""

import pickle
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import torch

from panther.errors import InputError, NotABagError
from panther.workers import allow_threads

T = TypeVar("T")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Result(NamedTuple):
    """What comes of one item; errors as text, because not every exception can be pickled."""

    value: Any = None
    reason: str | None = None
    skipped: bool = False
    traceback: str = ""


class Done(NamedTuple):
    """What comes back from a task."""

    results: Any  # a list; packed where it leaves the process, so that its size is known
    seconds: float
    size: int = 0


@dataclass(frozen=True)
class Launched(Generic[R_co]):
    """A value that a GPU is still busy with: who works on several items begins the next ones before he waits for it."""

    wait: Callable[[], R_co]
    is_ready: Callable[[], bool]  # it need not be waited for


def attempt_all(function: Callable[[T], R | Launched[R]], items: Sequence[T], threads: int = 1) -> Done:
    """Results of the items of a task; what a GPU still computes is taken as soon as it is there, and waited for when all have begun."""
    begin = time.perf_counter()
    results: list[Result] = []
    first = 0  # that is not settled
    with one_thread():
        for item in items:
            results.append(attempt(function, item, threads))
            while first < len(results) and _is_ready(results[first]):
                results[first] = settled(results[first], items[first])
                first += 1
        results[first:] = [settled(*each) for each in zip(results[first:], items[first:], strict=True)]
    return Done(results, time.perf_counter() - begin)


def attempt_and_pack(function: Callable[[T], R | Launched[R]], items: Sequence[T], threads: int) -> Done:
    """The same, as it travels to another process."""
    results, seconds, _ = attempt_all(function, items, threads)
    packed = pickle.dumps(results)
    return Done(packed, seconds, len(packed))


def attempt(function: Callable[[T], R | Launched[R]], item: T, threads: int = 1) -> Result:
    """What comes of one item, with one thread of torch's and so many of the compiled kernel's."""
    with one_thread(), allow_threads(threads):
        return _caught(lambda: function(item), item)


def settled(result: Result, item: Any) -> Result:
    """The same where nothing is on its way any more."""
    return _caught(result.value.wait, item) if isinstance(result.value, Launched) else result


def _is_ready(result: Result) -> bool:
    return not isinstance(result.value, Launched) or result.value.is_ready()


def _caught(call: Callable[[], Any], item: Any) -> Result:
    try:
        return Result(call())
    except Exception as error:  # one slide must not stop ten thousand
        return Result(None, reason_of(error, item), isinstance(error, NotABagError), traceback.format_exc())


def reason_of(error: Exception, item: Any) -> str:
    """What went wrong with an item, as a sentence."""
    if isinstance(error, InputError):
        return str(error)
    if isinstance(error, MemoryError):
        return f"{name_of(item)}: memory is too short for it; use fewer `workers=`, or a machine with more."
    if isinstance(error, OSError):
        return f"{error.filename or name_of(item)}: {error.strerror or error}."
    return f"{name_of(item)}: unexpected {type(error).__name__}: {error}"


def name_of(item: Any) -> str:
    """What to call an item in a message: the name of the slide or patient that it is, or holds."""
    parts = (item, *item) if isinstance(item, tuple) else (item,)
    return str(next((part.sample for part in parts if hasattr(part, "sample")), item))


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch have one thread."""
    before = torch.get_num_threads()
    if before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
