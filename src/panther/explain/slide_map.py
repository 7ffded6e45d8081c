"""One slide's map before it is drawn: patches, their shares, and the picture they lie on."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from panther.explain.geometry import Grid, View, raster
from panther.explain.names import Naming, colours, label
from panther.explain.palette import HEAT_RELIEF, Paint, painted, relief, rgb_values
from panther.explain.touching import Touching, neighbour_sentences, touching
from panther.slides.polygons import Polygon


@dataclass(frozen=True)
class SlideMap:
    """Map of one slide; ``figures()`` draws it.

    ``assignment`` (N, C) and ``labels`` (N,) say which prototype each patch belongs to, ``weights`` (C,) how much of the slide is whose.
    """

    slide: str
    grid: Grid
    assignment: np.ndarray  # (N, C) float32, rows add up to 1
    weights: np.ndarray  # (C,), pi
    view: View
    names: Mapping[int, str] = field(default_factory=dict)
    outline: tuple[Polygon, ...] = ()  # tissue, in the units of the coordinates
    colours: np.ndarray | None = None  # (N, 3) uint8 where a quantity is shown (attention); None: the prototypes' own
    paint: Paint = field(default_factory=Paint)
    namings: Mapping[int, Naming] = field(default_factory=dict)  # colours and groups that people gave

    @property
    def patch_colours(self) -> np.ndarray:
        """Colour of each patch, (N, 3) uint8."""
        return rgb_values(self.prototype_colours)[self.labels] if self.colours is None else self.colours

    @cached_property
    def prototype_colours(self) -> list[str]:
        """Colour of each prototype, #RRGGBB: the one that people gave it or its group, else the palette's."""
        return colours(self.namings, self.prototypes)

    @cached_property
    def labels(self) -> np.ndarray:
        """Prototype of the largest share, (N,); the first of equal ones."""
        return self.assignment.argmax(1)

    @cached_property
    def index(self) -> np.ndarray:
        """Patch under each pixel, (h, w); -1 where there is none."""
        return raster(self.grid, self.view)

    @cached_property
    def touching(self) -> Touching:
        """Which prototypes lie beside which."""
        return touching(self.assignment, self.grid)

    @property
    def prototypes(self) -> int:
        """Their number C."""
        return int(self.assignment.shape[1])

    def title(self, prototype: int) -> str:
        """Prototype's number and name."""
        return label(prototype, dict(self.names))

    def legend(self, prototype: int) -> str:
        """Prototype's number and name, with its group in brackets."""
        group = self.namings.get(prototype, Naming()).group
        return f"{self.title(prototype)} ({group})" if group else self.title(prototype)

    def within(self, max_side: int) -> "SlideMap":
        """Same map on a smaller picture."""
        view = self.view.within(max_side)
        return self if view is self.view else replace(self, view=view)

    def figures(self, prototypes: Sequence[int] | None = None) -> dict[str, Any]:
        """Matplotlib figures by name: map, side_by_side, neighbours, and the heatmaps of ``prototypes`` where they are given."""
        return {name: draw() for name, draw in self.drawings(prototypes).items()}

    def drawings(self, prototypes: Sequence[int] | None = None) -> dict[str, Callable[[], Any]]:
        """Functions that draw those figures: one may be saved before the next is drawn."""
        from panther.explain import draw  # which draws this class

        single = prototypes is not None and len(prototypes) == 1
        main = prototypes[0] if prototypes and single else int(self.weights.argmax())
        found: dict[str, Callable[[], Any]] = {
            "map": partial(draw.draw_map, self),
            "side_by_side": partial(draw.draw_side_by_side, self, main),
            "neighbours": self._draw_neighbours,
        }
        if single:
            found[f"heatmap.C{main}"] = partial(draw.draw_heatmap, self, main)
        elif prototypes:
            found["heatmaps"] = partial(draw.draw_heatmaps, self, prototypes)
        return found

    def _draw_neighbours(self) -> Any:
        from panther.explain.touching import draw_neighbours

        return draw_neighbours(self.touching, [self.title(c) for c in range(self.prototypes)])

    def numbers(self) -> dict[str, Any]:
        """Plain values: the prototypes' weights, largest first, and which of them lie side by side, in sentences."""
        order = np.argsort(-self.weights, kind="stable").tolist()
        titles = [self.title(c) for c in range(self.prototypes)]
        weights = {titles[c]: float(self.weights[c]) for c in order}
        return {"weights": weights, "neighbours": neighbour_sentences(self.touching, titles)}

    @property
    def summary(self) -> str:
        """Three prototypes of the largest weight."""
        return ", ".join(f"{name} {weight:.2f}" for name, weight in list(self.numbers()["weights"].items())[:3])

    def notes(self, formats: Sequence[str] = ()) -> list[str]:
        """What the map lacks, in sentences; ``formats`` are the requested ones."""
        notes = []
        if self.grid.inferred:
            notes.append(
                f"{self.slide}: the file does not tell the patches' size; {self.grid.pitch:g}, the distance of neighbours, was taken."
            )
        if self.view.mpp is None:
            notes.append(
                f"{self.slide}: micrometres per pixel are not known, so there is no scale bar; give `slides=`."
            )
        if "geojson" in formats and self.view.unit == "um":
            notes.append(
                f"{self.slide}: no GeoJSON, its coordinates are micrometres and QuPath counts pixels; give `slides=`."
            )
        if self.index.max() < 0:
            notes.append(f"{self.slide}: patches are smaller than a pixel of the picture; give a larger `max_side=`.")
        return notes


def map_pixels(slide_map: SlideMap) -> np.ndarray:
    """Picture (h, w, 3) with every patch in its prototype's colour."""
    return _painted(
        slide_map, slide_map.patch_colours, relief(slide_map.prototypes) if slide_map.colours is None else HEAT_RELIEF
    )


def heat_pixels(slide_map: SlideMap, prototype: int) -> np.ndarray:
    """Picture (h, w, 3) with every patch in the colour of its share of one prototype, from 0 to 1."""
    return _painted(slide_map, heat_colours(slide_map.assignment[:, prototype]), HEAT_RELIEF)


def value_pixels(slide_map: SlideMap, values: np.ndarray, limit: float) -> np.ndarray:
    """Picture (h, w, 3) with every patch in the colour of its signed value (N,): white at 0, full at +-``limit``."""
    part = np.full(len(values), 0.5) if limit == 0 else (values / limit + 1) / 2
    return _painted(slide_map, heat_colours(part, DIVERGING), HEAT_RELIEF)


def heat_colours(values: np.ndarray, scale: str = "") -> np.ndarray:
    """Colours (N, 3) uint8 of values from 0 to 1."""
    from matplotlib import colormaps

    return np.asarray(colormaps[scale or HEAT](np.asarray(values, float), bytes=True)[:, :3])


def overlay_pixels(slide_map: SlideMap) -> np.ndarray:
    """Map alone (h, w, 4): a patch is opaque, the rest transparent; pixel for pixel the thumbnail's size."""
    colours = np.concatenate([slide_map.patch_colours, np.zeros((1, 3), np.uint8)])
    covered = (slide_map.index >= 0)[..., None]
    return np.concatenate([colours[slide_map.index], covered.astype(np.uint8) * 255], -1)  # -1 is the last row


HEAT = "viridis"  # even steps of lightness, and the same order to colour-blind eyes
DIVERGING = "RdBu_r"  # red adds, blue takes away; told apart by colour-blind eyes too


def _painted(slide_map: SlideMap, colours: np.ndarray, levels: int) -> np.ndarray:
    """Colours of the patches (N, 3) laid over the background; alone where there is nothing to see behind them."""
    covered = slide_map.index >= 0
    paint = Paint("none") if slide_map.view.blank else slide_map.paint
    return painted(
        slide_map.view.background, colours[slide_map.index[covered]].astype(np.float32), covered, paint, levels
    )
