"""Attributions as pictures: the cohort's, and one slide's with every patch in the colour of what its prototype adds."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from panther.explain import draw, palette
from panther.explain.attribution.model import Attribution
from panther.explain.names import label
from panther.explain.slide_map import DIVERGING, SlideMap, heat_colours, value_pixels

MOST_OUTPUTS, MOST_PROTOTYPES = 6, 20  # in one picture
LISTED = 12  # prototypes beside a slide
SHADES = (1.0, 0.55, 0.25, 0.12)  # of a prototype's colour, one a statistic


@draw.plain_text
def draw_cohort(found: Attribution, names: Mapping[int, str]) -> Any:
    """Mean size of each prototype's contribution by statistic, and every sample's contribution; returns a matplotlib figure."""
    from matplotlib.figure import Figure

    totals = found.by_prototype()  # (n, K, C)
    outputs = _largest(np.abs(totals).mean((0, 2)), MOST_OUTPUTS)
    shown = _largest(np.abs(totals).mean((0, 1)), MOST_PROTOTYPES)
    rows = [label(c, dict(names)) for c in shown]
    height = 0.9 + len(outputs) * (1.0 + 0.27 * len(shown))
    figure = Figure(figsize=(11, height), layout="constrained")
    grid = figure.subplots(len(outputs), 2, squeeze=False, width_ratios=(2, 3))
    for (bars, swarm), k in zip(grid, sorted(outputs), strict=True):
        _bars(bars, found, k, shown)
        _swarm(swarm, totals[:, k], shown)
        name = found.outputs[k]
        bars.set_title(f"{name}: mean size of the contribution", loc="left", fontsize=10)
        swarm.set_title(f"{name}: contribution in each of {len(totals)} samples", loc="left", fontsize=10)
        for ax in (bars, swarm):
            ax.spines[["top", "right"]].set_visible(False)
            ax.set_ylim(len(shown) - 0.5, -0.5)
            ax.tick_params(labelsize=8)
        bars.set_yticks(range(len(shown)), [draw.short(row) for row in rows], fontsize=8)
        swarm.set_yticks(range(len(shown)), [row.split(" ")[0] for row in rows], fontsize=8)
    grid[-1, 0].set_xlabel("mean |contribution| of each statistic", fontsize=9)
    grid[-1, 1].set_xlabel("left: takes away from the output; right: adds to it", fontsize=9)
    return figure


def _bars(ax: Any, found: Attribution, k: int, shown: Sequence[int]) -> None:
    """Stacked bars, one a prototype, darkest the first statistic."""
    from matplotlib.patches import Patch

    size = np.abs(found.contributions[:, k]).mean(0)  # (P,)
    where = {player: p for p, player in enumerate(found.players)}
    statistics = list(dict.fromkeys(statistic for _, statistic in found.players))
    left = np.zeros(len(shown))
    for shade, statistic in zip(SHADES, statistics, strict=False):
        width = np.array([size[where[c, statistic]] for c in shown])
        colours = [(palette.colour(c), shade) for c in shown]
        ax.barh(range(len(shown)), width, left=left, color=colours, height=0.7)
        left += width
    if len(statistics) > 1:
        keys = [
            Patch(color=("#000000", shade * 0.8), label=statistic)
            for shade, statistic in zip(SHADES, statistics, strict=False)
        ]
        ax.legend(handles=keys, frameon=False, fontsize=8, loc="lower right")


def _swarm(ax: Any, values: np.ndarray, shown: Sequence[int]) -> None:
    """One dot a sample; dots of nearly equal values move apart."""
    ax.axvline(0, color=draw.INK, linewidth=0.8, zorder=0)
    span = float(np.abs(values[:, list(shown)]).max()) or 1.0
    for row, c in enumerate(shown):
        offset = swarm_offsets(values[:, c], span / 40)
        ax.scatter(
            values[:, c],
            row + offset,
            s=9,
            color=palette.colour(c),
            edgecolors=draw.INK,
            linewidths=0.2,
            alpha=0.85,
        )


def swarm_offsets(values: np.ndarray, width: float) -> np.ndarray:
    """Heights (n,) within +-0.38 that move apart dots whose values share a bin of this width."""
    bins = np.floor(values / width).astype(np.int64)
    offset = np.zeros(len(values))
    largest = max(int(np.unique(bins, return_counts=True)[1].max()), 8)
    for one in np.unique(bins):
        members = np.flatnonzero(bins == one)
        members = members[np.argsort(values[members], kind="stable")]
        offset[members] = (np.arange(len(members)) - (len(members) - 1) / 2) * 0.76 / largest
    return offset


class Shown(NamedTuple):
    """One output's contributions on one slide."""

    output: str
    contributions: np.ndarray  # (C,), a prototype's statistics together


def outputs_to_show(found: Attribution, row: int) -> list[Shown]:
    """Predicted output of a sample first; with three and more also the runner-up. Of two, one is the other's mirror."""
    totals = found.by_prototype()[row]  # (K, C)
    count = 1 if len(found.outputs) <= 2 else 2
    return [Shown(found.outputs[k], totals[k]) for k in np.argsort(-found.values[row], kind="stable")[:count].tolist()]


def patch_values(assignment: np.ndarray, contributions: np.ndarray) -> np.ndarray:
    r"""Contribution of each patch's prototype, weighted by the posterior: :math:`v_n = \sum_c q_{nc} \phi_c`, (N,)."""
    return assignment @ contributions


@draw.plain_text
def draw_attribution(found: SlideMap, outputs: Sequence[Shown]) -> Any:
    """Original (where there is an image) beside what each patch's prototype adds to the outputs; returns a matplotlib figure."""
    found = found.within(draw.PANEL)
    unit = draw.unit_of(found)
    limit = max(float(np.abs(shown.contributions).max()) for shown in outputs)
    panels = {
        found.slide: found.view.background,
        **{
            f"what adds to {shown.output} (red) or takes from it (blue)": value_pixels(
                found, patch_values(found.assignment, shown.contributions), limit
            )
            for shown in outputs
        },
    }
    if found.view.blank:
        del panels[found.slide]
    listed = _largest(np.abs(outputs[0].contributions), LISTED)
    letters = max(len(draw.short(found.title(c))) for c in listed)
    text = (86 + 6.6 * letters) * unit
    sheet = draw.Sheet(list(panels.values()), text + 110 * unit, unit, least=(len(listed) + 3) * draw.ROW * unit)
    for number, title in enumerate(panels):
        sheet.title(number, title)
    _list(sheet, found, outputs[0], listed, limit)
    draw.colour_bar(sheet, draw.Bar("contribution of the patch's prototype", DIVERGING, (-limit, limit), 94))
    draw.add_scale_bar_and_outline(sheet, found)
    return sheet.figure


def _list(sheet: draw.Sheet, found: SlideMap, shown: Shown, listed: Sequence[int], limit: float) -> None:
    """Prototypes of the largest contributions, with their numbers."""
    from matplotlib.patches import Rectangle

    unit, start = sheet.unit, sheet.gap + sheet.columns * (sheet.width + sheet.gap)
    sheet.write(start, sheet.head + 0.5 * draw.ROW * unit, draw.short(shown.output, 24), size=8, weight="bold")
    for line, c in enumerate(listed):
        top = sheet.head + (line + 1.7) * draw.ROW * unit
        value = float(shown.contributions[c])
        colour = heat_colours(np.array([(value / limit + 1) / 2 if limit > 0 else 0.5]), DIVERGING)[0] / 255
        x, y, w, h = sheet.box(start, top - 5.5 * unit, 11 * unit, 11 * unit)
        swatch = Rectangle((x, y), w, h, transform=sheet.figure.transFigure, linewidth=0.4 * unit, edgecolor=draw.INK)
        swatch.set_facecolor(tuple(colour))
        sheet.figure.add_artist(swatch)
        sheet.write(start + 16 * unit, top, f"{value:+.3f}", size=8, color="#555555")
        sheet.write(start + 66 * unit, top, draw.short(found.title(c)), size=8)


def _largest(size: np.ndarray, most: int) -> list[int]:
    return [int(i) for i in np.argsort(-size, kind="stable")[:most]]
