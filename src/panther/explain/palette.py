"""Sixty-four colours for prototypes: C3 has the same one on every slide, in every run, in every picture.

The first seven are Okabe and Ito's (without black); each further one lies farthest from all before it, as seen by normal and by
colour-blind eyes. So the first n are a good palette for every n, and more prototypes never change the colours of the first.
`docs/make_palette.py` is that rule and `PALETTE` its result; a test compares them.

Over a slide, colours lie on grey tissue. Blending moves a colour towards what is behind it: at 55 % over tissue nearly every
prototype's colour of sixteen looked most like another one's in the legend. Here the tissue's lightness is added to the colour instead,
the median of the tissue adding nothing and the rest at most `relief` grey levels, which is as much as the palette bears: the nearest
colour of the legend is the right one, on any slide.
"""

from collections.abc import Sequence
from dataclasses import dataclass

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
RELIEF = {16: 30, 32: 13, 64: 6}  # so many colours -> grey levels (of 255) that each may become lighter or darker
HEAT_RELIEF = 13  # a value read off the colour bar is wrong by less than 0.04 of its length
OPACITY = 0.55  # over the slide's colours
FAINTEST = 12  # grey levels: noise on an even background is not made to look like tissue
PALE = 0.6  # of the darkness of tissue that no patch covers


def colour(prototype: int) -> str:
    """Colour of a prototype as #RRGGBB; they repeat from C64 on."""
    return PALETTE[prototype % len(PALETTE)]


def rgb_values(colours: Sequence[str]) -> np.ndarray:
    """Colours #RRGGBB as numbers (n, 3) uint8."""
    return np.array([[int(c[i : i + 2], 16) for i in (1, 3, 5)] for c in colours], np.uint8).reshape(-1, 3)


@dataclass(frozen=True)
class Paint:
    """Background of the colours, and their opacity."""

    background: str = "grey"  # the tissue in grey, in "colour", or "none"
    opacity: float | None = None  # 1 hides the tissue; None: as high as distinguishable colours allow


def relief(count: int) -> int:
    """Grey levels by which each of ``count`` colours may become lighter or darker."""
    return next((levels for most, levels in RELIEF.items() if count <= most), RELIEF[64])


def painted(background: np.ndarray, colours: np.ndarray, covered: np.ndarray, paint: Paint, levels: int) -> np.ndarray:
    """Picture (h, w, 3) with ``colours`` (n, 3) on the pixels that are ``covered`` (h, w), of which there are n."""
    if paint.background == "grey":
        grey = background @ np.array([0.299, 0.587, 0.114])  # (h, w), luma
        out = np.repeat(np.round(255 - PALE * (255 - grey))[..., None], 3, -1).astype(np.uint8)
        if covered.any():
            most = levels if paint.opacity is None else 128 * (1 - paint.opacity)
            shade = most * light_and_dark(grey[covered])
            out[covered] = np.clip(np.round(colours + shade[:, None]), 0, 255).astype(np.uint8)
        return out
    out, opacity = background.copy(), OPACITY
    if paint.background == "none":
        out, opacity = np.full_like(background, 255), 1.0
    under = out[covered].astype(np.float32)
    opacity = opacity if paint.opacity is None else paint.opacity
    out[covered] = np.round(under + opacity * (colours - under)).astype(np.uint8)
    return out


def light_and_dark(grey: np.ndarray) -> np.ndarray:
    """Grey levels (n,) from -1, the darkest twentieth, over 0, the median, to 1, the lightest."""
    dark, middle, light = np.percentile(grey, (5, 50, 95))
    below, above = max(middle - dark, FAINTEST), max(light - middle, FAINTEST)
    return np.clip(np.where(grey < middle, (grey - middle) / below, (grey - middle) / above), -1, 1)
