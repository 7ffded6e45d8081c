"""Progress by patches: one slide may take an hour, and a bar that counts slides would stand still."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any


class PatchProgress:
    """A bar over all patches of a job, on standard error where that is a terminal."""

    def __init__(self, slides: Sequence[str], patches: int) -> None:
        self._slides, self._patches = slides, patches
        self._told: Counter[str] = Counter()
        self._bar: Any = None
        self._task: Any = None

    def tell(self, slide: str, patches: int) -> None:
        """So many more patches of that slide are done."""
        self._told[slide] += patches
        self._bar.advance(self._task, patches)

    def track(self, outcomes: Iterable[Any], what: str, total: int) -> Iterable[Any]:
        """Pass the outcomes of slides through; patches that an earlier run had done count when their slide is finished."""
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        console = Console(stderr=True)
        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
        with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as self._bar:
            self._task = self._bar.add_task("features, patches", total=self._patches)
            for done, outcome in enumerate(outcomes, 1):
                yield outcome
                about = {} if outcome.value is None else outcome.value.about
                rest = int(about.get("patches") or 0) - self._told[self._slides[outcome.index]]
                self._bar.update(self._task, advance=max(rest, 0), description=f"features, {done} of {total} slides")
