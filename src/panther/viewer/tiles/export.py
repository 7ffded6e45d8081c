"""Export of the current view and of the regions of a slide."""

import math

import numpy as np

from panther.charts.style import picture_bytes, plain_text, short
from panther.errors import InputError
from panther.explain.geometry import View, feature, regions
from panther.explain.slide_map import ROW, ColourBar, Sheet, colour_bar, scale_bar
from panther.storage.geojson import geojson_text
from panther.viewer.patches import PatchMap, Window
from panther.viewer.queries import LayerOptions, ViewQuery
from panther.viewer.tiles import render
from panther.viewer.tiles.layers import Layer
from panther.viewer.tiles.maker import LINES, Tiles
from panther.viewer.workbench import UnknownError, Workbench

BAR = 100  # units of a colour bar with its numbers
LARGEST = 4096  # pixels of a side
Line = tuple[str, str, str]  # of the legend: colour, number and name; a heading has no colour


@plain_text
def view_picture(title: str, view: View, lines: list[Line], bars: list[ColourBar], kind: str) -> bytes:
    """PNG or SVG of a view with legend, colour bars and scale bar; run in a worker process: matplotlib's settings belong to the process."""
    unit = max(1.0, max(view.size) / 1000)
    per_column = max(16, int(view.size[1] / (ROW * unit)) - 1)
    letters = max((len(short(line[2])) for line in lines), default=0)
    column = (74 + 6.6 * letters) * unit if lines else 0.0
    columns = math.ceil(len(lines) / per_column)
    least = max((min(len(lines), per_column) + 1.5) * ROW * unit, 200 * unit if bars else 0.0)
    sheet = Sheet([(title, view.background)], column * columns + BAR * unit * len(bars), unit, least=least)
    for index, line in enumerate(lines):
        across, down = divmod(index, per_column)
        _write(sheet, sheet.right + across * column, sheet.head + (down + 0.5) * ROW * unit, line)
    for index, bar in enumerate(bars):
        colour_bar(sheet, bar._replace(room=BAR * (len(bars) - index) - 6))
    ax = sheet.axes[0]
    if view.mpp is not None:
        scale_bar(ax, view, unit)
    ax.set_xlim(0, sheet.width)
    ax.set_ylim(sheet.height, 0)
    return picture_bytes(sheet.figure, kind)


def _write(sheet: Sheet, left: float, top: float, line: Line) -> None:
    colour, number, name = line
    at = (16, 52) if number else (16, 16)
    if colour:
        sheet.legend_line(left, top, colour, (number, short(name)), at)
        return
    sheet.write(left + at[0] * sheet.unit, top, number, size=8, color="#555555")
    sheet.write(left + at[1] * sheet.unit, top, short(name), size=8, weight="bold")


def blend(background: np.ndarray, layers: list[tuple[np.ndarray, float]]) -> np.ndarray:
    """Layers (h, w, 4), each with its opacity, over a picture (h, w, 3)."""
    out = background.astype(np.float32)
    for colours, opacity in layers:
        part = colours[..., 3:].astype(np.float32) * (opacity / 255)
        out += part * (colours[..., :3] - out)
    return np.round(out).astype(np.uint8)


def window_of(query: ViewQuery, patch_map: PatchMap) -> Window:
    """Part of the canvas that a query names, `pixels` wide; all of it by default."""
    canvas = patch_map.canvas
    if min(canvas.width, canvas.height) <= 0:
        raise UnknownError(" ".join((f"{patch_map.slide}: nothing to draw.", *patch_map.notes)))
    width, height = query.width or canvas.width - query.x, query.height or canvas.height - query.y
    if width <= 0 or height <= 0 or max(width / height, height / width) > 100:
        raise InputError(f"{patch_map.slide}: found a part of {width:g} x {height:g}, expected one inside the slide")
    scale = max(width / query.pixels, height / LARGEST)
    return Window(query.x, query.y, max(1, round(width / scale)), max(1, round(height / scale)), scale)


def export_view(tiles: Tiles, patch_map: PatchMap, query: ViewQuery, options: LayerOptions, kind: str) -> bytes:
    """PNG or SVG of a view with its layers, scale bar, legend and colour bars."""
    window = window_of(query, patch_map)
    background = np.full((window.height, window.width, 3), render.WHITE, np.uint8)
    if patch_map.canvas.image:
        with tiles.bench.image(patch_map.slide) as slide:
            background = render.grounded(render.pixels(slide, window), query.ground)
    pictures, lines, bars, titles = [], [], [], []
    opacities = (*query.opacity, *[1.0] * len(query.layer))
    # lines lie above all other layers
    for name, opacity in sorted(zip(query.layer, opacities), key=lambda layer: layer[0] in LINES):  # noqa: B905
        layer, codes, table = tiles.draw(patch_map, name, options, window)
        pictures.append((table[codes], opacity))
        titles.append(layer.title)
        if layer.classes:
            labels = tiles.painted(patch_map, name, options).labels
            assert labels is not None
            in_view = np.unique(labels[np.unique(patch_map.cells.under(window)[codes > 0])])
            lines += _legend(layer, patch_map, in_view.tolist())
        if layer.kind == "values":
            bars.append(_bar(layer, options))
    scale, corner = (1 / window.scale, 1 / window.scale), (window.left, window.top)
    view = View(blend(background, pictures), scale, corner, patch_map.canvas.mpp)
    title = f"{patch_map.slide}: {', '.join(titles)}" if titles else patch_map.slide
    return tiles.bench.compute(view_picture, title, view, lines, bars, kind)


def export_regions(bench: Workbench, patch_map: PatchMap, options: LayerOptions) -> str:
    """Regions of the prototypes, or of those that are isolated, as GeoJSON that QuPath opens."""
    if patch_map.grid is None or patch_map.assignment is None:
        raise UnknownError(" ".join((f"{patch_map.slide}: no regions of prototypes.", *patch_map.notes)))
    if patch_map.canvas.unit != "px":
        raise InputError(f"{patch_map.slide}: coordinates in micrometres, expected pixels; open it with its image")
    titles, colours = zip(*bench.legend(options.set), strict=True)
    names = {c: title.partition(" ")[2] for c, title in enumerate(titles) if " " in title}
    shown = [
        feature(region, names, patch_map.canvas.mpp, colours)
        for region in regions(patch_map.grid, patch_map.labels)
        if options.shown is None or region.prototype in options.shown
    ]
    return geojson_text(shown)


def _legend(layer: Layer, patch_map: PatchMap, classes: list[int]) -> list[Line]:
    """A heading and the classes that are in the view; of prototypes with their share of the slide."""
    heading, shares = "", [""] * len(layer.classes)
    if layer.id == "prototypes" and patch_map.weights is not None:
        heading, shares = "π", [f"{share:.3f}" for share in patch_map.weights]
    lines = [(layer.classes[k][1], shares[k], layer.classes[k][0]) for k in classes]
    return [("", heading, layer.title), *lines] if lines else []


def _bar(layer: Layer, options: LayerOptions) -> ColourBar:
    low, high = options.shown_range(layer.limits)
    shown = "" if (low, high) == layer.limits else f", shown from {low:.3g} to {high:.3g}"
    return ColourBar(f"{layer.unit or layer.title}{shown}", layer.scale, layer.limits)
