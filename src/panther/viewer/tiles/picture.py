"""A view as a picture to keep: the part of the slide that is looked at, its layers, scale bar, legend and colour bars."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from panther.charts.style import picture_bytes, plain_text, short
from panther.explain.draw import ROW, ColourBar, Sheet, colour_bar, scale_bar
from panther.explain.geometry import View

BAR = 100  # units of a colour bar with its numbers


@dataclass(frozen=True)
class Legend:
    """Classes of a layer: colour, number and name of each."""

    title: str
    head: str  # what the numbers are
    lines: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, eq=False)
class ViewPicture:
    """What is drawn; it pickles."""

    title: str
    view: View
    legends: tuple[Legend, ...] = ()
    bars: tuple[ColourBar, ...] = ()


def view_picture(found: ViewPicture, kind: str) -> bytes:
    """PNG or SVG; run in a worker process, because matplotlib's settings belong to the process."""
    return picture_bytes(draw_view(found), kind)


@plain_text
def draw_view(found: ViewPicture) -> Any:
    """The view with all that explains it; returns a matplotlib figure."""
    unit = max(1.0, max(found.view.size) / 1000)
    lines = [line for legend in found.legends for line in _lines(legend)]
    per_column = max(16, int(found.view.size[1] / (ROW * unit)) - 1)
    letters = max((len(short(line[2])) for line in lines), default=0)
    column = (74 + 6.6 * letters) * unit if lines else 0.0
    columns = -(-len(lines) // per_column)
    most = min(len(lines), per_column)
    room = column * columns + BAR * unit * len(found.bars)
    least = max((most + 1.5) * ROW * unit, 200 * unit if found.bars else 0.0)
    sheet = Sheet([(found.title, found.view.background)], room, unit, least=least)
    for number, line in enumerate(lines):
        across, down = divmod(number, per_column)
        _write(sheet, sheet.right + across * column, sheet.head + (down + 0.5) * ROW * unit, line)
    for number, bar in enumerate(found.bars):
        colour_bar(sheet, bar._replace(room=BAR * (len(found.bars) - number) - 6))
    ax = sheet.axes[0]
    if found.view.mpp is not None:
        scale_bar(ax, found.view, unit)
    ax.set_xlim(0, sheet.width)
    ax.set_ylim(sheet.height, 0)
    return sheet.figure


def _lines(legend: Legend) -> list[tuple[str, str, str]]:
    """A heading, then one line for each class."""
    return [("", legend.head, legend.title), *legend.lines] if legend.lines else []


def _write(sheet: Sheet, left: float, top: float, line: tuple[str, str, str]) -> None:
    colour, number, name = line
    at = (16, 52) if number else (16, 16)
    if colour:
        sheet.legend_line(left, top, colour, (number, short(name)), at)
        return
    sheet.write(left + at[0] * sheet.unit, top, number, size=8, color="#555555")
    sheet.write(left + at[1] * sheet.unit, top, short(name), size=8, weight="bold")


def composed(background: np.ndarray, layers: list[tuple[np.ndarray, float]]) -> np.ndarray:
    """Layers (h, w, 4), each with its opacity, over a picture (h, w, 3)."""
    out = background.astype(np.float32)
    for colours, opacity in layers:
        part = colours[..., 3:].astype(np.float32) * (opacity / 255)
        out += part * (colours[..., :3] - out)
    return np.round(out).astype(np.uint8)
