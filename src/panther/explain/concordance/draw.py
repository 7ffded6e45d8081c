"""Pictures of agreement: the table of prototypes and classes, and a slide's classes and tumour side by side (figures S1 to S4)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from panther.charts.chart import Chart
from panther.charts.prototypes import class_table
from panther.charts.style import plain_text, short
from panther.explain import slide_map as draw
from panther.explain.concordance.agreement import UNKNOWN, TumourMatch
from panther.explain.names import Naming, class_colours, row_colour
from panther.explain.slide_map import SlideMap, heat_pixels, map_pixels


def class_maps(
    slide_map: SlideMap, labels: np.ndarray, tissue: np.ndarray, classes: Sequence[str]
) -> tuple[SlideMap, SlideMap]:
    """Map of the prototypes' classes (labels (C,)) and of the patches' classes (tissue (N,)), in the colours of their names.

    Patches without a class are left out, so the image shows through.
    """
    colours = class_colours(classes, slide_map.namings, slide_map.prototypes)
    namings = {k: Naming(name, colour=colour) for k, (name, colour) in enumerate(zip(classes, colours, strict=True))}

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
        (by_patch.prototype_colours[k], f"{by_prototype.weights[k]:.2f} | {by_patch.weights[k]:.2f}", short(name))
        for k, name in by_patch.names.items()
    ]
    legend = draw.Legend("prototypes | patches", lines, (16, 90))
    return draw.sheet_figure(slide_map, [*draw.original(slide_map), *maps.items()], legend)


@plain_text
def draw_tumour(slide_map: SlideMap, probability: np.ndarray, match: TumourMatch, tumour: Sequence[int], positive: str) -> Any:  # fmt: skip
    """Original, probability (N,) of the classes ``positive``, posterior of the tumour's prototype and of all ``tumour`` prototypes.

    Patches without a label (NaN) are left out. Returns a matplotlib figure.
    """
    shown, known = slide_map.within(draw.PANEL), np.isfinite(probability)
    labelled = replace(_only(shown, known), assignment=probability[known, None])
    # the name, which a narrow picture cuts off, comes last
    number, _, name = shown.title(match.prototype).partition(" ")
    posterior = f"posterior of {number} (π {match.weight:.3f}){_scores(match.auroc, match.dice)} {name}".rstrip()
    panels = [
        *draw.original(shown),
        (f"{positive}: dark 0, yellow 1", heat_pixels(labelled, 0)),
        (posterior, heat_pixels(shown, match.prototype)),
    ]
    if len(tumour) > 1:
        total = replace(shown, assignment=shown.assignment[:, list(tumour)].sum(1, keepdims=True))
        title = f"of the {len(tumour)} tumour prototypes{_scores(match.auroc_all, match.dice_all)}"
        panels.append((title, heat_pixels(total, 0)))
    return draw.sheet_figure(shown, panels)


def _scores(auroc: float | None, dice: float | None) -> str:
    texts = [f"{name} {value:.3f}" for name, value in (("AUROC", auroc), ("Dice", dice)) if value is not None]
    return f": {', '.join(texts)}" if texts else ""


def class_chart(content: Mapping[str, Any], names: Sequence[str]) -> Chart:
    """Shares of the classes in each prototype, from what `concordance.json` holds."""
    classes = [str(row["class"]) for row in content["classes"]]
    rows = content["prototypes"]
    chosen = np.array([UNKNOWN if row.get("class") is None else classes.index(row["class"]) for row in rows])
    truth = (content.get("source") or {}).get("kind", "")
    colours = [row_colour(row) for row in rows]
    return class_table(np.array(content["confusion"]), chosen, names, classes, colours, truth)
