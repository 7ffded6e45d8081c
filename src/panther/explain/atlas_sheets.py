"""Contact sheets of the atlas as matplotlib figures, laid out in pixels so that a patch's pixel is a pixel of the PNG."""

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np

from panther.charts.style import DPI, INK, plain_text, short
from panther.explain.atlas import Atlas
from panther.explain.exemplars import KINDS, LARGEST

PALE, GREY = "#E8E8E8", "#666666"
MARGIN, GAP = 28, 10
HEADINGS = {"nearest": "Nearest to the prototype", "random": "Members at random"}
LETTER = 13.5  # pixels of a letter of a title
OVERVIEW_LETTERS = 26  # of a line of a name
OVERVIEW_TILES, OVERVIEW_SIDE, OVERVIEW_NAME, OVERVIEW_BAR = 4, 84, 290, 330  # number of patches, then pixels


class SheetCanvas:
    """A figure whose coordinates are pixels from the upper left."""

    def __init__(self, width: int, height: int) -> None:
        from matplotlib.figure import Figure

        self.figure = Figure(figsize=(width / DPI, height / DPI), dpi=DPI, facecolor="white")
        self.ax = self.figure.add_axes((0, 0, 1, 1))
        self.ax.set_axis_off()
        self.size = width, height
        self._frame()

    def _frame(self) -> None:
        self.ax.set_xlim(0, self.size[0])
        self.ax.set_ylim(self.size[1], 0)

    def write(self, x: float, y: float, text: str, size: float = 9, **more: Any) -> None:
        """Text that begins at x, its middle at y."""
        options: dict[str, Any] = {"va": "center", "ha": "left", "color": INK} | more
        self.ax.text(x, y, text, fontsize=size, **options)

    def box(self, x: float, y: float, width: float, height: float, **more: Any) -> None:
        """Draw a filled rectangle."""
        from matplotlib.patches import Rectangle

        self.ax.add_patch(Rectangle((x, y), width, height, **({"linewidth": 0} | more)))

    def picture(self, x: float, y: float, side: float, pixels: np.ndarray | None, colour: str) -> None:
        """Draw a patch in a frame of its prototype's colour; a pale square where its image is not at hand."""
        if pixels is None:
            self.box(x, y, side, side, facecolor=PALE)
            self.write(x + side / 2, y + side / 2, "no image", 7.5, ha="center", color=GREY)
        else:
            self.ax.imshow(pixels, extent=(x, x + side, y + side, y), aspect="auto")
            self._frame()  # imshow moves the limits
        self.box(x, y, side, side, fill=False, edgecolor=colour, linewidth=1.6)


@plain_text
def draw_exemplars(atlas: Atlas, prototype: int) -> Any:
    """Contact sheet of one prototype: its nearest patches, random members, with their patients; returns a matplotlib figure."""
    rows = {kind: atlas.chosen(prototype, kind) for kind in KINDS}
    across = max(4, *(len(row) for row in rows.values()))
    head, block = 84, 28 + LARGEST + 40
    canvas = SheetCanvas(2 * MARGIN + across * (LARGEST + GAP) - GAP, head + block * len(rows) + 8)
    _swatch(canvas, atlas.colours[prototype], MARGIN, 26, 20)
    fitting = int((canvas.size[0] - 2 * MARGIN - 32) / LETTER)
    canvas.write(MARGIN + 32, 37, short(atlas.title(prototype), fitting), 15, weight="bold")
    canvas.write(MARGIN, 66, f"{atlas.share_text(prototype)}  ·  {atlas.member_text(prototype)}", 9.5, color=GREY)
    for number, (kind, row) in enumerate(rows.items()):
        top = head + number * block
        canvas.write(MARGIN, top + 13, HEADINGS[kind], 10, weight="bold")
        if not row:
            canvas.write(MARGIN, top + 50, "No patch belongs most to this prototype.", 9, color=GREY)
        for column, index in enumerate(row):
            _tile(canvas, atlas, index, MARGIN + column * (LARGEST + GAP), top + 28)
    return canvas.figure


@plain_text
def draw_overview(atlas: Atlas, prototypes: Sequence[int] | None = None) -> Any:
    """One line per prototype: colour, name, share with its interval, nearest patches; returns a matplotlib figure."""
    chosen = list(range(atlas.prototypes)) if prototypes is None else list(prototypes)
    pictured = bool(atlas.pictures)
    line = OVERVIEW_SIDE + GAP if pictured else 60
    tiles = MARGIN + OVERVIEW_NAME + OVERVIEW_BAR + 40
    width = tiles + (OVERVIEW_TILES * (OVERVIEW_SIDE + 6) - 6 + MARGIN if pictured else 0)
    head = 96
    canvas = SheetCanvas(width, head + line * len(chosen) + 14)
    canvas.write(MARGIN, 28, f"{atlas.prototypes} prototypes", 15, weight="bold")
    canvas.write(MARGIN, 52, f"{_cohort(atlas)}; share: mean over patients, 95 % interval", 9, color=GREY)
    scale = _axis(canvas, atlas, chosen, head, line)
    if pictured:
        canvas.write(tiles, head - 12, "nearest patches, of different patients first", 8.5, color=GREY)
    for number, c in enumerate(chosen):
        middle = head + (number + 0.5) * line
        _swatch(canvas, atlas.colours[c], MARGIN, middle - 13, 26)
        _name(canvas, atlas, c, middle)
        _bar(canvas, atlas, c, middle, scale)
        for column, index in enumerate(atlas.chosen(c, "nearest")[:OVERVIEW_TILES] if pictured else []):
            left = tiles + column * (OVERVIEW_SIDE + 6)
            canvas.picture(left, middle - OVERVIEW_SIDE / 2, OVERVIEW_SIDE, atlas.pictures.get(index), atlas.colours[c])
    return canvas.figure


def _tile(canvas: SheetCanvas, atlas: Atlas, index: int, left: float, top: float) -> None:
    one = atlas.exemplars[index]
    canvas.picture(left, top, LARGEST, atlas.pictures.get(index), atlas.colours[one.prototype])
    canvas.write(left, top + LARGEST + 11, short(one.slide, 27), 7, color=GREY)
    place = "" if one.place is None else f"({one.place.x:g}, {one.place.y:g}) {one.place.unit}"
    canvas.write(left, top + LARGEST + 24, f"{place}  d {one.distance:.3g}".strip(), 6.5, color=GREY)


def _name(canvas: SheetCanvas, atlas: Atlas, prototype: int, middle: float) -> None:
    """Write the prototype's name on at most two lines, its members below."""
    lines = textwrap.wrap(
        atlas.title(prototype), OVERVIEW_LETTERS, max_lines=2, placeholder=" …", break_on_hyphens=False
    )
    top = middle - 9 * len(lines)
    for number, line in enumerate(lines):
        canvas.write(MARGIN + 38, top + 18 * number, line, 10, weight="bold")
    canvas.write(MARGIN + 38, top + 18 * len(lines) + 1, atlas.member_text(prototype), 8, color=GREY)


def _swatch(canvas: SheetCanvas, colour: str, left: float, top: float, side: float) -> None:
    canvas.box(left, top, side, side, facecolor=colour, edgecolor=INK, linewidth=0.5)


def _cohort(atlas: Atlas) -> str:
    slides, patients = len(atlas.slides), len(set(atlas.patients))
    return (
        f"{slides} slide{'s' if slides > 1 else ''}, {patients} patient{'s' if patients > 1 else ''}, "
        f"{int(atlas.members.sum()):,} patches"
    )


def _axis(canvas: SheetCanvas, atlas: Atlas, chosen: Sequence[int], head: int, line: int) -> float:
    """Draw grid lines of the shares; returns pixels for a share of 1."""
    from matplotlib.ticker import MaxNLocator

    tops = [np.nanmax([atlas.shares[c].value, atlas.shares[c].high]) for c in chosen]
    ticks = MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]).tick_values(0, max(*tops, 0.01))
    ticks = ticks[: int(np.searchsorted(ticks, max(tops))) + 1]  # the last is the first that all bars stay below
    scale = OVERVIEW_BAR / float(ticks[-1])
    for tick in ticks:
        x = MARGIN + OVERVIEW_NAME + float(tick) * scale
        canvas.box(x - 0.5, head - 2, 1, line * len(chosen) + 2, facecolor=PALE, zorder=0)
        canvas.write(x, head - 12, f"{100 * tick:g} %", 8, ha="center", color=GREY)
    return scale


def _bar(canvas: SheetCanvas, atlas: Atlas, prototype: int, middle: float, scale: float) -> None:
    from matplotlib import patheffects

    share, left = atlas.shares[prototype], MARGIN + OVERVIEW_NAME
    colour = atlas.colours[prototype]
    canvas.box(left, middle - 9, share.value * scale, 18, facecolor=colour, edgecolor=INK, linewidth=0.4)
    if np.isnan(share.low):
        return
    low, high = left + share.low * scale, left + share.high * scale
    halo = [patheffects.withStroke(linewidth=3.4, foreground="white")]  # seen on dark bars too
    across = [low, low, low, high, high, high]  # one line with its caps, so that one halo surrounds it
    down = [middle - 5, middle + 5, middle, middle, middle - 5, middle + 5]
    canvas.ax.plot(across, down, color=INK, linewidth=1.6, path_effects=halo)
