"""Progress: a bar where standard error is a terminal; elsewhere (a log, a cluster's job) one plain line after half a minute, then one per minute.

A thread writes the lines, so that phases which report nothing (a long step of K-means, hashing) are not silent either.
"""

import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

FIRST = 30.0  # seconds until the first line
EVERY = "PANTHER_LOG_EVERY"  # environment: seconds between two lines; 0 is none


@dataclass(eq=False)
class Phase:
    """Part of the work that is counted; on a terminal with a ``bar`` of rich."""

    what: str
    total: int
    began: float
    done: int = 0
    bar: Any = None

    def advance(self, count: int = 1, what: str | None = None) -> None:
        """Count what is done; ``what`` renames the phase."""
        self.done, self.what = self.done + count, what or self.what
        if self.bar is not None:
            self.bar.update(self.bar.task_ids[0], completed=self.done, description=self.what)

    def line(self, now: float) -> str:
        """The phase, how much of it is done, how fast, and how much longer it takes."""
        seconds = now - self.began
        counted = f"{self.what}: {self.done:,} of {self.total:,}"
        if not self.done or seconds <= 0:
            return f"{counted}, at work for {duration(seconds)}"
        rate = self.done / seconds
        speed = f"{rate:.1f}/s" if rate >= 1 else f"{60 * rate:.1f}/min" if 60 * rate >= 1 else f"{3600 * rate:.1f}/h"
        left = max(self.total - self.done, 0) / rate
        return f"{counted} ({self.done / max(self.total, 1):.0%}), {speed}, {duration(left)} left"


@dataclass
class CommandProgress:
    """What a command is doing; one per process."""

    command: str = "panther"
    began: float = 0.0
    phases: list[Phase] = field(default_factory=list)  # the innermost last
    finished: str = ""  # phase before this one
    silent: bool = False  # commands that this one has started report for it
    clock: Callable[[], float] = time.monotonic

    def line(self) -> str | None:
        """One line for a log."""
        now = self.clock()
        if self.phases:
            return self.phases[-1].line(now)
        after = f"; done: {self.finished}" if self.finished else ""
        return None if self.silent else f"{self.command}: at work for {duration(now - self.began)}{after}"


CURRENT = CommandProgress()
_SHOWING = threading.Lock()  # a terminal has room for one bar


@contextmanager
def log_progress(command: str, progress: CommandProgress = CURRENT) -> Iterator[None]:
    """Write a line on standard error soon, and every minute until the work ends, unless that is a terminal, where there are bars."""
    progress.command, progress.began, progress.finished = command, progress.clock(), ""
    try:
        every = float(os.environ.get(EVERY, "60"))
    except ValueError:
        every = 60.0
    ended = threading.Event()

    def write_lines() -> None:
        seconds = min(FIRST, every)
        with suppress(OSError, ValueError, AttributeError):  # standard error is closed
            while not ended.wait(seconds):
                seconds, line = every, progress.line()
                if line is not None and not ended.is_set():
                    print(line, file=sys.stderr, flush=True)

    if every > 0 and not _is_terminal():
        threading.Thread(target=write_lines, name="panther-progress", daemon=True).start()
    try:
        yield
    finally:
        ended.set()


@contextmanager
def bar(what: str, total: int, progress: CommandProgress = CURRENT) -> Iterator[Phase]:
    """A phase of the work: a bar on a terminal, which disappears when done; else a part of the lines."""
    phase = Phase(what, total, progress.clock())
    progress.phases.append(phase)
    try:
        if _is_terminal() and _SHOWING.acquire(blocking=False):  # walks side by side: one of them is shown
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            try:
                with Progress(*columns, console=Console(stderr=True), transient=True) as phase.bar:
                    phase.bar.add_task(what, total=total)
                    yield phase
            finally:
                _SHOWING.release()
        else:
            yield phase
    finally:
        progress.phases.remove(phase)
        progress.finished = phase.what


def track(items: Iterable[Any], what: str, total: int) -> Iterator[Any]:
    """Pass items through, counting them."""
    with bar(what, total) as phase:
        for item in items:
            yield item
            phase.advance()


@contextmanager
def progress_of_others(progress: CommandProgress = CURRENT) -> Iterator[None]:
    """While other commands do the work, they report it themselves."""
    progress.silent = True
    try:
        yield
    finally:
        progress.silent = False


def duration(seconds: float) -> str:
    """Seconds as one number with its unit: `4.8 h`."""
    units = ((86400 * 2, 86400, "days"), (5400, 3600, "h"), (90, 60, "min"))
    size, name = next(((size, name) for least, size, name in units if seconds >= least), (1, "s"))
    return f"{seconds / size:.1f} {name}"


def _is_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


class PatchProgress:
    """Progress over all patches of a job: one slide may take an hour, and a bar that counts slides would stand still."""

    def __init__(self, slides: Sequence[str], patches: Mapping[str, int]) -> None:
        self._slides, self._patches = slides, patches
        self._done: Counter[str] = Counter()
        self._phase: Phase | None = None

    def advance(self, slide: str, patches: int) -> None:
        """Count further patches of a slide."""
        self._done[slide] += patches
        assert self._phase is not None
        self._phase.advance(patches)

    def track(self, items: Iterable[Any], what: str, total: int) -> Iterator[Any]:
        """Pass the results of slides through; patches that an earlier run had done count when their slide is finished."""
        with bar("features, patches", sum(self._patches[slide] for slide in self._slides)) as self._phase:
            for done, result in enumerate(items, 1):
                yield result
                slide = self._slides[result.index]
                late = 0 if result.value is None else max(self._patches[slide] - self._done[slide], 0)
                self._phase.advance(late, f"features, {done} of {total} slides, patches")
