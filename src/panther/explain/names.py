"""What people call prototypes: a small YAML (`C2: tumour, solid`) or CSV (`prototype,name`) that every command reads.

A prototype may have more than a name: `C2: {name: tumour, note: "looks crushed", colour: "#AABBCC", group: stroma}`, or in a CSV the
columns note, colour and group. Colours go before the palette's; the prototypes of a group have one colour, that of its first one, unless
they are given their own. What else such an entry or table holds is left alone. `names_file` changes these files.
"""

import csv
import io
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from panther.errors import InputError
from panther.explain import palette
from panther.storage.files import read_text

if TYPE_CHECKING:
    import yaml

TABLES = {".csv": ",", ".tsv": "\t"}  # ending -> what parts the cells; everything else is YAML
HEADS = ("prototype", "id")  # what the first cell of a table's header may say
LINES = "expected are lines like C2: tumour, solid"


@dataclass(frozen=True)
class Naming:
    """What people say of one prototype; empty where they say nothing."""

    name: str = ""
    note: str = ""
    colour: str = ""  # "#RRGGBB"
    group: str = ""


Names = Path | str | Mapping[int, str | Naming] | None
FIELDS = tuple(one.name for one in fields(Naming))
SPELLINGS = {"color": "colour"} | {name: name for name in FIELDS}


def as_names(names: Names, count: int) -> dict[int, str]:
    """Names by prototype's number, from a file or a dictionary; none where there are none."""
    return {prototype: one.name for prototype, one in as_namings(names, count).items() if one.name}


def as_namings(names: Names, count: int) -> dict[int, Naming]:
    """Names with notes, colours and groups by prototype's number, from a file or a dictionary."""
    if names is None:
        return {}
    if isinstance(names, Mapping):
        return {prototype_number(str(key), count): _as_naming(one) for key, one in names.items()}
    return read_namings(Path(names), count)


def read_names(path: Path, count: int) -> dict[int, str]:
    """Names by prototype's number; a prototype beyond the ``count`` there are, or named twice, is refused."""
    return as_names(path, count)


def read_namings(path: Path, count: int) -> dict[int, Naming]:
    """Everything that the file says of prototypes, by their number; those of which it says nothing are left out."""
    return parse_namings(path, file_text(path), count)


def parse_namings(path: Path, text: str, count: int) -> dict[int, Naming]:
    """Text of a names file; ``path`` says by its ending which kind it is, and is named in errors."""
    found: dict[int, Naming] = {}
    for key, values in _entries(path, text):
        prototype = prototype_number(key, count, where=f"{path}: ")
        one = _checked(f"{path}: C{prototype}", values)
        if one == Naming():
            continue  # a list of all prototypes with some not yet named
        if prototype in found:
            raise InputError(
                f"{path}: C{prototype} is named twice ({found[prototype].name!r} and {one.name!r}); keep one."
            )
        found[prototype] = one
    return found


def colours(namings: Mapping[int, Naming], count: int) -> list[str]:
    """Colour #RRGGBB of every prototype: its own, else its group's, else the palette's."""
    found: list[str] = []
    of_group: dict[str, str] = {}
    for one in namings.values():
        if one.group and one.colour:
            of_group.setdefault(one.group, one.colour)
    for prototype in range(count):
        one = namings.get(prototype, Naming())
        shared = of_group.setdefault(one.group, palette.colour(prototype)) if one.group else palette.colour(prototype)
        found.append(one.colour or shared)
    return found


def titles(namings: Mapping[int, Naming], count: int) -> list[str]:
    """`C2 tumour (stroma)`: number, name and group of every prototype, for legends."""
    found = []
    for prototype in range(count):
        one = namings.get(prototype, Naming())
        words = [one.name, f"({one.group})" if one.group else ""]
        found.append(" ".join([f"C{prototype}", *filter(None, words)]))
    return found


def prototype_number(text: str, count: int, where: str = "") -> int:
    """`C3`, `c3` or `3` as 3, where there is such a prototype."""
    found = re.fullmatch(r"[Cc]?([0-9]{1,6})", text.strip())
    if found is None or int(found[1]) >= count:
        raise InputError(f"{where}there is no prototype {text.strip()!r}; the file has C0 to C{count - 1}.")
    return int(found[1])


def label(prototype: int, names: Mapping[int, str]) -> str:
    """`C2 tumour, solid`; no colon, by which QuPath would split it into two classes."""
    return f"C{prototype} {names[prototype]}" if prototype in names else f"C{prototype}"


def plain(text: str) -> str:
    """Text on one line, without control characters and what no file can hold: names end up in tables, XML and JSON."""
    kept = (" " if unicodedata.category(letter) in ("Cc", "Zl", "Zp") else letter for letter in text)
    return " ".join("".join(letter for letter in kept if _writable(letter)).split())


def plain_field(field: str, text: str) -> str:
    """Value of a field as it is kept: a note in its lines, everything else on one."""
    return "\n".join(map(plain, text.splitlines())).strip("\n") if field == "note" else plain(text)


def checked_colour(text: str) -> str:
    """`#RRGGBB` of what people write: `#aabbcc`, `#abc` or `aabbcc`."""
    found = re.fullmatch(r"#?([0-9a-fA-F]{6}|[0-9a-fA-F]{3})", text)
    if found is None:
        raise InputError(f"{text!r} is no colour; write it like '#AABBCC', in quotes.")
    digits = found[1] if len(found[1]) == 6 else "".join(digit * 2 for digit in found[1])
    return f"#{digits.upper()}"


def row_colour(row: Mapping[str, Any]) -> str:
    """Colour of a prototype in a row of `atlas.json` and its like; the palette's where it has none, or something else."""
    try:
        return checked_colour(str(row.get("colour")))
    except InputError:
        return palette.colour(int(row["prototype"]))


def file_text(path: Path) -> str:
    """Text of a names file, or a sentence why there is none."""
    try:
        return read_text(path)
    except OSError as error:
        raise InputError(f"{path}: the names cannot be read ({error.strerror}); check the path.") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: the names are not UTF-8 text; save the file as UTF-8.") from error


@dataclass(frozen=True)
class Table:
    """A names file of cells: its columns, and its rows without the header."""

    columns: tuple[str, ...]  # as written
    rows: tuple[tuple[str, ...], ...]
    headed: bool

    def place(self, field: str) -> int | None:
        """Column of a field; the name's is the second where none is called so."""
        known = [SPELLINGS.get(name.strip().lower()) for name in self.columns]
        if field in known[1:]:
            return known.index(field, 1)
        return 1 if field == "name" and len(known) > 1 and known[1] is None else None


def read_table(path: Path, text: str) -> Table:
    """Cells of a CSV. Without a header, or one of two columns, a name may hold commas; beyond that, columns are by their titles."""
    separator = TABLES[path.suffix.lower()]
    try:
        cells = [tuple(row) for row in csv.reader(io.StringIO(text, newline=""), delimiter=separator)]
    except csv.Error as error:
        raise InputError(f"{path}: this is not a table ({error}); expected are lines like C2,tumour.") from error
    rows = [row for row in cells if any(cell.strip() for cell in row)]
    headed = bool(rows) and rows[0][0].strip().lower() in HEADS
    columns = rows[0] if headed else ("prototype", "name")
    rows = rows[1:] if headed else rows
    short = next((row for row in rows if len(row) < 2), None)
    if short is not None and not (headed and len(columns) > 2):
        raise InputError(f"{path}: the line {short[0]!r} has no name; expected are lines like C2,tumour.")
    if len(columns) <= 2:
        joined = [(row[0], f"{separator} ".join(cell.strip() for cell in row[1:])) for row in rows]
        return Table(columns, tuple(joined), headed)
    long = next((row for row in rows if len(row) > len(columns)), None)
    if long is not None:
        raise InputError(
            f"{path}: the line of {long[0]!r} has {len(long)} cells but the header {len(columns)}; "
            "put text that holds a comma in quotes."
        )
    return Table(columns, tuple((*row, *[""] * (len(columns) - len(row))) for row in rows), headed)


def compose(path: Path, text: str) -> "yaml.MappingNode":
    """Pairs of a YAML as nodes, which know their place in the text."""
    import yaml

    try:
        # as text all through: `C2: no` is a name, not a truth value; pairs, because a mapping would forget the first of two
        node = yaml.compose(text, yaml.BaseLoader)
    except yaml.YAMLError as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{path}: this is not YAML ({reason}); {LINES}.") from error
    except RecursionError as error:
        raise InputError(f"{path}: this is nested too deeply for a file of names; {LINES}.") from error
    if not isinstance(node, yaml.MappingNode):
        raise InputError(f"{path}: no names found; {LINES}.")
    return node


def _entries(path: Path, text: str) -> Iterable[tuple[str, list[tuple[str, str]]]]:
    """Each prototype as written, with its fields."""
    return _from_csv(path, text) if path.suffix.lower() in TABLES else _from_yaml(path, text)


def _from_csv(path: Path, text: str) -> list[tuple[str, list[tuple[str, str]]]]:
    table = read_table(path, text)
    places = {field: table.place(field) for field in FIELDS}
    return [(row[0], [(field, row[at]) for field, at in places.items() if at is not None]) for row in table.rows]


def _from_yaml(path: Path, text: str) -> list[tuple[str, list[tuple[str, str]]]]:
    import yaml

    found = []
    for key, value in compose(path, text).value:
        if not isinstance(key, yaml.ScalarNode):
            raise InputError(f"{path}: a prototype is not one word; {LINES}.")
        if isinstance(value, yaml.ScalarNode):
            found.append((key.value, [("name", value.value)]))
        elif isinstance(value, yaml.MappingNode):
            found.append((key.value, list(_fields(path, key.value, value))))
        else:
            raise InputError(f"{path}: a name is not one line of text; {LINES}.")
    return found


def _fields(path: Path, prototype: str, node: "yaml.MappingNode") -> Iterable[tuple[str, str]]:
    import yaml

    for key, value in node.value:
        field = SPELLINGS.get(str(key.value))
        if field is None:
            continue  # somebody else's
        if not isinstance(value, yaml.ScalarNode):
            raise InputError(f"{path}: the {field} of {prototype} is not text; {LINES}.")
        yield field, value.value


def _checked(where: str, values: Sequence[tuple[str, str]]) -> Naming:
    given = [(field, plain_field(field, value)) for field, value in values]
    twice = next((field for field, _ in given if sum(field == other for other, _ in given) > 1), None)
    if twice is not None:
        raise InputError(f"{where} has its {twice} twice; keep one.")
    found = dict(given)
    try:
        colour = checked_colour(found["colour"]) if found.get("colour") else ""
    except InputError as error:
        raise InputError(f"{where}: {error}") from error
    return Naming(**{**found, "colour": colour})


def _as_naming(value: str | Naming) -> Naming:
    return value if isinstance(value, Naming) else Naming(str(value))


def _writable(letter: str) -> bool:
    """Whether UTF-8 and YAML can hold it: no half of a surrogate pair, and none of the two that are no letters."""
    return not "\ud800" <= letter <= "\udfff" and letter not in "\ufffe\uffff"
