"""Routes of the slide page: canvas, patches, tiles, layers, and exports of a view."""

import struct
from collections.abc import Sequence
from dataclasses import asdict
from itertools import permutations
from typing import Any

import numpy as np
from flask import Blueprint, Response, request

from panther.errors import InputError
from panther.explain.touching import Touching, neighbour_sentences
from panther.viewer.patches import TILE, Canvas, PatchMap, Pyramid
from panther.viewer.queries import LayerOptions, PictureQuery, Query, SquareQuery, ViewQuery
from panther.viewer.tiles.export import export_regions, export_view
from panther.viewer.tiles.maker import Tiles
from panther.viewer.workbench import Workbench

AGE = 3600  # seconds for which a browser keeps a tile without asking
TYPES = {"png": "image/png", "svg": "image/svg+xml", "geojson": "application/geo+json"}


def slide_routes(bench: Workbench) -> Blueprint:
    """Routes."""
    routes = Blueprint("slide", __name__)
    tiles = Tiles(bench)

    def options() -> LayerOptions:
        query = LayerOptions.read()
        count = len(bench.prototypes(query.set)) if bench.contents.prototypes or query.set else 0
        if query.prototype >= max(count, 1):
            raise InputError(f"prototype: found C{query.prototype}, expected C0 to C{count - 1}")
        return query

    @routes.get("/api/slides/<name>")
    def about(name: str) -> dict[str, Any]:
        query = options()
        patch_map = bench.patches(name, query.set)
        layers, notes = tiles.layers(patch_map, query)
        return {
            **describe_canvas(name, patch_map.canvas),
            "pitch": None if patch_map.grid is None else patch_map.grid.pitch,
            "patches": 0 if patch_map.grid is None else len(patch_map.grid.cells),
            "layers": [layer.to_dict() for layer in layers],
            "weights": patch_map.weights,
            "notes": [*patch_map.notes, *notes],
        }

    @routes.get("/api/slides/<name>/neighbours")
    def neighbours(name: str) -> dict[str, Any]:
        chosen = Query.read().set
        table = bench.patches(name, chosen).touching
        if table is None:
            return {"sentences": [], "rows": []}
        return describe_neighbours(table, [title for title, _ in bench.legend(chosen)])

    @routes.get("/api/slides/<name>/canvas")
    def canvas(name: str) -> dict[str, Any]:
        with bench.image(name) as slide:  # its picture need not wait until the features are read
            return describe_canvas(name, Canvas(*slide.dimensions, slide.mpp))

    @routes.get("/api/slides/<name>/patches")
    def patches(name: str) -> Response:
        return Response(pack_patches(bench.patches(name, Query.read().set)), mimetype="application/octet-stream")

    @routes.get("/tiles/<name>/<int:zoom>/<int:x>/<int:y>.jpg")
    def base(name: str, zoom: int, x: int, y: int) -> Response:
        return cached_by_browser(tiles.picture(tiles.base, name, zoom, x, y), "image/jpeg")

    @routes.get("/tiles/<name>/thumbnail.jpg")
    def thumbnail(name: str) -> Response:
        return cached_by_browser(tiles.picture(tiles.thumbnail, name), "image/jpeg")

    @routes.get("/tiles/<name>/patch/<int:number>.jpg")
    def patch(name: str, number: int) -> Response:
        return cached_by_browser(tiles.picture(tiles.patch, name, number, PictureQuery.read().size), "image/jpeg")

    @routes.get("/tiles/<name>/square.jpg")
    def square(name: str) -> Response:
        return cached_by_browser(tiles.picture(tiles.square, name, SquareQuery.read()), "image/jpeg")

    @routes.get("/layers/<name>/<layer>/<int:zoom>/<int:x>/<int:y>.png")
    def overlay(name: str, layer: str, zoom: int, x: int, y: int) -> Response:
        return cached_by_browser(tiles.overlay(name, layer, options(), (zoom, x, y)), "image/png")

    @routes.get("/export/<name>.<any(png, svg, geojson):kind>")
    def export(name: str, kind: str) -> Response:
        query = options()
        patch_map = bench.patches(name, query.set)
        content = (
            export_regions(bench, patch_map, query)
            if kind == "geojson"
            else export_view(tiles, patch_map, ViewQuery.read(), query, kind)
        )
        response = Response(content, mimetype=TYPES[kind])
        response.headers.set("Content-Disposition", "attachment", filename=f"{name}.{kind}")
        return response

    return routes


def describe_canvas(name: str, canvas: Canvas) -> dict[str, Any]:
    """Size and zooms of a slide, which a page needs before it asks for tiles."""
    return {"name": name, **asdict(canvas), "zooms": Pyramid(canvas.width, canvas.height).zooms, "tile": TILE}


def describe_neighbours(neighbours: Touching, titles: Sequence[str]) -> dict[str, Any]:
    """Neighbourhoods on a slide: in sentences, and for each prototype (rows) its relation to each other one."""
    times, border = 2.0 ** neighbours.log_ratio(), neighbours.border()  # (C, C)
    inside = neighbours.inside / np.maximum(neighbours.members, 1)[:, None]
    rows: list[list[dict[str, Any]]] = [[] for _ in titles]
    for a, b in permutations(range(len(titles)), 2):
        rows[a].append({"prototype": b, "times": times[a, b], "border": border[a, b], "inside": inside[a, b]})
    return {"sentences": neighbour_sentences(neighbours, titles), "rows": rows}


def cached_by_browser(content: bytes, mimetype: str) -> Response:
    """A picture that the browser may keep; another viewer on the same port has another cookie, and so other pictures."""
    response = Response(content, mimetype=mimetype)
    response.headers["Cache-Control"] = f"private, max-age={AGE}"
    response.headers["Vary"] = "Cookie"
    response.add_etag()
    return response.make_conditional(request)  # type: ignore[return-value]


def pack_patches(patch_map: PatchMap) -> bytes:
    """Patches in little-endian numbers: N, C, pitch, 0; x (N), y (N), label (N, padded to 4 bytes), largest posterior (N)."""
    if patch_map.grid is None:
        return struct.pack("<IIfI", 0, 0, 0.0, 0)
    corners = patch_map.corners.astype("<f4")
    count = len(corners)
    labels, top = np.zeros(count + count % 2, "<u2"), np.zeros(count, "<f4")
    classes = 0
    if patch_map.assignment is not None:
        classes = patch_map.assignment.shape[1]
        labels[:count], top = patch_map.labels, patch_map.assignment.max(1).astype("<f4")
    head = struct.pack("<IIfI", count, classes, patch_map.grid.pitch, 0)
    return b"".join((head, corners[:, 0].tobytes(), corners[:, 1].tobytes(), labels.tobytes(), top.tobytes()))
