"""Clinical tables: ids are strings, columns are found by the field's aliases."""

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from panther.errors import InputError
from panther.storage.atomic import atomic_write
from panther.storage.names import refuse_repeated_columns

if TYPE_CHECKING:
    import pandas as pd

SLIDE_COLUMNS = ("slide_id", "FILENAME", "slide", "wsi", "image_id")
PATIENT_COLUMNS = ("case_id", "PATIENT", "patient_id", "patient", "submitter_id")
SLIDE_SUFFIXES = (".svs", ".ndpi", ".mrxs", ".scn", ".tif", ".tiff", ".dcm", ".vms", ".bif", ".czi", ".h5", ".pt")


def read_table(path: Path, split: str | None = None) -> "pd.DataFrame":
    """Read a CSV, TSV or parquet table, one row a slide, with string columns `slide_id` and, where it can be known, `case_id`.

    With ``split``: the rows whose column `split` says so, or, where ``path`` is a split folder, the file `{split}.csv`.
    """
    path, split = part_file(path, split)
    table = _read(path)
    slide = find_column(path, list(table.columns), SLIDE_COLUMNS, "slide")
    table["slide_id"] = [_without_suffix(name) for name in _ids(path, table[slide])]
    patient = next((name for name in PATIENT_COLUMNS if name in table.columns), None)
    if patient is not None:
        table["case_id"] = _ids(path, table[patient])
    elif table["slide_id"].str.match(r"TCGA-\w\w-\w{4}").all():
        table["case_id"] = table["slide_id"].str[:12]
    if split is not None:
        table = part_of(path, table, split)
    repeated = table["slide_id"][table["slide_id"].duplicated()].unique()
    if len(repeated):
        raise InputError(
            f"{path}: {len(repeated)} slides have more than one row, e.g. {repeated[0]}; keep one row a slide."
        )
    return table.set_index("slide_id", drop=False)


def part_file(path: Path, split: str | None) -> tuple[Path, str | None]:
    """Table of a part and what is left to ask of its column `split`: a folder of splits has one file a part."""
    if not path.is_dir():
        return path, split
    if split is None:
        raise InputError(f"{path} is a folder; name one of its tables, or the part with `split=train`.")
    return path / f"{split}.csv", None


def find_column(path: Path, columns: Sequence[str], aliases: Sequence[str], what: str) -> str:
    """Name of the first column that exists among the aliases."""
    for name in aliases:
        if name in columns:
            return name
    raise InputError(
        f"{path}: no {what} column among {', '.join(map(str, columns))}; expected one called {' or '.join(aliases)}."
    )


def _read(path: Path) -> "pd.DataFrame":
    import pandas as pd

    try:
        if path.suffix == ".parquet":
            table = read_parquet(path)
        else:
            separator = "\t" if path.suffix in (".tsv", ".txt") else ","
            check_header(path, separator)
            ids = dict.fromkeys((*SLIDE_COLUMNS, *PATIENT_COLUMNS), str)  # "007" is a name, not a number
            table = pd.read_csv(path, sep=separator, dtype=ids, low_memory=False)
    except InputError:
        raise
    except FileNotFoundError as error:
        raise InputError(f"{path}: there is no such table.") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error}).") from error
    except (ValueError, csv.Error) as error:  # pandas' parser errors are ValueErrors
        raise InputError(
            f"{path}: not a readable table ({error}); expected CSV, TSV or parquet with a header."
        ) from error
    if table.empty:
        raise InputError(f"{path}: the table has no rows.")
    return table


def check_header(path: Path, separator: str) -> None:
    """Refuse a text table in which a column stands twice: pandas would call the second one `label.1` and say nothing."""
    with path.open(newline="", encoding="utf-8-sig", errors="replace") as handle:
        header = next(csv.reader(handle, delimiter=separator), [])
    refuse_repeated_columns(path, header)


def read_parquet(path: Path) -> "pd.DataFrame":
    """Table of a parquet file; whatever else the file is, it is refused in one sentence."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        refuse_repeated_columns(path, pq.read_schema(path).names)
        # one thread, nothing read ahead: threads that meet a damaged page abort the process when it ends
        return pq.read_table(path, use_threads=False, pre_buffer=False).to_pandas(use_threads=False)
    except (pa.ArrowException, OverflowError) as error:
        reason = str(error).strip().splitlines()[0]
        raise InputError(
            f"{path}: not a readable parquet file ({reason}); expected a table written as parquet."
        ) from error


def _ids(path: Path, column: "pd.Series") -> list[str]:
    missing = column.isna()
    if missing.any():
        first = int(missing.to_numpy().argmax()) + 2  # counting the header, as a spreadsheet does
        raise InputError(
            f"{path}: {int(missing.sum())} rows have no {column.name}, the first is line {first}; fill it in."
        )
    return [str(name) for name in column]


def part_of(path: Path, table: "pd.DataFrame", split: str) -> "pd.DataFrame":
    """Rows whose column `split` says so."""
    if "split" not in table.columns:
        raise InputError(f"{path}: `split={split}` needs a column `split`; the table has {', '.join(table.columns)}.")
    part = table[table["split"].astype(str) == split]
    if part.empty:
        known = ", ".join(sorted(table["split"].astype(str).unique()))
        raise InputError(f"{path}: no row has split {split!r}; the column says {known}.")
    return part


def _without_suffix(name: str) -> str:
    return name[: name.rindex(".")] if name.lower().endswith(SLIDE_SUFFIXES) else name


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
