"""What every team of workers has in common, on this machine or on others."""

import pickle
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import cached_property
from typing import Any


@dataclass(eq=False)
class SentOnce:
    """A function that many tasks call: pickled once, and sent to each worker once. It may hold a whole table, or many prototypes."""

    payload: bytes

    @classmethod
    def of(cls, function: Callable[..., Any]) -> "SentOnce":
        """Pickle it."""
        return cls(pickle.dumps(function))

    @cached_property
    def value(self) -> Callable[..., Any]:
        """The function, where it is called."""
        return pickle.loads(self.payload)


class Team(Executor):
    """Processes behind the interface of `concurrent.futures`; ``submit`` also takes a `SentOnce`."""

    workers: int  # how many there are; more or fewer may come to be
    hand_out: float  # seconds of the process that hands out tasks for each of them; benchmarks/scale.py measures it

    def for_work(self, *, gpu: bool, in_worker: bool = False) -> "Team":
        """The team for work on a GPU, or on none; on one machine all are alike."""
        return self
