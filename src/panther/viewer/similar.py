"""Searching the slides for patches similar to one: slide by slide in worker processes, so that it can be watched and stopped."""

import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from torch import Tensor

from panther.engine import map_slides
from panther.errors import InputError
from panther.explain.scene import MapSettings
from panther.patches import same_encoder
from panther.statistics import most_similar
from panther.types import Openable
from panther.viewer.contents import SlideEntry
from panther.viewer.patches import read_patches
from panther.viewer.workbench import UnknownError, Workbench

AT_ONCE = 2  # searches that run side by side ...
WAITING = 2  # ... and that wait for them; each holds a thread of the server, of which tiles need some
PATIENCE = 15.0  # seconds that one waits
MOST_FAILURES = 3  # told in full


class BusyError(InputError):
    """Others are searching already."""


@dataclass(frozen=True, eq=False)
class Query:
    """The patch whose like is searched."""

    slide: str
    patch: int
    features: Tensor  # (d,), of the encoder, as stored: neither projected nor whitened
    encoder: str | None
    k: int
    per_slide: int | None = None  # at most so many of one slide


class Hit(NamedTuple):
    """A similar patch."""

    slide: str
    patch: int
    similarity: float  # cosine


@dataclass(frozen=True)
class Found:
    """What was found so far: the same whatever the order in which slides were searched."""

    hits: tuple[Hit, ...] = ()
    done: int = 0  # slides
    of: int = 0
    failures: tuple[str, ...] = field(default=(), repr=False)

    @property
    def notes(self) -> list[str]:
        """Slides that could not be searched."""
        more = len(self.failures) - MOST_FAILURES
        told = list(self.failures[:MOST_FAILURES])
        return [*told, f"{more} further slides could not be searched either."] if more > 0 else told


class Turns:
    """A few searches at a time; a few more wait for their turn, and whoever comes then is told so."""

    def __init__(self, at_once: int = AT_ONCE, waiting: int = WAITING, patience: float = PATIENCE) -> None:
        self._running = threading.BoundedSemaphore(at_once)
        self._inside = threading.BoundedSemaphore(at_once + waiting)
        self._patience = patience

    @contextmanager
    def one(self) -> Iterator[None]:
        """Wait for a turn and have it."""
        busy = BusyError("Other searches are still running; ask again when they are done.")
        if not self._inside.acquire(blocking=False):
            raise busy
        try:
            if not self._running.acquire(timeout=self._patience):
                raise busy
            try:
                yield
            finally:
                self._running.release()
        finally:
            self._inside.release()


def ask(bench: Workbench, slide: str, patch: int, k: int, per_slide: int | None = None) -> Query:
    """Query for a patch of a slide, whose features are read in a worker process."""
    ref = bench.slide(slide).features
    if ref is None:
        raise UnknownError(f"{slide}: there are no features of this slide, so its patches cannot be compared.")
    bench.refuse_links(ref.files)
    features, encoder = bench.compute(read_features, ref, patch)
    return Query(slide, patch, features, encoder, k, per_slide)


def search(bench: Workbench, query: Query, slides: Sequence[SlideEntry]) -> Iterator[Found]:
    """Search slides one after the other, as many at a time as there are workers; what was found so far comes after each of them.

    A slide that fails is told and does not stop the others. Whoever stops asking stops the search.
    """
    refs = [one.features for one in slides if one.features is not None]
    found = Found(of=len(refs))
    yield found
    safe, refused = _sorted_out(bench, refs)
    found = Found((), len(refused), found.of, tuple(refused))
    # a short queue: another search meanwhile waits for a few slides, not for the cohort
    for result in map_slides(partial(search_slide, query=query), safe, bench.long_work.executor, ahead=1):
        if result.value is None:
            failures = (*found.failures, result.reason or "")
            found = Found(found.hits, found.done + 1, found.of, failures)
        else:
            hits = sorted((*found.hits, *result.value), key=lambda hit: (-hit.similarity, hit.slide, hit.patch))
            found = Found(tuple(hits[: query.k]), found.done + 1, found.of, found.failures)
        yield found


def _sorted_out(bench: Workbench, refs: Sequence[Openable]) -> tuple[list[Openable], list[str]]:
    """Slides that may be read, and a sentence for each that has become a link out of the opened folders."""
    safe, refused = [], []
    for ref in refs:
        try:
            bench.refuse_links(ref.files)
            safe.append(ref)
        except InputError as error:
            refused.append(str(error))
    return safe, refused


def read_features(ref: Openable, patch: int) -> tuple[Tensor, str | None]:
    """Features of one patch and their encoder; run in a worker process."""
    bag = ref.open()
    if not 0 <= patch < len(bag):
        raise InputError(f"{ref.sample}: there is no patch {patch}; the slide has {len(bag)}.")
    return bag.features[patch : patch + 1][0].clone(), bag.encoder


def search_slide(ref: Openable, query: Query) -> list[Hit]:
    """Most similar patches of one slide; run in a worker process."""
    bag = ref.open()
    if bag.dim != len(query.features) or not same_encoder(bag.encoder, query.encoder):
        raise InputError(
            f"{ref.sample}: its features are of another encoder ({bag.encoder or 'not named'}, {bag.dim} numbers) than those of "
            f"{query.slide} ({query.encoder or 'not named'}, {len(query.features)}), so they were not compared."
        )
    most = query.k if query.per_slide is None else min(query.k, query.per_slide)
    itself = query.patch if ref.sample == query.slide else None
    found = most_similar(bag.features, query.features, most, itself)
    return [
        Hit(ref.sample, row, similarity)
        for row, similarity in zip(found.rows.tolist(), found.nearness.tolist(), strict=True)
    ]


def places(bench: Workbench, hits: Sequence[Hit]) -> dict[Hit, tuple[float, float]]:
    """Upper left corners of patches on the canvas of their slides, where those are known."""
    rows: dict[str, list[int]] = defaultdict(list)
    for hit in hits:
        rows[hit.slide].append(hit.patch)
    asked = [(bench.slide(slide), patches) for slide, patches in rows.items()]
    corners: dict[tuple[str, int], tuple[float, float]] = {}
    for result in map_slides(partial(corners_of, settings=bench.settings), asked, bench.work.executor, ahead=1):
        entry, patches = asked[result.index]
        corners |= {(entry.name, row): xy for row, xy in zip(patches, result.value or (), strict=False)}
    return {hit: corners[hit.slide, hit.patch] for hit in hits if (hit.slide, hit.patch) in corners}


def corners_of(asked: tuple[SlideEntry, list[int]], settings: MapSettings) -> list[tuple[float, float]]:
    """Corners of a few patches of one slide, none where they have no place; run in a worker process."""
    entry, rows = asked
    found = read_patches(entry, None, settings)
    return [] if found.grid is None else [(float(x), float(y)) for x, y in found.corners[rows]]
