"""The atlas on disk: `atlas.json`, the same tables as CSV, pictures of patches, contact sheets, a names file to fill in; and its charts."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from panther.charts.chart import Chart
from panther.charts.prototypes import Group, Tests, correlations, group_shares, relation, shares
from panther.charts.style import GREY, MISSING, plain_text, save, short
from panther.charts.to_matplotlib import draw
from panther.explain.atlas import KINDS, LARGEST, Atlas
from panther.explain.names import Naming, entry, label, row_colour
from panther.explain.slide_map import Sheet
from panther.explain.touching import COLUMNS, neighbour_rows
from panther.storage.files import write_json, write_text
from panther.storage.prototypes import save_prototypes
from panther.storage.tables import write_spreadsheet
from panther.store import atomic_write
from panther.version import __version__

TILES, SIDE, BORDER = 4, 84, 3  # patches of a prototype in the overview; pixels


def framed_patch(atlas: Atlas, index: int | None, side: int) -> np.ndarray:
    """Exemplar (side, side, 3) in a frame of its prototype's colour; white without one, grey where its image is missing."""
    from PIL import Image

    if index is None:
        return np.full((side, side, 3), 255, np.uint8)
    frame = Image.new("RGB", (side, side), atlas.colours[atlas.exemplars[index].prototype])
    inner = (side - 2 * BORDER, side - 2 * BORDER)
    patch = Image.fromarray(atlas.pictures[index]) if index in atlas.pictures else Image.new("RGB", inner, MISSING)
    frame.paste(patch.resize(inner), (BORDER, BORDER))
    return np.asarray(frame)


@plain_text
def draw_exemplars(atlas: Atlas, prototype: int) -> Any:
    """Contact sheet of one prototype: its nearest patches above random members, with their slides; returns a matplotlib figure."""
    rows = [atlas.chosen(prototype, kind) for kind in KINDS]
    across = max(4, *map(len, rows))
    panels = []
    for row in rows:
        for index in row:
            title = f"d {atlas.exemplars[index].distance:.3g} {atlas.exemplars[index].slide}"
            panels.append((title, framed_patch(atlas, index, LARGEST)))
        panels += [("", framed_patch(atlas, None, LARGEST))] * (across - len(row))
    sheet = Sheet(panels, 0, 1.0, len(rows), top=80)
    sheet.write(sheet.gap, 24, short(atlas.title(prototype), sheet.full[0] / 13.5), 15, weight="bold")
    sheet.write(sheet.gap, 52, f"{atlas.share_text(prototype)}  ·  {atlas.member_text(prototype)}", color=GREY)
    sheet.write(sheet.gap, 72, "above: nearest to the prototype; below: members at random", color=GREY)
    return sheet.figure


@plain_text
def draw_overview(atlas: Atlas) -> Any:
    """One line per prototype: nearest patches, colour, name, share with its interval; bars where there are no pictures."""
    if not atlas.pictures:
        return share_chart(to_dict(atlas)).figure()
    nearest = [(*atlas.chosen(c, "nearest"), *[None] * TILES)[:TILES] for c in range(atlas.prototypes)]
    sheet = Sheet([("", framed_patch(atlas, index, SIDE)) for row in nearest for index in row], 440, 1.0, len(nearest))
    for c in range(atlas.prototypes):
        top = sheet.head + c * (SIDE + sheet.head) + SIDE / 2
        sheet.legend_line(sheet.right, top - 20, atlas.colours[c], ("", short(atlas.title(c), 50)), (18, 18))
        sheet.write(sheet.right + 18, top, atlas.share_text(c), 8, color=GREY)
        sheet.write(sheet.right + 18, top + 18, atlas.member_text(c), 8, color=GREY)
    return sheet.figure


FORMAT = 1
JPEG_QUALITY = 92
PROTOTYPES = "prototypes.safetensors"  # a copy
WRITTEN = ("*.png", "*.csv", "atlas.json", PROTOTYPES)  # patterns
# of any run of ours
OURS = re.compile(r"(C\d+|relations)\.png|groups\.[^/]*\.png|exemplars/C\d+-(nearest|random)-\d+\.jpg")
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
    """Write everything; remaining pictures of an earlier atlas in the same folder are removed."""
    content = to_dict(atlas)
    written = _write_pictures(atlas, content, folder)
    columns = [f"C{c}" for c in range(atlas.prototypes)]
    patches = atlas.members.sum(1).tolist()
    errors = atlas.errors.T if atlas.errors.any() else atlas.errors.T[:0]  # columns where slides are samples
    tables: dict[str, tuple[Sequence[str], Iterable[Sequence[Any]]]] = {
        "pi": (
            ("slide", "patient", "n_patches", *columns, *(f"se_C{c}" for c in range(len(errors)))),
            zip(atlas.slides, atlas.patients, patches, *atlas.weights.T.tolist(), *errors.tolist(), strict=True),
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
    if not template.exists():  # it is the user's once it is there
        written.append(template)
        namings = atlas.settings.maps.namings
        lines = [f"C{c}: {entry(namings.get(c, Naming()))}".rstrip() for c in range(atlas.prototypes)]
        write_text(written[-1], NAMES_HEAD + "\n".join(lines) + "\n")
    if atlas.source is not None:
        written.append(folder / PROTOTYPES)
        save_prototypes(atlas.source, written[-1])
    written.append(folder / "atlas.json")  # last: its pictures and tables are complete
    write_json(written[-1], content)
    for path in {*folder.glob("*.png"), *folder.glob("exemplars/*.jpg")} - set(written):
        if OURS.fullmatch(path.relative_to(folder).as_posix()):
            path.unlink()
    return written


def to_dict(atlas: Atlas) -> dict[str, Any]:
    """Atlas in plain values, None where a number is not defined."""
    exemplars = []
    numbers: dict[tuple[int, str], count] = {}
    for index, exemplar in enumerate(atlas.exemplars):
        number = next(numbers.setdefault((exemplar.prototype, exemplar.kind), count()))
        picture = f"exemplars/C{exemplar.prototype}-{exemplar.kind}-{number}.jpg" if index in atlas.pictures else None
        x, y = (None, None) if exemplar.place is None else (exemplar.place.x, exemplar.place.y)
        about = [getattr(exemplar, name) for name in HEADERS["exemplars"][:5]]
        row = [*about, x, y, exemplar.distance, picture]
        exemplars.append(dict(zip(HEADERS["exemplars"], row, strict=True)))
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
        "groups": [_plain(asdict(group)) for group in atlas.groups],
        "tests": [_plain(asdict(test)) for test in atlas.tests],
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
    figures: dict[str, Any] = {"overview": partial(draw_overview, atlas)}
    if relations := list(relation_charts(content).values()):
        figures["relations"] = lambda: draw([relations])
    for column, chart in group_charts(content).items():
        figures["groups." + re.sub(r"[^\w-]+", "_", column)] = chart.figure
    for c in sorted({atlas.exemplars[index].prototype for index in atlas.pictures}):
        figures[f"C{c}"] = partial(draw_exemplars, atlas, c)
    for name, draw_figure in figures.items():
        written.append(folder / f"{name}.png")
        save(draw_figure(), written[-1])
    return written


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}


def _matrix(values: np.ndarray) -> list[list[float | None]]:
    return [[float(v) if math.isfinite(v) else None for v in row] for row in values]


def share_chart(content: Content, names: Sequence[str] | None = None) -> Chart:
    """Mean share of each prototype over patients, with its interval."""
    rows, names = content["prototypes"], names or _names(content)
    share, low, high = (_numbers(rows, key, len(names)) for key in ("share", "low", "high"))
    return shares(names, share, list(map(row_colour, rows)), "share of the tissue", low, high)


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
    """Co-occurrence and contacts of prototypes, by their keys in `atlas.json`; matrices without a number are left out."""
    names = names or _names(content)
    values = {kind: np.array(content.get(kind) or [], float) for kind in ("cooccurrence", "neighbours")}  # None: NaN
    return {kind: relation(kind, names, matrix) for kind, matrix in values.items() if np.isfinite(matrix).any()}


def _names(content: Content) -> list[str]:
    names = {row["prototype"]: row["name"] for row in content["prototypes"] if row.get("name")}
    return [label(row["prototype"], names) for row in content["prototypes"]]


def _numbers(rows: Sequence[Content], key: str, count: int) -> list[float]:
    """Number of each prototype; NaN where there is none."""
    values = {row["prototype"]: row.get(key) for row in rows}
    return [np.nan if (value := values.get(c)) is None else float(value) for c in range(count)]
