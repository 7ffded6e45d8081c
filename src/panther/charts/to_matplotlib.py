"""Charts as matplotlib figures, for files and notebooks."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from panther.charts.chart import Axis, Bars, Boxes, Chart, Heat, Line, Mark, Points, RowNotes
from panther.charts.style import DIVERGING, DPI, GREY, INK, MISSING, SEQUENTIAL, plain_text, short

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MARKERS = dict(zip(("circle", "square", "diamond", "triangle-up", "triangle-down", "cross", "x", "star"), "osD^vPX*", strict=True))  # fmt: skip
DASHES = {"solid": "-", "dash": "--", "dot": ":"}
LEGEND_COLUMN = 240  # pixels
POINTS = 72 / DPI  # of a pixel


@plain_text
def draw(
    grid: Sequence[Sequence[Chart]],
    *,
    widths: Sequence[float] | None = None,
    shared: bool = False,
    captions: tuple[str, str] = ("", ""),
) -> "Figure":
    """Charts in rows; the last row may be shorter.

    Parameters
    ----------
    widths
        Of the columns, relative to each other.
    shared
        Whether all have the same axes; ``captions`` then name them, below and on the left.
    """
    from matplotlib.figure import Figure

    columns = max(map(len, grid))
    size = max(sum(c.size[0] for c in row) for row in grid), sum(max(c.size[1] for c in row) for row in grid)
    figure = Figure(figsize=(size[0] / DPI, size[1] / DPI), dpi=DPI, layout="constrained", facecolor="white")
    axes = figure.subplots(len(grid), columns, squeeze=False, sharex=shared, sharey=shared, width_ratios=widths)
    for row, charts in zip(axes, grid, strict=True):
        for ax, chart in zip(row, charts, strict=False):
            _chart(ax, chart)
            ax.tick_params(labelbottom=True)
        for ax in row[len(charts) :]:
            ax.set_axis_off()
    if any(captions):
        figure.supxlabel(captions[0], fontsize=9)
        figure.supylabel(captions[1], fontsize=9)
    return figure


def _chart(ax: Any, chart: Chart) -> None:
    ax.spines[["top", "right"]].set_visible(False)
    ends: dict[str, np.ndarray] = {}  # where stacked bars end
    for mark in chart.marks:
        _DRAW[type(mark)](ax, mark, ends)
    for line in chart.references:
        ax.axvline(line.x, color=line.colour, linestyle=DASHES[line.dash], linewidth=1.2, zorder=1)
        ax.annotate(
            line.text, (line.x, 0.03), (4, 0), ("data", "axes fraction"), "offset points", color=line.colour, fontsize=9
        )
    _axis(ax.xaxis, chart.x, ax.set_xlim, 18)
    _axis(ax.yaxis, chart.y, ax.set_ylim, 36)
    if chart.y.names is not None:
        ax.set_ylim(len(chart.y.names) - 0.5, -0.5)
    if any(isinstance(mark, Heat) for mark in chart.marks):
        ax.spines[:].set_visible(False)
        ax.tick_params(length=0)
    else:
        ax.grid(axis="y" if chart.y.names is not None else "both", color="#eeeeee", linewidth=0.8)
    ax.set_axisbelow(True)
    for label, colour in zip(ax.get_yticklabels(), chart.row_colours or (), strict=False):
        label.set_bbox({"facecolor": colour, "alpha": 0.35, "edgecolor": "none", "pad": 1.5})
    if chart.row_notes is not None:
        _row_notes(ax, chart.row_notes)
    _at_risk(ax, chart)
    rows = _legend(ax, chart)
    ax.set_title(chart.title, loc="left", fontsize=10.5, weight="bold", pad=6 + 15 * rows)


def _axis(axis: Any, content: Axis, set_limits: Callable[..., Any], letters: int) -> None:
    axis.set_label_text(content.title, fontsize=9)
    if content.names is not None:
        axis.set_ticks(range(len(content.names)), [short(name, letters) for name in content.names])
    elif content.ticks is not None:
        axis.set_ticks(list(content.ticks))
    if content.names is None and content.limits != (None, None):
        set_limits(*content.limits)
    if content.percent:
        axis.set_major_formatter(lambda value, _: f"{value:.0%}")
    if content.hidden:
        axis.set_ticks([])
    axis.set_tick_params(labelsize=8.5)


def _bars(ax: Any, mark: Bars, ends: dict[str, np.ndarray]) -> None:
    lengths = np.asarray(mark.lengths, float)
    at = np.arange(len(lengths)) if mark.at is None else np.asarray(mark.at)
    if mark.vertical:
        ax.bar(at, lengths, mark.width, color=mark.colours)
        return
    start = ends.get("bars", np.zeros(len(lengths)))
    bars = ax.barh(at, lengths, mark.width, left=start, color=mark.colours)
    key = mark.key or (mark.colours if isinstance(mark.colours, str) else mark.colours[0])
    ax.barh([0], [0], color=key, label=mark.name or None)
    if mark.low is not None and mark.high is not None:
        ax.hlines(at, mark.low, mark.high, color=GREY, linewidth=1.2)
    if mark.text:
        ax.bar_label(bars, [f"{n:g}" if n else "" for n in lengths], label_type="center", color="white", fontsize=8)
    ends["bars"] = start + lengths


def _points(ax: Any, mark: Points, _: Mapping[str, np.ndarray]) -> None:
    if mark.low is not None and mark.high is not None:
        ax.hlines(mark.y, mark.low, mark.high, color=mark.colours, linewidth=1.8)
    look: dict[str, Any] = {"color": mark.colours, "edgecolor": INK, "alpha": 0.9, "linewidth": 0.05 * mark.size}
    if mark.numbers is not None:
        look = {"c": mark.numbers[1], "cmap": "cividis", "edgecolor": "white", "linewidth": 0.05 * mark.size}
    elif mark.hollow:
        look = {"facecolor": "none", "edgecolor": mark.colours, "linewidth": 1.0}
    size = (mark.size * POINTS) ** 2
    drawn = ax.scatter(mark.x, mark.y, s=size, marker=MARKERS[mark.marker], zorder=3, label=mark.name or None, **look)
    if mark.numbers is not None:
        ax.figure.colorbar(drawn, ax=ax, label=mark.numbers[0], aspect=24)


def _line(ax: Any, mark: Line, _: Mapping[str, np.ndarray]) -> None:
    look: dict[str, Any] = {"color": mark.colour, "linestyle": DASHES[mark.dash], "linewidth": 0.7 * mark.width}
    look |= {"label": mark.name or None, "marker": None if mark.marker is None else MARKERS[mark.marker]}
    limits = None if mark.low is None or mark.high is None else (np.asarray(mark.low), np.asarray(mark.high))
    if limits is not None and not mark.step:
        ax.errorbar(mark.x, mark.y, [mark.y - limits[0], limits[1] - mark.y], capsize=3, **look)
    else:
        ax.plot(mark.x, mark.y, drawstyle="steps-post" if mark.step else "default", **look)
    if limits is not None and mark.step:
        ax.fill_between(mark.x, *limits, step="post", color=mark.colour, alpha=0.12, linewidth=0)
    if mark.ticks is not None:
        ax.plot(*mark.ticks, linestyle="", marker="|", markersize=5, markeredgewidth=0.9, color=mark.colour)


def _heat(ax: Any, mark: Heat, _: Mapping[str, np.ndarray]) -> None:
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.patches import Rectangle

    colours = LinearSegmentedColormap.from_list("", DIVERGING if mark.diverging else SEQUENTIAL)
    low, high = mark.limits
    shown = np.ma.masked_invalid(mark.values)
    image = ax.imshow(shown, cmap=colours.with_extremes(bad=MISSING), vmin=low, vmax=high, aspect="auto")
    for (row, column), value in np.ndenumerate(mark.values):
        if mark.text is not None and np.isfinite(value):
            part = (value - low) / (high - low or 1)
            dark = abs(2 * part - 1) > 0.6 if mark.diverging else part > 0.6
            ax.text(column, row, mark.text[row][column], ha="center", va="center", fontsize=8, color="white" if dark else INK)  # fmt: skip
    for cells, style in ((mark.framed, "-"), (mark.dotted, ":")):
        for row, column in cells:
            place = (column - 0.48, row - 0.46)
            ax.add_patch(Rectangle(place, 0.96, 0.92, fill=False, edgecolor=INK, linewidth=1.3, linestyle=style))
    if mark.title:
        extend = ("neither", "min", "max", "both")[bool((shown < low).any()) + 2 * bool((shown > high).any())]
        numbers = "{x:.0%}" if mark.percent else None
        ax.figure.colorbar(image, ax=ax, label=mark.title, shrink=0.9, aspect=24, extend=extend, format=numbers)


def _boxes(ax: Any, mark: Boxes, ends: dict[str, np.ndarray]) -> None:
    keys = ("whislo", "q1", "med", "q3", "whishi")
    stats = [dict(zip(keys, one, strict=True)) for one in mark.quantiles.T.tolist()]
    group = len(ends)  # boxes of further groups stand beside those before
    ends[f"boxes {group}"] = np.zeros(0)
    look = {"boxprops": {"facecolor": mark.colour, "alpha": 0.6}, "medianprops": {"color": INK}}
    at = np.arange(len(stats)) + 0.18 * group
    ax.bxp(stats, at, widths=0.15, showfliers=False, patch_artist=True, manage_ticks=False, **look)
    ax.bar([0], [0], color=mark.colour, label=mark.name)


def _row_notes(ax: Any, notes: RowNotes) -> None:
    place: Any = {"textcoords": "offset points", "fontsize": 8.5}
    for row, text in enumerate(notes.texts):
        weight = "bold" if row < len(notes.bold) and notes.bold[row] else "normal"
        ax.annotate(text, (1, row), (8, 0), ("axes fraction", "data"), va="center", weight=weight, **place)
    ax.annotate(notes.title, (1, 1), (8, 6), "axes fraction", va="bottom", **place)


def _at_risk(ax: Any, chart: Chart) -> None:
    if not chart.at_risk:
        return
    # the layout leaves room for a label, not for texts
    ax.set_xlabel("\n" * len(chart.at_risk) + chart.x.title, fontsize=8)
    for row, group in enumerate(chart.at_risk):
        place: Any = {"textcoords": "offset points", "xytext": (0, -23 - 9.5 * row), "annotation_clip": False}
        look: Any = {"ha": "center", "va": "center", "fontsize": 7, "color": group.colour}
        for x, count in zip(chart.x.ticks or (), group.counts, strict=True):
            ax.annotate(f"{count:,}", (x, 0), xycoords=("data", "axes fraction"), **place, **look)


def _legend(ax: Any, chart: Chart) -> int:
    """Draw the legend above the chart; returns its rows."""
    handles = len(ax.get_legend_handles_labels()[0])
    columns = max(1, min(handles, chart.size[0] // LEGEND_COLUMN))
    if handles:
        ax.legend(
            frameon=False, fontsize=8.5, loc="lower left", bbox_to_anchor=(-0.01, 1), ncols=columns, borderpad=0.1
        )
    return -(-handles // columns)


_DRAW: dict[type[Mark], Callable[..., None]] = {Bars: _bars, Points: _points, Line: _line, Heat: _heat, Boxes: _boxes}
