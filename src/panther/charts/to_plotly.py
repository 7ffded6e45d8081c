"""Charts as plain dictionaries that Plotly draws in a page."""

import html
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from panther.charts.chart import Axis, Bars, Boxes, Chart, Heat, Line, Mark, Points
from panther.charts.style import DIVERGING, FAINT, GREY, GRID, INK, SEQUENTIAL, short

Trace = dict[str, Any]
FONT = "Inter, 'Helvetica Neue', Helvetica, Arial, sans-serif"
ROW, GAP, MARGINS = (
    20,
    40,
    120,
)  # pixels: a row of numbers under the ticks, the space above them, what lies outside the axes


def convert(chart: Chart) -> dict[str, Any]:
    """Data and layout; the width is that of the page."""
    traces = [trace for mark in chart.marks for trace in _TRACES[type(mark)](mark, chart)]
    named = sum(bool(mark.name) for mark in chart.marks if not isinstance(mark, Heat))
    layout: dict[str, Any] = {
        "height": chart.size[1],
        "font": {"family": FONT, "size": 13, "color": INK},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 10, "r": 110 if chart.row_notes else 20, "t": 36, "b": 50},
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": GRID, "activecolor": FAINT},
        "hoverlabel": {"font": {"family": FONT, "size": 12}},
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "traceorder": "normal"},
        "showlegend": named > 0,
        "barmode": "stack",
        "boxmode": "group",
        "bargap": 0.3,
        "xaxis": _axis(chart.x, 18),
        "yaxis": _axis(chart.y, 36),
        "shapes": [],
        "annotations": [],
    }
    if chart.y.names is not None:
        layout["yaxis"] |= {"range": [len(chart.y.names) - 0.5, -0.5]}
    if any(isinstance(mark, Heat) for mark in chart.marks):
        layout["xaxis"] |= {"showgrid": False}
    _references(chart, layout)
    _row_notes(chart, layout)
    if chart.at_risk:
        traces += _at_risk(chart, layout)
    return plain({"data": traces, "layout": layout})


def _axis(axis: Axis, letters: int) -> dict[str, Any]:
    look: dict[str, Any] = {"gridcolor": GRID, "zeroline": False, "linecolor": FAINT, "tickcolor": FAINT}
    look |= {"title": {"text": text(axis.title), "standoff": 10}, "automargin": True, "ticks": "outside"}
    if axis.names is not None:  # every one has its label, however many there are
        names = [text(short(name, letters)) for name in axis.names]
        look |= {"tickvals": list(range(len(names))), "ticktext": names, "showgrid": False, "ticks": ""}
        look |= {"range": [-0.5, len(names) - 0.5]}
    elif axis.limits[0] is not None and axis.limits[1] is not None:
        look |= {"range": list(axis.limits)}
    elif axis.limits[0] is not None:
        look |= {"rangemode": "tozero"}
    if axis.ticks is not None:
        look |= {"tickvals": list(axis.ticks)}
    if axis.percent:
        look |= {"tickformat": ".0%"}
    if axis.hidden:
        look |= {"showticklabels": False}
    return look


def _bars(mark: Bars, chart: Chart) -> list[Trace]:
    number = ":.1%" if chart.x.percent else ":,.4g"
    at = list(range(len(mark.lengths))) if mark.at is None else mark.at
    colours = mark.colours if isinstance(mark.colours, str) else list(mark.colours)
    trace: Trace = {"type": "bar", "name": text(mark.name), "marker": {"color": colours}}
    if mark.vertical:
        return [trace | {"x": at, "y": mark.lengths, "width": mark.width, "hovertemplate": "%{x:,.4g}: %{y}<extra></extra>"}]  # fmt: skip
    trace |= {"orientation": "h", "y": at, "x": mark.lengths, "hovertemplate": f"%{{y}}: %{{x{number}}}<extra>{text(mark.name)}</extra>"}  # fmt: skip
    if mark.text:
        trace |= {"text": mark.lengths, "textposition": "inside", "insidetextanchor": "middle"}
    if mark.low is not None and mark.high is not None:
        trace["error_x"] = _errors(mark.lengths, mark.low, mark.high) | {"color": GREY, "thickness": 1.5, "width": 3}
    if mark.key is None:
        return [trace]
    key = {"type": "bar", "name": text(mark.name), "x": [None], "y": [None], "marker": {"color": mark.key}}
    return [trace | {"showlegend": False}, key]


def _points(mark: Points, chart: Chart) -> list[Trace]:
    colours: Any = mark.colours if isinstance(mark.colours, str) else list(mark.colours)
    symbol = f"{mark.marker}-open" if mark.hollow else mark.marker
    marker: dict[str, Any] = {"color": colours, "symbol": symbol, "size": mark.size, "opacity": 0.6 if mark.hollow else 0.85}  # fmt: skip
    if not mark.hollow:
        marker["line"] = {"width": 0.5, "color": "white"}
    if mark.numbers is not None:
        title, values = mark.numbers
        bar = {"title": {"text": text(title)}, "thickness": 12}
        marker |= {"color": values, "colorscale": "Cividis", "colorbar": bar}
    trace: Trace = {"type": "scatter", "mode": "markers", "name": text(mark.name), "x": mark.x, "y": mark.y, "marker": marker}  # fmt: skip
    trace["hovertemplate"] = "%{text}<extra></extra>" if mark.labels else "%{y}: %{x:.3f}<extra></extra>"
    if mark.labels:
        trace["text"] = [text(label) for label in mark.labels]
    if mark.keys:
        trace["customdata"] = list(mark.keys)
    if mark.low is not None and mark.high is not None:
        colour = colours if isinstance(colours, str) else colours[0]
        trace["error_x"] = _errors(mark.x, mark.low, mark.high) | {"color": colour, "thickness": 2, "width": 0}
    return [trace]


def _line(mark: Line, chart: Chart) -> list[Trace]:
    name = text(mark.name)
    shape = "hv" if mark.step else "linear"
    base: Trace = {"type": "scatter", "legendgroup": name, "x": mark.x}
    alone = len(mark.x) == 1 and mark.marker is None
    mode = "markers" if alone else "lines" if mark.marker is None else "lines+markers"
    line = {"color": mark.colour, "width": mark.width, "shape": shape, "dash": mark.dash}
    trace = base | {"mode": mode, "name": name, "y": mark.y, "line": line}
    if not name:
        trace |= {"showlegend": False}
    if mark.marker is not None:
        trace["marker"] = {"symbol": mark.marker, "size": 7}
    traces = [trace]
    if mark.low is not None and mark.high is not None:
        if mark.step:
            band = base | {"mode": "lines", "line": {"width": 0, "shape": shape}, "hoverinfo": "skip", "showlegend": False}  # fmt: skip
            traces = [band | {"y": mark.low}, band | {"y": mark.high, "fill": "tonexty", "fillcolor": _rgba(mark.colour)}, trace]  # fmt: skip
        else:
            trace["error_y"] = _errors(mark.y, mark.low, mark.high)
    if mark.ticks is not None:
        stroke = {"symbol": "line-ns", "size": 7, "line": {"width": 1.2, "color": mark.colour}}
        x, y = mark.ticks
        quiet = {"showlegend": False, "hoverinfo": "skip"}
        traces.append(base | {"mode": "markers", "x": x, "y": y, "marker": stroke} | quiet)
    return traces


def _heat(mark: Heat, chart: Chart) -> list[Trace]:
    number = ":.0%" if mark.percent else ":.3g"
    bar = {"title": {"text": text(mark.title)}, "thickness": 12} | ({"tickformat": ".0%"} if mark.percent else {})
    trace: Trace = {
        "type": "heatmap",
        "z": mark.values,
        "zmin": mark.limits[0],
        "zmax": mark.limits[1],
        "colorscale": DIVERGING if mark.diverging else SEQUENTIAL,
        "colorbar": bar,
        "showscale": bool(mark.title),
        "hovertemplate": f"%{{y}}, %{{x}}: %{{z{number}}}<extra></extra>",
    }
    if len(mark.values.T) <= 100:
        trace |= {"xgap": 1, "ygap": 1}
    if mark.text is not None:
        trace |= {"text": [[text(cell) for cell in row] for row in mark.text], "texttemplate": "%{text}"}
    return [trace]


def _boxes(mark: Boxes, chart: Chart) -> list[Trace]:
    low, first, middle, third, high = mark.quantiles
    box = {"lowerfence": low, "q1": first, "median": middle, "q3": third, "upperfence": high}
    look = {"marker": {"color": mark.colour}, "line": {"width": 1.3}}
    return [{"type": "box", "name": text(mark.name), "x": list(range(len(low))), **box, **look}]


def _errors(middle: Any, low: Any, high: Any) -> dict[str, Any]:
    return {"type": "data", "array": np.subtract(high, middle), "arrayminus": np.subtract(middle, low)}


def _references(chart: Chart, layout: dict[str, Any]) -> None:
    for line in chart.references:
        place = {"type": "line", "x0": line.x, "x1": line.x, "y0": 0, "y1": 1, "yref": "paper", "layer": "below"}
        layout["shapes"].append(place | {"line": {"color": line.colour, "width": 1, "dash": line.dash}})
        note = {"x": line.x, "y": 0, "yref": "paper", "yanchor": "bottom", "xanchor": "left", "showarrow": False}
        layout["annotations"].append(note | {"text": text(line.text), "font": {"size": 11, "color": line.colour}})
    for mark in chart.marks:
        if isinstance(mark, Heat):
            for cells, dash in ((mark.framed, "solid"), (mark.dotted, "dot")):
                layout["shapes"] += [
                    {"type": "rect", "x0": column - 0.48, "x1": column + 0.48, "y0": row - 0.46, "y1": row + 0.46}
                    | {"line": {"color": INK, "width": 1.5, "dash": dash}}
                    for row, column in cells
                ]


def _row_notes(chart: Chart, layout: dict[str, Any]) -> None:
    notes = chart.row_notes
    if notes is None:
        return
    place = {"x": 1, "xref": "paper", "xanchor": "left", "xshift": 6, "showarrow": False, "align": "left"}
    for row, words in enumerate(notes.texts):
        bold = row < len(notes.bold) and notes.bold[row]
        layout["annotations"].append(place | {"y": row, "text": f"<b>{text(words)}</b>" if bold else text(words)})
    head = {"y": 1, "yref": "paper", "yanchor": "bottom", "text": text(notes.title), "font": {"size": 11}}
    layout["annotations"].append(place | head)


def _at_risk(chart: Chart, layout: dict[str, Any]) -> list[Trace]:
    """Numbers below the ticks on an axis of their own, in the space that they need."""
    count, ticks = len(chart.at_risk), list(chart.x.ticks or ())
    rows = ROW * count + GAP
    height = chart.size[1] + rows
    share = rows / (height - MARGINS)  # of what is between the margins
    layout["height"] = height
    layout["xaxis"] |= {"anchor": "y2"}
    layout["yaxis"] |= {"domain": [share, 1]}
    quiet = {"showgrid": False, "showticklabels": False, "ticks": "", "showline": False, "fixedrange": True}
    below = {"domain": [0, share - GAP / (height - MARGINS)], "range": [count - 0.4, -0.6]}
    layout["yaxis2"] = _axis(Axis("at risk"), 36) | below | quiet
    return [
        {
            "type": "scatter",
            "mode": "text",
            "x": ticks,
            "y": [row] * len(ticks),
            "yaxis": "y2",
            "text": [f"{n:,}" for n in group.counts],
            "textfont": {"color": group.colour, "size": 12},
            "cliponaxis": False,
            "showlegend": False,
            "hovertemplate": f"{text(group.group)}: %{{text}} at risk<extra></extra>",
        }
        for row, group in enumerate(chart.at_risk)
    ]


def _rgba(colour: str) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.12)"


def text(words: str) -> str:
    """What people wrote, as Plotly must see it: its own little markup is taken literally."""
    return html.escape(words, quote=False).replace("\n", "<br>")


def plain(value: Any) -> Any:
    """As JSON knows it: six digits are enough to draw with, and what is not a number is null."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value if value is None else str(value)


_TRACES: dict[type[Mark], Callable[..., list[Trace]]] = {
    Bars: _bars, Points: _points, Line: _line, Heat: _heat, Boxes: _boxes,
}  # fmt: skip
