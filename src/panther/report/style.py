"""How our pictures look, and how they are saved."""

from pathlib import Path
from typing import Any

from panther.errors import InputError
from panther.storage.atomic import atomic_write
from panther.storage.inputs import Given, check_output

SUFFIXES = (".png", ".svg", ".pdf")
BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#666666"  # Okabe and Ito's: told apart by colour-blind readers too


def new_figure(width: float, height: float, panels: int = 1) -> tuple[Any, Any]:
    """Figure and its axes side by side, drawn without a display."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(1, panels)
    for ax in [axes] if panels == 1 else axes:
        ax.spines[["top", "right"]].set_visible(False)
    return figure, axes


def check_picture(path: Path, *inputs: Given) -> None:
    """Fail before the work where the picture cannot be written, or would replace an input."""
    _check_ending(path)
    check_output(path, *inputs)


def save_figure(figure: Any, path: Path) -> None:
    """Write a picture whole or not at all; its ending says how."""
    _check_ending(path)
    with atomic_write(path) as temporary:
        figure.savefig(temporary, format=path.suffix[1:], dpi=150)


def _check_ending(path: Path) -> None:
    if path.suffix not in SUFFIXES:
        raise InputError(f"{path}: pictures are written as {', '.join(SUFFIXES)}; give the name one of these endings.")
