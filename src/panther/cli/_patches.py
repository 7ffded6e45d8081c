"""Progress by patches: one slide may take an hour, and a bar that counts slides would stand still."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from panther.cli._progress import Bar, bar


class PatchProgress:
    """Progress over all patches of a job."""

    def __init__(self, slides: Sequence[str], patches: Mapping[str, int]) -> None:
        self._slides, self._patches = slides, patches
        self._done: Counter[str] = Counter()
        self._bar: Bar | None = None

    def tell(self, slide: str, patches: int) -> None:
        """So many more patches of that slide are done."""
        self._done[slide] += patches
        assert self._bar is not None
        self._bar.advance(patches)

    def track(self, items: Iterable[Any], what: str, total: int) -> Iterator[Any]:
        """Pass the results of slides through; patches that an earlier run had done count when their slide is finished."""
        with bar("features, patches", sum(self._patches[slide] for slide in self._slides)) as self._bar:
            for done, outcome in enumerate(items, 1):
                yield outcome
                slide = self._slides[outcome.index]
                if outcome.value is not None:
                    self._bar.advance(max(self._patches[slide] - self._done[slide], 0))
                self._bar.describe(f"features, {done} of {total} slides, patches")
