"""Charts as plain dictionaries that Plotly draws in a page."""

import html
import json
from collections.abc import Callable
from typing import Any

import numpy as np

from panther.charts.chart import Axis, Bars, Boxes, Chart, Heat, Line, Mark, Points, RowNotes
from panther.charts.style import DIVERGING, FAINT, GREY, GRID, INK, SEQUENTIAL, short

Trace = dict[str, Any]
FONT = "Inter, 'Helvetica Neue', Helvetica, Arial, sans-serif"
# pixels: a row of numbers under the ticks, the space above them, margins of the axes
ROW, GAP, MARGINS = 20, 40, 120
QUIET = {"showlegend": False, "hoverinfo": "skip"}


def convert(chart: Chart) -> dict[str, Any]:
    """Data and layout for Plotly; the width is that of the page."""
    traces = [trace for mark in chart.marks for trace in _TRACES[type(mark)](mark, chart)]
    is_matrix = any(isinstance(mark, Heat) for mark in chart.marks)
    layout: dict[str, Any] = {
        "height": chart.size[1],
        "font": {"family": FONT, "size": 13, "color": INK},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 10, "r": 110 if chart.row_notes else 20, "t": 36, "b": 50},
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": GRID, "activecolor": FAINT},
        "hoverlabel": {"font": {"family": FONT, "size": 12}},
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "traceorder": "normal"},
        "showlegend": any(mark.name for mark in chart.marks if not isinstance(mark, Heat)),
        "barmode": "stack",
        "boxmode": "group",
        "bargap": 0.3,
        "xaxis": _axis(chart.x, 18) | ({"showgrid": False} if is_matrix else {}),
        "yaxis": _axis(chart.y, 36),
        "shapes": [],
        "annotations": [],
    }
    if chart.y.names is not None:
        layout["yaxis"]["range"] = [len(chart.y.names) - 0.5, -0.5]
    _references(chart, layout)
    if chart.row_notes is not None:
        _row_notes(chart.row_notes, layout)
    if chart.at_risk:
        traces += _at_risk(chart, layout)
    return plain({"data": traces, "layout": layout})


def _known(**entries: Any) -> dict[str, Any]:
    return {key: value for key, value in entries.items() if value is not None}


def _axis(axis: Axis, letters: int) -> dict[str, Any]:
    # every name has its label, however many there are
    names = None if axis.names is None else [text(short(name, letters)) for name in axis.names]
    limits = None if None in axis.limits else list(axis.limits)
    if names is not None:
        limits = [-0.5, len(names) - 0.5]
    return _known(
        gridcolor=GRID, zeroline=False, linecolor=FAINT, tickcolor=FAINT, automargin=True,
        title={"text": text(axis.title), "standoff": 10},
        ticks="outside" if names is None else "",
        tickvals=axis.ticks if names is None else range(len(names)),
        ticktext=names,
        showgrid=None if names is None else False,
        range=limits,
        rangemode="tozero" if limits is None and axis.limits[0] is not None else None,
        tickformat=".0%" if axis.percent else None,
        showticklabels=False if axis.hidden else None,
    )  # fmt: skip


def _errors(middle: Any, low: Any, high: Any, **look: Any) -> dict[str, Any] | None:
    if low is None or high is None:
        return None
    return {"type": "data", "array": np.subtract(high, middle), "arrayminus": np.subtract(middle, low), **look}


def _bars(mark: Bars, chart: Chart) -> list[Trace]:
    name = text(mark.name)
    at = range(len(mark.lengths)) if mark.at is None else mark.at
    trace: Trace = {"type": "bar", "name": name, "marker": {"color": mark.colours}}
    if mark.vertical:
        hover = "%{x:,.4g}: %{y}<extra></extra>"
        return [trace | {"x": at, "y": mark.lengths, "width": mark.width, "hovertemplate": hover}]
    number = ":.1%" if chart.x.percent else ":,.4g"
    trace |= _known(
        orientation="h", y=at, x=mark.lengths, hovertemplate=f"%{{y}}: %{{x{number}}}<extra>{name}</extra>",
        error_x=_errors(mark.lengths, mark.low, mark.high, color=GREY, thickness=1.5, width=3),
    )  # fmt: skip
    if mark.text:
        trace |= {"text": mark.lengths, "textposition": "inside", "insidetextanchor": "middle"}
    if mark.key is None:
        return [trace]
    key = {"type": "bar", "name": name, "x": [None], "y": [None], "marker": {"color": mark.key}}
    return [trace | {"showlegend": False}, key]


def _points(mark: Points, chart: Chart) -> list[Trace]:
    colours = mark.colours
    marker: dict[str, Any] = {"color": colours, "symbol": f"{mark.marker}{'-open' * mark.hollow}", "size": mark.size}
    marker |= {"opacity": 0.6} if mark.hollow else {"opacity": 0.85, "line": {"width": 0.5, "color": "white"}}
    if mark.numbers is not None:
        title, values = mark.numbers
        bar = {"title": {"text": text(title)}, "thickness": 12}
        marker |= {"color": values, "colorscale": "Cividis", "colorbar": bar}
    colour = colours if isinstance(colours, str) else next(iter(colours), GREY)
    trace = _known(
        type="scatter", mode="markers", name=text(mark.name), x=mark.x, y=mark.y, marker=marker,
        hovertemplate="%{text}<extra></extra>" if mark.labels else "%{y}: %{x:.3f}<extra></extra>",
        text=[text(label) for label in mark.labels] if mark.labels else None,
        customdata=mark.keys or None,
        error_x=_errors(mark.x, mark.low, mark.high, color=colour, thickness=2, width=0),
    )  # fmt: skip
    return [trace]


def _line(mark: Line, chart: Chart) -> list[Trace]:
    name, shape = text(mark.name), "hv" if mark.step else "linear"
    base: Trace = {"type": "scatter", "legendgroup": name, "x": mark.x}
    single = len(mark.x) == 1 and mark.marker is None
    trace = base | _known(
        mode="markers" if single else "lines" if mark.marker is None else "lines+markers", name=name, y=mark.y,
        line={"color": mark.colour, "width": mark.width, "shape": shape, "dash": mark.dash},
        showlegend=None if name else False,
        marker=None if mark.marker is None else {"symbol": mark.marker, "size": 7},
        error_y=None if mark.step else _errors(mark.y, mark.low, mark.high),
    )  # fmt: skip
    traces = [trace]
    if mark.step and mark.low is not None and mark.high is not None:
        band = base | {"mode": "lines", "line": {"width": 0, "shape": shape}} | QUIET
        red, green, blue = (int(mark.colour[i : i + 2], 16) for i in (1, 3, 5))
        fill = {"fill": "tonexty", "fillcolor": f"rgba({red},{green},{blue},0.12)"}
        traces = [band | {"y": mark.low}, band | {"y": mark.high} | fill, trace]
    if mark.ticks is not None:
        stroke = {"symbol": "line-ns", "size": 7, "line": {"width": 1.2, "color": mark.colour}}
        traces.append(base | dict(zip("xy", mark.ticks, strict=True)) | {"mode": "markers", "marker": stroke} | QUIET)
    return traces


def _heat(mark: Heat, chart: Chart) -> list[Trace]:
    gap = 1 if len(mark.values.T) <= 100 else None
    trace = _known(
        type="heatmap", z=mark.values, zmin=mark.limits[0], zmax=mark.limits[1], xgap=gap, ygap=gap,
        colorscale=DIVERGING if mark.diverging else SEQUENTIAL,
        colorbar=_known(title={"text": text(mark.title)}, thickness=12, tickformat=".0%" if mark.percent else None),
        showscale=bool(mark.title),
        hovertemplate=f"%{{y}}, %{{x}}: %{{z{':.0%' if mark.percent else ':.3g'}}}<extra></extra>",
        text=None if mark.text is None else [[text(cell) for cell in row] for row in mark.text],
        texttemplate=None if mark.text is None else "%{text}",
    )  # fmt: skip
    return [trace]


def _boxes(mark: Boxes, chart: Chart) -> list[Trace]:
    box: Trace = dict(zip(("lowerfence", "q1", "median", "q3", "upperfence"), mark.quantiles, strict=True))
    trace: Trace = {"type": "box", "name": text(mark.name), "x": range(mark.quantiles.shape[1])} | box
    return [trace | {"marker": {"color": mark.colour}, "line": {"width": 1.3}}]


def _references(chart: Chart, layout: dict[str, Any]) -> None:
    for line in chart.references:
        place = {"type": "line", "x0": line.x, "x1": line.x, "y0": 0, "y1": 1, "yref": "paper", "layer": "below"}
        layout["shapes"].append(place | {"line": {"color": line.colour, "width": 1, "dash": line.dash}})
        note = {"x": line.x, "y": 0, "yref": "paper", "yanchor": "bottom", "xanchor": "left", "showarrow": False}
        layout["annotations"].append(note | {"text": text(line.text), "font": {"size": 11, "color": line.colour}})
    for mark in chart.marks:
        for cells, dash in ((mark.framed, "solid"), (mark.dotted, "dot")) if isinstance(mark, Heat) else ():
            layout["shapes"] += [
                {"type": "rect", "x0": column - 0.48, "x1": column + 0.48, "y0": row - 0.46, "y1": row + 0.46}
                | {"line": {"color": INK, "width": 1.5, "dash": dash}}
                for row, column in cells
            ]


def _row_notes(notes: RowNotes, layout: dict[str, Any]) -> None:
    place = {"x": 1, "xref": "paper", "xanchor": "left", "xshift": 6, "showarrow": False, "align": "left"}
    for row, note in enumerate(notes.texts):
        bold = row < len(notes.bold) and notes.bold[row]
        layout["annotations"].append(place | {"y": row, "text": f"<b>{text(note)}</b>" if bold else text(note)})
    head = {"y": 1, "yref": "paper", "yanchor": "bottom", "text": text(notes.title), "font": {"size": 11}}
    layout["annotations"].append(place | head)


def _at_risk(chart: Chart, layout: dict[str, Any]) -> list[Trace]:
    """Numbers below the ticks on a separate axis, in the space that they need."""
    count, ticks = len(chart.at_risk), list(chart.x.ticks or ())
    height = chart.size[1] + ROW * count + GAP
    inside = height - MARGINS
    share = (ROW * count + GAP) / inside
    layout["height"] = height
    layout["xaxis"] |= {"anchor": "y2"}
    layout["yaxis"] |= {"domain": [share, 1]}
    quiet = {"showgrid": False, "showticklabels": False, "ticks": "", "showline": False, "fixedrange": True}
    below = {"domain": [0, share - GAP / inside], "range": [count - 0.4, -0.6]}
    layout["yaxis2"] = _axis(Axis("at risk"), 36) | below | quiet | {"title": {"text": "at risk", "standoff": 24}}
    base = {"type": "scatter", "mode": "text", "x": ticks, "yaxis": "y2", "cliponaxis": False, "showlegend": False}
    return [
        base
        | {"y": [row] * len(ticks), "text": [f"{n:,}" for n in group.counts]}
        | {"textfont": {"color": group.colour, "size": 12}}
        | {"hovertemplate": f"{text(group.group)}: %{{text}} at risk<extra></extra>"}
        for row, group in enumerate(chart.at_risk)
    ]


def text(words: str) -> str:
    """Text of users with its markup escaped for Plotly."""
    return html.escape(words, quote=False).replace("\n", "<br>")


def plain(value: Any) -> Any:
    """Value for JSON: numbers of six digits, enough for drawing, and null for NaN and infinity."""
    return json.loads(
        json.dumps(value, default=_listed),
        parse_float=lambda digits: float(f"{float(digits):.6g}"),
        parse_constant=lambda _: None,
    )


def _listed(value: Any) -> Any:
    """Arrays and ranges as lists, numpy's numbers as Python's, anything else as text."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return list(value) if isinstance(value, range) else str(value)


_TRACES: dict[type[Mark], Callable[..., list[Trace]]] = {
    Bars: _bars, Points: _points, Line: _line, Heat: _heat, Boxes: _boxes,
}  # fmt: skip
