"""HTML that cannot be broken by what people call their patients: text is escaped wherever it enters."""

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

DASH, MINUS = "\u2013", "\u2212"  # where there is no number; before one below 0, as print has it
_VOID = frozenset(("img", "meta", "br", "hr", "input"))


class Html(str):
    """Text that is HTML already; every other string is escaped when it becomes part of one."""

    __slots__ = ()


def tag(name: str, /, *children: object, **attributes: object) -> Html:
    """One element; ``class_`` becomes class, ``aria_label`` aria-label; False and None leave an attribute out."""
    written = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{html.escape(str(value))}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    return Html(f"<{name}{written}>" if name in _VOID else f"<{name}{written}>{join(*children)}</{name}>")


def join(*children: object) -> Html:
    """Elements and texts one after the other; None is nothing, lists are opened."""
    return Html("".join(_one(child) for child in children))


def _one(child: object) -> str:
    if child is None:
        return ""
    if isinstance(child, Html):
        return child
    if isinstance(child, (list, tuple)):
        return join(*child)
    return html.escape(str(child), quote=False)


def words(sentence: str) -> Html:
    """A sentence whose `parts in backticks` are typed."""
    parts = sentence.split("`")
    return join(*(tag("code", part) if number % 2 else part for number, part in enumerate(parts)))


def paragraph(*children: object, class_: str | None = None) -> Html:
    """One paragraph."""
    return tag("p", *children, class_=class_)


def details(summary: object, *children: object, opened: bool = False) -> Html:
    """Numbers on demand."""
    return tag("details", tag("summary", summary), tag("div", *children, class_="inside"), open=opened)


def listing(items: Iterable[object], class_: str | None = None) -> Html | None:
    """Bullets, or nothing where there is nothing to say."""
    found = [tag("li", item) for item in items]
    return tag("ul", found, class_=class_) if found else None


def tiles(values: Mapping[str, object]) -> Html:
    """A few large numbers, each with what it counts."""
    return tag("dl", [tag("div", tag("dt", what), tag("dd", value)) for what, value in values.items()], class_="tiles")


def table(header: Sequence[object], rows: Iterable[Sequence[Any]], caption: object = None) -> Html:
    """A table whose first column names the rows; the caption says what it is."""
    head = tag("tr", [tag("th", cell, scope="col") for cell in header])
    body = [
        tag("tr", tag("th", row[0], scope="row"), [tag("td", cell, class_=_kind(cell)) for cell in row[1:]])
        for row in rows
    ]
    return tag(
        "div",
        tag("table", tag("caption", caption) if caption else None, tag("thead", head), tag("tbody", body)),
        class_="scroll",
        tabindex=0,
    )


def choice(key: str, label: str, options: Mapping[str, object]) -> Html | None:
    """One of several things, chosen by a drop-down; a single one stands alone, without scripts all are shown."""
    if not options:
        return None
    if len(options) == 1:
        return join(next(iter(options.values())))
    entries = [tag("option", name, value=f"{key}-{number}") for number, name in enumerate(options)]
    shown = [
        tag("div", content, id=f"{key}-{number}", class_="option") for number, content in enumerate(options.values())
    ]
    select = tag("label", label, " ", tag("select", entries, data_choice=True), class_="choice")
    return tag("div", select, shown, class_="choices")


def number(value: float, digits: int = 3) -> str:
    """A number as tables print it; a dash where it is not defined."""
    return DASH if value != value else f"{value:,.{digits}f}".replace("-", MINUS)


def p_value(value: float) -> str:
    """A p-value as journals print it."""
    if value != value:
        return DASH
    return "< 0.001" if value < 0.001 else f"{value:.3f}" if value < 0.1 else f"{value:.2f}"


def plural(count: int, one: str, many: str | None = None) -> str:
    """`1 patient`, `2 patients`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def _kind(cell: object) -> str | None:
    text = str(cell)
    return "number" if text[:1].isdigit() or (text[:1] in f"{MINUS}{DASH}-<+[" and len(text) < 40) else None
