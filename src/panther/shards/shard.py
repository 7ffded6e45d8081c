"""Which of several processes this one is."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from panther.errors import InputError

T = TypeVar("T")
AUTO, MERGE = "auto", "merge"
# what SLURM tells the tasks of an array; indices need not begin at 0
TASK, FIRST, COUNT = "SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_MIN", "SLURM_ARRAY_TASK_COUNT"


@dataclass(frozen=True)
class Shard:
    """Process ``index`` of ``count``, from 0."""

    index: int
    count: int

    @classmethod
    def parse(cls, text: str, environment: Mapping[str, str] = os.environ) -> "Shard":
        """`1/3` is the second of three; `auto` asks SLURM's array."""
        if text == AUTO:
            return cls._of_slurm(environment)
        found = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text.strip())
        if found is None or int(found[1]) >= int(found[2]):
            raise InputError(
                f"`shard={text}` makes no sense; give i/n with i from 0 to n-1, e.g. 0/3, or auto in a SLURM array."
            )
        return cls(int(found[1]), int(found[2]))

    @classmethod
    def _of_slurm(cls, environment: Mapping[str, str]) -> "Shard":
        try:
            index = int(environment[TASK]) - int(environment.get(FIRST, "0"))
            return cls.parse(f"{index}/{int(environment[COUNT])}")
        except (KeyError, ValueError) as error:
            raise InputError(
                f"`shard=auto` needs the variables {TASK} and {COUNT} of a SLURM array whose numbers follow each other; "
                "or say i/n, e.g. `shard=0/10`."
            ) from error

    def order(self, items: Sequence[T]) -> list[T]:
        """The shard's own items first, every n-th; then those of the next shard, and so on round, to help out where others are slow."""
        turns = [(self.index + k) % self.count for k in range(self.count)]
        return [item for turn in turns for item in items[turn :: self.count]]

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"
