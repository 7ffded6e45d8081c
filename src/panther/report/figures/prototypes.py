"""Figures of prototypes beyond their share: per group, who touches whom, what drives a prediction."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from panther.report.figures._base import (
    DIVERGING,
    Figure,
    axis,
    categories,
    figure,
    group_colour,
    names_axis,
    shortened,
    text,
    texts,
)


def group_shares(names: Sequence[str], groups: Mapping[str, Sequence[tuple[float, float, float]]]) -> Figure:
    """Mean share with its interval by group: group -> one (mean, low, high) a prototype."""
    traces = []
    for k, (group, values) in enumerate(groups.items()):
        mean, low, high = (np.array(column, float) for column in zip(*values, strict=True))
        traces.append(
            {
                "type": "bar",
                "name": text(group),
                "x": texts(shortened(names)),
                "y": mean,
                "marker": {"color": group_colour(k)},
                "error_y": {
                    "type": "data",
                    "array": high - mean,
                    "arrayminus": mean - low,
                    "thickness": 1.3,
                    "width": 2,
                },
                "hovertemplate": "%{x}, " + text(group) + ": %{y:.1%}<extra></extra>",
            }
        )
    return figure(
        traces,
        360,
        barmode="group",
        showlegend=True,
        xaxis=categories(),
        yaxis=axis("share", tickformat=".0%", rangemode="tozero"),
    )


def matrix(values: Sequence[Sequence[float | None]], names: Sequence[str], title: str) -> Figure:
    """Prototypes by prototypes, around 0."""
    z = np.array([[np.nan if cell is None else cell for cell in row] for row in values], float)
    known = np.abs(z[np.isfinite(z)])
    reach = float(known.max()) if len(known) and known.max() > 0 else 1.0
    trace = {
        "type": "heatmap",
        "z": z,
        "x": texts(shortened(names)),
        "y": texts(names),
        "zmin": -reach,
        "zmax": reach,
        "colorscale": DIVERGING,
        "xgap": 1,
        "ygap": 1,
        "hovertemplate": "%{y} and %{x}: %{z:.2f}<extra></extra>",
        "colorbar": {"title": {"text": title}, "thickness": 12},
    }
    side = min(820, 200 + 26 * len(names))
    return figure([trace], side, xaxis=categories(), yaxis=names_axis())


def contributions(names: Sequence[str], by_statistic: Mapping[str, Sequence[float]], title: str) -> Figure:
    """Mean absolute contribution of each prototype, divided by what of it counts (π, μ, Σ)."""
    traces: list[dict[str, Any]] = [
        {
            "type": "bar",
            "orientation": "h",
            "name": text(statistic),
            "y": texts(names),
            "x": list(values),
            "marker": {"color": group_colour(k)},
        }
        for k, (statistic, values) in enumerate(by_statistic.items())
    ]
    return figure(
        traces, 110 + 26 * len(names), barmode="stack", showlegend=True, xaxis=axis(title), yaxis=names_axis()
    )
