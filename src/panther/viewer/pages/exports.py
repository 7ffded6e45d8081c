"""What can be taken away: the current view as PNG or SVG, regions as GeoJSON."""

from flask import Blueprint, Response, request

from panther.viewer.pages.slide import asked_of
from panther.viewer.tiles.export import export_regions, export_view
from panther.viewer.tiles.maker import Tiles
from panther.viewer.workbench import Workbench

TYPES = {"png": "image/png", "svg": "image/svg+xml", "geojson": "application/geo+json"}


def export_routes(bench: Workbench) -> Blueprint:
    """Routes."""
    routes = Blueprint("exports", __name__)
    tiles = Tiles(bench)

    @routes.get("/export/<name>.<any(png, svg):kind>")
    def view(name: str, kind: str) -> Response:
        asked = asked_of(bench)
        content = export_view(tiles, bench.patches(name, asked.set), request.args, asked, kind)
        return _file(content, name, kind)

    @routes.get("/export/<name>.geojson")
    def areas(name: str) -> Response:
        asked = asked_of(bench)
        return _file(export_regions(bench, bench.patches(name, asked.set), asked), name, "geojson")

    return routes


def _file(content: bytes | str, name: str, kind: str) -> Response:
    """An answer that browsers save under the slide's name."""
    response = Response(content, mimetype=TYPES[kind])
    response.headers.set("Content-Disposition", "attachment", filename=f"{name}.{kind}")
    return response
