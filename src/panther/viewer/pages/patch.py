"""One patch: its prototypes, how typical it is, and the patches that are most like it."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
from flask import Blueprint, Response, abort, current_app, request

from panther.errors import InputError
from panther.explain.scene import Distances, distances, share_farther
from panther.types import Openable, Prototypes
from panther.viewer.patches import PatchMap
from panther.viewer.similar import BusyError, Found, Query, Turns, ask, places, search
from panther.viewer.workbench import Kept, UnknownError, Workbench

SLIDES = 32  # with distances in memory: three numbers a patch
MOST = 200  # similar patches
OFTEN = 0.2  # seconds between two words about the progress
WHERE = ("slide", "cohort")


def patch_routes(bench: Workbench) -> Blueprint:
    """Routes of one patch."""
    routes = Blueprint("patch", __name__)
    measured: Kept[Distances] = Kept(SLIDES)
    turns = Turns()

    @routes.get("/api/slides/<name>/patches/<int:patch>")
    def one(name: str, patch: int) -> dict[str, Any]:
        chosen = request.args.get("set") or None
        patch_map = bench.patches(name, chosen)
        _check(patch_map, patch)
        return {"patch": patch, **_place(patch_map, patch), **_prototype(bench, measured, patch_map, patch, chosen)}

    @routes.get("/api/slides/<name>/patches/<int:patch>/similar")
    def similar(name: str, patch: int) -> Any:
        where = request.args.get("where") or "slide"
        if where not in WHERE:
            raise InputError(f"`where` is {where!r}; expected is slide or cohort.")
        k = _whole("k", 12) or 12
        begun = time.perf_counter()
        with ExitStack() as stack:
            _turn(stack, turns)
            query = ask(bench, name, patch, k, _whole("per_slide", None))
            entries = [bench.slide(name)] if where == "slide" else list(bench.contents.slides.values())
            states = search(bench, query, entries)
            if "progress" not in request.args:
                return _answer(bench, query, _last(states, _gone()), begun)
            dumps = current_app.json.dumps  # the lines are written when the request is over
            response = Response(_lines(bench, query, states, begun, dumps), mimetype="application/x-ndjson")
            response.call_on_close(stack.pop_all().close)  # also where the response was never read
            return response

    return routes


def measure(ref: Openable, prototypes: Prototypes, labels: np.ndarray) -> Distances:
    """Distances of a slide's patches; run in a worker process."""
    return distances(prototypes.prepared(ref.open()), prototypes, labels)


def _check(patch_map: PatchMap, patch: int) -> None:
    known = (
        patch_map.assignment
        if patch_map.assignment is not None
        else None
        if patch_map.grid is None
        else patch_map.grid.corners
    )
    if known is None:
        raise InputError(" ".join(patch_map.notes) or f"{patch_map.slide}: its patches are not known.")
    if patch >= len(known):
        raise UnknownError(f"{patch_map.slide}: there is no patch {patch}; the slide has {len(known)}.")


def _place(patch_map: PatchMap, patch: int) -> dict[str, Any]:
    if patch_map.grid is None:
        return {"x": None, "y": None, "side": None}
    x, y = patch_map.corners[patch].tolist()
    return {"x": x, "y": y, "side": patch_map.side}


def _prototype(
    bench: Workbench, measured: Kept[Distances], patch_map: PatchMap, patch: int, chosen: str | None
) -> dict[str, Any]:
    """Posterior and distances, as far as there are prototypes that suit the features."""
    ref = bench.slide(patch_map.slide).features
    if patch_map.assignment is None or ref is None:
        return {"posterior": [], "prototype": None, "notes": list(patch_map.notes)}
    labels, prototypes = patch_map.labels, bench.prototypes(chosen)
    key, version = (patch_map.slide, bench.set_name(chosen)), bench.version(patch_map.slide, chosen)
    apart = measured.get(key, lambda: bench.compute(measure, ref, prototypes, labels), version)
    if len(apart.own) != len(labels):
        measured.drop(key)
        raise InputError(f"{patch_map.slide}: its features were changed meanwhile; load the page again.")
    return {
        "posterior": [round(float(share), 6) for share in patch_map.assignment[patch]],
        "prototype": int(labels[patch]),
        "distance": _number(apart.own[patch]),
        "typical": share_farther(apart.own, labels, patch),
        "members": int((labels == labels[patch]).sum()),
        "nearest": {"prototype": int(apart.nearest[patch]), "distance": _number(apart.to_nearest[patch])},
        "notes": list(patch_map.notes),
    }


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _whole(name: str, usual: int | None) -> int | None:
    """A whole number of the query."""
    text = request.args.get(name)
    if not text:
        return usual
    if not text.isdecimal() or not 1 <= int(text[:9]) <= MOST:
        raise InputError(f"`{name}` is {text[:40]!r}; expected is a whole number from 1 to {MOST}.")
    return int(text)


def _turn(stack: ExitStack, turns: Turns) -> None:
    try:
        stack.enter_context(turns.one())
    except BusyError as error:
        abort(503, str(error))


def _gone() -> Callable[[], bool]:
    """Whether the browser has gone away, as far as the server knows."""
    return request.environ.get("waitress.client_disconnected", lambda: False)


def _last(states: Iterator[Found], gone: Callable[[], bool]) -> Found:
    found = Found()
    for state in states:
        found = state
        if gone():
            states.close()  # type: ignore[attr-defined]
            abort(503, "The search was stopped.")
    return found


def _lines(
    bench: Workbench, query: Query, states: Iterator[Found], begun: float, dumps: Callable[[Any], str]
) -> Iterator[str]:
    """How far the search is, now and then, as lines of JSON; the last one is the answer. Writing to a browser that has gone stops it."""
    try:
        text, found = 0.0, Found()
        for found in states:
            if time.perf_counter() - text > OFTEN:
                text = time.perf_counter()
                yield dumps({"done": found.done, "of": found.of}) + "\n"
        yield dumps(_answer(bench, query, found, begun)) + "\n"
    except (InputError, OSError) as error:  # the status was sent long ago
        yield dumps({"error": str(error)}) + "\n"
    finally:
        states.close()  # type: ignore[attr-defined]


def _answer(bench: Workbench, query: Query, found: Found, begun: float) -> dict[str, Any]:
    at = places(bench, found.hits)
    patches = [
        {
            "slide": hit.slide,
            "patch": hit.patch,
            "x": at[hit][0] if hit in at else None,
            "y": at[hit][1] if hit in at else None,
            "similarity": hit.similarity,
            "picture": hit in at and bench.slide(hit.slide).image is not None,
        }
        for hit in found.hits
    ]
    return {
        "patches": patches,
        "encoder": query.encoder,
        "slides": found.of,
        "seconds": round(time.perf_counter() - begun, 3),
        "notes": found.notes,
    }
