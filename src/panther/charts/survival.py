"""Charts of survival."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from panther.charts.chart import AtRisk, Axis, Chart, Dash, Line
from panther.charts.style import group_colour
from panther.evaluation.survival_metrics import KaplanMeier, number_at_risk, round_times

DASHES: tuple[Dash, ...] = ("solid", "dash", "dot")
Look = tuple[str, Dash]  # colour and dash of a curve


def survival_curves(
    curves: Mapping[str, KaplanMeier],
    unit: str = "",
    title: str = "share without the event",
    looks: Sequence[Look] | None = None,
    ticks: Sequence[float] | None = None,
) -> Chart:
    """Kaplan-Meier curves with their 95 % bands, a tick at each censored time, and how many were still at risk.

    The latter two only where the counts are known.
    """
    looks = looks or [(group_colour(number), DASHES[number % 3]) for number in range(len(curves))]
    last = max((float(km.time[-1]) for km in curves.values() if len(km.time)), default=1.0)
    ticks = round_times(last) if ticks is None else ticks
    marks, at_risk = [], []
    for (name, km), look in zip(curves.items(), looks, strict=True):
        marks.append(_curve(name, km, look))
        if len(km.at_risk) and km.at_risk[0] > 0:
            at_risk.append(AtRisk(name, number_at_risk(km, np.array(ticks)).tolist(), look[0]))
    return Chart(
        marks,
        Axis(with_unit("time", unit), limits=(0, None), ticks=ticks),
        Axis(title, limits=(0, 1.05)),
        size=(860, 400),
        legend=_free_corner(curves.values(), last),
        at_risk=at_risk,
    )


def with_unit(title: str, unit: str) -> str:
    """Title of an axis, alone where the unit is not known."""
    return f"{title} ({unit})" if unit else title


def panel(chart: Chart, title: str, note: str) -> Chart:
    """Return a chart as one of many: its title above it, a note in its legend, and axes named outside."""
    x, y = replace(chart.x, title=""), replace(chart.y, title="")
    return replace(chart, title=title, legend_title=note, x=x, y=y, size=(330, 330))


def _free_corner(curves: Iterable[KaplanMeier], last: float) -> str:
    """Corner with more room for a legend: above the curves at the right, or below them at the left; survival falls."""
    ends = [(_at(km, "high", 0.35 * last), _at(km, "low", 0.65 * last)) for km in curves]
    above, below = 1 - max((high for high, _ in ends), default=0.0), min((low for _, low in ends), default=0.0)
    return "upper right" if above >= below else "lower left"


def _at(km: KaplanMeier, field: str, time: float) -> float:
    """A bound of the curve at a time; after the end of a curve nothing is drawn, before its first event all are alive."""
    number = int(np.searchsorted(km.time, time, side="right"))
    return float(getattr(km, field)[number - 1]) if number else 1.0


def _curve(name: str, km: KaplanMeier, look: Look) -> Line:
    """Curve from time 0 on, where all are alive."""
    if len(km.time) == 0 or km.time[0] > 0:
        first = {"survival": 1.0, "low": 1.0, "high": 1.0}
        y, low, high = (np.concatenate([[start], getattr(km, field)]) for field, start in first.items())
        time = np.concatenate([[0.0], km.time])
    else:
        time, y, low, high = km.time, km.survival, km.low, km.high
    # who is no longer at risk at the next time and had no event was lost
    lost = km.at_risk - km.events - np.append(km.at_risk[1:], 0) > 0
    ticks = (km.time[lost], km.survival[lost]) if lost.any() else None
    return Line(time, y, look[0], name, look[1], 2.5, step=True, low=low, high=high, ticks=ticks)
