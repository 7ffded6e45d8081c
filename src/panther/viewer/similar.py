"""Search for similar patches: slide by slide in worker processes, with progress, and it can be stopped."""

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
from panther.viewer.workbench import BusyError, UnknownError, Workbench

AT_ONCE = 2  # searches that run side by side ...
WAITING = 2  # ... and that wait for them; each holds a thread of the server, which tiles need too
PATIENCE = 15.0  # seconds of waiting
MOST_FAILURES = 3  # listed in full


@dataclass(frozen=True, eq=False)
class SimilarTo:
    """The patch to which similar ones are searched."""

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
class SearchState:
    """Hits so far: the same whatever the order in which slides were searched."""

    hits: tuple[Hit, ...] = ()
    done: int = 0  # slides
    of: int = 0
    failures: tuple[str, ...] = field(default=(), repr=False)

    @property
    def notes(self) -> list[str]:
        """Slides that could not be searched."""
        more = len(self.failures) - MOST_FAILURES
        return [
            *self.failures[:MOST_FAILURES],
            *([f"{more} further slides could not be searched."] if more > 0 else []),
        ]


class Turns:
    """A few searches at a time; a few more wait for their turn, and further ones are refused."""

    def __init__(self, at_once: int = AT_ONCE, waiting: int = WAITING, patience: float = PATIENCE) -> None:
        self._running = threading.BoundedSemaphore(at_once)
        self._inside = threading.BoundedSemaphore(at_once + waiting)
        self._patience = patience

    @contextmanager
    def one(self) -> Iterator[None]:
        """Wait for a turn and have it."""
        with _held(self._inside, 0), _held(self._running, self._patience):
            yield


@contextmanager
def _held(semaphore: threading.BoundedSemaphore, patience: float) -> Iterator[None]:
    if not semaphore.acquire(timeout=patience):
        raise BusyError("other searches are running; try again later")
    try:
        yield
    finally:
        semaphore.release()


def ask(bench: Workbench, slide: str, patch: int, k: int, per_slide: int | None = None) -> SimilarTo:
    """Query for a patch of a slide, whose features are read in a worker process."""
    ref = bench.slide(slide).features
    if ref is None:
        raise UnknownError(f"{slide}: no features of this slide")
    bench.refuse_links(ref.files)
    features, encoder = bench.compute(read_features, ref, patch)
    return SimilarTo(slide, patch, features, encoder, k, per_slide)


def search(bench: Workbench, query: SimilarTo, slides: Sequence[SlideEntry]) -> Iterator[SearchState]:
    """Search slides one after the other, as many at a time as there are workers; the state after each of them.

    A slide that fails is noted and does not stop the others. Closing the iterator stops the search.
    """
    refs = [one.features for one in slides if one.features is not None]
    yield SearchState(of=len(refs))
    readable, refused = bench.readable(refs)
    state = SearchState((), len(refused), len(refs), tuple(refused.values()))
    # a short queue: another search meanwhile waits for a few slides, not for the cohort
    for result in map_slides(partial(search_slide, query=query), readable, bench.long_work.executor, ahead=1):
        hits = sorted((*state.hits, *(result.value or ())), key=lambda hit: (-hit.similarity, hit.slide, hit.patch))
        failures = state.failures if result.reason is None else (*state.failures, result.reason)
        state = SearchState(tuple(hits[: query.k]), state.done + 1, state.of, failures)
        yield state


def read_features(ref: Openable, patch: int) -> tuple[Tensor, str | None]:
    """Features of one patch and their encoder; run in a worker process."""
    bag = ref.open()
    if not 0 <= patch < len(bag):
        raise InputError(f"{ref.sample}: there is no patch {patch}, expected 0 to {len(bag) - 1}")
    return bag.features[patch : patch + 1][0].clone(), bag.encoder


def search_slide(ref: Openable, query: SimilarTo) -> list[Hit]:
    """Most similar patches of one slide; run in a worker process."""
    bag = ref.open()
    if bag.dim != len(query.features) or not same_encoder(bag.encoder, query.encoder):
        raise InputError(
            f"{ref.sample}: features of another encoder ({bag.encoder or 'not named'}, {bag.dim} numbers) than those of "
            f"{query.slide} ({query.encoder or 'not named'}, {len(query.features)})"
        )
    most = query.k if query.per_slide is None else min(query.k, query.per_slide)
    itself = query.patch if ref.sample == query.slide else None
    nearest = most_similar(bag.features, query.features, most, itself)
    return [
        Hit(ref.sample, row, similarity)
        for row, similarity in zip(nearest.rows.tolist(), nearest.nearness.tolist(), strict=True)
    ]


def places(bench: Workbench, hits: Sequence[Hit]) -> dict[Hit, tuple[float, float]]:
    """Upper left corners of patches on the canvas of their slides, if they are known."""
    rows: dict[str, list[int]] = defaultdict(list)
    for hit in hits:
        rows[hit.slide].append(hit.patch)
    tasks = [(bench.slide(slide), patches) for slide, patches in rows.items()]
    corners: dict[tuple[str, int], tuple[float, float]] = {}
    for result in map_slides(partial(corners_of, settings=bench.settings), tasks, bench.work.executor, ahead=1):
        entry, patches = tasks[result.index]
        corners |= {(entry.name, row): xy for row, xy in zip(patches, result.value or (), strict=False)}
    return {hit: corners[hit.slide, hit.patch] for hit in hits if (hit.slide, hit.patch) in corners}


def corners_of(task: tuple[SlideEntry, list[int]], settings: MapSettings) -> list[tuple[float, float]]:
    """Corners of a few patches of one slide, none if they have no coordinates; run in a worker process."""
    entry, rows = task
    patch_map = read_patches(entry, None, settings)
    return [] if patch_map.grid is None else [(float(x), float(y)) for x, y in patch_map.corners[rows]]
