"""Colours and markers of pictures, and saving."""

import io
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from panther.errors import InputError
from panther.store import atomic_write, check_output

SUFFIXES = (".png", ".svg", ".pdf")
METADATA = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}, "pdf": {"CreationDate": None}}
PACKING: dict[str, Any] = {
    "png": {"pil_kwargs": {"compress_level": 4}}  # in half the time of 6, the usual one, and a few per cent larger
}
DPI = 100  # figures are laid out in pixels; SVG scales them
INK, GREY, FAINT, GRID = "#222222", "#666666", "#8a857c", "#e8e4dc"
BLUE, ORANGE = "#0072B2", "#D55E00"  # Okabe and Ito's: safe for colour-blind readers
# again, in another order than the prototypes': a class must not look like C0
GROUPS = (BLUE, ORANGE, "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000", "#F0E442")
MARKERS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "cross", "x", "star")
SEQUENTIAL = ((0.0, "#fbfaf7"), (0.25, "#cfe0ea"), (0.5, "#7fb2d1"), (0.75, "#2b7fb0"), (1.0, "#0b3d5c"))
DIVERGING = ((0.0, "#0b4f7a"), (0.25, "#7fb2d1"), (0.5, "#fbfaf7"), (0.75, "#eaa57c"), (1.0, "#a84300"))
MISSING = "#dddddd"

P = ParamSpec("P")
R = TypeVar("R")


def group_colour(index: int) -> str:
    """Colour of a class, a risk group or a method."""
    return GROUPS[index % len(GROUPS)]


def tint(colour: str, strength: float) -> str:
    """Colour mixed with white: 1 is the colour itself, 0 white."""
    parts = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(255 - strength * (255 - part)):02x}" for part in parts)


def short(text: str, letters: float = 36) -> str:
    """Text of at most so many letters."""
    return text if len(text) <= letters else text[: max(1, int(letters) - 1)] + "…"


def plain_text(draw: Callable[P, R]) -> Callable[P, R]:
    """Make a drawing function write users' texts literally: a `$` does not start a formula."""

    @wraps(draw)
    def drawn(*arguments: P.args, **options: P.kwargs) -> R:
        import matplotlib

        with matplotlib.rc_context({"text.parse_math": False}):  # kept by every text that is made here
            return draw(*arguments, **options)

    return drawn


def check_picture(path: Path, *inputs: Any) -> None:
    """Fail before the work where the picture cannot be written, or would replace an input."""
    _check_suffix(path)
    check_output(path, *inputs)


def save(figure: Any, path: Path, dpi: int = DPI) -> None:
    """Write a picture whole or not at all, in the format of its suffix (.png, .svg, .pdf); the same figure gives the same bytes."""
    _check_suffix(path)
    with atomic_write(path) as temporary:
        temporary.write_bytes(picture_bytes(figure, path.suffix[1:], dpi))


def picture_bytes(figure: Any, kind: str, dpi: int = DPI) -> bytes:
    """The same picture (png, svg or pdf) as bytes."""
    import matplotlib

    buffer = io.BytesIO()
    settings: Any = {"svg.hashsalt": "panther", "svg.fonttype": "none", "text.parse_math": False}  # also late ticks
    with matplotlib.rc_context(settings):
        figure.savefig(buffer, format=kind, dpi=dpi, metadata=METADATA[kind], **PACKING.get(kind, {}))
    return buffer.getvalue()


def _check_suffix(path: Path) -> None:
    if path.suffix not in SUFFIXES:
        raise InputError(f"{path}: found the ending {path.suffix!r}, expected one of {', '.join(SUFFIXES)}")
