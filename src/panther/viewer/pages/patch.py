"""Routes of one patch: its prototypes, how typical it is, and the most similar patches."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
from flask import Blueprint, Response, current_app

from panther.charts.to_plotly import plain
from panther.errors import InputError
from panther.explain.scene import Distances, distances, share_farther
from panther.types import Openable, Prototypes
from panther.viewer.patches import PatchMap
from panther.viewer.queries import Query, SimilarQuery
from panther.viewer.similar import SearchState, SimilarTo, Turns, ask, places, search
from panther.viewer.workbench import LruCache, UnknownError, Workbench, as_sentence

SLIDES = 32  # with distances in memory: three numbers a patch
OFTEN = 0.2  # seconds between two lines of progress


def patch_routes(bench: Workbench) -> Blueprint:
    """Routes of one patch."""
    routes = Blueprint("patch", __name__)
    measured: LruCache[Distances] = LruCache(SLIDES)
    turns = Turns()

    @routes.get("/api/slides/<name>/patches/<int:patch>")
    def one(name: str, patch: int) -> dict[str, Any]:
        chosen = Query.read().set
        patch_map = bench.patches(name, chosen)
        _check(patch_map, patch)
        x, y = (None, None) if patch_map.grid is None else patch_map.corners[patch].tolist()
        place = {"x": x, "y": y, "side": None if patch_map.grid is None else patch_map.side}
        return {"patch": patch, **place, **_prototype(bench, measured, patch_map, patch, chosen)}

    @routes.get("/api/slides/<name>/patches/<int:patch>/similar")
    def similar(name: str, patch: int) -> Any:
        options = SimilarQuery.read()
        begun = time.perf_counter()
        with ExitStack() as stack:
            stack.enter_context(turns.one())
            query = ask(bench, name, patch, options.k, options.per_slide)
            entries = [bench.slide(name)] if options.where == "slide" else list(bench.contents.slides.values())
            states = search(bench, query, entries)
            dumps = current_app.json.dumps  # the lines are written when the request is over
            response = Response(_lines(bench, query, states, begun, dumps), mimetype="application/x-ndjson")
            response.call_on_close(stack.pop_all().close)  # also if the response is never read
            return response

    return routes


def measure(ref: Openable, prototypes: Prototypes, labels: np.ndarray) -> Distances:
    """Distances of a slide's patches; run in a worker process."""
    return distances(prototypes.prepared(ref.open()), prototypes, labels)


def _check(patch_map: PatchMap, patch: int) -> None:
    known = patch_map.assignment if patch_map.assignment is not None or patch_map.grid is None else patch_map.corners
    if known is None:
        raise InputError(" ".join(patch_map.notes) or f"{patch_map.slide}: its patches are not known")
    if patch >= len(known):
        raise UnknownError(f"{patch_map.slide}: there is no patch {patch}, expected 0 to {len(known) - 1}")


def _prototype(
    bench: Workbench, measured: LruCache[Distances], patch_map: PatchMap, patch: int, chosen: str | None
) -> dict[str, Any]:
    """Posterior and distances, if there are prototypes that suit the features."""
    ref = bench.slide(patch_map.slide).features
    if patch_map.assignment is None or ref is None:
        return {"posterior": [], "prototype": None, "notes": list(patch_map.notes)}
    labels, prototypes = patch_map.labels, bench.prototypes(chosen)
    key, version = (patch_map.slide, bench.set_name(chosen)), bench.version(patch_map.slide, chosen)
    apart = measured.get(key, lambda: bench.compute(measure, ref, prototypes, labels), version)
    if len(apart.own) != len(labels):
        measured.drop(key)
        raise InputError(f"{patch_map.slide}: its features were changed meanwhile; load the page again")
    return plain(
        {
            "posterior": patch_map.assignment[patch],
            "prototype": labels[patch],
            "distance": apart.own[patch],
            "typical": share_farther(apart.own, labels, patch),
            "nearest": {"prototype": apart.nearest[patch], "distance": apart.to_nearest[patch]},
            "notes": patch_map.notes,
        }
    )


def _lines(
    bench: Workbench, query: SimilarTo, states: Iterator[SearchState], begun: float, dumps: Callable[[Any], str]
) -> Iterator[str]:
    """Progress now and then as lines of JSON; the last one is the answer. Writing to a browser that has gone stops the search."""
    try:
        last, state = 0.0, SearchState()
        for state in states:
            if time.perf_counter() - last > OFTEN:
                last = time.perf_counter()
                yield dumps({"done": state.done, "of": state.of}) + "\n"
        yield dumps(_answer(bench, query, state, begun)) + "\n"
    except (InputError, OSError) as error:  # the status was sent long ago
        yield dumps({"error": as_sentence(str(error))}) + "\n"
    finally:
        states.close()  # type: ignore[attr-defined]


def _answer(bench: Workbench, query: SimilarTo, state: SearchState, begun: float) -> dict[str, Any]:
    at = places(bench, state.hits)
    patches = []
    for hit in state.hits:
        x, y = at.get(hit, (None, None))
        picture = hit in at and bench.slide(hit.slide).image is not None
        patches.append({**hit._asdict(), "x": x, "y": y, "picture": picture})
    return {
        "patches": patches,
        "encoder": query.encoder,
        "slides": state.of,
        "seconds": round(time.perf_counter() - begun, 3),
        "notes": state.notes,
    }
