"""Export of the current view and of the regions of a slide."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from panther.charts.style import picture_bytes, plain_text, short
from panther.errors import InputError
from panther.explain.geometry import View, feature, regions
from panther.explain.slide_map import ROW, ColourBar, Sheet, colour_bar, scale_bar
from panther.storage.geojson import geojson_text
from panther.viewer.patches import PatchMap
from panther.viewer.queries import LayerOptions, ViewQuery
from panther.viewer.tiles import render
from panther.viewer.tiles.layers import Layer
from panther.viewer.tiles.maker import GRID, OUTLINE, Tiles
from panther.viewer.tiles.pyramid import Window
from panther.viewer.workbench import UnknownError, Workbench

BAR = 100  # units of a colour bar with its numbers
LARGEST = 4096  # pixels of a side


@dataclass(frozen=True)
class Legend:
    """Classes of a layer: colour, number and name of each."""

    title: str
    head: str  # what the numbers are
    lines: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, eq=False)
class ViewPicture:
    """What is drawn; it pickles."""

    title: str
    view: View
    legends: tuple[Legend, ...] = ()
    bars: tuple[ColourBar, ...] = ()


def view_picture(picture: ViewPicture, kind: str) -> bytes:
    """PNG or SVG; run in a worker process, because matplotlib's settings belong to the process."""
    return picture_bytes(draw_view(picture), kind)


@plain_text
def draw_view(picture: ViewPicture) -> Any:
    """The view with legends, colour bars and scale bar; returns a matplotlib figure."""
    unit = max(1.0, max(picture.view.size) / 1000)
    # for each legend a heading, then one line for each class
    lines = [line for one in picture.legends if one.lines for line in (("", one.head, one.title), *one.lines)]
    per_column = max(16, int(picture.view.size[1] / (ROW * unit)) - 1)
    letters = max((len(short(line[2])) for line in lines), default=0)
    column = (74 + 6.6 * letters) * unit if lines else 0.0
    columns = -(-len(lines) // per_column)
    most = min(len(lines), per_column)
    room = column * columns + BAR * unit * len(picture.bars)
    least = max((most + 1.5) * ROW * unit, 200 * unit if picture.bars else 0.0)
    sheet = Sheet([(picture.title, picture.view.background)], room, unit, least=least)
    for place, line in enumerate(lines):
        across, down = divmod(place, per_column)
        _write(sheet, sheet.right + across * column, sheet.head + (down + 0.5) * ROW * unit, line)
    for place, bar in enumerate(picture.bars):
        colour_bar(sheet, bar._replace(room=BAR * (len(picture.bars) - place) - 6))
    ax = sheet.axes[0]
    if picture.view.mpp is not None:
        scale_bar(ax, picture.view, unit)
    ax.set_xlim(0, sheet.width)
    ax.set_ylim(sheet.height, 0)
    return sheet.figure


def _write(sheet: Sheet, left: float, top: float, line: tuple[str, str, str]) -> None:
    colour, number, name = line
    at = (16, 52) if number else (16, 16)
    if colour:
        sheet.legend_line(left, top, colour, (number, short(name)), at)
        return
    sheet.write(left + at[0] * sheet.unit, top, number, size=8, color="#555555")
    sheet.write(left + at[1] * sheet.unit, top, short(name), size=8, weight="bold")


def composed(background: np.ndarray, layers: list[tuple[np.ndarray, float]]) -> np.ndarray:
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
        raise UnknownError(" ".join(patch_map.notes) or f"{patch_map.slide}: there is nothing to draw")
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
            background = render.pixels(slide, window)
    pictures, legends, bars, titles = [], [], [], []
    index = None if patch_map.grid is None else patch_map.cells.under(window)
    opacities = (*query.opacity, *[1.0] * len(query.layer))
    # lines lie above all other layers
    for name, opacity in sorted(zip(query.layer, opacities), key=lambda one: one[0] in (GRID.id, OUTLINE.id)):  # noqa: B905
        layer, colours, seen = _drawn(tiles, patch_map, name, options, window, index)
        pictures.append((colours, opacity))
        titles.append(layer.title)
        if layer.classes:
            legends.append(_legend(layer, patch_map, seen))
        if layer.kind == "values":
            bars.append(_bar(layer, options))
    view = View(
        composed(background, pictures),
        (1 / window.scale, 1 / window.scale),
        (window.left, window.top),
        patch_map.canvas.mpp,
    )
    title = f"{patch_map.slide}: {', '.join(titles)}" if titles else patch_map.slide
    return tiles.bench.compute(view_picture, ViewPicture(title, view, tuple(legends), tuple(bars)), kind)


def export_regions(bench: Workbench, patch_map: PatchMap, options: LayerOptions) -> str:
    """Regions of the prototypes, or of those that are isolated, as GeoJSON that QuPath opens."""
    if patch_map.grid is None or patch_map.assignment is None:
        raise UnknownError(" ".join(patch_map.notes) or f"{patch_map.slide}: no prototypes, and so no regions")
    if patch_map.canvas.unit != "px":
        raise InputError(
            f"{patch_map.slide}: coordinates in micrometres, expected pixels; open it with its image (`--slides IMAGES`)"
        )
    look = bench.look(options.set)
    names = {c: title.partition(" ")[2] for c, (title, _) in enumerate(look) if " " in title}
    colours = [colour for _, colour in look]
    shown = [
        feature(one, names, patch_map.canvas.mpp, colours)
        for one in regions(patch_map.grid, patch_map.labels)
        if options.shown is None or one.prototype in options.shown
    ]
    return geojson_text(shown)


def _drawn(
    tiles: Tiles, patch_map: PatchMap, layer: str, options: LayerOptions, window: Window, index: np.ndarray | None
) -> tuple[Layer, np.ndarray, np.ndarray]:
    """A layer, its colours (h, w, 4), and which of its classes are seen."""
    none = np.zeros(0, int)
    if layer == OUTLINE.id:
        alpha = render.outline_alpha(tiles.outline(patch_map), window)
        colour = np.broadcast_to(np.array(render.OUTLINE_COLOUR, np.uint8), (*alpha.shape, 3))
        return OUTLINE, np.dstack([colour, alpha]), none
    if patch_map.grid is None or index is None:
        raise UnknownError(" ".join(patch_map.notes) or f"{patch_map.slide}: no patches")
    if layer == GRID.id:
        lines = render.borders(patch_map.cells, window, patch_map.grid.pitch).astype(np.uint8)
        return GRID, render.LINE[lines], none
    painted = tiles.painted(patch_map, layer, options)
    codes = painted.colours.codes[index]
    seen = none if painted.labels is None else np.unique(painted.labels[np.unique(index[codes > 0])])
    return painted.layer, painted.colours.table[codes], seen


def _legend(layer: Layer, patch_map: PatchMap, seen: np.ndarray) -> Legend:
    """Classes that are in the view; of prototypes with their share of the slide."""
    shares = patch_map.weights if layer.id == "prototypes" else None
    lines = tuple(
        (layer.classes[k][1], "" if shares is None else f"{shares[k]:.3f}", layer.classes[k][0]) for k in seen.tolist()
    )
    return Legend(layer.title, "" if shares is None else "π", lines)


def _bar(layer: Layer, options: LayerOptions) -> ColourBar:
    assert layer.low is not None
    assert layer.high is not None
    low, high = options.keeps(layer.low, layer.high)
    some = "" if (low, high) == (layer.low, layer.high) else f", shown from {low:.3g} to {high:.3g}"
    return ColourBar(f"{layer.unit or layer.title}{some}", layer.scale, (layer.low, layer.high))
