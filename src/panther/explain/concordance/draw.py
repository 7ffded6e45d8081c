"""Pictures of agreement: the table of prototypes and classes, and a slide's classes and tumour side by side (figures S1 to S4)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from panther.charts.chart import Chart
from panther.charts.prototypes import class_table
from panther.charts.style import INK, plain_text, short
from panther.errors import InputError
from panther.explain import palette
from panther.explain import slide_map as draw
from panther.explain.concordance.agreement import UNKNOWN, TumourMatch, Window, densest_window
from panther.explain.geometry import View
from panther.explain.names import Naming, row_colour
from panther.explain.scene import MapSettings, read_box
from panther.explain.slide_map import SlideMap, heat_pixels, map_pixels
from panther.slides import open_slide

ZOOM, FEWEST = 0.25, 6  # an enlarged window: part of the picture's sides, but at least so many patches across


def class_maps(
    slide_map: SlideMap, labels: np.ndarray, tissue: np.ndarray, classes: Sequence[str]
) -> tuple[SlideMap, SlideMap]:
    """Map of the prototypes' classes (labels (C,)) and of the patches' classes (tissue (N,)), in the same colours.

    Patches without a class are left out, so the image shows through.
    """
    namings = {k: Naming(name) for k, name in enumerate(classes)}

    def class_map(tissue: np.ndarray) -> SlideMap:
        known = tissue != UNKNOWN
        rows = np.eye(len(classes), dtype=np.float32)[tissue[known]]
        weights = rows.sum(0, dtype=np.float64) / max(1, len(rows))
        return replace(_only(slide_map, known), assignment=rows, weights=weights, namings=namings)

    return class_map(labels[slide_map.labels]), class_map(tissue)


def _only(slide_map: SlideMap, kept: np.ndarray) -> SlideMap:
    """Map of some of the patches (N,), without their shares."""
    grid = slide_map.grid._replace(cells=slide_map.grid.cells[kept], layer=slide_map.grid.layer[kept])
    return replace(slide_map, grid=grid)


@plain_text
def draw_classes(slide_map: SlideMap, by_prototype: SlideMap, by_patch: SlideMap) -> Any:
    """Original (where there is an image), patches by their prototype's class, patches by their class; a matplotlib figure."""
    slide_map, by_prototype, by_patch = (shown.within(draw.PANEL) for shown in (slide_map, by_prototype, by_patch))
    maps = {"class of the prototype": map_pixels(by_prototype), "class of the patch": map_pixels(by_patch)}
    lines = [
        (palette.colour(k), f"{by_prototype.weights[k]:.2f} | {by_patch.weights[k]:.2f}", short(name))
        for k, name in by_patch.names.items()
    ]
    legend = draw.Legend("prototypes | patches", lines, (16, 90))
    return draw.sheet_figure(slide_map, [*draw.original(slide_map), *maps.items()], draw.unit_of(slide_map), legend)


@dataclass(frozen=True)
class TumourMap:
    """One slide's tumour: by the classes' probability, and by the posterior of a prototype."""

    slide_map: SlideMap
    probability: np.ndarray  # (N,), NaN where unknown
    match: TumourMatch
    tumour: tuple[int, ...]  # all prototypes of the tumour
    image: Path | None = None
    region: Window | None = None  # in the units of the coordinates; None: where most tumour is


@plain_text
def draw_tumour(heat: TumourMap, settings: MapSettings, positive: str) -> Any:
    """Original, probability of the classes ``positive``, posterior of the tumour's prototype and of all tumour prototypes.

    Below them a window is enlarged. Returns a matplotlib figure.
    """
    whole = heat.slide_map.within(draw.PANEL)
    near = replace(whole, view=_window_view(heat, whole.view, settings))
    unit = draw.unit_of(whole)
    panels = [*draw.original(whole), *zip(_titles(heat, positive), _heatmaps(whole, heat), strict=True)]
    enlarged = [*draw.original(near), *(("", picture) for picture in _heatmaps(near, heat))]
    enlarged[0] = ("enlarged", enlarged[0][1])
    sheet = draw.Sheet([*panels, *enlarged], 0, unit, rows=2)
    draw.add_scale_bar_and_outline(sheet, whole, sheet.axes[: len(panels)])
    draw.add_scale_bar_and_outline(sheet, near, sheet.axes[len(panels) :])
    for ax in sheet.axes[: len(panels)]:
        _frame(ax, whole.view, near.view, unit)
    return sheet.figure


def class_chart(content: Mapping[str, Any], names: Sequence[str]) -> Chart:
    """Shares of the classes in each prototype, from what `concordance.json` holds."""
    classes = [str(row["class"]) for row in content["classes"]]
    rows = content["prototypes"]
    chosen = np.array([UNKNOWN if row.get("class") is None else classes.index(row["class"]) for row in rows])
    truth = (content.get("source") or {}).get("kind", "")
    colours = [row_colour(row) for row in rows]
    return class_table(np.array(content["confusion"]), chosen, names, classes, colours, truth)


def _heatmaps(slide_map: SlideMap, heat: TumourMap) -> list[np.ndarray]:
    """Probability of the tumour (patches without a label are left out), posterior of one and of all its prototypes."""
    known = np.isfinite(heat.probability)
    labelled = replace(_only(slide_map, known), assignment=heat.probability[known, None])
    total = slide_map.assignment[:, list(heat.tumour)].sum(1, keepdims=True)
    pictures = [heat_pixels(labelled, 0), heat_pixels(slide_map, heat.match.prototype)]
    return [*pictures, *([heat_pixels(replace(slide_map, assignment=total), 0)] if len(heat.tumour) > 1 else [])]


def _titles(heat: TumourMap, positive: str) -> list[str]:
    """Titles of the heatmaps; the name, which a narrow picture cuts off, comes last."""
    match = heat.match
    number, _, name = heat.slide_map.title(match.prototype).partition(" ")
    scores = (
        ", ".join(f"{title} {value:.3f}" for title, value in pair.items() if value is not None)
        for pair in ({"AUROC": match.auroc, "Dice": match.dice}, {"AUROC": match.auroc_all, "Dice": match.dice_all})
    )
    posterior = f"posterior of {number} (π {match.weight:.3f}): {next(scores)} {name}".rstrip()
    total = f"of the {len(heat.tumour)} tumour prototypes: {next(scores)}"
    return [f"{positive}: dark 0, yellow 1", posterior, *([total] if len(heat.tumour) > 1 else [])]


def _window_view(heat: TumourMap, view: View, settings: MapSettings) -> View:
    """Picture of the window, as large as the whole picture and of its shape."""
    width, height = view.size
    corners, pitch = heat.slide_map.grid.corners, heat.slide_map.grid.pitch
    extent = np.array(view.size) / view.scale
    if heat.region is None:  # the window with the most tumour, a part of the picture
        part = min(1.0, max(ZOOM, FEWEST * pitch / float(extent.min())))
        across, down = (extent * part).tolist()
        x, y, w, h = densest_window(corners, pitch, heat.probability, (across, down))
    else:
        x, y, w, h = heat.region
        if not ((corners < (x + w, y + h)) & (corners + pitch > (x, y))).all(1).any():
            raise InputError(f"region: no patch of {heat.slide_map.slide} lies in {x:g},{y:g},{w:g},{h:g}")
        # grown about its centre to the picture's shape, so that nothing is stretched
        across, down = max(w, h * width / height), max(h, w * height / width)
        x, y, w, h = x + (w - across) / 2, y + (h - down) / 2, across, down
    low = np.array(view.origin)
    # moved into the picture as far as it fits
    x, y = np.clip((x, y), low, np.maximum(low, low + extent - (w, h))).tolist()
    pixels = np.full((height, width, 3), 255, np.uint8)
    if heat.image is not None:
        with open_slide(heat.image, settings.resolution(heat.image, view.mpp)) as slide:
            pixels = read_box(slide, (x, y, w, h), (width, height))
    return replace(view, background=pixels, scale=(width / w, height / h), origin=(x, y))


def _frame(ax: Any, whole: View, near: View, unit: float) -> None:
    """Outline of the enlarged window on the whole picture."""
    from matplotlib.patches import Rectangle

    low = whole.pixels(np.array([near.origin]))[0]
    size = np.array(near.size) / near.scale * np.array(whole.scale)
    for colour, line in (("white", 3.0), (INK, 1.4)):
        ax.add_patch(Rectangle(tuple(low), *size.tolist(), fill=False, edgecolor=colour, linewidth=line * unit))
