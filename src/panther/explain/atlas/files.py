"""The atlas on disk: `atlas.json`, the same tables as CSV, pictures of patches, contact sheets, and a names file to fill in."""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import Any

import numpy as np

from panther.charts.style import save
from panther.charts.to_matplotlib import draw
from panther.errors import InputError
from panther.explain.atlas.atlas import Atlas
from panther.explain.atlas.charts import group_charts, relation_charts
from panther.explain.atlas.sheets import draw_exemplars, draw_overview
from panther.explain.names import Naming, read_names
from panther.explain.names_file import entry
from panther.explain.touching import COLUMNS, neighbour_rows
from panther.storage.files import write_json, write_text
from panther.storage.prototypes import save_prototypes
from panther.storage.tables import write_spreadsheet
from panther.store import atomic_write
from panther.version import __version__

FORMAT = 1
JPEG_QUALITY = 92
PROTOTYPES = "prototypes.safetensors"  # a copy
WRITTEN = (
    "*.png",
    "*.csv",
    "atlas.json",
    PROTOTYPES,
    "names.new.yaml",
)  # patterns; `names.yaml` is the user's once it is there
OURS = re.compile(r"C\d+\.png|groups\.[^/]*\.png|exemplars/C\d+-(nearest|random)-\d+\.jpg")  # of any run of ours


def write_atlas(atlas: Atlas, folder: Path) -> list[Path]:
    """Write everything; pictures of an earlier atlas in the same folder that this one does not have are removed."""
    content = to_dict(atlas)
    written = [
        *_write_pictures(atlas, content, folder),
        *_write_figures(atlas, content, folder),
        *_write_tables(atlas, content, folder),
    ]
    template = folder / "names.yaml"
    if not template.exists() or not _fits(template, atlas.prototypes):  # names that a user filled in are kept
        template = template if not template.exists() else folder / "names.new.yaml"
        write_text(template, names_template(atlas))
        written.append(template)
    if atlas.source is not None:
        written.append(folder / PROTOTYPES)
        save_prototypes(atlas.source, written[-1])
    # last: whoever finds it finds everything it names
    write_json(folder / "atlas.json", content)
    written.append(folder / "atlas.json")
    _remove_old(folder, written)
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


def names_template(atlas: Atlas) -> str:
    """Lines to fill in, with the names that are there already."""
    head = (
        "# Names of the prototypes: look at C0.png, C1.png, ... and write what you see behind the colon.\n"
        "# Then give this file to any command: panther atlas ... --names names.yaml\n"
    )
    given = {c: Naming(name) for c, name in atlas.names.items()} | dict(atlas.settings.maps.namings)
    lines = [f"C{c}: {entry(given.get(c, Naming()))}".rstrip() for c in range(atlas.prototypes)]
    return head + "\n".join(lines) + "\n"


def _fits(names: Path, count: int) -> bool:
    """Whether a file of names can be read with these prototypes; one of another atlas would be refused by every command."""
    try:
        read_names(names, count)
    except InputError:
        return False
    return True


def _prototype(atlas: Atlas, c: int) -> dict[str, Any]:
    share, members = atlas.shares[c], atlas.members[:, c]
    return {
        "prototype": c,
        "name": atlas.names.get(c),
        "colour": atlas.colours[c],
        "share": share.value,
        **_plain({"low": share.low, "high": share.high}),
        "patches": int(members.sum()),
        "slides": int((members > 0).sum()),
    }


def _exemplars(atlas: Atlas) -> list[dict[str, Any]]:
    rows = []
    before: dict[tuple[int, str], int] = {}
    for index, one in enumerate(atlas.exemplars):
        number = before.get((one.prototype, one.kind), 0)
        before[one.prototype, one.kind] = number + 1
        picture = f"exemplars/C{one.prototype}-{one.kind}-{number}.jpg"
        place = {"x": None, "y": None} if one.place is None else {"x": one.place.x, "y": one.place.y}
        rows.append(
            {
                "prototype": one.prototype,
                "kind": one.kind,
                "slide": one.slide,
                "patient": one.patient,
                "row": one.row,
                **place,
                "distance": one.distance,
                "picture": picture if index in atlas.pictures else None,
            }
        )
    return rows


def _write_pictures(atlas: Atlas, content: dict[str, Any], folder: Path) -> list[Path]:
    from PIL import Image

    written = []
    for index, pixels in atlas.pictures.items():
        path = folder / content["exemplars"][index]["picture"]
        with atomic_write(path) as temporary:
            Image.fromarray(pixels).save(temporary, format="jpeg", quality=JPEG_QUALITY)
        written.append(path)
    return written


def _write_figures(atlas: Atlas, content: dict[str, Any], folder: Path) -> list[Path]:
    """Draw one after the other, so that no two figures are in memory."""
    relations = list(relation_charts(content).values())
    figures: dict[str, Callable[[], Any]] = {
        "overview": partial(draw_overview, atlas),
        "relations": partial(draw, [relations]),
    }
    for column, chart in group_charts(content).items():
        figures[_free_name(column, figures)] = chart.figure
    for c in sorted({atlas.exemplars[index].prototype for index in atlas.pictures}):
        figures[f"C{c}"] = partial(draw_exemplars, atlas, c)
    for name, draw_figure in figures.items():
        save(draw_figure(), folder / f"{name}.png")
    return [folder / f"{name}.png" for name in figures]


def _free_name(column: str, taken: Iterable[str]) -> str:
    """Name of a column's picture; a number is added where another column has it (some disks take A and a for one)."""
    before = {name.casefold() for name in taken}
    name = "groups." + re.sub(r"[^\w-]+", "_", column)
    numbered = (f"{name}-{number}" for number in count(2))
    return next(one for one in chain([name], numbered) if one.casefold() not in before)


def _write_tables(atlas: Atlas, content: dict[str, Any], folder: Path) -> list[Path]:
    columns = [f"C{c}" for c in range(atlas.prototypes)]
    rows = zip(atlas.slides, atlas.patients, atlas.members.sum(1).tolist(), atlas.weights.tolist(), strict=True)
    tables: dict[str, tuple[Sequence[str], list[list[Any]]]] = {
        "pi": (
            ("slide", "patient", "n_patches", *columns),
            [[slide, patient, patches, *weights] for slide, patient, patches, weights in rows],
        ),
        "cooccurrence": (
            ("prototype", *columns),
            [[c, *row] for c, row in zip(columns, content["cooccurrence"], strict=True)],
        ),
        "neighbours": (COLUMNS, neighbour_rows(atlas.touching)),
    }
    headers = {"prototypes": _prototype(atlas, 0), "groups": GROUPS, "tests": TESTS, "exemplars": EXEMPLARS}
    for name, header in headers.items():
        tables[name] = (tuple(header), [list(row.values()) for row in content[name]])
    for name, (header, lines) in tables.items():
        write_spreadsheet(folder / f"{name}.csv", header, lines)
    return [folder / f"{name}.csv" for name in tables]


GROUPS = ("column", "value", "prototype", "n", "mean", "low", "high")
TESTS = ("column", "prototype", "test", "statistic", "p", "p_corrected")
EXEMPLARS = ("prototype", "kind", "slide", "patient", "row", "x", "y", "distance", "picture")


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}


def _matrix(values: np.ndarray) -> list[list[float | None]]:
    return [[float(v) if math.isfinite(v) else None for v in row] for row in values]


def _remove_old(folder: Path, written: Sequence[Path]) -> None:
    kept = set(written)
    for path in (*folder.glob("*.png"), *folder.glob("exemplars/*.jpg")):
        if path not in kept and OURS.fullmatch(path.relative_to(folder).as_posix()):
            path.unlink()
