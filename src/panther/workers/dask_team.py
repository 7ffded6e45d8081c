"""The workers of a Dask scheduler behind the same interface as processes of this machine."""

import pickle
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any
from weakref import WeakKeyDictionary

from panther.workers.team import SentOnce, Team

LOOK = 5.0  # seconds between looks at how many workers there are
RETRIES = 3


class DaskTeam(Team):
    """Tasks for the workers of a `distributed.Client`; ``options`` (resources) go to every task."""

    hand_out = 2e-3

    def __init__(self, client: Any, **options: Any) -> None:
        self._client, self._options = client, options
        # pure=False: equal tasks of two runs are not the same task; a killed worker's tasks run again elsewhere
        self._executor = client.get_executor(pure=False, retries=RETRIES, **options)
        self._there: WeakKeyDictionary[SentOnce, Any] = WeakKeyDictionary()
        self._seen, self._workers = float("-inf"), 1

    @property
    def workers(self) -> int:  # type: ignore[override]
        """Threads of all workers, as of a moment ago; clusters grow and shrink."""
        if time.monotonic() - self._seen > LOOK:
            self._workers = max(1, sum(self._client.nthreads().values()))
            self._seen = time.monotonic()
        return self._workers

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        """Have a worker call the function, which may be a `SentOnce`."""
        if not isinstance(fn, SentOnce):
            return self._executor.submit(fn, *args, **kwargs)
        if fn not in self._there:
            # unpacked by a task, not scattered: should the worker that has it die, the scheduler has it done again elsewhere
            self._there[fn] = self._client.submit(pickle.loads, fn.payload, pure=False, retries=RETRIES)
        return self._executor.submit(_call, self._there[fn], *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Forget what is under way; the workers stay."""
        self._executor.shutdown(wait=wait and not cancel_futures)


def _call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return function(*args, **kwargs)
