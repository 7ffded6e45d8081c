"""Charts as plain values; `Chart.figure` draws one with matplotlib for a file, `Chart.plotly` with Plotly for a page."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from panther.charts.style import BLUE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Values = Sequence[float] | np.ndarray
Dash = Literal["solid", "dash", "dot"]


@dataclass(frozen=True)
class Axis:
    """One axis; with ``names`` its positions are 0, 1, ..., the first one on top or on the left."""

    title: str = ""
    limits: tuple[float | None, float | None] = (None, None)  # None: as the values need
    names: Sequence[str] | None = None
    ticks: Sequence[float] | None = None
    percent: bool = False
    hidden: bool = False  # no labels


@dataclass(frozen=True, eq=False)
class Bars:
    """Horizontal bars, one per row; further `Bars` of a chart are stacked on them. ``vertical``: columns that stand at ``at``."""

    lengths: Values
    colours: str | Sequence[str] = BLUE
    name: str = ""
    key: str | None = None  # colour in the legend, where the bars have several
    low: Values | None = None
    high: Values | None = None
    text: bool = False  # lengths written inside
    at: Values | None = None
    width: float = 0.7
    vertical: bool = False


@dataclass(frozen=True, eq=False)
class Points:
    """Points, with a horizontal interval where ``low`` and ``high`` are given."""

    x: Values
    y: Values
    colours: str | Sequence[str] = BLUE
    name: str = ""
    marker: str = "circle"
    size: float = 8  # pixels
    hollow: bool = False
    low: Values | None = None
    high: Values | None = None
    labels: Sequence[str] | None = None  # shown when pointed at
    keys: Sequence[str] | None = None  # identifiers in a page
    numbers: tuple[str, Values] | None = None  # title and values that colour the points instead


@dataclass(frozen=True, eq=False)
class Line:
    """A line; ``low`` and ``high`` are a band around a step curve and bars on any other."""

    x: Values
    y: Values
    colour: str = BLUE
    name: str = ""
    dash: Dash = "solid"
    width: float = 2
    marker: str | None = None
    step: bool = False  # constant until the next x
    low: Values | None = None
    high: Values | None = None
    ticks: tuple[Values, Values] | None = None  # (x, y) of short strokes on it


@dataclass(frozen=True, eq=False)
class Heat:
    """A matrix in colours; cells that are not a number are grey."""

    values: np.ndarray  # (rows, columns)
    limits: tuple[float, float]
    title: str = ""  # of the colour bar; none: no colour bar
    diverging: bool = False
    text: Sequence[Sequence[str]] | None = None
    framed: Sequence[tuple[int, int]] = ()  # cells (row, column)
    dotted: Sequence[tuple[int, int]] = ()
    percent: bool = False  # numbers of the colour bar


@dataclass(frozen=True, eq=False)
class Boxes:
    """Vertical boxes at 0, 1, ...; quantiles (5, n): lower whisker, box, median, box, upper whisker."""

    quantiles: np.ndarray
    colour: str
    name: str


Mark = Bars | Points | Line | Heat | Boxes


@dataclass(frozen=True)
class Reference:
    """A thin vertical line with a word beside it."""

    x: float
    text: str = ""
    colour: str = "#666666"
    dash: Dash = "dot"


@dataclass(frozen=True)
class RowNotes:
    """Short texts to the right of each row; texts that are ``bold`` stand out."""

    texts: Sequence[str]
    title: str = ""
    bold: Sequence[bool] = ()


@dataclass(frozen=True)
class AtRisk:
    """Number of a group at risk at each tick of the x axis, written below it."""

    group: str
    counts: Sequence[int]
    colour: str


@dataclass(frozen=True, eq=False)
class Chart:
    """Marks between two axes, with titles and notes."""

    marks: Sequence[Mark]
    x: Axis = Axis()
    y: Axis = Axis()
    title: str = ""
    size: tuple[int, int] = (860, 360)  # pixels; a page sets the width
    references: Sequence[Reference] = ()
    row_notes: RowNotes | None = None
    at_risk: Sequence[AtRisk] = ()
    row_colours: Sequence[str] | None = None  # behind the names of the rows

    def figure(self) -> "Figure":
        """Draw it as a matplotlib figure."""
        from panther.charts.to_matplotlib import draw

        return draw([[self]])

    def plotly(self) -> dict[str, Any]:
        """Return a plain dictionary that Plotly draws: `plotly.graph_objects.Figure(chart.plotly())`."""
        from panther.charts.to_plotly import convert

        return convert(self)
