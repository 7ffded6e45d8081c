"""One slide's map before it is drawn: patches, their shares, and the picture they lie on."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from panther.explain.geometry import Grid, View, raster
from panther.explain.names import label
from panther.explain.palette import table
from panther.slides.polygons import Polygon


@dataclass(frozen=True)
class SlideMap:
    """Everything that a drawing needs."""

    slide: str
    grid: Grid
    assignment: np.ndarray  # (N, C) float32, rows add up to 1
    weights: np.ndarray  # (C,), pi
    view: View
    names: Mapping[int, str] = field(default_factory=dict)
    outline: tuple[Polygon, ...] = ()  # tissue, in the units of the coordinates
    colours: np.ndarray | None = (
        None  # (N, 3) uint8 of maps that show a quantity (attention); None: the prototypes' own
    )

    @property
    def patch_colours(self) -> np.ndarray:
        """Colour of each patch, (N, 3) uint8."""
        return table(self.prototypes)[self.labels] if self.colours is None else self.colours

    @cached_property
    def labels(self) -> np.ndarray:
        """Prototype of the largest share, (N,); the first of equal ones."""
        return self.assignment.argmax(1)

    @cached_property
    def index(self) -> np.ndarray:
        """Patch under each pixel, (h, w); -1 where there is none."""
        return raster(self.grid, self.view)

    @property
    def prototypes(self) -> int:
        """Their number C."""
        return int(self.assignment.shape[1])

    def title(self, prototype: int) -> str:
        """Prototype's number and name."""
        return label(prototype, dict(self.names))

    def within(self, max_side: int) -> "SlideMap":
        """Same map on a smaller picture."""
        view = self.view.within(max_side)
        return self if view is self.view else replace(self, view=view)

    def on_grey(self) -> "SlideMap":
        """Same map on a pale grey slide, whose own red and blue are not read as values."""
        grey = self.view.background @ np.array([0.299, 0.587, 0.114])  # (h, w), luma
        pale = np.repeat((255 - 0.6 * (255 - grey))[..., None], 3, -1).astype(np.uint8)
        return replace(self, view=replace(self.view, background=pale))


def map_pixels(found: SlideMap) -> np.ndarray:
    """Picture (h, w, 3) with every patch in its prototype's colour."""
    return _blended(found, found.patch_colours)


def heat_pixels(found: SlideMap, prototype: int) -> np.ndarray:
    """Picture (h, w, 3) with every patch in the colour of its share of one prototype, from 0 to 1."""
    return _blended(found, heat_colours(found.assignment[:, prototype]))


def value_pixels(found: SlideMap, values: np.ndarray, limit: float) -> np.ndarray:
    """Picture (h, w, 3) with every patch in the colour of its signed value (N,): white at 0, full at +-``limit``."""
    part = np.full(len(values), 0.5) if limit == 0 else (values / limit + 1) / 2
    return _blended(found.on_grey(), heat_colours(part, DIVERGING))


def heat_colours(values: np.ndarray, scale: str = "") -> np.ndarray:
    """Colours (N, 3) uint8 of values from 0 to 1."""
    from matplotlib import colormaps

    return np.asarray(colormaps[scale or HEAT](np.asarray(values, float), bytes=True)[:, :3])


def overlay_pixels(found: SlideMap) -> np.ndarray:
    """Map alone (h, w, 4): a patch is opaque, the rest transparent; pixel for pixel the thumbnail's size."""
    colours = np.concatenate([found.patch_colours, np.zeros((1, 3), np.uint8)])
    covered = (found.index >= 0)[..., None]
    return np.concatenate([colours[found.index], covered.astype(np.uint8) * 255], -1)  # -1 is the last row


OPACITY = 0.55  # of colours over the image
HEAT = "viridis"  # even steps of lightness, and the same order to colour-blind eyes
DIVERGING = "RdBu_r"  # red adds, blue takes away; told apart by colour-blind eyes too


def _blended(found: SlideMap, colours: np.ndarray) -> np.ndarray:
    """Colours of the patches (N, 3) laid over the background; opaque where there is nothing to see behind them."""
    opacity = 1.0 if found.view.blank else OPACITY
    out = found.view.background.copy()
    rows, columns = np.nonzero(found.index >= 0)
    over = colours[found.index[rows, columns]].astype(np.float32)
    under = out[rows, columns].astype(np.float32)
    out[rows, columns] = np.round(under + opacity * (over - under)).astype(np.uint8)
    return out
