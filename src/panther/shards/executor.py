"""A walk over items that several processes share."""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack
from typing import Any, NamedTuple

from panther.attempts import name_of
from panther.content import hash_of
from panther.errors import InputError
from panther.execution import SharedWalk, Track
from panther.progress import Item
from panther.shards.identity import describe
from panther.shards.session import Session
from panther.shards.shard import Shard

MOST_CLAIMS = 500  # of one walk: many small items are claimed several at a time
QUICK, SLOW = 0.05, 2.0  # seconds between looks at what another shard has in hand


class _Part(NamedTuple):
    """Items that are claimed together."""

    identity: str
    start: int
    stop: int


def _item(part: _Part, items: Sequence[Any]) -> Item:
    more = part.stop - part.start - 1
    name = f"{name_of(items[part.start])}{f' and {more} more' if more else ''}"
    return Item(part.identity, name, part.stop - part.start)


class SharedExecutor(SharedWalk):
    """Shares every walk with the other shards of a session; its own part is computed by ``inner``.

    With ``only_read`` nothing is computed: what the shards have left out is refused.
    """

    def __init__(self, session: Session, shard: Shard, inner: Executor | None, *, only_read: bool = False) -> None:
        super().__init__(inner)
        self.session, self.shard, self._only_read = session, shard, only_read
        self._what = ""  # what the walks are about, in words
        if not only_read:
            session.join(shard)

    def naming(self, track: Track) -> Track:
        """Return the same progress bar; what it is told about a walk is what the others are told."""

        def tracked(items: Iterable[Any], what: str, total: int) -> Iterable[Any]:
            self._what = what
            return track(items, what, total)

        return tracked

    def finish(self) -> None:
        """Say that this shard has come to its end."""
        self.session.finish(self.shard)

    def walk(
        self, function: Callable[[Any], Any], items: Sequence[Any], compute: Callable[..., Iterator[Any]]
    ) -> Iterator[Any]:
        """Results of all items, in their order; ``compute`` (items) yields those of some of them."""
        parts = self._parts(function, items)
        if self._only_read:
            self._refuse_missing(parts, items)
        else:
            self.session.announce(self._what or describe(function)[-1], [_item(part, items) for part in parts])
        ready = 0  # parts from the first on that were handed on
        for _ in self._worked(parts, items, compute):
            while ready < len(parts) and self.session.has(parts[ready].identity):
                yield from self._read(parts[ready])
                ready += 1
        for part in parts[ready:]:
            self._await(part, items, compute)
            yield from self._read(part)

    def _parts(self, function: Callable[[Any], Any], items: Sequence[Any]) -> list[_Part]:
        """Parts of a walk, which every shard cuts and names alike."""
        size = max(1, math.ceil(len(items) / MOST_CLAIMS))
        what = describe(function)
        ends = [(start, min(start + size, len(items))) for start in range(0, len(items), size)]
        return [_Part(hash_of([what, describe(items[start:stop])]), start, stop) for start, stop in ends]

    def _worked(
        self, parts: Sequence[_Part], items: Sequence[Any], compute: Callable[..., Iterator[Any]]
    ) -> Iterator[None]:
        """Do what is ours and what nobody has claimed; yields after every part."""
        with ExitStack() as held:
            mine: list[tuple[_Part, ExitStack]] = []

            def claimed() -> Iterator[Any]:
                for part in self.shard.order(parts):
                    if self.session.has(part.identity):
                        continue
                    claim = held.enter_context(ExitStack())
                    if claim.enter_context(self.session.claim(part.identity)):
                        mine.append((part, claim))
                        yield from items[part.start : part.stop]
                    else:
                        claim.close()

            results: list[Any] = []
            for result in compute(claimed()):
                results.append(result)
                part, claim = mine[0]
                if len(results) == part.stop - part.start:
                    self._keep(part, items, results)
                    claim.close()
                    mine.pop(0)
                    results = []
                    yield

    def _await(self, part: _Part, items: Sequence[Any], compute: Callable[..., Iterator[Any]]) -> None:
        """Wait for a part that another shard has in hand; where that one died, do it."""
        pause = QUICK
        while not self.session.has(part.identity):
            with self.session.claim(part.identity) as ours:
                if ours:
                    self._keep(part, items, list(compute(iter(items[part.start : part.stop]))))
                    return
            time.sleep(pause)
            pause = min(2 * pause, SLOW)

    def _keep(self, part: _Part, items: Sequence[Any], results: Sequence[Any]) -> None:
        pairs = zip(items[part.start : part.stop], results, strict=True)
        failures = [(name_of(item), one.reason) for item, one in pairs if one.reason is not None and not one.skipped]
        self.session.keep(part.identity, list(results), failures)

    def _read(self, part: _Part) -> list[Any]:
        found = self.session.read(part.identity)
        if len(found) != part.stop - part.start:
            raise InputError(
                f"{self.session.folder}: a part of the work is damaged; remove this folder and start all shards again."
            )
        return found

    def _refuse_missing(self, parts: Sequence[_Part], items: Sequence[Any]) -> None:
        missing = [part for part in parts if not self.session.has(part.identity)]
        if missing:
            raise InputError(
                f"{self.session.folder}: {len(missing)} of {len(parts)} parts are not done, e.g. {name_of(items[missing[0].start])} "
                f"({self.session.who(missing[0].identity)} may have it); start the shards again, they go on where they were."
            )
