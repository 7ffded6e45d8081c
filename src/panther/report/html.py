"""HTML that cannot be broken by what people call their patients: text is escaped wherever it enters.

Charts are in the page as data that Plotly draws when they come into view, pictures as small copies, so that it can be mailed.
"""

import base64
import html
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from panther.charts.chart import Chart
from panther.errors import InputError

DASH, MINUS = "\u2013", "\u2212"  # where there is no number; before one below 0, as print has it
QUALITY = 82  # of pictures
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


def words_of_list(names: Sequence[str]) -> str:
    """Names as people say them: a, b and c."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def plural(count: int, one: str, many: str | None = None) -> str:
    """`1 patient`, `2 patients`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def _kind(cell: object) -> str | None:
    text = str(cell)
    return "number" if text[:1].isdigit() or (text[:1] in f"{MINUS}{DASH}-<+[" and len(text) < 40) else None


def plot(key: str, chart: Chart, alt: str, caption: object = None, widest: int | None = None) -> Html:
    """Figure with a fixed name; ``alt`` says in words what is drawn, for those who cannot see it.

    It is as wide as the page, or at most ``widest`` pixels.
    """
    figure = chart.plotly()
    # in a script element only `<` could end it early
    data = Html(json.dumps(figure, separators=(",", ":"), ensure_ascii=False, allow_nan=False).replace("<", "\\u003c"))
    height = f"min-height:{figure['layout']['height']}px" + (f";max-width:{widest}px" if widest else "")
    return tag(
        "figure",
        tag("div", id=f"plot-{key}", class_="canvas", role="img", aria_label=alt, style=height),
        tag("script", data, type="application/json", data_plot=f"plot-{key}"),
        tag("figcaption", caption or alt),
        class_="plot",
    )


def data_uri(path: Path, longest: int) -> str:
    """The picture, at most ``longest`` pixels per side, on white, as text that a page holds."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as found:
            found.draft("RGB", (longest, longest))  # JPEG: decode at the size that is needed
            image = found.convert("RGBA")
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError) as error:
        raise InputError(f"{path}: the picture cannot be read ({error}); it is left out of the report.") from error
    image.thumbnail((longest, longest))
    page = Image.new("RGB", image.size, "white")
    page.paste(image, mask=image.getchannel("A"))
    buffer = io.BytesIO()
    page.save(buffer, "WEBP", quality=QUALITY, method=4)
    return f"data:image/webp;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def picture(path: Path, alt: str, caption: object, longest: int) -> Html:
    """A figure with its caption."""
    image = tag("img", src=data_uri(path, longest), alt=alt, loading="lazy")
    return tag("figure", image, tag("figcaption", caption) if caption else None, class_="picture")
