"""Charts of survival."""

from collections.abc import Mapping, Sequence
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
        at_risk=at_risk,
    )


def with_unit(title: str, unit: str) -> str:
    """Title of an axis, alone where the unit is not known."""
    return f"{title} ({unit})" if unit else title


def panel(chart: Chart, title: str, note: str) -> Chart:
    """Return a chart as one of many: title and note above it, axes named outside."""
    x, y = replace(chart.x, title=""), replace(chart.y, title="")
    return replace(chart, title=f"{title}\n{note}", x=x, y=y, size=(340, 410))


def _curve(name: str, km: KaplanMeier, look: Look) -> Line:
    """Curve from time 0 on, where all are alive."""
    curves = [km.time, km.survival, km.low, km.high]
    if len(km.time) == 0 or km.time[0] > 0:
        curves = [np.insert(values, 0, first) for values, first in zip(curves, (0.0, 1.0, 1.0, 1.0), strict=True)]
    time, y, low, high = curves
    # patients no longer at risk at the next time who had no event were censored
    censored = km.at_risk - km.events - np.append(km.at_risk[1:], 0) > 0
    ticks = (km.time[censored], km.survival[censored]) if censored.any() else None
    return Line(time, y, look[0], name, look[1], 2.5, step=True, low=low, high=high, ticks=ticks)
