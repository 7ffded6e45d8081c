"""Tables on disk: read word for word, written whole or not at all."""

import csv
import io
import warnings
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from panther.errors import InputError, listed
from panther.storage.files import DAMAGE
from panther.storage.names import refuse_repeated_columns
from panther.storage.table_files.cells import EMPTY, with_decimal_points, with_points_where_sure
from panther.storage.table_files.cells import MISSING as MISSING
from panther.storage.table_files.cells import is_missing as is_missing
from panther.storage.table_files.cells import with_points as with_points
from panther.storage.table_files.separators import find_layout, refuse_long_lines
from panther.store import atomic_write

if TYPE_CHECKING:
    import pandas as pd


def as_table(table: "Path | str | pd.DataFrame") -> "pd.DataFrame":
    """Table with every cell as a string, missing ones empty: "007" stays a name, and rows can be written back unchanged.

    Parameters
    ----------
    table
        Text, whose header (or Excel's line sep=; before it) tells whether commas, semicolons or tabs are between cells, parquet file, or
        data frame. Where it is semicolons, columns of numbers may have decimal commas, which become points; elsewhere who reads numbers
        turns them (:func:`with_points`).
    """
    import pandas as pd

    if isinstance(table, pd.DataFrame):
        source, read = source_of(table), _as_strings(table)
    else:
        path = Path(table)
        if path.is_dir():
            found = listed((file.name for file in sorted(path.glob("*.csv"))), 5) or "none"
            raise InputError(f"{path} is a folder; give one of its tables (*.csv: {found}).")
        source, read = str(path), _read(path)
    if read.empty:
        raise InputError(f"{source}: the table has no rows.")
    read.attrs["source"] = source
    return read


def source_of(table: "pd.DataFrame") -> str:
    """Where a table came from, for messages."""
    return str(table.attrs.get("source", "the table"))


def plain_labels(column: "pd.Series") -> "pd.Series":
    """Labels without the ".0" that spreadsheets, parquet and pandas leave behind on whole numbers."""
    return column.str.strip().str.replace(r"^(-?\d+)\.0+$", r"\1", regex=True)


def with_types(table: "pd.DataFrame", words: Collection[str] = (), ids: Iterable[str] = ()) -> "pd.DataFrame":
    """Table of strings with numbers as numbers and empty cells as NaN; ``words`` and ``ids`` stay strings, ids also where they say NA."""
    import pandas as pd

    known = table.apply(lambda column: column.mask(column.str.strip().str.lower().isin(EMPTY), ""))
    known = known.apply(lambda column: column if column.name in words else with_points_where_sure(column))
    known = known.assign(**{name: table[name] for name in ids})
    # a number does not begin with 0: "007" is a name
    names = [column for column in table.columns if known[column].str.fullmatch(r"0\d+").any()]
    types = dict.fromkeys((*names, *words, *ids), str)
    text = io.StringIO(known.to_csv(index=False))
    typed = pd.read_csv(text, dtype=types, keep_default_na=False, na_values=[""], skip_blank_lines=False)
    return typed.set_index(table.index)


def _read(path: Path) -> "pd.DataFrame":
    import pandas as pd

    try:
        return _as_strings(read_parquet(path)) if path.suffix == ".parquet" else _read_text(path)
    except InputError:
        raise
    except FileNotFoundError as error:
        raise InputError(f"{path}: there is no such table.") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error}).") from error
    except (ValueError, csv.Error, pd.errors.ParserWarning) as error:  # pandas' parser errors are ValueErrors
        reason = str(error).strip().splitlines()[0].removeprefix("Error tokenizing data. C error: ")
        if path.suffix.lower() in (".xlsx", ".xls"):
            reason = "an Excel file"
        raise InputError(
            f"{path}: not a readable table ({reason}); expected CSV, TSV or parquet, in UTF-8, with a header."
        ) from error


def _read_text(path: Path) -> "pd.DataFrame":
    import pandas as pd

    layout = find_layout(path)
    refuse_repeated_columns(path, layout.header)  # pandas would call the second one `label.1` and say nothing
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # a line with too many cells is not cut silently
            table = pd.read_csv(
                path,
                sep=layout.separator,
                skiprows=layout.skip,
                dtype=str,
                keep_default_na=False,
                encoding="utf-8-sig",
                index_col=False,
            )
    except (pd.errors.ParserError, pd.errors.ParserWarning):
        refuse_long_lines(path, layout)
        raise
    table = table.fillna("")  # a line that is too short
    return with_decimal_points(str(path), table) if layout.separator == ";" else table


def read_csv(path: Path, words: Sequence[str]) -> "pd.DataFrame":
    """Read a table of numbers that this package wrote, exactly; the columns ``words`` are strings. Raises what pandas raises."""
    import pandas as pd

    return pd.read_csv(path, dtype=dict.fromkeys(words, str), float_precision="round_trip")


def write_table(path: Path, table: "pd.DataFrame") -> None:
    """Write a data frame without its index as .csv or .parquet, by the ending of ``path``."""
    with atomic_write(path) as temporary:
        if path.suffix == ".parquet":
            table.to_parquet(temporary, index=False)
        else:
            table.to_csv(temporary, index=False, lineterminator="\n")


def read_parquet(path: Path) -> "pd.DataFrame":
    """Table of a parquet file; whatever else the file is, it is refused in one sentence."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        refuse_repeated_columns(path, pq.read_schema(path).names)
        # one thread, nothing read ahead: threads that meet a damaged page abort the process when it ends
        return pq.read_table(path, use_threads=False, pre_buffer=False).to_pandas(use_threads=False)
    except (InputError, OSError):
        raise
    except (pa.ArrowException, *DAMAGE) as error:
        reason = str(error).strip().splitlines()[0]
        raise InputError(
            f"{path}: not a readable parquet file ({reason}); expected a table written as parquet."
        ) from error


def _as_strings(table: "pd.DataFrame") -> "pd.DataFrame":
    """All cells as strings, missing ones empty; an index with a name is a column."""
    named = [name for name in table.index.names if name is not None and name not in table.columns]
    table = table.reset_index(level=named) if named else table
    refuse_repeated_columns(source_of(table), list(table.columns))
    missing = table.isna()
    return table.astype(str).mask(missing, "").reset_index(drop=True).rename(columns=str)


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write a table whole or not at all."""
    with atomic_write(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as handle:
        writer = csv.writer(handle)
        writer.writerow(header)
        writer.writerows(rows)


IDS = (
    "sample",
    "slide",
    "slide_id",
    "patient",
    "case_id",
)  # columns that are joined with other tables: left as they are
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # how a cell begins that a spreadsheet would compute


def write_spreadsheet(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write a table that people open and this package never reads back: text that a spreadsheet would run as a formula gets a ' before it."""
    kept = {column for column, name in enumerate(header) if name in IDS}
    safe = ([cell if column in kept else plain_cell(cell) for column, cell in enumerate(row)] for row in rows)
    write_csv(path, [plain_cell(name) for name in header], safe)


def plain_cell(cell: Any) -> Any:
    """Cell that a spreadsheet shows instead of computing it; numbers, also negative ones as text, stay what they are."""
    if not isinstance(cell, str) or not cell.startswith(FORMULA):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell
