"""Charts of how sure predictions are: reliability curves."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from panther.charts.chart import Axis, Chart, Line
from panther.charts.style import BLUE, FAINT, ORANGE

LOOKS = {"raw": (FAINT, "dash", "circle"), "calibrated": (BLUE, "solid", "square")}
WORDS = {"raw": "as the model gave them", "calibrated": "calibrated"}


class Promises(NamedTuple):
    """Bins of a reliability curve."""

    predicted: np.ndarray
    observed: np.ndarray
    low: np.ndarray
    high: np.ndarray


def reliability_curves(curves: Mapping[str, Promises], what: str) -> Chart:
    """How often probabilities came true against what they said, `raw` and `calibrated`; on the diagonal every promise is kept."""
    lines = [Line([0, 1], [0, 1], ORANGE, "every promise kept", "dot", 1.5)]
    for name, curve in curves.items():
        colour, dash, marker = LOOKS[name]
        # percentiles of a skewed share need not hold the share itself
        ends = {"low": np.minimum(curve.low, curve.observed), "high": np.maximum(curve.high, curve.observed)}
        limits = ends if np.isfinite(curve.low).all() else {}
        lines.append(
            Line(curve.predicted, curve.observed, colour, WORDS[name], dash, 2, marker, **limits)  # type: ignore[arg-type]
        )
    x, y = Axis(f"probability of {what}", (-0.02, 1.02)), Axis("how often it was true", (-0.02, 1.02))
    return Chart(lines, x, y, size=(620, 460))
