"""How colours lie over a slide: over grey tissue, which shows through as light and dark, so that every colour stays its own.

Blending moves a colour towards what is behind it: at 55 % over tissue nearly every prototype's colour of sixteen looked most like another
one's in the legend. Here the tissue's light and dark are added to the colour instead, the middle of the tissue adding nothing and
the rest at most `relief` grey levels, which is as much as the palette bears: the legend's nearest colour is the right one, on any slide.
"""

from dataclasses import dataclass

import numpy as np

from panther.errors import InputError
from panther.limits import check_choice

BACKGROUNDS = ("grey", "colour", "none")
RELIEF = {16: 30, 32: 13, 64: 6}  # so many colours -> grey levels (of 255) that each may become lighter or darker
HEAT_RELIEF = 13  # a value read off the colour bar is wrong by less than 0.04 of its length
OPACITY = 0.55  # over the slide's own colours
FAINTEST = 12  # grey levels: noise on an even background is not made to look like tissue
PALE = 0.6  # of the darkness of tissue that no patch covers


@dataclass(frozen=True)
class Paint:
    """What is behind the colours, and how much of it is seen through them."""

    background: str = "grey"
    opacity: float | None = None  # 1 hides the tissue; None: as much tissue as leaves the colours their own

    def __post_init__(self) -> None:
        check_choice("background", self.background, BACKGROUNDS)
        if self.opacity is not None and not 0 <= self.opacity <= 1:
            raise InputError(f"The opacity is {self.opacity:g}; a number from 0 to 1 is expected.")


def relief(count: int) -> int:
    """Grey levels that each of so many of the palette's colours bears."""
    return next((levels for most, levels in RELIEF.items() if count <= most), RELIEF[64])


def painted(background: np.ndarray, colours: np.ndarray, covered: np.ndarray, paint: Paint, levels: int) -> np.ndarray:
    """Picture (h, w, 3) with ``colours`` (n, 3) on the pixels that are ``covered`` (h, w), of which there are n."""
    return PAINTERS[paint.background](background, colours, covered, paint.opacity, levels)


def _on_grey(
    background: np.ndarray, colours: np.ndarray, covered: np.ndarray, opacity: float | None, levels: int
) -> np.ndarray:
    grey = background @ np.array([0.299, 0.587, 0.114])  # (h, w), luma
    out = np.repeat(np.round(255 - PALE * (255 - grey))[..., None], 3, -1).astype(np.uint8)
    if covered.any():
        most = levels if opacity is None else 128 * (1 - opacity)
        shade = most * light_and_dark(grey[covered])
        out[covered] = np.clip(np.round(colours + shade[:, None]), 0, 255).astype(np.uint8)
    return out


def light_and_dark(grey: np.ndarray) -> np.ndarray:
    """Grey levels (n,) from -1, the darkest twentieth, over 0, the median, to 1, the lightest."""
    dark, middle, light = np.percentile(grey, (5, 50, 95))
    below, above = max(middle - dark, FAINTEST), max(light - middle, FAINTEST)
    return np.clip(np.where(grey < middle, (grey - middle) / below, (grey - middle) / above), -1, 1)


def _on_colour(
    background: np.ndarray, colours: np.ndarray, covered: np.ndarray, opacity: float | None, levels: int
) -> np.ndarray:
    out = background.copy()
    under = out[covered].astype(np.float32)
    out[covered] = np.round(under + (OPACITY if opacity is None else opacity) * (colours - under)).astype(np.uint8)
    return out


def _alone(
    background: np.ndarray, colours: np.ndarray, covered: np.ndarray, opacity: float | None, levels: int
) -> np.ndarray:
    white = np.full_like(background, 255)
    return _on_colour(white, colours, covered, 1.0 if opacity is None else opacity, levels)


PAINTERS = {"grey": _on_grey, "colour": _on_colour, "none": _alone}
