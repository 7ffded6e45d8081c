"""Names of prototypes: read, changed, and changed back."""

from typing import Any

from flask import Blueprint, jsonify, request

from panther.errors import InputError
from panther.explain.names import Naming
from panther.viewer.names import NEW, ConflictError, NamesNow, look
from panther.viewer.workbench import Workbench


def name_routes(bench: Workbench) -> Blueprint:
    """Routes of the names."""
    routes = Blueprint("names", __name__)

    @routes.get("/api/names")
    def names() -> dict[str, Any]:
        return names_state(bench, request.args.get("set"))

    @routes.post("/api/names")
    def change() -> Any:
        body = _body()
        fields = {name: value for name, value in body.items() if name not in ("version", "prototype", "set")}
        _refuse_other_sets(bench, body.get("set"))
        prototype = body.get("prototype")
        if not isinstance(prototype, int) or isinstance(prototype, bool):
            raise InputError("Say which prototype, by its number.")
        return _answer(bench, lambda: bench.names().change(str(body.get("version")), prototype, fields))

    @routes.post("/api/names/undo")
    def undo() -> Any:
        version = str(_body().get("version"))
        return _answer(bench, lambda: bench.names().undo(version))

    return routes


def names_state(bench: Workbench, chosen: str | None = None) -> dict[str, Any]:
    """What the prototypes of a set are called and look like, and whether that can be changed."""
    count = len(bench.prototypes(chosen))
    own = bench.has_names(chosen)
    now = bench.names().now() if own else NamesNow(NEW, {})
    first = next(iter(bench.contents.prototypes))
    apart = f"The names file belongs to the prototypes {first!r}; these are known by their numbers."
    shown = look(now, count)
    rows = []
    for prototype, (title, colour) in enumerate(shown):
        one = now.namings.get(prototype, Naming())
        about = {"prototype": prototype, "name": one.name, "note": one.note, "colour": colour, "group": one.group}
        rows.append({**about, "title": title, "own_colour": one.colour})
    undo = bench.names().next_undo if own else ""
    return {
        "version": now.version,
        "file": bench.contents.names.name,
        "problem": now.problem if own else apart,
        "prototypes": rows,
        "can_undo": bool(undo),
        "undo": undo,
    }


def _answer(bench: Workbench, act: Any) -> Any:
    try:
        act()
    except ConflictError as error:
        return jsonify(error=str(error), **names_state(bench)), 409
    return names_state(bench)


def _refuse_other_sets(bench: Workbench, chosen: Any) -> None:
    bench.prototypes(chosen if isinstance(chosen, str) else None)
    if not bench.has_names(chosen):
        first = next(iter(bench.contents.prototypes))
        raise InputError(f"Only the prototypes {first!r} have a names file here; open that set to name them.")


def _body() -> dict[str, Any]:
    found = request.get_json(silent=True)
    if not isinstance(found, dict):
        raise InputError("A change is a JSON object.")
    return found
