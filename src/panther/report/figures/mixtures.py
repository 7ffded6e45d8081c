"""Figures of mixtures: how much of each prototype there is in each sample, and which samples are alike."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from panther.explain.palette import colour as colour_of
from panther.report.figures._base import (
    FAINT,
    SEQUENTIAL,
    SYMBOLS,
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
from panther.report.style import GREY

MOST_GROUPS = 8  # more cannot be told apart; the smaller ones become "other"


def weights_heatmap(weights: np.ndarray, samples: Sequence[str], prototypes: Sequence[str]) -> Figure:
    """Samples (columns) by prototypes (rows), in the order given."""
    trace = {
        "type": "heatmap",
        "z": weights.T,
        "x": texts(samples),
        "y": texts(prototypes),
        "colorscale": SEQUENTIAL,
        "zmin": 0,
        "zmax": float(weights.max(initial=0)),
        "hovertemplate": "%{x}<br>%{y}: %{z:.3f}<extra></extra>",
        "colorbar": {"title": {"text": "π"}, "thickness": 12},
    }
    few = len(samples) <= 40
    return figure(
        [trace],
        130 + 22 * len(prototypes) + (50 if few else 0),
        xaxis=axis("samples", type="category", showgrid=False, showticklabels=few, ticks=""),
        yaxis=names_axis(),
    )


def weights_boxes(weights: np.ndarray, groups: Sequence[str], prototypes: Sequence[str]) -> Figure:
    """Distribution of each prototype's share, a box a group: the middle half, and whiskers over the middle 90 %."""
    names = shown_groups(groups)
    member = np.array([g if g in names else "other" for g in groups])
    traces = []
    for k, name in enumerate(names):
        # the five numbers of each box, not the samples: a page of ten thousand slides stays small
        low, first, middle, third, high = np.quantile(weights[member == name], [0.05, 0.25, 0.5, 0.75, 0.95], axis=0)
        traces.append(
            {
                "type": "box",
                "name": text(name),
                "x": texts(shortened(prototypes)),
                "lowerfence": low,
                "q1": first,
                "median": middle,
                "q3": third,
                "upperfence": high,
                "marker": {"color": _colour(name, k)},
                "line": {"width": 1.3},
            }
        )
    return figure(traces, 380, boxmode="group", xaxis=categories(), yaxis=axis("π", rangemode="tozero"))


def scatter(position: np.ndarray, samples: Sequence[str], groups: Sequence[str], axes: tuple[str, str]) -> Figure:
    """Samples as points (n, 2), coloured and shaped by group."""
    names = shown_groups(groups)
    member = np.array([g if g in names else "other" for g in groups])
    traces = []
    for k, name in enumerate(names):
        rows = np.flatnonzero(member == name).tolist()
        traces.append(
            _points(position[rows], [samples[i] for i in rows])
            | {
                "name": text(name),
                "marker": {
                    "color": _colour(name, k),
                    "symbol": SYMBOLS[k % len(SYMBOLS)],
                    "size": 8,
                    "opacity": 0.8,
                    "line": {"width": 0.5, "color": "white"},
                },
            }
        )
    return _square(traces, axes, showlegend=True)


def scatter_by_number(
    position: np.ndarray, samples: Sequence[str], values: np.ndarray, title: str, axes: tuple[str, str]
) -> Figure:
    """Samples as points, coloured by a number."""
    marker: dict[str, Any] = {
        "color": values,
        "colorscale": "Cividis",
        "size": 8,
        "line": {"width": 0.5, "color": "white"},
        "colorbar": {"title": {"text": text(title)}, "thickness": 12},
    }
    return _square([_points(position, samples) | {"marker": marker}], axes)


def shares(
    names: Sequence[str],
    share: Sequence[float],
    limits: tuple[Any, Any] | None,
    title: str,
    colours: Sequence[str] | None = None,
) -> Figure:
    """Share of each prototype, with the limits (low, high) of its interval where they are known; C0, C1, ... without colours of their own."""
    trace: dict[str, Any] = {
        "type": "bar",
        "orientation": "h",
        "y": texts(names),
        "x": list(share),
        "marker": {"color": [colour_of(c) for c in range(len(names))] if colours is None else list(colours)},
        "hovertemplate": "%{y}: %{x:.1%}<extra></extra>",
    }
    if limits is not None:
        down, up = np.subtract(share, limits[0]), np.subtract(limits[1], share)
        bars = {"type": "data", "array": up, "arrayminus": down, "color": GREY, "thickness": 1.5, "width": 3}
        trace["error_x"] = bars
    return figure([trace], 80 + 26 * len(names), xaxis=axis(title, tickformat=".0%"), yaxis=names_axis())


def shown_groups(groups: Sequence[str]) -> list[str]:
    """The most frequent groups by name, and `other` for the rest."""
    names, counts = np.unique(np.array([str(g) for g in groups]), return_counts=True)
    kept = sorted(names[np.argsort(-counts, kind="stable")][:MOST_GROUPS].tolist())
    return [*kept, "other"] if len(names) > len(kept) else kept


def _colour(name: str, number: int) -> str:
    return FAINT if name in ("other", "not known") else group_colour(number)


def _points(position: np.ndarray, samples: Sequence[str]) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "x": position[:, 0],
        "y": position[:, 1],
        "text": texts(samples),
        "hovertemplate": "%{text}<extra></extra>",
    }


def _square(traces: list[dict[str, Any]], axes: tuple[str, str], **layout: Any) -> Figure:
    return figure(traces, 480, xaxis=axis(axes[0]), yaxis=axis(axes[1]), **layout)
