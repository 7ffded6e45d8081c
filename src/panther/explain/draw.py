"""Maps as matplotlib figures. One pixel of the picture is one pixel of the PNG, so nothing moves when it is saved."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from panther.charts.style import DPI, INK, plain_text, short
from panther.explain.geometry import View
from panther.explain.slide_map import HEAT, SlideMap, heat_pixels, map_pixels

PANEL, SMALL_PANEL = 1024, 400  # longest side of a picture beside others
BESIDE = 1.8  # larger letters: a row of pictures is shown smaller than one of them

Panel = tuple[str, np.ndarray]  # title, picture


class Sheet:
    """A figure of titled pictures in rows, each at its own pixels, with room on the right."""

    def __init__(self, panels: Sequence[Panel], room: float, unit: float, rows: int = 1, least: float = 0) -> None:
        from matplotlib.figure import Figure

        self.unit = unit  # fonts and gaps grow with the picture
        self.gap, self.head = round(14 * unit), round(30 * unit)
        self.height, self.width = panels[0][1].shape[:2]
        self.columns = -(-len(panels) // rows)
        self.right = self.gap + self.columns * (self.width + self.gap)  # where the room begins
        self.full = (self.right + round(room), self.gap + max(rows * (self.height + self.head), round(least)))
        self.figure = Figure(figsize=(self.full[0] / DPI, self.full[1] / DPI), dpi=DPI, facecolor="white")
        self.axes = [self._picture(number, picture) for number, (_, picture) in enumerate(panels)]
        for number, (title, _) in enumerate(panels):
            self._title(number, title)

    def _picture(self, number: int, picture: np.ndarray) -> Any:
        row, column = divmod(number, self.columns)
        left = self.gap + column * (self.width + self.gap)
        top = self.head + row * (self.height + self.head)
        ax = self.figure.add_axes(self.box(left, top, self.width, self.height))
        ax.imshow(picture, extent=(0, self.width, self.height, 0), interpolation="nearest", aspect="auto")
        ax.set_axis_off()
        return ax

    def box(self, left: float, top: float, width: float, height: float) -> tuple[float, float, float, float]:
        """Pixels from the upper left as matplotlib's fractions from the lower left."""
        return left / self.full[0], 1 - (top + height) / self.full[1], width / self.full[0], height / self.full[1]

    def write(self, left: float, top: float, text: str, size: float = 9, **more: Any) -> None:
        """Text whose middle line is ``top`` pixels below the upper edge."""
        x, y, _, _ = self.box(left, top, 0, 0)
        options: dict[str, Any] = {"va": "center", "ha": "left", "color": INK} | more
        self.figure.text(x, y, text, fontsize=size * self.unit, **options)

    def _title(self, number: int, text: str) -> None:
        row, column = divmod(number, self.columns)
        left = self.gap + column * (self.width + self.gap)
        self.write(left, row * (self.height + self.head) + self.head / 2, short(text, self.width / (7.5 * self.unit)))

    def legend_line(
        self, left: float, top: float, colour: Any, texts: tuple[str, str], at: tuple[float, float]
    ) -> None:
        """Square of a colour, a number in grey and a name, ``at`` so many units from the left."""
        from matplotlib.patches import Rectangle

        x, y, w, h = self.box(left, top - 5.5 * self.unit, 11 * self.unit, 11 * self.unit)
        edge: Any = {"linewidth": 0.4 * self.unit, "edgecolor": INK, "facecolor": colour}
        self.figure.add_artist(Rectangle((x, y), w, h, transform=self.figure.transFigure, **edge))
        self.write(left + at[0] * self.unit, top, texts[0], size=8, color="#555555")
        self.write(left + at[1] * self.unit, top, texts[1], size=8)


def original(slide_map: SlideMap) -> list[Panel]:
    """Panel of the slide's image; none where there is no image."""
    return [] if slide_map.view.blank else [(slide_map.slide, slide_map.view.background)]


def rows_for(slide_map: SlideMap, pictures: int) -> int:
    """Rows of a sheet of so many pictures that is wider than high."""
    return max(1, round((pictures * slide_map.view.size[0] / slide_map.view.size[1] / 1.6) ** 0.5))


@plain_text
def draw_map(slide_map: SlideMap) -> Any:
    """Prototype of every patch over the slide, with a legend of names and pi; returns a matplotlib figure."""
    unit = unit_of(slide_map)
    width, height = _legend_size(slide_map, unit)
    sheet = Sheet([(slide_map.slide, map_pixels(slide_map))], width, unit, least=height)
    _legend(sheet, slide_map)
    add_scale_bar_and_outline(sheet, slide_map)
    return sheet.figure


@plain_text
def draw_heatmap(slide_map: SlideMap, prototype: int) -> Any:
    """Share of one prototype in every patch, from 0 to 1; returns a matplotlib figure."""
    unit = unit_of(slide_map)
    title = f"{slide_map.slide}: {_with_weight(slide_map, prototype)}"
    sheet = Sheet([(title, heat_pixels(slide_map, prototype))], 80 * unit, unit)
    colour_bar(sheet)
    add_scale_bar_and_outline(sheet, slide_map)
    return sheet.figure


@plain_text
def draw_heatmaps(slide_map: SlideMap, prototypes: Sequence[int] | None = None) -> Any:
    """Heatmaps of all (or these) prototypes as small pictures; returns a matplotlib figure."""
    chosen = list(range(slide_map.prototypes)) if prototypes is None else list(prototypes)
    slide_map = slide_map.within(SMALL_PANEL)
    panels = [(_with_weight(slide_map, c), heat_pixels(slide_map, c)) for c in chosen]
    sheet = Sheet(panels, 80, 1.0, rows_for(slide_map, len(chosen)))
    colour_bar(sheet)
    add_scale_bar_and_outline(sheet, slide_map)
    return sheet.figure


@plain_text
def draw_side_by_side(slide_map: SlideMap, prototype: int) -> Any:
    """Original (where there is an image), map and heatmap of one prototype; returns a matplotlib figure."""
    slide_map = slide_map.within(PANEL)
    unit = BESIDE * unit_of(slide_map)
    width, height = _legend_size(slide_map, unit)
    panels = [
        *original(slide_map),
        (f"{slide_map.slide}: prototypes", map_pixels(slide_map)),
        (f"share of {_with_weight(slide_map, prototype)}: dark 0, yellow 1", heat_pixels(slide_map, prototype)),
    ]
    sheet = Sheet(panels, width, unit, least=height)
    _legend(sheet, slide_map)
    add_scale_bar_and_outline(sheet, slide_map)
    return sheet.figure


def bar_length(width_um: float) -> float:
    """Length of a scale bar: the largest of 1, 2, 5, 10, ... um that is at most a quarter of the width."""
    power = 10.0 ** np.floor(np.log10(width_um / 4))
    return float(power * max(step for step in (1, 2, 5) if power * step <= width_um / 4 or step == 1))


def add_scale_bar_and_outline(sheet: Sheet, slide_map: SlideMap) -> None:
    """Tissue outline and scale bar on every picture."""
    for ax in sheet.axes:
        _outline(ax, slide_map, sheet.unit)
        if slide_map.view.mpp is not None:
            scale_bar(ax, slide_map.view, sheet.unit)
        ax.set_xlim(0, sheet.width)
        ax.set_ylim(sheet.height, 0)


def _outline(ax: Any, slide_map: SlideMap, unit: float) -> None:
    from matplotlib.collections import LineCollection

    rings = [slide_map.view.pixels(ring) for polygon in slide_map.outline for ring in polygon.rings]
    closed = [np.concatenate([ring, ring[:1]]) for ring in rings]
    if closed:
        ax.add_collection(LineCollection(closed, colors=INK, linewidths=0.9 * unit), autolim=False)


def scale_bar(ax: Any, view: View, unit: float) -> None:
    """Scale bar at the lower left of a picture whose resolution is known."""
    from matplotlib import patheffects

    assert view.mpp is not None
    width, height = view.size
    across = view.scale[0] / view.mpp  # pixels per micrometre
    length = bar_length(width / across)
    left, base = 10 * unit, height - 12 * unit
    halo = [patheffects.withStroke(linewidth=4.5 * unit, foreground="white")]
    ax.plot(
        [left, left + length * across],
        [base, base],
        color=INK,
        linewidth=2 * unit,
        path_effects=halo,
        solid_capstyle="butt",
    )
    text = f"{length / 1000:g} mm" if length >= 1000 else f"{length:g} µm"
    ax.text(left, base - 5 * unit, text, fontsize=8 * unit, color=INK, va="bottom", path_effects=halo)


class ColourBar(NamedTuple):
    """A colour bar: what it says, which colours, from where to where."""

    label: str = "share of the patch"
    colours: str = HEAT
    limits: tuple[float, float] = (0.0, 1.0)
    room: int = 76  # from the right edge: wider where the numbers are


def colour_bar(sheet: Sheet, what: ColourBar = ColourBar()) -> None:
    """Colour bar at the right edge."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    left = sheet.full[0] - what.room * sheet.unit
    ax = sheet.figure.add_axes(sheet.box(left, sheet.head, 14 * sheet.unit, min(sheet.height, 260 * sheet.unit)))
    low, high = what.limits
    mapped = ScalarMappable(Normalize(low, high), what.colours)
    bar = sheet.figure.colorbar(mapped, cax=ax, ticks=(low, (low + high) / 2, high), format="%.3g")
    bar.ax.tick_params(labelsize=8 * sheet.unit, length=3 * sheet.unit)
    bar.set_label(what.label, fontsize=8 * sheet.unit)


def _legend_size(slide_map: SlideMap, unit: float) -> tuple[float, float]:
    """Width and height; as many columns as the picture's height asks for."""
    letters = max(len(short(slide_map.legend(c))) for c in range(slide_map.prototypes))
    column = (74 + 6.6 * letters) * unit
    per_column = _per_column(slide_map, unit)
    return column * -(-slide_map.prototypes // per_column), (per_column + 1) * ROW * unit + 30 * unit


ROW = 17  # pixels per line of the legend


def _per_column(slide_map: SlideMap, unit: float) -> int:
    return min(slide_map.prototypes, max(16, int(slide_map.view.size[1] / (ROW * unit)) - 1))


def _legend(sheet: Sheet, slide_map: SlideMap) -> None:
    unit, row = sheet.unit, ROW * sheet.unit
    per_column = _per_column(slide_map, unit)
    width = _legend_size(slide_map, unit)[0] / -(-slide_map.prototypes // per_column)
    for c in range(slide_map.prototypes):
        column, line = divmod(c, per_column)
        left, top = sheet.right + column * width, sheet.head + (line + 1.5) * row
        if line == 0:
            sheet.write(left + 14 * unit, top - row, "π", ha="left", size=8)
        texts = f"{slide_map.weights[c]:.3f}", short(slide_map.legend(c))
        sheet.legend_line(left, top, slide_map.prototype_colours[c], texts, (14, 50))


def _with_weight(slide_map: SlideMap, prototype: int) -> str:
    """Number and weight before the name, which is what a narrow picture cuts off."""
    number, _, name = slide_map.title(prototype).partition(" ")
    return f"{number} (π {slide_map.weights[prototype]:.3f}) {name}".rstrip()


def unit_of(slide_map: SlideMap) -> float:
    """Fonts for a picture of about a thousand pixels, and in proportion for larger ones."""
    return max(1.0, max(slide_map.view.size) / 1000)
