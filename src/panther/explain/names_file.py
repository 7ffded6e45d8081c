"""Changing a file of names: what is changed is changed in its place, and everything else stays as it was written.

Comments, the order of lines and what only others understand are kept in YAML; a table keeps its columns and rows. The new text is read
again before anybody gets it: a file that cannot be read, or that is too intricate to be changed by a machine, is refused.
"""

import csv
import io
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from panther.errors import InputError
from panther.explain.names import (
    FIELDS,
    SPELLINGS,
    TABLES,
    Naming,
    Table,
    compose,
    parse_namings,
    prototype_number,
    read_table,
)

if TYPE_CHECKING:
    import yaml

HEAD = "# Names of the prototypes. Every command reads them, e.g. panther map ... --names THIS_FILE\n"


class Edit(NamedTuple):
    """Text to put in the place of some other."""

    start: int
    stop: int
    text: str


def changed_text(path: Path, text: str, prototype: int, changes: Mapping[str, str], count: int) -> str:
    """Text of a names file with some fields of one prototype changed; an empty value takes a field away."""
    change = _changed_table if path.suffix.lower() in TABLES else _changed_yaml
    before = namings_in(path, text, count)
    wanted = {**before, prototype: replace(before.get(prototype, Naming()), **changes)}
    try:
        found = change(path, text, prototype, wanted[prototype], changes)
        as_wanted = _said(namings_in(path, found, count)) == _said(wanted)
    except InputError:  # an anchor that other lines refer to, say
        as_wanted = False
    if not as_wanted:
        raise InputError(f"{path}: C{prototype} cannot be changed there without harm to the rest; edit it by hand.")
    return found


def namings_in(path: Path, text: str, count: int) -> dict[int, Naming]:
    """What the text says, as `names.parse_namings` reads it; nothing where it is empty."""
    return {} if _is_blank(path, text) else parse_namings(path, text, count)


def entry(naming: Naming) -> str:
    """Value of a line of YAML: the name, or all fields in braces."""
    given = {field: getattr(naming, field) for field in FIELDS if getattr(naming, field)}
    if set(given) <= {"name"}:
        return _quoted(naming.name, r"[A-Za-z][\w ,.()/+-]*") if naming.name else ""
    return "{" + ", ".join(f"{field}: {_quoted(value)}" for field, value in given.items()) + "}"


def _quoted(text: str, harmless: str = r"[A-Za-z][\w ()/+-]*") -> str:
    """Text as YAML: in quotes where a colon, a sharp or, in braces, a comma would mean something else."""
    return text if re.fullmatch(harmless, text) else _in_quotes(text)


def _in_quotes(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _said(namings: Mapping[int, Naming]) -> dict[int, Naming]:
    return {prototype: one for prototype, one in namings.items() if one != Naming()}


def _is_blank(path: Path, text: str) -> bool:
    comments = "" if path.suffix.lower() in TABLES else "#"
    return not any(line.strip() and line.strip()[0] != comments for line in text.splitlines())


def _changed_table(path: Path, text: str, prototype: int, wanted: Naming, changes: Mapping[str, str]) -> str:
    table = read_table(path, text)
    new = [field for field, value in changes.items() if value and table.place(field) is None]
    if new:
        wider = tuple((*row, *[""] * len(new)) for row in table.rows)
        table = Table((*table.columns, *new), wider, headed=True)
    rows = [list(row) for row in table.rows]
    own = [row for row in rows if _is(row[0], prototype)]
    if not own:
        own = [[f"C{prototype}", *[""] * (len(table.columns) - 1)]]
        rows += own
    row = next((one for one in own if any(one[1:])), own[0])
    for field in changes:
        at = table.place(field)
        if at is not None:
            row[at] = getattr(wanted, field)
    out = io.StringIO()
    writer = csv.writer(out, delimiter=TABLES[path.suffix.lower()], lineterminator="\n")
    writer.writerows([table.columns, *rows] if table.headed else rows)
    return out.getvalue()


def _changed_yaml(path: Path, text: str, prototype: int, wanted: Naming, changes: Mapping[str, str]) -> str:
    import yaml

    if _is_blank(path, text):
        return f"{_ended(text or HEAD)}C{prototype}: {entry(wanted)}\n"
    node = compose(path, text)
    own = [value for key, value in node.value if _is(str(key.value), prototype)]
    if not own:
        return _applied(text, [_added(text, node, f"C{prototype}", wanted)])
    value = next((one for one in own if one.value), own[0])
    if isinstance(value, yaml.MappingNode):
        return _applied(text, _field_edits(text, value, changes))
    in_braces = bool(node.flow_style)
    return _applied(text, [_instead(text, value, _json(wanted) if in_braces else entry(wanted))])


def _added(text: str, node: "yaml.MappingNode", key: str, wanted: Naming) -> Edit:
    """A line more."""
    if node.flow_style:  # JSON is written so
        return _inside(text, node, f'"{key}": {_json(wanted)}')
    indent = " " * node.start_mark.column
    return Edit(len(text), len(text), f"{'' if text.endswith(chr(10)) else chr(10)}{indent}{key}: {entry(wanted)}\n")


def _field_edits(text: str, node: "yaml.MappingNode", changes: Mapping[str, str]) -> list[Edit]:
    """Changes of an entry that has fields; those of others stay."""
    there = {SPELLINGS[str(key.value)]: value for key, value in node.value if str(key.value) in SPELLINGS}
    edits = [_instead(text, there[field], _in_quotes(changes[field])) for field in changes if field in there]
    more = {field: value for field, value in changes.items() if value and field not in there}
    if not more:
        return edits
    new = [f"{field}: {_quoted(value)}" for field, value in more.items()]
    if node.flow_style:
        if any(text[key.start_mark.index] == '"' for key, _ in node.value):  # JSON, perhaps
            new = [f"{_in_quotes(field)}: {_in_quotes(value)}" for field, value in more.items()]
        return [*edits, _inside(text, node, ", ".join(new))]
    indent = " " * node.start_mark.column
    end = _end(node)
    if text[end - 1] == "\n":  # a text in several lines
        return [*edits, Edit(end, end, "".join(f"{indent}{line}\n" for line in new))]
    stop = text.find("\n", end)
    stop = len(text) if stop < 0 else stop
    return [*edits, Edit(stop, stop, "".join(f"\n{indent}{line}" for line in new))]


def _instead(text: str, node: "yaml.Node", new: str) -> Edit:
    start, stop = node.start_mark.index, node.end_mark.index
    if start == stop:  # no entry
        return Edit(start, stop, f" {new}" if new else "")
    return Edit(start, stop, f"{new}\n" if text[stop - 1] == "\n" else new)


def _inside(text: str, node: "yaml.Node", new: str) -> Edit:
    """Before the closing brace."""
    stop = node.end_mark.index - 1
    before = text[node.start_mark.index + 1 : stop].rstrip()
    return Edit(stop, stop, f"{', ' if before and not before.endswith(',') else ''}{new}")


def _applied(text: str, edits: list[Edit]) -> str:
    for one in sorted(edits, reverse=True):
        text = text[: one.start] + one.text + text[one.stop :]
    return text


def _end(node: "yaml.Node") -> int:
    """Where what is written of a node ends; a block's own mark lies behind the comments that follow it."""
    import yaml

    if isinstance(node, yaml.CollectionNode) and node.value and not node.flow_style:
        last = node.value[-1]
        return _end(last[1] if isinstance(last, tuple) else last)
    return int(node.end_mark.index)


def _json(naming: Naming) -> str:
    """Entry that both JSON and YAML read."""
    given = {field: getattr(naming, field) for field in FIELDS if getattr(naming, field)}
    return json.dumps(naming.name if set(given) <= {"name"} else given, ensure_ascii=False)


def _is(text: str, prototype: int) -> bool:
    return prototype_number(text, 1_000_000) == prototype


def _ended(text: str) -> str:
    return text if text.endswith("\n") else f"{text}\n"
