"""Vectors as a table: one row per slide, a column with its name, and a column for every number (or one column of lists)."""

from pathlib import Path

import numpy as np
import pandas as pd

from panther.errors import InputError, listed
from panther.storage.clinical import PATIENT_COLUMNS, SLIDE_COLUMNS, called, find_column
from panther.storage.slide_vectors._base import SlideVectors, rows_of
from panther.storage.tables import as_table, read_parquet, source_of

NAMES = (*SLIDE_COLUMNS, *PATIENT_COLUMNS, "sample", "id", "ID", "Unnamed: 0", "")  # how the column of names is called


def read_table(path: Path, key: str | None) -> SlideVectors:
    """CSV or TSV; ``key`` is the column with the names, where it has no usual name."""
    return _vectors(path, as_table(path), key, "table")


def read_parquet_table(path: Path, key: str | None) -> SlideVectors:
    """The same as parquet, where one column may hold whole vectors as lists."""
    try:
        table = read_parquet(path)
    except FileNotFoundError as error:
        raise InputError(f"{path}: there is no such table.") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error}).") from error
    named = [name for name in table.index.names if name is not None and name not in table.columns]
    table = table.reset_index(level=named) if named else table
    table.columns = [str(name) for name in table.columns]
    table.attrs["source"] = str(path)
    # a thousand columns of numbers need not be looked at
    lists = [name for name in _words(table) if len(table) and isinstance(table[name].iloc[0], (np.ndarray, list))]
    if not lists:
        return _vectors(path, table, key, "parquet")
    if len(lists) > 1:
        raise InputError(f"{path}: the columns {listed(lists)} all hold vectors; keep one of them.")
    names = _names(table, key)
    rows = [np.asarray(row, np.float32).reshape(-1) for row in table[lists[0]]]
    if len({len(row) for row in rows}) > 1:
        raise InputError(f"{path}: the vectors in {lists[0]!r} have different lengths; expected one width for all.")
    return rows_of(str(path), list(names), np.stack(rows), "parquet")


def _vectors(path: Path, table: pd.DataFrame, key: str | None, layout: str) -> SlideVectors:
    names = _names(table, key)
    ids = {str(names.name), *called(table.columns, (*SLIDE_COLUMNS, *PATIENT_COLUMNS))}
    values = table[[column for column in table.columns if column not in ids]]
    if values.empty:
        raise InputError(f"{path}: no column of numbers beside {names.name!r}.")
    try:
        matrix = (values.replace("", "nan") if _words(values) else values).to_numpy(np.float32)
    except (ValueError, TypeError) as error:
        wrong = [column for column in values.columns if pd.to_numeric(values[column], errors="coerce").isna().any()]
        raise InputError(
            f"{path}: the column {wrong[0] if wrong else '?'!r} holds no numbers; keep the column of names and those of the vector only, "
            f"or say which column has the names, `{path.name}#COLUMN`."
        ) from error
    return rows_of(str(path), list(names), matrix, layout)


def _words(table: pd.DataFrame) -> list[str]:
    """Columns that are not of numbers."""
    return [str(name) for name, dtype in table.dtypes.items() if not pd.api.types.is_numeric_dtype(dtype)]


def _names(table: pd.DataFrame, key: str | None) -> pd.Series:
    """Column with the names of the slides or patients."""
    found = find_column(table, key, NAMES, "name")
    if found is None:
        raise InputError(
            f"{source_of(table)}: no column with the names of the slides among {listed(table.columns, 5)}; expected e.g. slide_id, "
            "or say it with the file, `FILE#COLUMN`."
        )
    return table[found].map(str)
