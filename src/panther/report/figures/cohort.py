"""Figures of who is in the study and how they are divided."""

from collections.abc import Sequence

import numpy as np

from panther.report.figures._base import SEQUENTIAL, Figure, axis, figure, group_colour, names_axis, text, texts
from panther.report.style import BLUE


def stacked(rows: Sequence[str], groups: Sequence[str], counts: np.ndarray, title: str) -> Figure:
    """Bars (rows) divided into groups; ``counts`` (rows, groups)."""
    traces = [
        {
            "type": "bar",
            "orientation": "h",
            "name": text(name),
            "y": texts(rows),
            "x": counts[:, k],
            "marker": {"color": group_colour(k)},
            "text": counts[:, k].tolist(),
            "textposition": "inside",
            "insidetextanchor": "middle",
        }
        for k, name in enumerate(groups)
    ]
    return figure(
        traces,
        110 + 32 * len(rows),
        barmode="stack",
        bargap=0.3,
        showlegend=True,
        xaxis=axis(title),
        yaxis=names_axis(),
    )


def histogram(values: np.ndarray, title: str, bins: int = 30) -> Figure:
    """How often each size occurs."""
    count, edges = np.histogram(values, bins=bins)
    trace = {
        "type": "bar",
        "x": (edges[1:] + edges[:-1]) / 2,
        "y": count,
        "width": np.diff(edges) * 0.94,
        "marker": {"color": BLUE},
        "hovertemplate": "about %{x:,.4g}: %{y}<extra></extra>",
    }
    return figure([trace], 260, xaxis=axis(title), yaxis=axis("samples"))


def counts_heatmap(counts: np.ndarray, rows: Sequence[str], columns: Sequence[str], what: str) -> Figure:
    """How many of each row are in each column."""
    trace = {
        "type": "heatmap",
        "z": counts,
        "y": texts(rows),
        "x": texts(columns),
        "colorscale": SEQUENTIAL,
        "zmin": 0,
        "zmax": max(1, int(counts.max(initial=0))),
        "xgap": 2,
        "ygap": 2,
        "text": counts.tolist(),
        "texttemplate": "%{text}",
        "hovertemplate": "%{y}, %{x}: %{z}<extra></extra>",
        "colorbar": {"title": {"text": what}, "thickness": 12},
    }
    return figure([trace], 90 + 24 * len(rows), xaxis=axis(showgrid=False, side="top"), yaxis=names_axis())
