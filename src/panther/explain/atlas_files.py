"""The atlas on disk: `atlas.json`, the same tables as CSV, pictures of patches, contact sheets, a names file to fill in; and its charts."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import Any

import numpy as np

from panther.charts.chart import Chart
from panther.charts.prototypes import Group, Tests, contacts, cooccurrence, correlations, group_shares, shares
from panther.charts.style import save
from panther.charts.to_matplotlib import draw
from panther.errors import InputError
from panther.explain.atlas import Atlas
from panther.explain.atlas_sheets import draw_exemplars, draw_overview
from panther.explain.names import Naming, as_names, entry, label, row_colour
from panther.explain.touching import COLUMNS, neighbour_rows
from panther.storage.files import write_json, write_text
from panther.storage.prototypes import save_prototypes
from panther.storage.tables import write_spreadsheet
from panther.store import atomic_write
from panther.version import __version__

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
    for name, (header, rows) in _tables(atlas, content).items():
        written.append(folder / f"{name}.csv")
        write_spreadsheet(written[-1], header, rows)
    template = folder / "names.yaml"
    if not template.exists() or not _fits(template, atlas.prototypes):  # names that a user filled in are kept
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
        "prototypes": [_prototype(atlas, c) for c in range(atlas.prototypes)],
        "groups": [_plain(asdict(one)) for one in atlas.groups],
        "tests": [_plain(asdict(one)) for one in atlas.tests],
        "correction": "Holm, over the prototypes of a column",
        "cooccurrence": _matrix(atlas.cooccurrence),
        "neighbours": _matrix(atlas.touching.log_ratio().round(6)),
        "neighbours_in_words": atlas.neighbours_in_words(),
        "exemplars": _exemplars(atlas),
        "notes": list(atlas.notes),
        "failures": dict(atlas.failures),
    }


def _fits(names: Path, count: int) -> bool:
    """Whether a file of names can be read with these prototypes; one of another atlas would be refused by every command."""
    try:
        as_names(names, count)
    except InputError:
        return False
    return True


def _prototype(atlas: Atlas, c: int) -> dict[str, Any]:
    share, members = atlas.shares[c], atlas.members[:, c]
    return {
        "prototype": c,
        "name": atlas.settings.maps.names.get(c),
        "colour": atlas.colours[c],
        "share": share.value,
        **_plain({"low": share.low, "high": share.high}),
        "patches": int(members.sum()),
        "slides": int((members > 0).sum()),
    }


def _exemplars(atlas: Atlas) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    numbers: dict[tuple[int, str], count] = {}
    for index, one in enumerate(atlas.exemplars):
        number = next(numbers.setdefault((one.prototype, one.kind), count()))
        picture = f"exemplars/C{one.prototype}-{one.kind}-{number}.jpg" if index in atlas.pictures else None
        x, y = (None, None) if one.place is None else (one.place.x, one.place.y)
        values = (one.prototype, one.kind, one.slide, one.patient, one.row, x, y, one.distance, picture)
        rows.append(dict(zip(HEADERS["exemplars"], values, strict=True)))
    return rows


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


def _tables(atlas: Atlas, content: Content) -> dict[str, tuple[Sequence[str], Any]]:
    """Header and rows of each CSV."""
    columns = [f"C{c}" for c in range(atlas.prototypes)]
    patches = atlas.members.sum(1).tolist()
    pi = zip(atlas.slides, atlas.patients, patches, *atlas.weights.T.tolist(), strict=True)
    related = [[c, *row] for c, row in zip(columns, content["cooccurrence"], strict=True)]
    return {
        "pi": (("slide", "patient", "n_patches", *columns), [list(row) for row in pi]),
        "cooccurrence": (("prototype", *columns), related),
        "neighbours": (COLUMNS, neighbour_rows(atlas.touching)),
        **{name: (header, [list(row.values()) for row in content[name]]) for name, header in HEADERS.items()},
    }


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}


def _matrix(values: np.ndarray) -> list[list[float | None]]:
    return [[float(v) if math.isfinite(v) else None for v in row] for row in values]


def share_chart(content: Content, names: Sequence[str] | None = None) -> Chart:
    """Mean share of each prototype over patients, with its interval."""
    rows, names = content["prototypes"], names or _names(content)
    limits = _numbers(rows, "low"), _numbers(rows, "high")
    return shares(names, _numbers(rows, "share"), [row_colour(row) for row in rows], "share of the tissue", limits)


def group_charts(content: Content, names: Sequence[str] | None = None) -> dict[str, Chart]:
    """Mean share of each prototype in each group of a clinical column, or Spearman's rho where it is a number, by column."""
    names = names or _names(content)
    rows = {kind: content.get(kind, []) for kind in ("groups", "tests")}
    columns = dict.fromkeys(row["column"] for kind in rows.values() for row in kind)
    charts = {}
    for column in columns:
        tests = [row for row in rows["tests"] if row["column"] == column]
        ordered = _by_prototype(tests, len(names))
        results = Tests(tests[0].get("test", ""), _numbers(ordered, "p_corrected")) if tests else None
        groups: dict[str, list[Content]] = {}
        for row in rows["groups"]:
            if row["column"] == column:
                groups.setdefault(row["value"], []).append(row)
        bars = [
            Group(
                str(value),
                of[0].get("n"),
                *(_numbers(_by_prototype(of, len(names)), k) for k in ("mean", "low", "high")),
            )
            for value, of in groups.items()
        ]
        if bars:
            charts[column] = group_shares(names, bars, results, column)
        else:
            charts[column] = correlations(names, _numbers(ordered, "statistic"), results, column)
    return charts


def relation_charts(content: Content, names: Sequence[str] | None = None) -> dict[str, Chart]:
    """Which prototypes occur together and which touch each other, by the names that `atlas.json` has; empty matrices are left out."""
    names = names or _names(content)
    kinds = {"cooccurrence": cooccurrence, "neighbours": contacts}
    values = {kind: np.array(content.get(kind) or [], float) for kind in kinds}  # None becomes NaN
    known = {kind for kind, matrix in values.items() if matrix.shape == (len(names), len(names))}
    return {kind: chart(names, values[kind]) for kind, chart in kinds.items() if kind in known}


def _by_prototype(rows: Sequence[Content], count: int) -> list[Content]:
    """Row of each prototype; empty where there is none."""
    known = {row["prototype"]: row for row in rows}
    return [known.get(c, {}) for c in range(count)]


def _names(content: Content) -> list[str]:
    names = {row["prototype"]: row["name"] for row in content["prototypes"] if row.get("name")}
    return [label(row["prototype"], names) for row in content["prototypes"]]


def _numbers(rows: Sequence[Content], key: str) -> list[float]:
    return [np.nan if row.get(key) is None else float(row[key]) for row in rows]
