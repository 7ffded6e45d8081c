"""Several walks at the same time over one team of workers."""

import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

R = TypeVar("R")


def side_by_side(calls: Sequence[Callable[[], R]]) -> list[R]:
    """Values of calls that mostly wait for workers, each in a thread; the first error is raised.

    The threads are daemons: whoever stops the work does not wait for them, and they end with the workers.
    """
    done: queue.SimpleQueue[tuple[int, Any, BaseException | None]] = queue.SimpleQueue()

    def run(number: int) -> None:
        try:
            done.put((number, calls[number](), None))
        except BaseException as error:
            done.put((number, None, error))

    for number in range(len(calls)):
        threading.Thread(target=run, args=(number,), daemon=True).start()
    values: dict[int, R] = {}
    while len(values) < len(calls):
        number, value, error = done.get()
        if error is not None:
            raise error
        values[number] = value
    return [values[number] for number in range(len(calls))]
