"""What is between the cells of a text file: commas, semicolons or tabs, as its header or Excel's line before it tells."""

import csv
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from panther.errors import InputError

SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab"}
EXCELS = re.compile(r'"?sep=(?P<sign>.)"?[,;\t]*', re.IGNORECASE)  # Excel reads and hides this line


class Layout(NamedTuple):
    """How a text file is to be read."""

    separator: str
    header: list[str]
    skip: int = 0  # lines before the table


def find_layout(path: Path) -> Layout:
    """Separator and header of a file, and whether a line sep=; comes first, as Excel understands it."""
    with path.open(newline="", encoding="utf-8-sig", errors="replace") as handle:
        lines = enumerate(handle)
        number, first = _next_line(lines)
        said, skip = EXCELS.fullmatch(first.rstrip("\r\n")), 0
        if said:
            skip = number + 1
            _, first = _next_line(lines)
        separator = said["sign"] if said else _separator(path, first)
        if separator not in SEPARATORS:
            raise InputError(
                f"{path}: its first line says that {separator!r} is between cells; expected is a comma, a semicolon or a tab."
            )
        rest = (line for _, line in lines)
        return Layout(separator, next(csv.reader(chain([first], rest), delimiter=separator), []), skip)


def refuse_long_lines(path: Path, layout: Layout) -> None:
    """Name a line that has more cells than the header."""
    with path.open(newline="", encoding="utf-8-sig", errors="replace") as handle:
        for _ in range(layout.skip):
            next(handle)
        rows = csv.reader(handle, delimiter=layout.separator)
        for row in rows:
            if len(row) > len(layout.header):
                raise InputError(
                    f"{path}: line {rows.line_num + layout.skip} has {len(row)} cells but the header {len(layout.header)}; put text that holds a "
                    f"{SEPARATORS[layout.separator]} in quotes."
                )


def _next_line(lines: Iterator[tuple[int, str]]) -> tuple[int, str]:
    """Next line that is not blank."""
    return next(((number, line) for number, line in lines if line.strip()), (0, ""))


def _separator(path: Path, header: str) -> str:
    """Sign that the header has most of outside of quotes; where it has none, that of the file's ending."""
    usual = "\t" if path.suffix in (".tsv", ".txt") else ","
    return max((usual, *SEPARATORS), key=re.sub('"[^"]*"', "", header).count)
