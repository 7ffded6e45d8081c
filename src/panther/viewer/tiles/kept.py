"""Tiles that were made last, bounded in bytes."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable


class KeptBytes:
    """The last tiles, as many as fit. Two that ask for one at the same time may both make it: tiles are quick, waiting is not."""

    def __init__(self, most: int) -> None:
        self._most, self._held = most, 0
        self._values: OrderedDict[Hashable, bytes] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], bytes]) -> bytes:
        """Bytes of ``key``, made where they are not kept; what fails is not kept."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
        value = make()
        with self._lock:
            self._held += len(value) - len(self._values.pop(key, b""))
            self._values[key] = value
            while self._held > self._most and len(self._values) > 1:
                self._held -= len(self._values.popitem(last=False)[1])
        return value

    @property
    def held(self) -> int:
        """Bytes that are kept."""
        return self._held
