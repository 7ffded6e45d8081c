"""Tables on disk: read as text without conversion, written whole or not at all."""

import csv
import io
import re
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from panther.errors import InputError, listed
from panther.storage.files import read_errors
from panther.storage.names import refuse_repeated_columns
from panther.store import atomic_write

if TYPE_CHECKING:
    import pandas as pd


def as_table(table: "Path | str | pd.DataFrame") -> "pd.DataFrame":
    """Table with every cell as a string, missing ones empty: "007" stays a name, and rows can be written back unchanged.

    Parameters
    ----------
    table
        Text file with commas, semicolons or tabs (by its header), parquet file, or data frame. In files with
        semicolons, decimal commas of columns of numbers become points; in others :func:`with_points` converts them when numbers are read.
    """
    import pandas as pd

    if isinstance(table, pd.DataFrame):
        source, rows = source_of(table), _as_strings(table)
    else:
        path = Path(table)
        if path.is_dir():
            names = listed((file.name for file in sorted(path.glob("*.csv"))), 5) or "none"
            raise InputError(f"{path} is a folder, expected one of its tables (*.csv: {names})")
        kind = "table but an Excel file" if path.suffix.lower() in (".xlsx", ".xls") else "table"
        with read_errors(path, kind, "expected CSV, TSV or parquet, in UTF-8, with a header"):
            rows = _as_strings(read_parquet(path)) if path.suffix == ".parquet" else _read_text(path)
        source = str(path)
    if rows.empty:
        raise InputError(f"{source}: the table has no rows")
    rows.attrs["source"] = source
    return rows


def source_of(table: "pd.DataFrame") -> str:
    """Source of a table, for messages."""
    return str(table.attrs.get("source", "the table"))


def plain_labels(column: "pd.Series") -> "pd.Series":
    """Labels without the ".0" that spreadsheets, parquet and pandas add to whole numbers."""
    return column.str.strip().str.replace(r"^(-?\d+)\.0+$", r"\1", regex=True)


def with_types(table: "pd.DataFrame", words: Collection[str] = (), ids: Iterable[str] = ()) -> "pd.DataFrame":
    """Table of strings with numbers as numbers and empty cells as NaN; ``words`` and ``ids`` stay strings, and "NA" may be an id."""
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


def _read_text(path: Path) -> "pd.DataFrame":
    import pandas as pd

    with path.open(newline="", encoding="utf-8-sig", errors="replace") as handle:
        first = next((line for line in handle if line.strip()), "")
        # the most frequent one in the header outside of quotes, else that of the file's ending
        usual = "\t" if path.suffix in (".tsv", ".txt") else ","
        separator = max((usual, ",", ";", "\t"), key=re.sub('"[^"]*"', "", first).count)
        header = next(csv.reader(chain([first], handle), delimiter=separator), [])
    refuse_repeated_columns(path, header)  # pandas would rename the second one to `label.1`
    options: Any = {"dtype": str, "keep_default_na": False, "encoding": "utf-8-sig", "index_col": False}
    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)  # pandas cuts lines with too many cells
        table = pd.read_csv(path, sep=separator, **options).fillna("")  # of short lines
    if separator != ";":
        return table
    # spreadsheets of much of Europe write semicolons and decimal commas
    return table.assign(**{name: _with_points(table[name], name, str(path)) for name in table.columns})


def read_csv(path: Path, words: Sequence[str]) -> "pd.DataFrame":
    """Read a table of this package with exact numbers; the columns ``words`` are strings. Raises the errors of pandas."""
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
    """Table of a parquet file; other files are an `InputError`."""
    import pyarrow.parquet as pq

    with read_errors(path, "parquet file"):
        refuse_repeated_columns(path, pq.read_schema(path).names)
        # one thread and no read-ahead: other threads that read a damaged page abort the process at exit
        return pq.read_table(path, use_threads=False, pre_buffer=False).to_pandas(use_threads=False)


def _as_strings(table: "pd.DataFrame") -> "pd.DataFrame":
    """All cells as strings, missing ones empty; a named index becomes a column."""
    named = [name for name in table.index.names if name is not None and name not in table.columns]
    table = table.reset_index(level=named) if named else table
    refuse_repeated_columns(source_of(table), list(table.columns))
    missing = table.isna()
    return table.astype(str).mask(missing, "").reset_index(drop=True).rename(columns=str)


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write rows as CSV."""
    with atomic_write(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as handle:
        writer = csv.writer(handle)
        writer.writerow(header)
        writer.writerows(rows)


IDS = ("sample", "slide", "slide_id", "patient", "case_id")  # joined with other tables: left as they are
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # first characters of cells that spreadsheets evaluate


def write_spreadsheet(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write a table that people open and this package never reads back: text that a spreadsheet would run as a formula gets a ' before it."""
    kept = {column for column, name in enumerate(header) if name in IDS}
    safe = ([cell if column in kept else plain_cell(cell) for column, cell in enumerate(row)] for row in rows)
    write_csv(path, [plain_cell(name) for name in header], safe)


def plain_cell(cell: Any) -> Any:
    """Cell that a spreadsheet shows instead of evaluating it; numbers, also as text, stay unchanged."""
    if not isinstance(cell, str) or not cell.startswith(FORMULA):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell


# Words for an empty cell; without "None", which is a class in some tables.
EMPTY = frozenset(("", "na", "n/a", "nan", "<na>", "null", "nat"))
# ... and TCGA's words for missing values
MISSING = EMPTY | {"[not available]", "[not applicable]", "[not evaluated]", "[unknown]", "[discrepancy]"}
WHOLE = r"[+-]?\d+"
DECIMAL_COMMA = r"[+-]?\d*,\d+([eE][+-]?\d+)?"
WITH_POINTS = r"[+-]?[\d.]+(,\d+)?([eE][+-]?\d+)?"  # of thousands or of decimals: ambiguous beside a decimal comma
THOUSANDS = r"[+-]?[1-9]\d{0,2}(,\d{3})+"  # or decimals, if there is one comma


def is_missing(column: "pd.Series") -> "pd.Series":
    """Whether each cell is a missing value."""
    return column.str.strip().str.lower().isin(MISSING)


def with_points(column: "pd.Series", name: str, source: str) -> "pd.Series":
    """Column to be read as numbers, with points for decimal commas; text stays unchanged.

    A column in which all commas may separate thousands (1,234) is refused: as text, it would be missing, or a name.
    """
    cells = column.astype(str).str.strip()
    commas = cells.str.fullmatch(THOUSANDS)
    if commas.any() and (commas | is_missing(cells) | cells.str.fullmatch(r"[+-]?\d+(\.\d+)?")).all():
        raise InputError(
            f"{source}: {name} has numbers such as {cells[commas].iloc[0]}, whose comma may be of thousands"
        )
    return _with_points(column, name, source)


def with_points_where_sure(column: "pd.Series") -> "pd.Series":
    """The same, but ambiguous columns stay unchanged."""
    with suppress(InputError):
        return with_points(column, "", "")
    return column


def _with_points(column: "pd.Series", name: str, source: str) -> "pd.Series":
    cells = column.astype(str).str.strip()
    commas = cells.str.fullmatch(DECIMAL_COMMA)
    others = cells[~commas & ~is_missing(cells) & ~cells.str.fullmatch(WHOLE)]
    if not commas.any() or (len(others) and not others.str.fullmatch(WITH_POINTS).all()):
        return column
    if len(others):
        examples = f"{cells[commas].iloc[0]} and {others.iloc[0]}"
        raise InputError(f"{source}: {name} has numbers such as {examples}, expected commas or points, not both")
    return cells.mask(commas, cells.str.replace(",", "."))


FOLDER = re.compile(r"(?P<name>.+)_k=(?P<k>\d+)")  # of one fold
PART = re.compile(r"train|val|test|test_.+")


@dataclass(frozen=True, eq=False)
class Parts:
    """Rows of one part of a split, and those of the other parts."""

    chosen: "pd.DataFrame"
    others: Mapping[str, "pd.DataFrame"] = field(default_factory=dict)  # "": rows of no part
    where: str = ""  # description of the others, for messages


def read_parts(table: "Path | str | pd.DataFrame", split: str | None = None) -> Parts:
    """Read a table (see :func:`as_table`), or one part of it.

    Parameters
    ----------
    table
        Table, or with ``split`` also a folder of one table for each part.
    split
        Value of the column `split`, or the file `{split}.csv` of a folder.
    """
    if split is None:
        return Parts(as_table(table))
    if isinstance(table, (str, Path)) and Path(table).is_dir():
        folder = Path(table)
        file = folder / f"{split}.csv"
        folds = sorted(path.parent for path in folder.glob(f"*/{split}.csv") if FOLDER.fullmatch(path.parent.name))
        if folds and not file.exists():
            raise InputError(f"{folder}: holds {len(folds)} folds, expected one of them, e.g. `table={folds[0]}`")
        others = {part: as_table(other) for part, other in part_files(folder).items() if part != split}
        return Parts(as_table(file), others, f"other tables of {folder}")
    table = as_table(table)
    source = source_of(table)
    if "split" not in table.columns:
        raise InputError(f"{source}: `split={split}` requires a column `split` among {listed(table.columns)}")
    parts = plain_labels(table["split"]).mask(is_missing(table["split"]), "")
    rows = {str(part): table[parts == part] for part in parts.unique()}
    if split not in rows:
        raise InputError(f"{source}: no row has split {split!r}, expected one of {listed(sorted(rows))}")
    return Parts(rows.pop(split), rows, f"{source} with another `split`")


def part_files(folder: Path) -> dict[str, Path]:
    """Tables of a fold, by part."""
    return {file.stem: file for file in sorted(folder.glob("*.csv")) if PART.fullmatch(file.stem)}


def refuse_shared_patients(source: str, patients: Mapping[str, Iterable[str]]) -> None:
    """Refuse a split with a patient in two parts; ``patients`` are those of each part."""
    first: dict[str, str] = {}
    twice: dict[str, tuple[str, str]] = {}
    for part, names in patients.items():
        for name in names:
            if first.setdefault(name, part) != part:
                twice.setdefault(name, (first[name], part))
    if twice:
        patient, (part, other) = min(twice.items())
        raise InputError(f"{source}: patients in two parts: {len(twice)}, e.g. {patient} in {part} and {other}")
