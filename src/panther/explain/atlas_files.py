"""The atlas on disk: `atlas.json`, the same tables as CSV, pictures of patches, contact sheets, a names file to fill in; and its charts."""

import math
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import Any

import numpy as np

from panther.charts.chart import Chart
from panther.charts.prototypes import Group, Tests, contacts, cooccurrence, correlations, group_shares, shares
from panther.charts.style import DPI, INK, plain_text, save, short
from panther.charts.to_matplotlib import draw
from panther.errors import InputError
from panther.explain.atlas import KINDS, LARGEST, Atlas
from panther.explain.names import Naming, as_names, entry, label, row_colour
from panther.explain.touching import COLUMNS, neighbour_rows
from panther.storage.files import write_json, write_text
from panther.storage.prototypes import save_prototypes
from panther.storage.tables import write_spreadsheet
from panther.store import atomic_write
from panther.version import __version__

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
    slides, patients = len(atlas.slides), len(set(atlas.patients))
    cohort = f"{slides} slide{'s' if slides > 1 else ''}, {patients} patient{'s' if patients > 1 else ''}"
    text = f"{cohort}, {int(atlas.members.sum()):,} patches; share: mean over patients, 95 % interval"
    canvas.write(MARGIN, 52, text, 9, color=GREY)
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


FORMAT = 1
JPEG_QUALITY = 92
PROTOTYPES = "prototypes.safetensors"  # a copy
# patterns; `names.yaml` is the user's once it is there
WRITTEN = ("*.png", "*.csv", "atlas.json", PROTOTYPES, "names.new.yaml")
OURS = re.compile(r"C\d+\.png|groups\.[^/]*\.png|exemplars/C\d+-(nearest|random)-\d+\.jpg")  # of any run of ours
NAMES_HEAD = """# Names of the prototypes: look at C0.png, C1.png, ... and write what you see behind the colon.
# Then give this file to any command: panther atlas ... --names names.yaml
"""
# header of a table -> its name; the keys of its rows in `atlas.json`
HEADERS = {
    "prototypes": ("prototype", "name", "colour", "share", "low", "high", "patches", "slides"),
    "groups": ("column", "value", "prototype", "n", "mean", "low", "high"),
    "tests": ("column", "prototype", "test", "statistic", "p", "p_corrected"),
    "exemplars": ("prototype", "kind", "slide", "patient", "row", "x", "y", "distance", "picture"),
}
Content = Mapping[str, Any]  # of `atlas.json`


def write_atlas(atlas: Atlas, folder: Path) -> list[Path]:
    """Write everything; pictures of an earlier atlas in the same folder that this one does not have are removed."""
    content = to_dict(atlas)
    written = _write_pictures(atlas, content, folder)
    columns = [f"C{c}" for c in range(atlas.prototypes)]
    patches = atlas.members.sum(1).tolist()
    tables: dict[str, tuple[Sequence[str], Iterable[Sequence[Any]]]] = {
        "pi": (
            ("slide", "patient", "n_patches", *columns),
            zip(atlas.slides, atlas.patients, patches, *atlas.weights.T.tolist(), strict=True),
        ),
        "cooccurrence": (
            ("prototype", *columns),
            [[c, *row] for c, row in zip(columns, content["cooccurrence"], strict=True)],
        ),
        "neighbours": (COLUMNS, neighbour_rows(atlas.touching)),
        **{name: (header, [list(row.values()) for row in content[name]]) for name, header in HEADERS.items()},
    }
    for name, (header, rows) in tables.items():
        written.append(folder / f"{name}.csv")
        write_spreadsheet(written[-1], header, rows)
    template = folder / "names.yaml"
    try:  # names that a user filled in are kept; those of another atlas would be refused by every command
        is_kept = template.exists() and as_names(template, atlas.prototypes) is not None
    except InputError:
        is_kept = False
    if not is_kept:
        written.append(folder / "names.new.yaml" if template.exists() else template)
        namings = atlas.settings.maps.namings
        lines = [f"C{c}: {entry(namings.get(c, Naming()))}".rstrip() for c in range(atlas.prototypes)]
        write_text(written[-1], NAMES_HEAD + "\n".join(lines) + "\n")
    if atlas.source is not None:
        written.append(folder / PROTOTYPES)
        save_prototypes(atlas.source, written[-1])
    written.append(folder / "atlas.json")  # last: where it is, everything that it names is there
    write_json(written[-1], content)
    for path in {*folder.glob("*.png"), *folder.glob("exemplars/*.jpg")} - set(written):
        if OURS.fullmatch(path.relative_to(folder).as_posix()):
            path.unlink()
    return written


def to_dict(atlas: Atlas) -> dict[str, Any]:
    """Atlas in plain values, None where a number is not defined."""
    exemplars = []
    numbers: dict[tuple[int, str], count] = {}
    for index, one in enumerate(atlas.exemplars):
        number = next(numbers.setdefault((one.prototype, one.kind), count()))
        picture = f"exemplars/C{one.prototype}-{one.kind}-{number}.jpg" if index in atlas.pictures else None
        x, y = (None, None) if one.place is None else (one.place.x, one.place.y)
        values = (one.prototype, one.kind, one.slide, one.patient, one.row, x, y, one.distance, picture)
        exemplars.append(dict(zip(HEADERS["exemplars"], values, strict=True)))
    return {
        "format": FORMAT,
        "version": __version__,
        "prototypes_hash": atlas.prototypes_hash,
        "method": atlas.settings.maps.method,
        "options": dict(atlas.settings.maps.options),
        "seed": atlas.settings.seed,
        "slides": len(atlas.slides),
        "patients": len(set(atlas.patients)),
        "patches": int(atlas.members.sum()),
        "prototypes": [
            {
                "prototype": c,
                "name": atlas.settings.maps.names.get(c),
                "colour": atlas.colours[c],
                "share": share.value,
                **_plain({"low": share.low, "high": share.high}),
                "patches": int(members.sum()),
                "slides": int((members > 0).sum()),
            }
            for c, (share, members) in enumerate(zip(atlas.shares, atlas.members.T, strict=True))
        ],
        "groups": [_plain(asdict(one)) for one in atlas.groups],
        "tests": [_plain(asdict(one)) for one in atlas.tests],
        "correction": "Holm, over the prototypes of a column",
        "cooccurrence": _matrix(atlas.cooccurrence),
        "neighbours": _matrix(atlas.touching.log_ratio().round(6)),
        "neighbours_in_words": atlas.neighbours_in_words(),
        "exemplars": exemplars,
        "notes": list(atlas.notes),
        "failures": dict(atlas.failures),
    }


def _write_pictures(atlas: Atlas, content: Content, folder: Path) -> list[Path]:
    """Patches, then the figures one after the other, so that no two are in memory."""
    from PIL import Image

    written = []
    for index, pixels in atlas.pictures.items():
        written.append(folder / content["exemplars"][index]["picture"])
        with atomic_write(written[-1]) as temporary:
            Image.fromarray(pixels).save(temporary, format="jpeg", quality=JPEG_QUALITY)
    figures: dict[str, Any] = {
        "overview": partial(draw_overview, atlas),
        "relations": lambda: draw([list(relation_charts(content).values())]),
    }
    for column, chart in group_charts(content).items():
        figures[_free_name(column, figures)] = chart.figure
    for c in sorted({atlas.exemplars[index].prototype for index in atlas.pictures}):
        figures[f"C{c}"] = partial(draw_exemplars, atlas, c)
    for name, draw_figure in figures.items():
        written.append(folder / f"{name}.png")
        save(draw_figure(), written[-1])
    return written


def _free_name(column: str, taken: Iterable[str]) -> str:
    """Name of a column's picture; a number is added where another column has it (some disks take A and a for one)."""
    before = {name.casefold() for name in taken}
    name = "groups." + re.sub(r"[^\w-]+", "_", column)
    numbered = (f"{name}-{number}" for number in count(2))
    return next(one for one in chain([name], numbered) if one.casefold() not in before)


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}


def _matrix(values: np.ndarray) -> list[list[float | None]]:
    return [[float(v) if math.isfinite(v) else None for v in row] for row in values]


def share_chart(content: Content, names: Sequence[str] | None = None) -> Chart:
    """Mean share of each prototype over patients, with its interval."""
    rows, names = content["prototypes"], names or _names(content)
    share, *limits = (_numbers(rows, key, len(names)) for key in ("share", "low", "high"))
    return shares(names, share, [row_colour(row) for row in rows], "share of the tissue", (limits[0], limits[1]))


def group_charts(content: Content, names: Sequence[str] | None = None) -> dict[str, Chart]:
    """Mean share of each prototype in each group of a clinical column, or Spearman's rho where it is a number, by column."""
    names = names or _names(content)
    groups, tests = content.get("groups", []), content.get("tests", [])
    charts = {}
    for column in dict.fromkeys(row["column"] for row in (*groups, *tests)):
        tested = [row for row in tests if row["column"] == column]
        p = _numbers(tested, "p_corrected", len(names))
        results = Tests(tested[0].get("test", ""), p) if tested else None
        by_value: dict[str, list[Content]] = {}
        for row in groups:
            if row["column"] == column:
                by_value.setdefault(row["value"], []).append(row)
        bars = [
            Group(str(value), rows[0].get("n"), *(_numbers(rows, key, len(names)) for key in ("mean", "low", "high")))
            for value, rows in by_value.items()
        ]
        if bars:
            charts[column] = group_shares(names, bars, results, column)
        else:
            charts[column] = correlations(names, _numbers(tested, "statistic", len(names)), results, column)
    return charts


def relation_charts(content: Content, names: Sequence[str] | None = None) -> dict[str, Chart]:
    """Which prototypes occur together and which touch each other, by the names that `atlas.json` has; empty matrices are left out."""
    names = names or _names(content)
    kinds = {"cooccurrence": cooccurrence, "neighbours": contacts}
    values = {kind: np.array(content.get(kind) or [], float) for kind in kinds}  # None becomes NaN
    known = {kind for kind, matrix in values.items() if matrix.shape == (len(names), len(names))}
    return {kind: chart(names, values[kind]) for kind, chart in kinds.items() if kind in known}


def _names(content: Content) -> list[str]:
    names = {row["prototype"]: row["name"] for row in content["prototypes"] if row.get("name")}
    return [label(row["prototype"], names) for row in content["prototypes"]]


def _numbers(rows: Sequence[Content], key: str, count: int) -> list[float]:
    """Number of each prototype; NaN where there is none."""
    values = {row["prototype"]: row.get(key) for row in rows}
    return [np.nan if (value := values.get(c)) is None else float(value) for c in range(count)]
