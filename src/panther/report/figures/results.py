"""Figures of results: forest plots, curves, confusion matrices."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from panther.evaluation.survival_metrics import KaplanMeier, number_at_risk, round_times
from panther.report.figures._base import (
    FAINT,
    SEQUENTIAL,
    Figure,
    axis,
    figure,
    group_colour,
    names_axis,
    text,
    texts,
    vertical,
)
from panther.report.style import BLUE, ORANGE


class Estimate(NamedTuple):
    """A mean with its interval, and what it is the mean of."""

    name: str
    mean: float
    low: float
    high: float
    folds: Sequence[float]


def forest(rows: Sequence[Estimate], metric: str, chance: float | None = None, marked: Sequence[str] = ()) -> Figure:
    """Mean and interval of each method as a line, every fold as a dot; ``marked`` are drawn in another colour."""
    colours = [ORANGE if row.name in marked else BLUE for row in rows]
    folds = [(value, row.name, number) for row in rows for number, value in enumerate(row.folds)]
    dots = {
        "type": "scatter",
        "mode": "markers",
        "name": "one fold",
        "x": [value for value, _, _ in folds],
        "y": texts([name for _, name, _ in folds]),
        "marker": {"color": FAINT, "size": 7, "opacity": 0.55, "symbol": "circle-open"},
        "hovertemplate": "%{y}<br>%{x:.3f}<extra>one fold</extra>",
    }
    bars = {
        "type": "scatter",
        "mode": "markers",
        "name": "mean and 95 % interval over patients",
        "x": [row.mean for row in rows],
        "y": texts([row.name for row in rows]),
        "marker": {"color": colours, "size": 10, "symbol": "square"},
        "error_x": {
            "type": "data",
            "array": [row.high - row.mean for row in rows],
            "arrayminus": [row.mean - row.low for row in rows],
            "color": BLUE,
            "thickness": 2,
            "width": 0,
        },
        "hovertemplate": "%{y}<br>%{x:.3f}<extra>mean</extra>",
    }
    layout: dict[str, Any] = {"xaxis": axis(metric), "yaxis": names_axis(categoryarray=bars["y"])}
    if chance is not None:
        line, note = vertical(chance, "chance")
        layout |= {"shapes": [line], "annotations": [note]}
    layout["legend"] = {"orientation": "h", "x": 1, "xanchor": "right", "y": 1.0, "yanchor": "bottom"}
    return figure([dots, bars], 110 + 30 * len(rows), margin={"l": 10, "r": 20, "t": 36, "b": 50}, **layout)


def learning_curves(histories: Sequence[Sequence[Mapping[str, float]]]) -> Figure:
    """Loss over epochs, one line a fold; dashed on validation."""
    traces = []
    for fold, history in enumerate(histories):
        for field, dash in (("train_loss", "solid"), ("val_loss", "dash")):
            if history and field in history[0]:
                traces.append(
                    {
                        "type": "scatter",
                        "mode": "lines" if len(history) > 1 else "markers",
                        "name": f"fold {fold + 1}, {'training' if field == 'train_loss' else 'validation'}",
                        "x": [row["epoch"] + 1 for row in history],
                        "y": [row[field] for row in history],
                        "line": {"color": group_colour(fold), "dash": dash, "width": 2},
                    }
                )
    return figure(traces, 340, xaxis=axis("epoch"), yaxis=axis("loss"), showlegend=True)


def survival_curves(
    curves: Mapping[str, KaplanMeier], unit: str = "days", title: str = "share without the event"
) -> Figure:
    """Kaplan-Meier curves with their 95 % bands, a tick where somebody was lost from sight, and how many were still at risk below.

    The latter two only where the counts are known.
    """
    traces: list[dict[str, Any]] = []
    for number, (name, km) in enumerate(curves.items()):
        colour = group_colour(number)
        time = np.concatenate([[0.0], km.time])
        low, high = (np.concatenate([[1.0], values]) for values in (km.low, km.high))
        red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
        band: dict[str, Any] = {
            "type": "scatter",
            "mode": "lines",
            "line": {"width": 0, "shape": "hv"},
            "hoverinfo": "skip",
            "showlegend": False,
            "legendgroup": text(name),
            "x": time,
        }
        traces += [
            band | {"y": low},
            band | {"y": high, "fill": "tonexty", "fillcolor": f"rgba({red},{green},{blue},0.12)"},
            {
                "type": "scatter",
                "mode": "lines",
                "name": text(name),
                "legendgroup": text(name),
                "x": time,
                "y": np.concatenate([[1.0], km.survival]),
                "line": {"color": colour, "width": 2.5, "shape": "hv", "dash": ("solid", "dash", "dot")[number % 3]},
                "hovertemplate": "%{x:.0f} " + text(unit) + ": %{y:.2f}",
            },
            *_ticks(km, colour, text(name)),
        ]
    known = {name: km for name, km in curves.items() if len(km.at_risk) and km.at_risk[0] > 0}
    times = round_times(max((float(km.time[-1]) for km in curves.values() if len(km.time)), default=1.0))
    rows = 20 * len(known) + 40 if known else 0
    height = 400 + rows
    share = rows / (height - 120)  # of what is between the margins
    layout: dict[str, Any] = {
        "xaxis": axis(f"time ({text(unit)})", rangemode="tozero", tickvals=times, anchor="y2" if known else "y"),
        "yaxis": axis(text(title), range=[0, 1.03], domain=[share, 1]),
        "showlegend": True,
    }
    if known:
        traces += [_at_risk(name, km, times, number) for number, (name, km) in enumerate(known.items())]
        layout["yaxis2"] = axis(
            "at risk", domain=[0, share - 40 / (height - 120)], range=[len(known) - 0.4, -0.6], fixedrange=True
        ) | {"showgrid": False, "showticklabels": False, "ticks": "", "showline": False}
    return figure(traces, height, **layout)


def _at_risk(name: str, km: KaplanMeier, times: Sequence[float], row: int) -> dict[str, Any]:
    """Numbers of one group, in its colour, below the times of the axis."""
    return {
        "type": "scatter",
        "mode": "text",
        "x": list(times),
        "y": [row] * len(times),
        "yaxis": "y2",
        "text": [f"{count:,}" for count in number_at_risk(km, np.array(times)).tolist()],
        "textfont": {"color": group_colour(row), "size": 12},
        "cliponaxis": False,
        "showlegend": False,
        "hovertemplate": f"{text(name)}: %{{text}} at risk<extra></extra>",
    }


def _ticks(km: KaplanMeier, colour: str, group: str) -> list[dict[str, Any]]:
    """Who is no longer at risk at the next time and had no event was lost."""
    lost = km.at_risk - km.events - np.append(km.at_risk[1:], 0) > 0
    if not lost.any():
        return []
    marker = {"symbol": "line-ns", "size": 7, "line": {"width": 1.2, "color": colour}}
    trace = {"type": "scatter", "mode": "markers", "x": km.time[lost], "y": km.survival[lost], "marker": marker}
    return [trace | {"legendgroup": group, "showlegend": False, "hoverinfo": "skip"}]


def confusion(matrix: np.ndarray, names: Sequence[str]) -> Figure:
    """Rows are the truth; colour is the share of the row, the number counts samples."""
    total = matrix.sum(1, keepdims=True)
    share = np.divide(matrix, total, out=np.zeros(matrix.shape), where=total > 0)
    labels = texts(names)
    trace = {
        "type": "heatmap",
        "z": share,
        "x": labels,
        "y": labels,
        "zmin": 0,
        "zmax": 1,
        "colorscale": SEQUENTIAL,
        "xgap": 2,
        "ygap": 2,
        "text": matrix.tolist(),
        "texttemplate": "%{text}<br>%{z:.0%}",
        "hovertemplate": "truth %{y}, predicted %{x}: %{text}<extra></extra>",
        "colorbar": {"title": {"text": "share of<br>the truth"}, "thickness": 12, "tickformat": ".0%"},
    }
    side = min(760, 190 + 62 * len(labels))
    return figure(
        [trace],
        side,
        xaxis=axis("predicted", showgrid=False, type="category"),
        yaxis=names_axis() | {"title": {"text": "truth"}},
    )


def roc(curves: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> Figure:
    """Receiver operating characteristic: (false positive rate, true positive rate) by name, the area under each in the legend."""
    diagonal = {"type": "scatter", "mode": "lines", "name": "chance", "x": [0, 1], "y": [0, 1]}
    traces: list[dict[str, Any]] = [diagonal | {"line": {"color": FAINT, "dash": "dot", "width": 1}}]
    for number, (name, (false, true)) in enumerate(curves.items()):
        line = {"color": group_colour(number), "width": 2, "dash": ("solid", "dash", "dot")[number // 2 % 3]}
        label = text(f"{name}: AUC {np.trapezoid(true, false):.3f}")
        traces.append({"type": "scatter", "mode": "lines", "name": label, "x": false, "y": true, "line": line})
    return figure(
        traces,
        420,
        xaxis=axis("false positive rate", range=[-0.01, 1.01]),
        yaxis=axis("true positive rate", range=[-0.01, 1.02]),
    )
