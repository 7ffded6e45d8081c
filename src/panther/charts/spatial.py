"""Charts of where patches lie: what scores owe to it, and what borders what."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from panther.charts.chart import Axis, Chart, Heat, Line, Points, Reference, RowNotes
from panther.charts.prototypes import NUMBERS_UP_TO
from panther.charts.style import BLUE, FAINT, ORANGE, short


class Survival(NamedTuple):
    """A score on tissue as it is and on shuffled tissue."""

    name: str
    score: float
    shuffled: float
    note: str  # what is lost, in a few words


def shuffled_scores(rows: Sequence[Survival], metric: str, chance: float | None = None) -> Chart:
    """Both scores of each method, joined by a line as long as what is lost; they lie upon each other where nothing is."""
    heights = list(range(len(rows)))
    lines = [
        Line([row.shuffled, row.score], [y, y], FAINT, width=3)
        for y, row in enumerate(rows)
        if row.shuffled != row.score
    ]
    points = [
        Points(
            [getattr(row, field) for row in rows],
            heights,
            colour,
            name,
            marker,
            size=size,
            labels=[f"{row.name}, {name}: {getattr(row, field):.3f}" for row in rows],
        )
        for field, name, colour, marker, size in (
            ("shuffled", "patches shuffled", ORANGE, "square", 13),
            ("score", "tissue as it is", BLUE, "circle", 8),
        )
    ]
    return Chart(
        [*lines, *points],
        Axis(metric),
        Axis(names=[row.name for row in rows]),
        size=(860, 130 + 32 * len(rows)),
        references=[] if chance is None else [Reference(chance, "chance")],
        row_notes=RowNotes([row.note for row in rows], "lost"),
    )


def borders(names: Sequence[str], values: np.ndarray) -> Chart:
    """What each prototype (rows) borders on: shares (C, C) of its touches with others."""
    count = len(names)
    numbers = [["" if np.isnan(v) else f"{v:.0%}" for v in row] for row in values]
    text = numbers if count <= NUMBERS_UP_TO else None
    side = max(260, 46 * count)
    size = (side + 110 + 8 * max(len(short(name)) for name in names), side + 80)
    heat = Heat(values, (0, 1), "share of its border", text=text, percent=True)
    x = Axis(names=[name.split(" ")[0] for name in names])
    return Chart([heat], x, Axis(names=names), "What each row borders on", size)
