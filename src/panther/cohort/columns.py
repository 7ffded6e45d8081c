"""Clinical tables word for word: every cell is a string, columns are found by the field's aliases or by name."""

import csv
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from panther.errors import InputError, suggestion
from panther.storage.tables import (
    PATIENT_COLUMNS,
    SLIDE_COLUMNS,
    SLIDE_SUFFIXES,
    check_header,
    part_file,
    part_of,
    read_parquet,
)

SITE_COLUMNS = (
    "tissue_source_site",
    "site_id",
    "center_id",
    "center",
    "centre",
    "institution",
    "hospital",
    "data_provider",
)
# What tables write where there is nothing; "None" is left out on purpose, it is a class in some tables.
MISSING = frozenset(
    (
        "",
        "na",
        "n/a",
        "nan",
        "<na>",
        "null",
        "nat",
        "[not available]",
        "[not applicable]",
        "[not evaluated]",
        "[unknown]",
        "[discrepancy]",
    )
)
TCGA = r"TCGA-\w\w-\w{4}(?!\w)"


@dataclass(frozen=True)
class Columns:
    """Names of columns, where they are not the usual ones."""

    slide: str | None = None
    patient: str | None = None
    site: str | None = None


@dataclass(frozen=True)
class Identities:
    """Who is in each row."""

    slide: list[str]
    patient: list[str]
    site: list[str | None]
    notes: list[str]


def read_rows(path: Path) -> pd.DataFrame:
    """Table as written, all cells strings, missing ones empty: "007" stays a name and rows can be written back unchanged."""
    try:
        table = as_strings(read_parquet(path)) if path.suffix == ".parquet" else _read_text(path)
    except InputError:
        raise
    except FileNotFoundError as error:
        raise InputError(f"{path}: there is no such table.") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error}).") from error
    except (ValueError, csv.Error, pd.errors.ParserWarning) as error:  # pandas' parser errors are ValueErrors
        reason = str(error).strip().splitlines()[0]
        raise InputError(
            f"{path}: not a readable table ({reason}); expected CSV, TSV or parquet, in UTF-8, with a header."
        ) from error
    if table.empty:
        raise InputError(f"{path}: the table has no rows.")
    return table.fillna("")  # a line that is too short


def read_part(path: Path, split: str | None = None) -> pd.DataFrame:
    """The same; with ``split`` the rows whose column `split` says so, or the file of that part of a folder of splits."""
    path, split = part_file(path, split)
    table = read_rows(path) if split is None else part_of(path, read_rows(path), split)
    table.attrs["source"] = str(path)
    return table


def _read_text(path: Path) -> pd.DataFrame:
    separator = "\t" if path.suffix in (".tsv", ".txt") else ","
    check_header(path, separator)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "error", pd.errors.ParserWarning
        )  # a line with more cells than the header is not cut silently
        return pd.read_csv(path, sep=separator, dtype=str, keep_default_na=False, encoding="utf-8-sig", index_col=False)


def as_strings(table: pd.DataFrame) -> pd.DataFrame:
    """All cells as strings, missing ones empty."""
    missing = table.isna()
    return table.astype(str).mask(missing, "").reset_index(drop=True)


def is_missing(column: pd.Series) -> pd.Series:
    """Where a cell says nothing."""
    return column.str.strip().str.lower().isin(MISSING)


def pick(table: pd.DataFrame, source: str, name: str | None, aliases: Sequence[str], what: str) -> str | None:
    """Column by its name, which must exist, or the first of the aliases, or None."""
    if name is not None and name not in table.columns:
        raise InputError(
            f"{source}: there is no {what} column {name!r}; {suggestion(name, [str(c) for c in table.columns])}."
        )
    return name or next((alias for alias in aliases if alias in table.columns), None)


def listed(names: Sequence[str], limit: int = 40) -> str:
    """Names for a sentence."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(map(str, names[:limit])) + more


def identify(table: pd.DataFrame, source: str, columns: Columns) -> Identities:
    """Slide, patient and site of every row."""
    slide = pick(table, source, columns.slide, SLIDE_COLUMNS, "slide")
    patient = pick(table, source, columns.patient, PATIENT_COLUMNS, "patient")
    site = pick(table, source, columns.site, SITE_COLUMNS, "site")
    if slide is None and patient is None:
        raise InputError(
            f"{source}: neither a slide nor a patient column among {listed(list(table.columns))}; "
            f"expected e.g. slide_id and case_id, or name them with `slide_column=` and `patient_column=`."
        )
    notes = []
    slides = [without_suffix(name) for name in _ids(table, source, slide or str(patient))]
    if slide is None:
        notes.append(f"{source} has no slide column: each row is one slide named like its patient ({patient}).")
    patients = _ids(table, source, patient) if patient else _patients_of(slides, source, notes)
    return Identities(slides, patients, _sites(table, site, patients), notes)


def without_suffix(name: str) -> str:
    """Name of a slide without the ending of its file."""
    return name[: name.rindex(".")] if name.lower().endswith(SLIDE_SUFFIXES) else name


def _ids(table: pd.DataFrame, source: str, column: str) -> list[str]:
    blank = (table[column].str.strip() == "").to_numpy()
    if blank.any():
        line = int(blank.argmax()) + 2  # counting the header, as a spreadsheet does
        raise InputError(f"{source}: {int(blank.sum())} rows have no {column}, the first is line {line}; fill it in.")
    return list(table[column].str.strip())


def _patients_of(slides: list[str], source: str, notes: list[str]) -> list[str]:
    names = pd.Series(slides, dtype=str)
    if names.str.match(TCGA).all():
        notes.append(f"{source} has no patient column: patients are the first 12 characters of the TCGA barcodes.")
        return list(names.str[:12])
    notes.append(
        f"{source} has no patient column: every slide counts as its own patient; if some share one, splits will leak (`patient_column=`)."
    )
    return slides


def _sites(table: pd.DataFrame, column: str | None, patients: list[str]) -> list[str | None]:
    """Site column, and where it is empty or absent the second part of a TCGA barcode."""
    names = pd.Series(patients, dtype=str)
    barcode = names.str.extract(r"^TCGA-(\w\w)-\w{4}(?!\w)", expand=False)
    if column is not None:
        written = table[column].str.strip().reset_index(drop=True)
        barcode = written.mask(is_missing(written), barcode)
    return [None if pd.isna(name) else str(name) for name in barcode]
