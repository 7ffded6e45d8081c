"""Figures and pictures of the page, and the formats of its numbers and lists."""

import base64
import io
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from panther.charts.chart import Chart
from panther.charts.results import Estimate
from panther.errors import InputError
from panther.storage.files import read_errors

DASH, MINUS = "\u2013", "\u2212"  # for an undefined number; before a negative one
QUALITY = 82  # of pictures, as WebP
MOST_PICTURES = 12
LARGE, SMALL = 1600, 1200  # pixels, where pictures are few, or many
PICTURES = (".png", ".jpg", ".jpeg", ".webp")


class Figure(NamedTuple):
    """A chart of the page; screen readers read the caption and the ``numbers``."""

    key: str
    chart: Chart
    caption: str
    numbers: str = ""  # those that the chart shows, as text
    widest: int | None = None  # pixels; by default as wide as the page
    header: Sequence[str] = ()  # of a table of the numbers
    rows: Sequence[Sequence[Any]] = ()


class Picture(NamedTuple):
    """A picture as a data URI."""

    uri: str
    alt: str
    caption: str = ""


def number(value: float | None, digits: int = 3) -> str:
    """Format a number; a dash where it is not defined."""
    return DASH if value is None or value != value else f"{value:,.{digits}f}".replace("-", MINUS)


def signed(value: float) -> str:
    """Format a difference with its sign."""
    return number(value) if pd.isna(value) or value < 0 else f"+{number(value)}"


def limits(low: float, high: float, form: Callable[[float], str] = number) -> str:
    """Format an interval; a dash where it is not defined."""
    return DASH if pd.isna(low) else f"[{form(low)}, {form(high)}]"


def p_value(value: float | None) -> str:
    """Format a p-value as journals do."""
    if value is None or value != value:
        return DASH
    return "< 0.001" if value < 0.001 else f"{value:.3f}" if value < 0.1 else f"{value:.2f}"


def small(value: float) -> str:
    """Format a rounding error: 7e-06 is 7 × 10⁻⁶."""
    digits, _, power = f"{value:.2g}".partition("e")
    return (
        f"{digits} \N{MULTIPLICATION SIGN} 10{str(int(power)).translate(str.maketrans('-0123456789', '⁻⁰¹²³⁴⁵⁶⁷⁸⁹'))}"
        if power
        else digits
    )


def join_words(names: Sequence[str]) -> str:
    """Join names as `a, b and c`."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def plural(count: int, one: str, many: str | None = None) -> str:
    """Count with its noun: `1 patient`, `2 patients`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def estimates(table: pd.DataFrame, value: str = "mean") -> list[Estimate]:
    """Rows of a forest plot, from a table with intervals."""
    return [Estimate(r["row"], r[value], r["ci_low"], r["ci_high"], ()) for _, r in table.iterrows()]


def data_uri(path: Path, longest: int) -> str:
    """Picture on white as a data URI, downsized to ``longest`` pixels per side."""
    from PIL import Image

    with read_errors(path, "picture", "it is left out of the report"), Image.open(path) as file:
        file.draft("RGB", (longest, longest))  # JPEG: decode at the size that is needed
        image = file.convert("RGBA")
    image.thumbnail((longest, longest))
    page = Image.new("RGB", image.size, "white")
    page.paste(image, mask=image.getchannel("A"))
    buffer = io.BytesIO()
    page.save(buffer, "WEBP", quality=QUALITY, method=4)
    return f"data:image/webp;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def pictures_by_slide(folder: Path, kinds: Sequence[str]) -> dict[str, dict[str, Path]]:
    """Pictures `SLIDE.KIND.png` by slide and kind; names of slides may contain dots."""
    pictures: dict[str, dict[str, Path]] = {}
    for path in sorted(p for p in folder.iterdir() if p.suffix.lower() in PICTURES and not p.name.startswith(".")):
        kind = next((kind for kind in kinds if path.stem.endswith(kind)), None)
        if kind is not None:
            pictures.setdefault(path.stem.removesuffix(kind), {})[kind] = path
    return pictures


class Gallery(NamedTuple):
    """Pictures, and the number of those left out."""

    pictures: list[Picture]
    more: int = 0


def gallery(paths: Mapping[str, Path], alt: str, failures: dict[str, str]) -> Gallery:
    """Gallery of pictures by caption; unreadable ones are left out and added to ``failures``."""
    longest = LARGE if len(paths) <= MOST_PICTURES // 2 else SMALL
    shown = []
    for caption, path in islice(paths.items(), MOST_PICTURES):
        try:
            shown.append(Picture(data_uri(path, longest), alt.format(caption), caption))
        except InputError as error:
            failures[path.name] = str(error)
    return Gallery(shown, max(0, len(paths) - MOST_PICTURES))
