"""Items and functions for worker processes, in a separate module, because they import it."""

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from panther.machine import reading


@dataclass(frozen=True)
class Crashing:
    """Features whose library crashes when they are opened."""

    sample: str
    files: tuple[Path, ...]

    def open(self) -> None:
        with reading():
            os.kill(os.getpid(), signal.SIGSEGV)


def wait_for(path: Path) -> str:
    """Until a file is there."""
    while not path.exists():
        time.sleep(0.01)
    return "waited"


def twice(number: int) -> int:
    return 2 * number
