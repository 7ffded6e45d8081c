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


def map_pixels(found: SlideMap) -> np.ndarray:
    """Picture (h, w, 3) with every patch in its prototype's colour."""
    return _blended(found, table(found.prototypes)[found.labels])


def heat_pixels(found: SlideMap, prototype: int) -> np.ndarray:
    """Picture (h, w, 3) with every patch in the colour of its share of one prototype, from 0 to 1."""
    from matplotlib import colormaps

    colours = colormaps[HEAT](found.assignment[:, prototype], bytes=True)[:, :3]
    return _blended(found, colours)


def overlay_pixels(found: SlideMap) -> np.ndarray:
    """Map alone (h, w, 4): a patch is opaque, the rest transparent; pixel for pixel the thumbnail's size."""
    colours = np.concatenate([table(found.prototypes)[found.labels], np.zeros((1, 3), np.uint8)])
    covered = (found.index >= 0)[..., None]
    return np.concatenate([colours[found.index], covered.astype(np.uint8) * 255], -1)  # -1 is the last row


OPACITY = 0.55  # of colours over the image
HEAT = "viridis"  # even steps of lightness, and the same order to colour-blind eyes


def _blended(found: SlideMap, colours: np.ndarray) -> np.ndarray:
    """Colours of the patches (N, 3) laid over the background; opaque where there is nothing to see behind them."""
    opacity = 1.0 if found.view.blank else OPACITY
    out = found.view.background.copy()
    rows, columns = np.nonzero(found.index >= 0)
    over = colours[found.index[rows, columns]].astype(np.float32)
    under = out[rows, columns].astype(np.float32)
    out[rows, columns] = np.round(under + opacity * (over - under)).astype(np.uint8)
    return out
