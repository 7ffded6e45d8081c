"""Cells of tables: what says nothing, and commas in numbers."""

from typing import TYPE_CHECKING

from panther.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

# What tables write where there is nothing; "None" is left out on purpose, it is a class in some tables.
EMPTY = frozenset(("", "na", "n/a", "nan", "<na>", "null", "nat"))
# ... and TCGA's words for it, from which nothing can be learned
MISSING = EMPTY | {"[not available]", "[not applicable]", "[not evaluated]", "[unknown]", "[discrepancy]"}
WHOLE = r"[+-]?\d+"
DECIMAL_COMMA = r"[+-]?\d*,\d+([eE][+-]?\d+)?"
WITH_POINTS = r"[+-]?[\d.]+(,\d+)?([eE][+-]?\d+)?"  # of thousands or of decimals: beside a decimal comma nobody knows
THOUSANDS = r"[+-]?[1-9]\d{0,2}(,\d{3})+"  # or decimals, where there is one comma


def is_missing(column: "pd.Series") -> "pd.Series":
    """Where a cell says nothing that could be learned."""
    return column.str.strip().str.lower().isin(MISSING)


def with_decimal_points(source: str, table: "pd.DataFrame") -> "pd.DataFrame":
    """Table of a file with semicolons, whose columns of numbers may have decimal commas: spreadsheets of much of Europe write both."""
    return table.assign(**{name: _with_points(table[name], name, source) for name in table.columns})


def with_points(column: "pd.Series", name: str, source: str) -> "pd.Series":
    """Column of which numbers are wanted: a decimal comma, of whatever file, becomes a point; text stays for others to judge.

    A column all of whose commas may be of thousands (1,234) is refused: read as text, it would be missing, or a name.
    """
    if may_be_thousands(column):
        cells = column.astype(str).str.strip()
        raise InputError(
            f"{source}: {name} has numbers such as {cells[cells.str.fullmatch(THOUSANDS)].iloc[0]}, whose comma may be one of decimals or of "
            "thousands; write a decimal point, and nothing between thousands."
        )
    return _with_points(column, name, source)


def with_points_where_sure(column: "pd.Series") -> "pd.Series":
    """The same for columns that nobody asked to be numbers: what is not sure stays as it is."""
    if may_be_thousands(column):
        return column
    try:
        return _with_points(column, "", "")
    except InputError:
        return column


def may_be_thousands(column: "pd.Series") -> bool:
    """Whether a column holds numbers, and every comma in them may be one of thousands."""
    cells = column.astype(str).str.strip()
    commas = cells.str.fullmatch(THOUSANDS)
    return bool(commas.any() and (commas | is_missing(cells) | cells.str.fullmatch(r"[+-]?\d+(\.\d+)?")).all())


def _with_points(column: "pd.Series", name: str, source: str) -> "pd.Series":
    cells = column.astype(str).str.strip()
    commas = cells.str.fullmatch(DECIMAL_COMMA)
    others = cells[~commas & ~is_missing(cells) & ~cells.str.fullmatch(WHOLE)]
    if not commas.any() or (len(others) and not others.str.fullmatch(WITH_POINTS).all()):
        return column
    if len(others):
        raise InputError(
            f"{source}: {name} has numbers such as {cells[commas].iloc[0]} and such as {others.iloc[0]}; write all of them with a "
            "decimal comma, or with a point, and without signs between thousands."
        )
    return cells.mask(commas, cells.str.replace(",", "."))
