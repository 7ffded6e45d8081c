"""Routes of one patch: its prototypes, how typical it is, and the most similar patches.

The search runs slide by slide in worker processes, reports its progress, and can be stopped.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from flask import Blueprint, Response, current_app
from torch import Tensor

from panther.engine import map_slides
from panther.errors import InputError
from panther.explain.scene import Distances, MapSettings, distances, share_farther
from panther.patches import same_encoder
from panther.statistics import most_similar
from panther.types import Openable, Prototypes
from panther.viewer.contents import SlideEntry
from panther.viewer.patches import PatchMap, read_patches
from panther.viewer.queries import Query, SimilarQuery
from panther.viewer.workbench import BusyError, LruCache, UnknownError, Workbench, as_sentence

SLIDES = 32  # with distances in memory: three numbers a patch
REPORT_SECONDS = 0.2  # between two lines of progress
AT_ONCE = 4  # searches that run side by side; each holds a thread of the server, which tiles need too
MOST_FAILURES = 3  # listed in full


@dataclass(frozen=True, eq=False)
class SearchedPatch:
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
    failures: tuple[str, ...] = ()


def patch_routes(bench: Workbench) -> Blueprint:
    """Routes of one patch."""
    routes = Blueprint("patch", __name__)
    measured: LruCache[Distances] = LruCache(SLIDES)
    searches = threading.BoundedSemaphore(AT_ONCE)

    @contextmanager
    def turn() -> Iterator[None]:
        if not searches.acquire(blocking=False):
            raise BusyError("other searches are running; try again later")
        try:
            yield
        finally:
            searches.release()

    @routes.get("/api/slides/<name>/patches/<int:patch>")
    def about(name: str, patch: int) -> dict[str, Any]:
        chosen = Query.read().set
        patch_map = bench.patches(name, chosen)
        has_grid = patch_map.grid is not None
        rows = patch_map.corners if has_grid else patch_map.assignment
        if rows is None:
            raise InputError(" ".join((f"{name}: its patches are not known.", *patch_map.notes)))
        if patch >= len(rows):
            raise UnknownError(f"{name}: there is no patch {patch}, expected 0 to {len(rows) - 1}")
        x, y = patch_map.corners[patch] if has_grid else (None, None)
        place = {"x": x, "y": y, "side": patch_map.side if has_grid else None}
        return {"patch": patch, **place, **_prototype(bench, measured, patch_map, patch, chosen)}

    @routes.get("/api/slides/<name>/patches/<int:patch>/similar")
    def similar(name: str, patch: int) -> Any:
        options = SimilarQuery.read()
        begun = time.perf_counter()
        with ExitStack() as stack:
            stack.enter_context(turn())
            query = searched_patch(bench, name, patch, options.k, options.per_slide)
            slides = [bench.slide(name)] if options.where == "slide" else list(bench.contents.slides.values())
            states = search(bench, query, slides)
            dumps = current_app.json.dumps  # the lines are written when the request is over
            response = Response(_lines(bench, query, states, begun, dumps), mimetype="application/x-ndjson")
            response.call_on_close(stack.pop_all().close)  # also if the response is never read
            return response

    return routes


def measure(ref: Openable, prototypes: Prototypes, labels: np.ndarray) -> Distances:
    """Distances of a slide's patches; run in a worker process."""
    return distances(prototypes.prepared(ref.open()), prototypes, labels)


def _prototype(
    bench: Workbench, measured: LruCache[Distances], patch_map: PatchMap, patch: int, chosen: str | None
) -> dict[str, Any]:
    """Posterior and distances, if there are prototypes that suit the features."""
    ref = bench.slide(patch_map.slide).features
    if patch_map.assignment is None or ref is None:
        return {"posterior": [], "prototype": None, "notes": patch_map.notes}
    labels, prototypes = patch_map.labels, bench.prototypes(chosen)
    key, version = (patch_map.slide, bench.set_name(chosen)), bench.version(patch_map.slide, chosen)
    measures = measured.get(key, lambda: bench.compute(measure, ref, prototypes, labels), version)
    if len(measures.to_assigned) != len(labels):
        measured.drop(key)
        raise InputError(f"{patch_map.slide}: its features were changed meanwhile; load the page again")
    return {
        "posterior": patch_map.assignment[patch],
        "prototype": labels[patch],
        "distance": measures.to_assigned[patch],
        "typical": share_farther(measures.to_assigned, labels, patch),
        "nearest": {"prototype": measures.nearest[patch], "distance": measures.to_nearest[patch]},
        "notes": patch_map.notes,
    }


def searched_patch(bench: Workbench, slide: str, patch: int, k: int, per_slide: int | None = None) -> SearchedPatch:
    """A patch of a slide, whose features are read in a worker process."""
    ref = bench.slide(slide).features
    if ref is None:
        raise UnknownError(f"{slide}: no features of this slide")
    bench.refuse_links(ref.files)
    features, encoder = bench.compute(read_features, ref, patch)
    return SearchedPatch(slide, patch, features, encoder, k, per_slide)


def search(bench: Workbench, query: SearchedPatch, slides: Sequence[SlideEntry]) -> Iterator[SearchState]:
    """Search slides one after the other, as many at a time as there are workers; the state after each of them.

    A slide that fails is noted and does not stop the others. Closing the iterator stops the search.
    """
    refs = [slide.features for slide in slides if slide.features is not None]
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


def search_slide(ref: Openable, query: SearchedPatch) -> list[Hit]:
    """Most similar patches of one slide; run in a worker process."""
    bag = ref.open()
    if bag.dim != len(query.features) or not same_encoder(bag.encoder, query.encoder):
        expected = f"{query.encoder} ({len(query.features)}) as of {query.slide}"
        raise InputError(f"{ref.sample}: features of {bag.encoder} ({bag.dim} numbers), expected {expected}")
    most = query.k if query.per_slide is None else min(query.k, query.per_slide)
    itself = query.patch if ref.sample == query.slide else None
    nearest = most_similar(bag.features, query.features, most, itself)
    rows = zip(nearest.rows.tolist(), nearest.nearness.tolist(), strict=True)
    return [Hit(ref.sample, row, similarity) for row, similarity in rows]


def _lines(
    bench: Workbench, query: SearchedPatch, states: Iterator[SearchState], begun: float, dumps: Callable[[Any], str]
) -> Iterator[str]:
    """Progress now and then as lines of JSON; the last one is the answer. Writing to a browser that has gone stops the search."""
    try:
        last, state = 0.0, SearchState()
        for state in states:
            if time.perf_counter() - last > REPORT_SECONDS:
                last = time.perf_counter()
                yield dumps({"done": state.done, "of": state.of}) + "\n"
        corners = corners_of(bench, state.hits)
        patches = []
        for hit in state.hits:
            x, y = corners.get(hit, (None, None))
            has_picture = hit in corners and bench.slide(hit.slide).image is not None
            patches.append({**hit._asdict(), "x": x, "y": y, "picture": has_picture})
        notes, more = list(state.failures[:MOST_FAILURES]), len(state.failures) - MOST_FAILURES
        if more > 0:
            notes.append(f"{more} further slides could not be searched.")
        about = {"encoder": query.encoder, "slides": state.of, "seconds": round(time.perf_counter() - begun, 3)}
        yield dumps({"patches": patches, **about, "notes": notes}) + "\n"
    except (InputError, OSError) as error:  # the status was sent long ago
        yield dumps({"error": as_sentence(str(error))}) + "\n"
    finally:
        states.close()  # type: ignore[attr-defined]


def corners_of(bench: Workbench, hits: Sequence[Hit]) -> dict[Hit, tuple[float, float]]:
    """Upper left corners of patches on the canvas of their slides, if they are known."""
    by_slide: dict[str, list[Hit]] = defaultdict(list)
    for hit in hits:
        by_slide[hit.slide].append(hit)
    tasks = [(bench.slide(slide), [hit.patch for hit in hits]) for slide, hits in by_slide.items()]
    results = map_slides(partial(read_corners, settings=bench.settings), tasks, bench.work.executor, ahead=1)
    corners: dict[Hit, tuple[float, float]] = {}
    for hits, result in zip(by_slide.values(), results, strict=True):
        corners |= dict(zip(hits, result.value or (), strict=False))
    return corners


def read_corners(task: tuple[SlideEntry, list[int]], settings: MapSettings) -> list[tuple[float, float]]:
    """Corners of a few patches of one slide, none if they have no coordinates; run in a worker process."""
    entry, rows = task
    patch_map = read_patches(entry, None, settings)
    return [] if patch_map.grid is None else [(x, y) for x, y in patch_map.corners[rows].tolist()]
