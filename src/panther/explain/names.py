"""Names that people give to prototypes: a small YAML (`C2: tumour, solid`) or CSV (`prototype,name`)."""

import csv
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from panther.errors import InputError
from panther.storage.files import read_text

Names = Path | str | Mapping[int, str] | None


def as_names(names: Names, count: int) -> dict[int, str]:
    """Names by prototype's number, from a file or a dictionary; none where there are none."""
    if names is None:
        return {}
    if isinstance(names, Mapping):
        return {prototype_number(str(key), count): str(name) for key, name in names.items()}
    return read_names(Path(names), count)


def read_names(path: Path, count: int) -> dict[int, str]:
    """Names by prototype's number; a prototype beyond the ``count`` there are, or named twice, is refused."""
    names: dict[int, str] = {}
    for key, value in _pairs(path):
        prototype = prototype_number(str(key), count, where=f"{path}: ")
        name = " ".join(str("" if value is None else value).split())
        if not name:
            continue  # a list of all prototypes with some not yet named
        if prototype in names:
            raise InputError(f"{path}: C{prototype} is named twice ({names[prototype]!r} and {name!r}); keep one.")
        names[prototype] = name
    return names


def prototype_number(text: str, count: int, where: str = "") -> int:
    """`C3`, `c3` or `3` as 3, where there is such a prototype."""
    found = re.fullmatch(r"[Cc]?(\d{1,6})", text.strip())
    if found is None or int(found[1]) >= count:
        raise InputError(f"{where}there is no prototype {text.strip()!r}; the file has C0 to C{count - 1}.")
    return int(found[1])


def label(prototype: int, names: Mapping[int, str]) -> str:
    """`C2 tumour, solid`; no colon, by which QuPath would split it into two classes."""
    return f"C{prototype} {names[prototype]}" if prototype in names else f"C{prototype}"


def _pairs(path: Path) -> Iterable[tuple[Any, Any]]:
    try:
        text = read_text(path)
    except OSError as error:
        raise InputError(f"{path}: the names cannot be read ({error.strerror}); check the path.") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: the names are not UTF-8 text; save the file as UTF-8.") from error
    readers = {".csv": _from_csv, ".tsv": _from_csv}
    return readers.get(path.suffix.lower(), _from_yaml)(path, text)


def _from_csv(path: Path, text: str) -> list[tuple[str, str]]:
    separator = "\t" if path.suffix.lower() == ".tsv" else ","
    rows = [row for row in csv.reader(text.splitlines(), delimiter=separator) if any(cell.strip() for cell in row)]
    if rows and rows[0][0].strip().lower() in ("prototype", "id"):
        rows = rows[1:]
    short = next((row for row in rows if len(row) < 2), None)
    if short is not None:
        raise InputError(f"{path}: the line {short[0]!r} has no name; expected are lines like C2,tumour.")
    return [(row[0], f"{separator} ".join(cell.strip() for cell in row[1:])) for row in rows]


def _from_yaml(path: Path, text: str) -> list[tuple[Any, Any]]:
    import yaml

    try:
        # as text all through: `C2: no` is a name, not a truth value; pairs, because a mapping would forget the first of two
        node = yaml.compose(text, yaml.BaseLoader)
    except yaml.YAMLError as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{path}: this is not YAML ({reason}); expected are lines like C2: tumour, solid.") from error
    if not isinstance(node, yaml.MappingNode):
        raise InputError(f"{path}: no names found; expected are lines like C2: tumour, solid.")
    if any(not isinstance(value, yaml.ScalarNode) for _, value in node.value):
        raise InputError(f"{path}: a name is not one line of text; expected are lines like C2: tumour, solid.")
    return [(key.value, value.value) for key, value in node.value]
