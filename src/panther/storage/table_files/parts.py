"""Parts of a split: the rows that are meant, those of the other parts, and that no patient is in two."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from panther.errors import InputError, listed
from panther.storage.tables import as_table, is_missing, plain_labels, source_of

if TYPE_CHECKING:
    import pandas as pd

FOLDER = re.compile(r"(?P<name>.+)_k=(?P<k>\d+)")  # of one fold
PART = re.compile(r"train|val|test|test_.+")


@dataclass(frozen=True, eq=False)
class Parts:
    """Rows that were asked for, and those of the other parts."""

    chosen: "pd.DataFrame"
    others: Mapping[str, "pd.DataFrame"] = field(default_factory=dict)  # "": rows that are in no part
    where: str = ""  # the others are, for messages


def read_parts(table: "Path | str | pd.DataFrame", split: str | None = None) -> Parts:
    """Read a table (see :func:`as_table`), or one part of it.

    Parameters
    ----------
    table
        Table, or with ``split`` also a folder of one table for each part.
    split
        The rows whose column `split` says so, or the file `{split}.csv` of a folder.
    """
    if split is None:
        return Parts(as_table(table))
    if isinstance(table, (str, Path)) and Path(table).is_dir():
        return _from_folder(Path(table), split)
    return _from_column(as_table(table), split)


def part_files(folder: Path) -> dict[str, Path]:
    """Tables of a fold, by part."""
    return {file.stem: file for file in sorted(folder.glob("*.csv")) if PART.fullmatch(file.stem)}


def refuse_shared_patients(source: str, patients: Mapping[str, Iterable[str]]) -> None:
    """Refuse a split of which two parts have a patient in common; ``patients`` are those of each part."""
    first: dict[str, str] = {}
    twice: dict[str, tuple[str, str]] = {}
    for part, names in patients.items():
        for name in names:
            if first.setdefault(name, part) != part:
                twice.setdefault(name, (first[name], part))
    if twice:
        who, (one, other) = min(twice.items())
        raise InputError(
            f"In {source}, {len(twice)} patients are in two parts, e.g. {who} in {one} and {other}; a test would not be honest. "
            "Split by patient."
        )


def _from_folder(folder: Path, split: str) -> Parts:
    file = folder / f"{split}.csv"
    folds = sorted(path.parent for path in folder.glob(f"*/{split}.csv") if FOLDER.fullmatch(path.parent.name))
    if folds and not file.exists():
        raise InputError(
            f"{folder}: holds {len(folds)} folds ({listed((fold.name for fold in folds), 5)}), not one; name one of them, "
            f"e.g. `table={folds[0]}`."
        )
    others = {part: other for part, other in part_files(folder).items() if part != split}
    return Parts(as_table(file), {part: as_table(other) for part, other in others.items()}, f"other tables of {folder}")


def _from_column(table: "pd.DataFrame", split: str) -> Parts:
    source = source_of(table)
    if "split" not in table.columns:
        raise InputError(f"{source}: `split={split}` needs a column `split`; the table has {listed(table.columns)}.")
    says = plain_labels(table["split"]).mask(is_missing(table["split"]), "")
    rows = {str(part): table[says == part] for part in says.unique()}
    if split not in rows:
        raise InputError(f"{source}: no row has split {split!r}; the column says {listed(sorted(rows))}.")
    return Parts(rows.pop(split), rows, f"{source} with another `split`")
