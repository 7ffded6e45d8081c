"""Something of every slide, computed while the pages are answered."""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

from panther.errors import InputError
from panther.machine import cores

T = TypeVar("T")


class Background(Generic[T]):
    """Values by name, a few names at a time, in threads of their own that leave half of the machine to the pages."""

    def __init__(
        self,
        compute: Callable[[list[str]], tuple[Mapping[str, T], Mapping[str, str]]],
        names: Sequence[str],
        at_once: int = 4,
    ) -> None:
        self._compute, self._at_once = compute, at_once
        self.total = len(names)
        self.values: dict[str, T] = {}
        self.failures: dict[str, str] = {}
        self._left = list(reversed(names))
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(max(1, cores() // 2))]
        for thread in self._threads:
            thread.start()

    @property
    def done(self) -> int:
        """Slides that are finished, well or not."""
        return len(self.values) + len(self.failures)

    @property
    def finished(self) -> bool:
        """Whether all are."""
        return self.done >= self.total

    def wait(self) -> None:
        """Until all are finished."""
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while names := self._take():
            try:
                values, failures = self._compute(names)
            except (InputError, OSError, RuntimeError) as error:
                values, failures = {}, {name: str(error) for name in names}
            with self._lock:
                self.values.update(values)
                self.failures.update(failures)
                # whatever was said nothing of would be waited for without end
                lost = [name for name in names if name not in self.values and name not in self.failures]
                self.failures.update({name: f"{name}: nothing came back." for name in lost})

    def _take(self) -> list[str]:
        with self._lock:
            return [self._left.pop() for _ in range(min(self._at_once, len(self._left)))]
