"""Names of prototypes: a small YAML (`C2: tumour, solid`) that every command reads.

A prototype may also have a note, a colour and a group: `C2: {name: tumour, note: "looks crushed", colour: "#AABBCC", group: stroma}`.
Colours replace the palette's; prototypes of a group without a colour take that of the group's first prototype. Other fields are ignored.
"""

import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

from panther.errors import InputError, error_context
from panther.explain import palette
from panther.storage.files import read_errors, read_text

if TYPE_CHECKING:
    import yaml

LINES = "expected lines like C2: tumour, solid"
NEW_FILE = "# Names of the prototypes. Every command reads them, e.g. panther map ... --names THIS_FILE\n"


@dataclass(frozen=True)
class Naming:
    """Name, note, colour and group of one prototype; empty where there is none."""

    name: str = ""
    note: str = ""
    colour: str = ""  # "#RRGGBB"
    group: str = ""


Names = Path | str | Mapping[int, str | Naming] | None
FIELDS = tuple(field.name for field in fields(Naming))
SPELLINGS = {"color": "colour"} | {name: name for name in FIELDS}


def as_names(names: Names, count: int) -> dict[int, str]:
    """Names by prototype's number, from a file or a dictionary."""
    return plain_names(as_namings(names, count))


def plain_names(namings: Mapping[int, Naming]) -> dict[int, str]:
    """Names alone, of the prototypes that have one."""
    return {prototype: naming.name for prototype, naming in namings.items() if naming.name}


def as_namings(names: Names, count: int) -> dict[int, Naming]:
    """Names with notes, colours and groups by prototype's number, from a file or a dictionary."""
    if names is None:
        return {}
    if isinstance(names, Mapping):
        values = {prototype_number(str(key), count): value for key, value in names.items()}
        return {key: value if isinstance(value, Naming) else Naming(str(value)) for key, value in values.items()}
    return parse_namings(Path(names), file_text(Path(names)), count)


def parse_namings(path: Path, text: str, count: int) -> dict[int, Naming]:
    """Namings in the text of the names file ``path``."""
    import yaml

    namings: dict[int, Naming] = {}
    for key, value in _compose(path, text):
        if not isinstance(key, yaml.ScalarNode) or isinstance(value, yaml.SequenceNode):
            raise InputError(f"{path}: a prototype or its name is not text, {LINES}")
        with error_context(path):
            prototype = prototype_number(key.value, count)
        pairs = [("name", value)]
        if isinstance(value, yaml.MappingNode):
            pairs = [(SPELLINGS[name.value], field) for name, field in value.value if str(name.value) in SPELLINGS]
        values: dict[str, str] = {}
        with error_context(f"{path}: C{prototype}"):
            for name, field in pairs:
                if not isinstance(field, yaml.ScalarNode):
                    raise InputError(f"its {name} is not text, {LINES}")
                if name in values:
                    raise InputError(f"has its {name} twice")
                values[name] = plain_field(name, field.value)
            if values.get("colour"):
                values["colour"] = checked_colour(values["colour"])
            naming = Naming(**values)
            if naming == Naming():
                continue  # a line to be filled in
            if prototype in namings:
                raise InputError(f"is named twice ({namings[prototype].name!r} and {naming.name!r})")
        namings[prototype] = naming
    return namings


def colours(namings: Mapping[int, Naming], count: int) -> list[str]:
    """Colour #RRGGBB of every prototype: its own, else that of its group, else of its name, else the palette's.

    Prototypes of one name are one tissue, so they have one colour.
    """
    shared: dict[tuple[str, str], str] = {}
    for naming in namings.values():
        for key in _shares(naming):
            if naming.colour:
                shared.setdefault(key, naming.colour)
    chosen = []
    for prototype in range(count):
        naming = namings.get(prototype, Naming())
        keys = _shares(naming)
        colour = naming.colour or next((shared[key] for key in keys if key in shared), palette.colour(prototype))
        for key in keys:
            shared.setdefault(key, colour)
        chosen.append(colour)
    return chosen


def _shares(naming: Naming) -> list[tuple[str, str]]:
    """What a prototype shares its colour by: group and name."""
    return [(field, text.casefold()) for field in ("group", "name") if (text := getattr(naming, field))]


def class_colours(classes: Sequence[str], namings: Mapping[int, Naming], count: int) -> list[str]:
    """Colours of tissue classes: that of the prototypes of the same name, else of the palette those that no such prototype has."""
    of_name: dict[str, str] = {}
    for prototype, colour in enumerate(colours(namings, count)):
        if prototype in namings:
            of_name.setdefault(namings[prototype].name.casefold(), colour)
    named = [of_name.get(name.casefold()) for name in classes]
    free = (colour for colour in cycle(palette.PALETTE) if colour not in named or len(classes) > len(palette.PALETTE))
    return [colour or next(free) for colour in named]


def titles(namings: Mapping[int, Naming], count: int) -> list[str]:
    """`C2 tumour (stroma)`: number, name and group of every prototype, for legends."""
    rows = [namings.get(prototype, Naming()) for prototype in range(count)]
    return [" ".join(filter(None, (f"C{c}", row.name, row.group and f"({row.group})"))) for c, row in enumerate(rows)]


def prototype_number(text: str, count: int) -> int:
    """Number of the prototype `C3`, `c3` or `3`."""
    match = re.fullmatch(r"[Cc]?([0-9]{1,6})", text.strip())
    if match is None or int(match[1]) >= count:
        raise InputError(f"there is no prototype {text.strip()!r}, expected C0 to C{count - 1}")
    return int(match[1])


def label(prototype: int, names: Mapping[int, str]) -> str:
    """`C2 tumour, solid`, without a colon, at which QuPath would split it into two classes."""
    return f"C{prototype} {names[prototype]}" if prototype in names else f"C{prototype}"


def plain(text: str) -> str:
    """Text on one line, without control characters and what UTF-8 or YAML cannot hold (halves of surrogate pairs, U+FFFE, U+FFFF)."""
    kept = (" " if unicodedata.category(letter) in ("Cc", "Zl", "Zp") else letter for letter in text)
    return " ".join(re.sub("[\ud800-\udfff\ufffe\uffff]", "", "".join(kept)).split())


def plain_field(field: str, text: str) -> str:
    """Value of a field without control characters: a note in its lines, other fields on one line."""
    return "\n".join(map(plain, text.splitlines())).strip("\n") if field == "note" else plain(text)


def checked_colour(text: str) -> str:
    """`#RRGGBB` of `#aabbcc`, `#abc` or `aabbcc`."""
    match = re.fullmatch(r"#?([0-9a-fA-F]{6}|[0-9a-fA-F]{3})", text)
    if match is None:
        raise InputError(f"{text!r} is no colour, expected '#AABBCC', in quotes")
    digits = match[1] if len(match[1]) == 6 else "".join(digit * 2 for digit in match[1])
    return f"#{digits.upper()}"


def row_colour(row: Mapping[str, Any]) -> str:
    """Colour of a prototype in a row of `atlas.json` or similar; the palette's where it has none."""
    try:
        return checked_colour(str(row.get("colour")))
    except InputError:
        return palette.colour(int(row["prototype"]))


def file_text(path: Path) -> str:
    """Text of a names file."""
    with read_errors(path, "file of names"):
        return read_text(path)


def _compose(path: Path, text: str) -> "list[tuple[yaml.Node, yaml.Node]]":
    """Pairs of a YAML as nodes, which know their place in the text; a file of comments has none."""
    import yaml

    with read_errors(path, "file of names in YAML", LINES):
        # as text: `C2: no` is a name, not a truth value; pairs, because a mapping would lose the first of two
        node = yaml.compose(text, yaml.BaseLoader)
    if node is None:
        return []
    if not isinstance(node, yaml.MappingNode):
        raise InputError(f"{path}: no names, {LINES}")
    return list(node.value)


def entry(naming: Naming) -> str:
    """Value of a line of YAML: the name, or all fields in braces."""
    values = {field: getattr(naming, field) for field in FIELDS if getattr(naming, field)}
    if set(values) <= {"name"}:
        return _quoted(naming.name, r"[A-Za-z][\w ,.()/+-]*") if naming.name else ""
    return "{" + ", ".join(f"{field}: {_quoted(value)}" for field, value in values.items()) + "}"


def _quoted(text: str, harmless: str = r"[A-Za-z][\w ()/+-]*") -> str:
    """Text as YAML: in quotes where a colon, a sharp or, in braces, a comma would mean something else."""
    return text if re.fullmatch(harmless, text) else json.dumps(text, ensure_ascii=False)


def changed_text(path: Path, text: str, prototype: int, changes: Mapping[str, str], count: int) -> str:
    """Text of a names file in YAML with some fields of one prototype changed; an empty value removes a field.

    Only the line of the prototype changes. The new text is parsed for comparison: what cannot be changed without harm (JSON, an
    entry of several lines or with other fields) is refused.
    """
    wanted = parse_namings(path, text, count)
    wanted[prototype] = replace(wanted.get(prototype, Naming()), **changes)
    try:
        changed = _with_line(path, text, prototype, wanted[prototype])
        is_right = parse_namings(path, changed, count) == {c: one for c, one in wanted.items() if one != Naming()}
    except InputError:  # an anchor that other lines refer to, say
        is_right = False
    if not is_right:
        raise InputError(f"{path}: C{prototype} cannot be changed without harm to the rest; edit it by hand")
    return changed


def _with_line(path: Path, text: str, prototype: int, naming: Naming) -> str:
    """Text with the line of one prototype replaced, or added at the end."""
    import yaml

    pairs = _compose(path, text)
    entries = [pair for pair in pairs if prototype_number(str(pair[0].value), 1_000_000) == prototype]
    if not entries:
        indent = " " * (pairs[0][0].start_mark.column if pairs else 0)
        return f"{(text or NEW_FILE).removesuffix(chr(10))}\n{indent}C{prototype}: {entry(naming)}\n"
    key, value = next((pair for pair in entries if pair[1].value), entries[0])
    start, stop = text.index(":", key.end_mark.index) + 1, int(value.end_mark.index)
    others = isinstance(value, yaml.MappingNode) and any(name.value not in SPELLINGS for name, _ in value.value)
    if others or "\n" in text[start:stop]:
        raise InputError("several lines, or other fields")
    return f"{text[:start]} {entry(naming)}{text[stop:]}"
