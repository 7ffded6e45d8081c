"""Routes of the slide page: canvas, patches, tiles, layers, and exports of a view."""

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from flask import Blueprint, Response, request

from panther.errors import InputError
from panther.explain.atlas import Place
from panther.explain.touching import Touching, neighbour_sentences
from panther.viewer.patches import Canvas, PatchMap
from panther.viewer.tiles.export import export_regions, export_view
from panther.viewer.tiles.layers import Layer, LayerOptions, number, read_options, whole_number
from panther.viewer.tiles.maker import LARGEST_PATCH, Tiles
from panther.viewer.tiles.pyramid import TILE, Pyramid
from panther.viewer.workbench import Workbench

LARGEST_SQUARE, FARTHEST = 1e5, 1e8  # level-0 pixels: no patch is wider, no slide longer
AGE = 3600  # seconds for which a browser keeps a tile without asking
TYPES = {"png": "image/png", "svg": "image/svg+xml", "geojson": "application/geo+json"}


def slide_routes(bench: Workbench) -> Blueprint:
    """Routes."""
    routes = Blueprint("slide", __name__)
    tiles = Tiles(bench)

    @routes.get("/api/slides/<name>")
    def about(name: str) -> dict[str, Any]:
        options = options_of(bench)
        patch_map = bench.patches(name, options.set)
        layers, notes = tiles.layers(patch_map, options)
        return {
            **about_canvas(name, patch_map.canvas),
            "pitch": None if patch_map.grid is None else patch_map.grid.pitch,
            "patches": 0 if patch_map.grid is None else len(patch_map.grid.cells),
            "layers": [layer.to_dict() for layer in layers],
            "weights": None if patch_map.weights is None else [float(weight) for weight in patch_map.weights],
            "notes": [*patch_map.notes, *notes, *_bare(bench, patch_map, layers)],
        }

    @routes.get("/api/slides/<name>/neighbours")
    def neighbours(name: str) -> dict[str, Any]:
        chosen = options_of(bench).set
        patch_map = bench.patches(name, chosen).touching
        return (
            {"sentences": [], "rows": []}
            if patch_map is None
            else beside(patch_map, [title for title, _ in bench.look(chosen)])
        )

    @routes.get("/api/slides/<name>/canvas")
    def canvas(name: str) -> dict[str, Any]:
        with bench.image(name) as slide:  # its picture need not wait until the features are read
            return about_canvas(name, Canvas(*slide.dimensions, slide.mpp))

    @routes.get("/api/slides/<name>/patches")
    def patches(name: str) -> Response:
        return Response(packed(bench.patches(name, options_of(bench).set)), mimetype="application/octet-stream")

    @routes.get("/tiles/<name>/<int:zoom>/<int:x>/<int:y>.jpg")
    def base(name: str, zoom: int, x: int, y: int) -> Response:
        bench.slide(name)
        return kept_by_browser(Response(tiles.base(name, zoom, x, y), mimetype="image/jpeg"))

    @routes.get("/tiles/<name>/patch/<int:number>.jpg")
    def patch(name: str, number: int) -> Response:
        bench.slide(name)
        size = whole_number(request.args, "size", 8, LARGEST_PATCH)
        return kept_by_browser(Response(tiles.patch(name, number, size), mimetype="image/jpeg"))

    @routes.get("/tiles/<name>/square.jpg")
    def square(name: str) -> Response:
        bench.slide(name)
        size = whole_number(request.args, "size", 8, LARGEST_PATCH) or LARGEST_PATCH
        content = tiles.square(name, _place(request.args), size)
        return kept_by_browser(Response(content, mimetype="image/jpeg"))

    @routes.get("/layers/<name>/<layer>/<int:zoom>/<int:x>/<int:y>.png")
    def overlay(name: str, layer: str, zoom: int, x: int, y: int) -> Response:
        content = tiles.overlay(name, layer, options_of(bench), (zoom, x, y))
        return kept_by_browser(Response(content, mimetype="image/png"))

    return routes


def _bare(bench: Workbench, patch_map: PatchMap, layers: Sequence[Layer]) -> list[str]:
    """What is missing where a slide has patches, but neither an image nor anything to colour them by."""
    coloured = any(layer.kind != "lines" for layer in layers)
    if (
        patch_map.grid is None
        or coloured
        or bench.slide(patch_map.slide).image is not None
        or bench.contents.prototypes
    ):
        return []  # or the notes of the patches say why
    return [
        f"{patch_map.slide}: there is no image of this slide and there are no prototypes, so only the borders of its patches can be "
        "seen; give the folder of the images (`panther view FOLDER --slides IMAGES`), or fit prototypes (`panther prototypes`) "
        "and open them (`panther view FOLDER --prototypes FILE`)."
    ]


def _place(query: Mapping[str, str]) -> Place:
    """Square of a patch, in pixels of level 0 or in micrometres."""
    x, y, side = (number(query, name) for name in ("x", "y", "side"))
    if x is None or y is None or side is None or not 0 < side <= LARGEST_SQUARE or max(abs(x), abs(y)) > FARTHEST:
        raise InputError("A square has its corner `x=` and `y=`, and a `side=` above 0.")
    return Place(x, y, side, "um" if query.get("unit") == "um" else "px")


def about_canvas(name: str, canvas: Canvas) -> dict[str, Any]:
    """What a page must know before it can ask for tiles."""
    return {
        "name": name,
        "width": canvas.width,
        "height": canvas.height,
        "mpp": canvas.mpp,
        "origin": canvas.origin,
        "unit": canvas.unit,
        "image": canvas.image,
        "zooms": Pyramid(canvas.width, canvas.height).zooms,
        "tile": TILE,
    }


def beside(neighbours: Touching, titles: Sequence[str]) -> dict[str, Any]:
    """What lies beside what on a slide: in sentences, and for each prototype (rows) what each other one is to it."""
    times, border, by_chance = 2.0 ** neighbours.log_ratio(), neighbours.border(), neighbours.border_by_chance()
    inside, close = (
        matrix / np.maximum(neighbours.members, 1)[:, None] for matrix in (neighbours.inside, neighbours.beside)
    )
    numbers = {"times": times, "border": border, "by_chance": by_chance, "inside": inside, "beside": close}
    count = len(times)
    rows = [
        [
            {"prototype": b, **{name: _known(values[a, b]) for name, values in numbers.items()}}
            for b in range(count)
            if b != a
        ]
        for a in range(count)
    ]
    return {"sentences": neighbour_sentences(neighbours, titles), "rows": rows}


def _known(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def options_of(bench: Workbench) -> LayerOptions:
    """Layer options of the present request."""
    chosen = request.args.get("set") or None
    count = len(bench.prototypes(chosen)) if bench.contents.prototypes or chosen else 0
    return read_options(request.args, count)


def kept_by_browser(response: Response) -> Response:
    """Let the browser keep an answer; another viewer on the same port has another cookie, and so other answers."""
    response.headers["Cache-Control"] = f"private, max-age={AGE}"
    response.headers["Vary"] = "Cookie"
    response.add_etag()
    return response.make_conditional(request)  # type: ignore[return-value]


def packed(patch_map: PatchMap) -> bytes:
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


def export_routes(bench: Workbench) -> Blueprint:
    """Routes."""
    routes = Blueprint("exports", __name__)
    tiles = Tiles(bench)

    @routes.get("/export/<name>.<any(png, svg):kind>")
    def view(name: str, kind: str) -> Response:
        options = options_of(bench)
        content = export_view(tiles, bench.patches(name, options.set), request.args, options, kind)
        return _download(content, name, kind)

    @routes.get("/export/<name>.geojson")
    def areas(name: str) -> Response:
        options = options_of(bench)
        return _download(export_regions(bench, bench.patches(name, options.set), options), name, "geojson")

    return routes


def _download(content: bytes | str, name: str, kind: str) -> Response:
    """An answer that browsers save under the slide's name."""
    response = Response(content, mimetype=TYPES[kind])
    response.headers.set("Content-Disposition", "attachment", filename=f"{name}.{kind}")
    return response
