"""What all figures of the report share. A figure is a plain dictionary that Plotly draws: `plotly.graph_objects.Figure(found)`
shows it in a notebook.
"""

import html
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from panther.report.style import BLUE, GREY, ORANGE

Figure = dict[str, Any]
INK, FAINT, GRID = "#26241f", "#8a857c", "#e8e4dc"
# Okabe and Ito's again, in another order than the prototypes': a class must not look like C0
GROUPS = (BLUE, ORANGE, "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000", "#F0E442")
SYMBOLS = ("circle", "diamond", "square", "triangle-up", "cross", "x", "star", "triangle-down")
FONT = "Inter, 'Helvetica Neue', Helvetica, Arial, sans-serif"
SEQUENTIAL = [[0.0, "#fbfaf7"], [0.25, "#cfe0ea"], [0.5, "#7fb2d1"], [0.75, "#2b7fb0"], [1.0, "#0b3d5c"]]
DIVERGING = [[0.0, "#0b4f7a"], [0.25, "#7fb2d1"], [0.5, "#fbfaf7"], [0.75, "#eaa57c"], [1.0, "#a84300"]]


def figure(traces: list[dict[str, Any]], height: int, **layout: Any) -> Figure:
    """Traces with the look of the report; the width is that of the page."""
    base: dict[str, Any] = {
        "height": height,
        "font": {"family": FONT, "size": 13, "color": INK},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 10, "r": 20, "t": 24, "b": 50},
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": GRID, "activecolor": FAINT},
        "hoverlabel": {"font": {"family": FONT, "size": 12}},
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "traceorder": "normal"},
        "showlegend": len(traces) > 1,
    }
    return plain({"data": traces, "layout": base | layout})


def axis(title: str = "", **more: Any) -> dict[str, Any]:
    """An axis with a quiet grid."""
    look = {"gridcolor": GRID, "zeroline": False, "linecolor": FAINT, "ticks": "outside", "tickcolor": FAINT}
    return {"title": {"text": title, "standoff": 10}, "automargin": True, **look, **more}


def names_axis(**more: Any) -> dict[str, Any]:
    """An axis of names, the first on top."""
    return categories(autorange="reversed") | more


def categories(**more: Any) -> dict[str, Any]:
    """An axis of names of which none is left out, however many there are."""
    return axis(type="category", tickmode="linear", dtick=1, showgrid=False, ticks="") | more


def text(words: object) -> str:
    """What people wrote, as Plotly must see it: its own little markup is taken literally."""
    return html.escape(str(words), quote=False)


def shortened(words: Sequence[str], most: int = 18) -> list[str]:
    """Names that fit under a bar."""
    return [word if len(word) <= most else f"{word[: most - 1]}…" for word in words]


def texts(words: Sequence[object]) -> list[str]:
    """The same for many."""
    return [text(word) for word in words]


def group_colour(index: int) -> str:
    """Colour of a class, a risk group or a method."""
    return GROUPS[index % len(GROUPS)]


def vertical(x: float, words: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A dashed line at x, and its label."""
    line = {"type": "line", "x0": x, "x1": x, "y0": 0, "y1": 1, "yref": "paper"}
    style = {"line": {"color": GREY, "width": 1, "dash": "dot"}, "layer": "below"}
    note = {"x": x, "y": 0, "yref": "paper", "yanchor": "bottom", "xanchor": "left", "text": words, "showarrow": False}
    return line | style, note | {"font": {"size": 11, "color": GREY}}


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
