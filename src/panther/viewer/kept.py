"""A bounded store of what was opened or computed last, shared by threads."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class _Held(NamedTuple, Generic[T]):
    value: T
    version: Hashable
    weight: int


class Kept(Generic[T]):
    """The last few values, each made once however many ask for it at the same time.

    ``most`` bounds the sum of what ``weigh`` says, one each by default; the last value is kept whatever it weighs.
    """

    def __init__(
        self,
        most: int,
        forget: Callable[[T], None] = lambda value: None,
        weigh: Callable[[T], int] = lambda value: 1,
    ) -> None:
        self._most, self._forget, self._weigh = most, forget, weigh
        self._values: OrderedDict[Hashable, _Held[T]] = OrderedDict()
        self._weight = 0
        self._making: dict[Hashable, Future[T]] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Hashable, make: Callable[[], T], version: Hashable = None) -> T:
        """Value of ``key``, made where it is not kept, or of another ``version`` (of the files behind it); what fails is not kept.

        Whoever asks while it is being made waits, and gets the same value or the same error: a storm of requests for a damaged
        file reads it once.
        """
        with self._lock:
            held = self._values.get(key)
            if held is not None and held.version == version:
                self._values.move_to_end(key)
                return held.value
            awaited = self._making.get((key, version))
            if awaited is None:
                mine = self._making[key, version] = Future()
        if awaited is not None:
            return awaited.result()
        try:
            value = make()
        except BaseException as error:
            with self._lock:
                del self._making[key, version]
            mine.set_exception(error)
            raise
        over = self._keep(key, _Held(value, version, self._weigh(value)))
        mine.set_result(value)
        for one in over:
            self._forget(one)
        return value

    def drop(self, key: Hashable) -> None:
        """Forget one value."""
        with self._lock:
            held = self._values.pop(key, None)
            self._weight -= held.weight if held else 0
        if held is not None:
            self._forget(held.value)

    def clear(self) -> None:
        """Forget all."""
        for key in list(self._values):
            self.drop(key)

    def _keep(self, key: Hashable, held: _Held[T]) -> list[T]:
        """Put it in; returns what has to go."""
        with self._lock:
            del self._making[key, held.version]
            over = [self._values.pop(key)] if key in self._values else []
            self._values[key] = held
            self._weight += held.weight - sum(one.weight for one in over)
            while self._weight > self._most and len(self._values) > 1:
                over.append(self._values.popitem(last=False)[1])
                self._weight -= over[-1].weight
        return [one.value for one in over]
