"""One slide's map before it is drawn: patches, their shares, and the picture they lie on."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from panther.explain.geometry import Grid, View, raster
from panther.explain.names import label
from panther.explain.paint import HEAT_RELIEF, Paint, painted, relief
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
    paint: Paint = field(default_factory=Paint)

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


def map_pixels(found: SlideMap) -> np.ndarray:
    """Picture (h, w, 3) with every patch in its prototype's colour."""
    return _painted(found, found.patch_colours, relief(found.prototypes) if found.colours is None else HEAT_RELIEF)


def heat_pixels(found: SlideMap, prototype: int) -> np.ndarray:
    """Picture (h, w, 3) with every patch in the colour of its share of one prototype, from 0 to 1."""
    return _painted(found, heat_colours(found.assignment[:, prototype]), HEAT_RELIEF)


def value_pixels(found: SlideMap, values: np.ndarray, limit: float) -> np.ndarray:
    """Picture (h, w, 3) with every patch in the colour of its signed value (N,): white at 0, full at +-``limit``."""
    part = np.full(len(values), 0.5) if limit == 0 else (values / limit + 1) / 2
    return _painted(found, heat_colours(part, DIVERGING), HEAT_RELIEF)


def heat_colours(values: np.ndarray, scale: str = "") -> np.ndarray:
    """Colours (N, 3) uint8 of values from 0 to 1."""
    from matplotlib import colormaps

    return np.asarray(colormaps[scale or HEAT](np.asarray(values, float), bytes=True)[:, :3])


def overlay_pixels(found: SlideMap) -> np.ndarray:
    """Map alone (h, w, 4): a patch is opaque, the rest transparent; pixel for pixel the thumbnail's size."""
    colours = np.concatenate([found.patch_colours, np.zeros((1, 3), np.uint8)])
    covered = (found.index >= 0)[..., None]
    return np.concatenate([colours[found.index], covered.astype(np.uint8) * 255], -1)  # -1 is the last row


HEAT = "viridis"  # even steps of lightness, and the same order to colour-blind eyes
DIVERGING = "RdBu_r"  # red adds, blue takes away; told apart by colour-blind eyes too


def _painted(found: SlideMap, colours: np.ndarray, levels: int) -> np.ndarray:
    """Colours of the patches (N, 3) laid over the background; alone where there is nothing to see behind them."""
    covered = found.index >= 0
    paint = Paint("none") if found.view.blank else found.paint
    return painted(found.view.background, colours[found.index[covered]].astype(np.float32), covered, paint, levels)
