"""Sixty-four colours for prototypes: C3 has the same one on every slide, in every run, in every picture.

The first seven are Okabe and Ito's (without black); each further one lies farthest from all before it, as seen by normal and by
colour-blind eyes. So the first n are a good palette for every n, and more prototypes never change the colours of the first.
`docs/make_palette.py` is that rule and `PALETTE` its result; a test compares them.
"""

from collections.abc import Sequence

import numpy as np

OKABE_ITO = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442")

# fmt: off
PALETTE: tuple[str, ...] = (
    "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#5A1E00",
    "#1E0F96", "#5AFFFF", "#784B4B", "#B4C3A5", "#A569FF", "#4B0FE1", "#B42D87", "#B4F0A5",
    "#4B2D5A", "#87D2FF", "#C30000", "#E1C369", "#87B478", "#692DB4", "#964BE1", "#69785A",
    "#781E2D", "#1E6978", "#8787E1", "#D296C3", "#E100B4", "#E1783C", "#960F00", "#A5D2D2",
    "#4B3C87", "#5A3C69", "#5A692D", "#780FFF", "#8769D2", "#F087FF", "#3C1E69", "#F0B40F",
    "#D23C4B", "#96F0D2", "#5A8787", "#785A96", "#D2E178", "#69A55A", "#F04B87", "#004B3C",
    "#87C3E1", "#C3B45A", "#E1000F", "#000FB4", "#963C69", "#B487C3", "#69B496", "#783CD2",
    "#A587FF", "#C3D296", "#E1A5C3", "#782D4B", "#695AFF", "#E1F078", "#C369A5", "#96C387",
)
# fmt: on


def colour(prototype: int) -> str:
    """Colour of a prototype as #RRGGBB; from C64 on they begin anew."""
    return PALETTE[prototype % len(PALETTE)]


def rgb(prototype: int) -> tuple[int, int, int]:
    """Colour of a prototype, 0 to 255 each."""
    red, green, blue = rgb_values([colour(prototype)])[0].tolist()
    return red, green, blue


def table(count: int) -> np.ndarray:
    """Colours (count, 3) uint8 of the first prototypes."""
    return rgb_values([colour(c) for c in range(count)])


def rgb_values(colours: Sequence[str]) -> np.ndarray:
    """Colours #RRGGBB as numbers (n, 3) uint8."""
    return np.array([[int(c[i : i + 2], 16) for i in (1, 3, 5)] for c in colours], np.uint8).reshape(-1, 3)
