"""One slide's attribution: every patch in the colour of what its prototype adds."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from panther.charts.style import plain_text, short
from panther.explain import draw
from panther.explain.attribution.model import Attribution
from panther.explain.slide_map import DIVERGING, SlideMap, heat_colours, value_pixels

LISTED = 12  # prototypes beside a slide


class Shown(NamedTuple):
    """One output's contributions on one slide."""

    output: str
    contributions: np.ndarray  # (C,), a prototype's statistics together


def outputs_to_show(found: Attribution, row: int) -> list[Shown]:
    """Predicted output of a sample first; with three and more also the runner-up. Of two, one is the other's mirror."""
    totals = found.by_prototype()[row]  # (K, C)
    count = 1 if len(found.outputs) <= 2 else 2
    return [Shown(found.outputs[k], totals[k]) for k in np.argsort(-found.values[row], kind="stable")[:count].tolist()]


def patch_values(assignment: np.ndarray, contributions: np.ndarray) -> np.ndarray:
    r"""Contribution of each patch's prototype, weighted by the posterior: :math:`v_n = \sum_c q_{nc} \phi_c`, (N,)."""
    return assignment @ contributions


@plain_text
def draw_attribution(found: SlideMap, outputs: Sequence[Shown]) -> Any:
    """Original (where there is an image) beside what each patch's prototype adds to the outputs; returns a matplotlib figure."""
    found = found.within(draw.PANEL)
    unit = draw.unit_of(found)
    limit = max(float(np.abs(shown.contributions).max()) for shown in outputs)
    panels = draw.original(found)
    for shown in outputs:
        pixels = value_pixels(found, patch_values(found.assignment, shown.contributions), limit)
        panels.append((f"what adds to {shown.output} (red) or takes from it (blue)", pixels))
    listed = np.argsort(-np.abs(outputs[0].contributions), kind="stable")[:LISTED].tolist()
    letters = max(len(short(found.title(c))) for c in listed)
    text = (86 + 6.6 * letters) * unit
    sheet = draw.Sheet(panels, text + 110 * unit, unit, least=(len(listed) + 3) * draw.ROW * unit)
    _list(sheet, found, outputs[0], listed, limit)
    draw.colour_bar(sheet, draw.ColourBar("contribution of the patch's prototype", DIVERGING, (-limit, limit), 94))
    draw.add_scale_bar_and_outline(sheet, found)
    return sheet.figure


def _list(sheet: draw.Sheet, found: SlideMap, shown: Shown, listed: Sequence[int], limit: float) -> None:
    """Prototypes of the largest contributions, with their numbers."""
    unit = sheet.unit
    sheet.write(sheet.right, sheet.head + 0.5 * draw.ROW * unit, short(shown.output, 24), size=8, weight="bold")
    for line, c in enumerate(listed):
        value = float(shown.contributions[c])
        colour = heat_colours(np.array([(value / limit + 1) / 2 if limit > 0 else 0.5]), DIVERGING)[0] / 255
        texts = f"{value:+.3f}", short(found.title(c))
        sheet.legend_line(sheet.right, sheet.head + (line + 1.7) * draw.ROW * unit, tuple(colour), texts, (16, 66))
