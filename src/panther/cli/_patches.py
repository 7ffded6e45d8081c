"""Progress by patches: one slide may take an hour, and a bar that counts slides would stand still."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from panther.cli._progress import Bar, bar


class PatchProgress:
    """Progress over all patches of a job."""

    def __init__(self, slides: Sequence[str], patches: int) -> None:
        self._slides, self._patches = slides, patches
        self._told: Counter[str] = Counter()
        self._bar: Bar | None = None

    def tell(self, slide: str, patches: int) -> None:
        """So many more patches of that slide are done."""
        self._told[slide] += patches
        assert self._bar is not None
        self._bar.advance(patches)

    def track(self, outcomes: Iterable[Any], what: str, total: int) -> Iterator[Any]:
        """Pass the outcomes of slides through; patches that an earlier run had done count when their slide is finished."""
        with bar("features, patches", self._patches) as self._bar:
            for done, outcome in enumerate(outcomes, 1):
                yield outcome
                about = {} if outcome.value is None else outcome.value.about
                rest = int(about.get("patches") or 0) - self._told[self._slides[outcome.index]]
                self._bar.advance(max(rest, 0))
                self._bar.describe(f"features, {done} of {total} slides, patches")
