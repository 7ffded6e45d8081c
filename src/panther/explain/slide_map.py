"""Map of one slide: patches, their shares of the prototypes, the picture they lie on, and figures of it.

One pixel of a picture is one pixel of the PNG, so nothing moves when a figure is saved.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from panther.charts.style import DPI, INK, plain_text, short
from panther.explain.geometry import Grid, View, raster
from panther.explain.names import Naming, colours, label, plain_names, titles
from panther.explain.palette import HEAT_RELIEF, Paint, painted, relief, rgb_values
from panther.explain.touching import Touching, draw_neighbours, neighbour_sentences, touching
from panther.slides.polygons import Polygon

HEAT = "viridis"  # even steps of lightness, and the same order to colour-blind eyes
DIVERGING = "RdBu_r"  # red adds, blue takes away; safe for colour-blind readers
PANEL, SMALL_PANEL = 1024, 400  # longest side of a picture beside others
BESIDE = 1.8  # larger letters: a row of pictures is shown smaller than one of them
ROW = 17  # pixels per line of the legend
LIGHT = 0.55  # white in the colour of a patch that was not encoded

Panel = tuple[str, np.ndarray]  # title, picture


@dataclass(frozen=True)
class SlideMap:
    """Map of one slide; ``figures()`` draws it.

    ``assignment`` (N, C) and ``labels`` (N,) give the prototype of each patch, ``weights`` (C,) the prototypes' shares of the slide.
    """

    slide: str
    grid: Grid
    assignment: np.ndarray  # (N, C) float32, rows add up to 1
    weights: np.ndarray  # (C,), pi
    view: View
    namings: Mapping[int, Naming] = field(default_factory=dict)  # names, colours and groups of the prototypes
    outline: tuple[Polygon, ...] = ()  # tissue, in the units of the coordinates
    colours: np.ndarray | None = None  # (N, 3) uint8 of a quantity (attention); None: of the prototypes
    paint: Paint = field(default_factory=Paint)
    filled: np.ndarray | None = None  # (N,), patches that were not encoded and show the nearest one that was

    @property
    def names(self) -> dict[int, str]:
        """Names of the prototypes by their number."""
        return plain_names(self.namings)

    @property
    def patch_colours(self) -> np.ndarray:
        """Colour of each patch, (N, 3) uint8."""
        return self.shown(rgb_values(self.prototype_colours)[self.labels] if self.colours is None else self.colours)

    def shown(self, colours: np.ndarray) -> np.ndarray:
        """Colours (N, 3) of the patches, lighter where they were not encoded."""
        if self.filled is None:
            return colours
        return np.where(self.filled[:, None], (LIGHT * 255 + (1 - LIGHT) * colours).astype(np.uint8), colours)

    @cached_property
    def prototype_colours(self) -> list[str]:
        """Colour of each prototype, #RRGGBB: from the names file, else the palette's."""
        return colours(self.namings, self.prototypes)

    @cached_property
    def labels(self) -> np.ndarray:
        """Prototype of the largest share, (N,); the first of equal ones."""
        return self.assignment.argmax(1)

    @cached_property
    def index(self) -> np.ndarray:
        """Patch under each pixel, (h, w); -1 where there is none."""
        return raster(self.grid, self.view)

    @cached_property
    def touching(self) -> Touching:
        """Neighbours of the prototypes."""
        return touching(self.assignment, self.grid)

    @property
    def prototypes(self) -> int:
        """Number of prototypes C."""
        return int(self.assignment.shape[1])

    def title(self, prototype: int) -> str:
        """Prototype's number and name."""
        return label(prototype, self.names)

    def within(self, max_side: int) -> "SlideMap":
        """Same map on a smaller picture."""
        view = self.view.within(max_side)
        return self if view is self.view else replace(self, view=view)

    def figures(self, prototypes: Sequence[int] | None = None) -> dict[str, Any]:
        """Matplotlib figures by name: map, side_by_side, neighbours, and the heatmaps of ``prototypes``."""
        return {name: draw() for name, draw in self.drawings(prototypes).items()}

    def drawings(self, prototypes: Sequence[int] | None = None) -> dict[str, Callable[[], Any]]:
        """Functions that draw those figures: one may be saved before the next is drawn."""
        chosen = list(prototypes or ())
        main = chosen[0] if len(chosen) == 1 else int(self.weights.argmax())
        names = [self.title(c) for c in range(self.prototypes)]
        drawings: dict[str, Callable[[], Any]] = {
            "map": lambda: draw_map(self),
            "side_by_side": lambda: draw_side_by_side(self, main),
        }
        if self.filled is None:  # what is filled in touches itself
            drawings["neighbours"] = lambda: draw_neighbours(self.touching, names)
        if len(chosen) == 1:
            drawings[f"heatmap.C{main}"] = lambda: draw_heatmap(self, main)
        elif chosen:
            drawings["heatmaps"] = lambda: draw_heatmaps(self, chosen)
        return drawings

    def by_weight(self) -> list[int]:
        """Prototypes, the largest weight first."""
        return np.argsort(-self.weights, kind="stable").tolist()

    def numbers(self) -> dict[str, Any]:
        """Plain values: the prototypes' weights, largest first, and sentences about neighbouring prototypes."""
        names = [self.title(c) for c in range(self.prototypes)]
        weights = {names[c]: float(self.weights[c]) for c in self.by_weight()}
        return {
            "weights": weights,
            "neighbours": [] if self.filled is not None else neighbour_sentences(self.touching, names),
        }

    @property
    def summary(self) -> str:
        """Three prototypes of the largest weight."""
        return ", ".join(f"{self.title(c)} {self.weights[c]:.2f}" for c in self.by_weight()[:3])

    def notes(self, formats: Sequence[str] = ()) -> list[str]:
        """Sentences about what is missing from the map; ``formats`` are the requested ones."""
        no_geojson = "geojson" in formats and self.view.unit == "um"
        encoded = "" if self.filled is None else f"{int((~self.filled).sum())} of {len(self.filled)}"
        lacks = {
            f"{encoded} patches are encoded (a sample); the lighter ones show the nearest of them": bool(encoded),
            f"the file has no patch size; {self.grid.pitch:g}, the distance of neighbours, was taken": self.grid.inferred,
            "micrometres per pixel are not known, so there is no scale bar; give `slides=`": self.view.mpp is None,
            "no GeoJSON, its coordinates are micrometres and QuPath counts pixels; give `slides=`": no_geojson,
            "patches are smaller than a pixel of the picture; give a larger `max_side=`": self.index.max() < 0,
        }
        return [f"{self.slide}: {text}." for text, is_missing in lacks.items() if is_missing]


def map_pixels(slide_map: SlideMap) -> np.ndarray:
    """Picture (h, w, 3) with every patch in its prototype's colour."""
    levels = relief(slide_map.prototypes) if slide_map.colours is None else HEAT_RELIEF
    return _painted(slide_map, slide_map.patch_colours, levels)


def heat_pixels(slide_map: SlideMap, prototype: int) -> np.ndarray:
    """Picture (h, w, 3) with every patch in the colour of its share of one prototype, from 0 to 1."""
    return _painted(slide_map, slide_map.shown(heat_colours(slide_map.assignment[:, prototype])), HEAT_RELIEF)


def value_pixels(slide_map: SlideMap, values: np.ndarray, limit: float) -> np.ndarray:
    """Picture (h, w, 3) with every patch in the colour of its signed value (N,): white at 0, full at +-``limit``."""
    part = np.full(len(values), 0.5) if limit == 0 else (values / limit + 1) / 2
    return _painted(slide_map, heat_colours(part, DIVERGING), HEAT_RELIEF)


def heat_colours(values: np.ndarray, scale: str = "") -> np.ndarray:
    """Colours (N, 3) uint8 of values from 0 to 1."""
    from matplotlib import colormaps

    return np.asarray(colormaps[scale or HEAT](np.asarray(values, float), bytes=True)[:, :3])


def overlay_pixels(slide_map: SlideMap) -> np.ndarray:
    """Map alone (h, w, 4): a patch is opaque, the rest transparent; pixel for pixel the thumbnail's size."""
    opacity = np.where(slide_map.index >= 0, 255, 0).astype(np.uint8)[..., None]
    colours = np.concatenate([slide_map.patch_colours, np.zeros((1, 3), np.uint8)])  # the last is under no patch
    return np.concatenate([colours[slide_map.index], opacity], -1)


def _painted(slide_map: SlideMap, colours: np.ndarray, levels: int) -> np.ndarray:
    """Picture with the colours of the patches (N, 3) over the background; without a background on a blank view."""
    covered = slide_map.index >= 0
    paint = Paint("none") if slide_map.view.blank else slide_map.paint
    shown = colours[slide_map.index[covered]].astype(np.float32)
    return painted(slide_map.view.background, shown, covered, paint, levels)


class Sheet:
    """A figure of titled pictures in rows, pixel for pixel, with room on the right."""

    def __init__(
        self, panels: Sequence[Panel], room: float, unit: float, rows: int = 1, least: float = 0, top: int = 0
    ) -> None:
        from matplotlib.figure import Figure

        self.unit = unit  # fonts and gaps grow with the picture
        self.gap, self.head = round(14 * unit), round(30 * unit)
        self.top = top  # room above the pictures
        self.height, self.width = panels[0][1].shape[:2]
        self.columns = -(-len(panels) // rows)
        self.right = self.gap + self.columns * (self.width + self.gap)  # where the room begins
        self.full = (self.right + round(room), top + self.gap + max(rows * (self.height + self.head), round(least)))
        self.figure = Figure(figsize=(self.full[0] / DPI, self.full[1] / DPI), dpi=DPI, facecolor="white")
        self.axes: list[Any] = []
        for number, (title, picture) in enumerate(panels):
            row, column = divmod(number, self.columns)
            left, top = self.gap + column * (self.width + self.gap), self.top + row * (self.height + self.head)
            ax = self.figure.add_axes(self.box(left, top + self.head, self.width, self.height))
            ax.imshow(picture, extent=(0, self.width, self.height, 0), interpolation="nearest", aspect="auto")
            ax.set_axis_off()
            self.axes.append(ax)
            self.write(left, top + self.head / 2, short(title, self.width / (7.5 * unit)))

    def box(self, left: float, top: float, width: float, height: float) -> tuple[float, float, float, float]:
        """Pixels from the upper left as matplotlib's fractions from the lower left."""
        return left / self.full[0], 1 - (top + height) / self.full[1], width / self.full[0], height / self.full[1]

    def write(self, left: float, top: float, text: str, size: float = 9, **more: Any) -> None:
        """Text whose middle line is ``top`` pixels below the upper edge."""
        x, y, _, _ = self.box(left, top, 0, 0)
        options: dict[str, Any] = {"va": "center", "ha": "left", "color": INK} | more
        self.figure.text(x, y, text, fontsize=size * self.unit, **options)

    def legend_line(self, left: float, top: float, colour: Any, texts: Sequence[str], at: tuple[float, float]) -> None:
        """Square of a colour, a number in grey and a name; these begin ``at`` units from the left."""
        from matplotlib.patches import Rectangle

        x, y, w, h = self.box(left, top - 5.5 * self.unit, 11 * self.unit, 11 * self.unit)
        edge: Any = {"linewidth": 0.4 * self.unit, "edgecolor": INK, "facecolor": colour}
        self.figure.add_artist(Rectangle((x, y), w, h, transform=self.figure.transFigure, **edge))
        self.write(left + at[0] * self.unit, top, texts[0], size=8, color="#555555")
        self.write(left + at[1] * self.unit, top, texts[1], size=8)


def original(slide_map: SlideMap) -> list[Panel]:
    """Panel of the slide's image; none where there is no image."""
    return [] if slide_map.view.blank else [(slide_map.slide, slide_map.view.background)]


def sheet_figure(
    slide_map: SlideMap,
    panels: Sequence[Panel],
    legend: "Legend | None" = None,
    bar: "ColourBar | None" = None,
    letters: float = 1.0,
    in_rows: bool = False,
) -> Any:
    """Figure of panels with scale bars and tissue outlines, a legend and a colour bar on the right.

    Fonts are made for a picture of about a thousand pixels, grow with larger ones, and with ``letters``. ``in_rows`` makes the sheet wider
    than high.
    """
    from matplotlib.collections import LineCollection

    across, down = slide_map.view.size
    unit = letters * max(1.0, max(across, down) / 1000)
    room, least, per_column = 0.0 if bar is None else bar.room + 4, 0, 1
    if legend is not None:
        per_column = min(len(legend.lines), max(16, int(panels[0][1].shape[0] / (ROW * unit)) - 1))
        room += legend.column * -(-len(legend.lines) // per_column)
        least = (per_column + 1) * ROW + 30
    rows = max(1, round((len(panels) * across / down / 1.6) ** 0.5)) if in_rows else 1
    sheet = Sheet(panels, room * unit, unit, rows, least * unit)
    if legend is not None:
        legend.draw(sheet, per_column)
    if bar is not None:
        colour_bar(sheet, bar)
    rings = [slide_map.view.pixels(ring) for polygon in slide_map.outline for ring in polygon.rings]
    closed = [np.concatenate([ring, ring[:1]]) for ring in rings]
    for ax in sheet.axes:
        if closed:
            ax.add_collection(LineCollection(closed, colors=INK, linewidths=0.9 * unit), autolim=False)
        if slide_map.view.mpp is not None:
            scale_bar(ax, slide_map.view, unit)
        ax.set_xlim(0, sheet.width)
        ax.set_ylim(sheet.height, 0)
    return sheet.figure


class Legend(NamedTuple):
    """Colours, numbers and names beside a map; as many columns as the picture's height requires."""

    heading: str  # above the numbers
    lines: Sequence[tuple[Any, str, str]]  # colour, number, name
    at: tuple[float, float] = (14, 50)  # where numbers and names begin, units from the left

    @property
    def column(self) -> float:
        """Width of a column, units."""
        return self.at[1] + 24 + 6.6 * max(len(name) for *_, name in self.lines)

    def draw(self, sheet: Sheet, per_column: int) -> None:
        """Write it at the right of a sheet."""
        unit = sheet.unit
        for number, (colour, *texts) in enumerate(self.lines):
            column, line = divmod(number, per_column)
            left, top = sheet.right + column * self.column * unit, sheet.head + (line + 1.5) * ROW * unit
            if line == 0:
                sheet.write(left + self.at[0] * unit, top - ROW * unit, self.heading, size=8)
            sheet.legend_line(left, top, colour, texts, self.at)


def prototype_legend(slide_map: SlideMap) -> Legend:
    """Legend of the prototypes with their weights."""
    names = map(short, titles(slide_map.namings, slide_map.prototypes))
    numbers = [f"{weight:.3f}" for weight in slide_map.weights]
    lines = list(zip(slide_map.prototype_colours, numbers, names, strict=True))
    if slide_map.filled is not None:
        lines.append(("#dddddd", "", "lighter: not encoded, as the nearest"))
    return Legend("π", lines)


@plain_text
def draw_map(slide_map: SlideMap) -> Any:
    """Prototype of every patch over the slide, with a legend of names and pi; returns a matplotlib figure."""
    panels = [(slide_map.slide, map_pixels(slide_map))]
    return sheet_figure(slide_map, panels, prototype_legend(slide_map))


@plain_text
def draw_heatmap(slide_map: SlideMap, prototype: int) -> Any:
    """Share of one prototype in every patch, from 0 to 1; returns a matplotlib figure."""
    title = f"{slide_map.slide}: {_with_weight(slide_map, prototype)}"
    return sheet_figure(slide_map, [(title, heat_pixels(slide_map, prototype))], bar=ColourBar())


@plain_text
def draw_heatmaps(slide_map: SlideMap, prototypes: Sequence[int] | None = None) -> Any:
    """Heatmaps of all (or these) prototypes as small pictures; returns a matplotlib figure."""
    slide_map = slide_map.within(SMALL_PANEL)
    chosen = range(slide_map.prototypes) if prototypes is None else prototypes
    panels = [(_with_weight(slide_map, c), heat_pixels(slide_map, c)) for c in chosen]
    return sheet_figure(slide_map, panels, bar=ColourBar(), in_rows=True)


@plain_text
def draw_side_by_side(slide_map: SlideMap, prototype: int) -> Any:
    """Original (where there is an image), map and heatmap of one prototype; returns a matplotlib figure."""
    slide_map = slide_map.within(PANEL)
    panels = [
        *original(slide_map),
        (f"{slide_map.slide}: prototypes", map_pixels(slide_map)),
        (f"share of {_with_weight(slide_map, prototype)}: dark 0, yellow 1", heat_pixels(slide_map, prototype)),
    ]
    return sheet_figure(slide_map, panels, prototype_legend(slide_map), letters=BESIDE)


def bar_length(width_um: float) -> float:
    """Length of a scale bar: the largest of 1, 2, 5, 10, ... um that is at most a quarter of the width."""
    power = 10.0 ** np.floor(np.log10(width_um / 4))
    return float(power * max(step for step in (1, 2, 5) if power * step <= width_um / 4 or step == 1))


def scale_bar(ax: Any, view: View, unit: float) -> None:
    """Scale bar at the lower left of a picture whose resolution is known."""
    from matplotlib import patheffects

    assert view.mpp is not None
    width, height = view.size
    across = view.scale[0] / view.mpp  # pixels per micrometre
    length = bar_length(width / across)
    left, base = 10 * unit, height - 12 * unit
    halo = [patheffects.withStroke(linewidth=4.5 * unit, foreground="white")]
    line: Any = {"color": INK, "linewidth": 2 * unit, "path_effects": halo, "solid_capstyle": "butt"}
    ax.plot([left, left + length * across], [base, base], **line)
    text = f"{length / 1000:g} mm" if length >= 1000 else f"{length:g} µm"
    ax.text(left, base - 5 * unit, text, fontsize=8 * unit, color=INK, va="bottom", path_effects=halo)


class ColourBar(NamedTuple):
    """Title, colours and limits of a colour bar."""

    label: str = "share of the patch"
    colours: str = HEAT
    limits: tuple[float, float] = (0.0, 1.0)
    room: int = 76  # units from the right edge: more for wide numbers


def colour_bar(sheet: Sheet, bar: ColourBar) -> None:
    """Colour bar at the right edge."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    left = sheet.full[0] - bar.room * sheet.unit
    ax = sheet.figure.add_axes(sheet.box(left, sheet.head, 14 * sheet.unit, min(sheet.height, 260 * sheet.unit)))
    low, high = bar.limits
    mapped = ScalarMappable(Normalize(low, high), bar.colours)
    drawn = sheet.figure.colorbar(mapped, cax=ax, ticks=(low, (low + high) / 2, high), format="%.3g")
    drawn.ax.tick_params(labelsize=8 * sheet.unit, length=3 * sheet.unit)
    drawn.set_label(bar.label, fontsize=8 * sheet.unit)


def _with_weight(slide_map: SlideMap, prototype: int) -> str:
    """Number and weight before the name, because a narrow picture cuts off the end."""
    number, _, name = slide_map.title(prototype).partition(" ")
    return f"{number} (π {slide_map.weights[prototype]:.3f}) {name}".rstrip()
