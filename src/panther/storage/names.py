"""Names of slides, independent of locale and system, and of the files of a job of `panther slides` (TRIDENT's layout).

thumbnails/SLIDE.png  contours/SLIDE.png  contours_geojson/SLIDE.geojson
20x_256px_0px_overlap/patches/SLIDE_patches.h5
summary.csv
"""

import csv
import io
import os
import re
import unicodedata
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from panther.errors import InputError
from panther.storage.files import read_text

SUFFIXES = (".svs", ".ndpi", ".mrxs", ".scn", ".tif", ".tiff", ".bif", ".vms", ".vmu", ".svslide", ".czi")  # of slides
DICOM = ".dcm"
NAMED = (*SUFFIXES, DICOM, ".zarr", ".h5", ".pt")  # endings that names of slides in tables may have


def composed(name: str) -> str:
    """Name with composed letters (NFC): macOS writes "ü" in file names as "u" and two dots, tables as one letter."""
    return unicodedata.normalize("NFC", name)


def decomposed(name: str) -> str:
    """Name with decomposed letters (NFD), as macOS writes them."""
    return unicodedata.normalize("NFD", name)


def without_suffix(name: str) -> str:
    """Composed name of a slide without the ending of its file."""
    return composed(name[: name.rindex(".")] if name.lower().endswith(NAMED) else name)


def piece_name(slide: str, number: int) -> str:
    """Name of a connected piece of a slide's tissue, as `panther slides --pieces` writes it."""
    return f"{slide}_piece{number}"


def slide_of(name: str) -> str:
    """Slide of a bag: of a piece the slide that it is part of.

    >>> slide_of("TMA-7_piece12"), slide_of("TMA-7")
    ('TMA-7', 'TMA-7')
    """
    return re.sub(r"_piece[1-9][0-9]*$", "", name)


def as_text(name: str) -> str | None:
    """Composed name of a file, read as UTF-8 in every locale; None if it is not UTF-8."""
    try:
        return composed(os.fsencode(name).decode("utf-8"))
    except UnicodeDecodeError:
        return None
    except UnicodeEncodeError:  # text that this locale cannot encode, so not from a file
        return composed(name)


def not_text(path: Path) -> str:
    """Reason for a file with a name that is not UTF-8."""
    return f"{path.name!a}: the file's name is not UTF-8; rename the file"


def refuse_repeated_columns(source: object, columns: Sequence[object]) -> None:
    """Refuse a table with two columns of one name; columns without a name may repeat."""
    names = [str(name).strip() for name in columns]
    repeated = [name for index, name in enumerate(names) if name and name in names[:index]]
    if repeated:
        raise InputError(f"{source}: {names.count(repeated[0])} columns are called {repeated[0]!r}, expected one")


def refuse_collisions(source: object, names: Sequence[str], stored: Sequence[str]) -> None:
    """Refuse names that would be ``stored`` under the same name."""
    first: dict[str, str] = {}
    for name, key in zip(names, stored, strict=True):
        if first.setdefault(key, name) != name:
            raise InputError(f"{source}: columns {first[key]!r} and {name!r} would both become {key!r}; rename one")


def differ_in_case(names: Iterable[str]) -> list[tuple[str, str]]:
    """Pairs of names that differ only in upper and lower case, sorted."""
    by_folded: dict[str, str] = {}
    names = sorted(set(names))
    return [(first, name) for name in names if (first := by_folded.setdefault(name.casefold(), name)) != name]


PARTLY = "partly read"  # status of a slide with many tiles that could not be decoded


@dataclass(frozen=True)
class Job:
    """Folder of a job and the paths in it."""

    folder: Path

    def summary_of(self, part: str = "") -> Path:
        """Table of all slides, or of a ``part`` of them, one row each."""
        return self.folder / (f"summary-{part.replace('/', '-of-')}.csv" if part else "summary.csv")

    def geojson(self, slide: str) -> Path:
        """Contours of the tissue."""
        return self.folder / "contours_geojson" / f"{slide}.geojson"

    def annotations(self, slide: str) -> Path:
        """Annotations of the viewer."""
        return self.folder / "annotations" / f"{slide}.geojson"

    def thumbnail(self, slide: str) -> Path:
        """Small picture of the slide."""
        return self.folder / "thumbnails" / f"{slide}.png"

    def overlay(self, slide: str) -> Path:
        """Small picture with the contours."""
        return self.folder / "contours" / f"{slide}.png"

    def coords(self, slide: str, patches: str) -> Path:
        """Coordinates of a set of patches named e.g. `20x_256px_0px_overlap`."""
        return self.folder / patches / "patches" / f"{slide}_patches.h5"


def read_summary(job: Job) -> list[dict[str, str]]:
    """Rows of the summary, the latest of each slide; tables that cannot be read are skipped, they can be made again."""
    tables = []
    for path in (job.summary_of(), *job.folder.glob("summary-*-of-*.csv")):
        with suppress(OSError, ValueError, csv.Error):
            written, lines = path.stat().st_mtime_ns, io.StringIO(read_text(path), newline="")
            tables.append((written, [row for row in csv.DictReader(lines) if row.get("slide") and None not in row]))
    rows = {row["slide"]: row for _, table in sorted(tables, key=lambda table: table[0]) for row in table}
    return [rows[name] for name in sorted(rows)]
