"""Patches of a slide as the pages need them: where they lie, which prototypes they belong to, on which canvas; the canvas in tiles."""

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from panther.aggregators import build
from panther.errors import InputError
from panther.explain.geometry import Grid, View, level0_mpp, raster
from panther.explain.scene import MapSettings, assign, locate
from panther.explain.touching import Touching, touching
from panther.slides import Slide, open_slide
from panther.types import Bag, Prototypes
from panther.viewer.contents import SlideEntry

TILE = 256  # pixels


@dataclass(frozen=True)
class Window:
    """A part of the canvas as a picture: its corner in canvas units, its pixels, and how many units a pixel is wide."""

    left: float
    top: float
    width: int
    height: int
    scale: float

    def numbers(self) -> tuple[np.ndarray, np.ndarray]:
        """Columns and rows of the pixels (h, w), counted from the canvas' corner."""
        left, top = (round(edge / self.scale) for edge in (self.left, self.top))
        columns, rows = np.meshgrid(np.arange(left, left + self.width), np.arange(top, top + self.height))
        return columns, rows

    def wider(self, pixels: int) -> "Window":
        """With so many pixels more on every side."""
        shift = pixels * self.scale
        return Window(
            self.left - shift, self.top - shift, self.width + 2 * pixels, self.height + 2 * pixels, self.scale
        )


@dataclass(frozen=True)
class Pyramid:
    """Tiles of a canvas of this size."""

    width: int
    height: int

    @property
    def zooms(self) -> int:
        """Their number: at zoom 0 the whole canvas is one tile, at the last one a pixel is a canvas unit; none for an empty canvas."""
        if min(self.width, self.height) <= 0:
            return 0
        return 1 + (math.ceil(max(self.width, self.height) / TILE) - 1).bit_length()

    def scale(self, zoom: int) -> int:
        """Canvas units per pixel."""
        return 1 << (self.zooms - 1 - zoom)

    def counts(self, zoom: int) -> tuple[int, int]:
        """Tiles across and down."""
        side = TILE * self.scale(zoom)
        return math.ceil(self.width / side), math.ceil(self.height / side)

    def window(self, zoom: int, x: int, y: int) -> Window | None:
        """What a tile shows; None where there is no such tile."""
        if not 0 <= zoom < self.zooms:
            return None
        scale, (across, down) = self.scale(zoom), self.counts(zoom)
        is_inside = 0 <= x < across and 0 <= y < down
        return Window(x * TILE * scale, y * TILE * scale, TILE, TILE, scale) if is_inside else None


class Cells:
    """Patches of one slide by their place, drawn as on maps. Where two cover a pixel's centre the later one counts."""

    def __init__(self, grid: Grid, origin: tuple[float, float] = (0.0, 0.0)) -> None:
        self._grid = grid._replace(origins=grid.origins - np.asarray(origin))  # on the canvas
        corners = self._grid.corners
        self._order = np.argsort(corners[:, 1], kind="stable")  # from top to bottom
        self._corners = corners[self._order]

    def under(self, window: Window) -> np.ndarray:
        """Patch under the centre of every pixel, (h, w) int32; -1 where there is none."""
        right, bottom = window.left + window.width * window.scale, window.top + window.height * window.scale
        pitch = self._grid.pitch
        first, last = np.searchsorted(self._corners[:, 1], (window.top - pitch, bottom))
        x = self._corners[first:last, 0]
        near = np.sort(self._order[first:last][(x > window.left - pitch) & (x < right)])
        part = self._grid._replace(cells=self._grid.cells[near], layer=self._grid.layer[near])
        shape = np.broadcast_to(np.uint8(0), (window.height, window.width, 3))  # only its shape is used
        index = raster(part, View(shape, (1 / window.scale, 1 / window.scale), (window.left, window.top)))
        return np.append(near, -1).astype(np.int32)[index]


@dataclass(frozen=True)
class Canvas:
    """What is panned and zoomed: the slide's level-0 pixels or, without an image, the area of the patches."""

    width: int
    height: int
    mpp: float | None  # micrometres per unit; None: unknown
    origin: tuple[float, float] = (0.0, 0.0)  # coordinates of the corner, which is (0, 0) on the canvas
    image: bool = True
    unit: str = "px"  # of the canvas: level-0 pixels, or "um" where the features know nothing else


@dataclass(frozen=True, eq=False)
class PatchMap:
    """Patches of one slide under one set of prototypes."""

    slide: str
    canvas: Canvas
    grid: Grid | None = None  # None: no features, or no coordinates
    assignment: np.ndarray | None = None  # (N, C) float32
    weights: np.ndarray | None = None  # (C,), pi
    side: float = 0.0  # of a patch, canvas units
    notes: tuple[str, ...] = ()  # why something is not shown

    @property
    def corners(self) -> np.ndarray:
        """Upper left corners of the cells on the canvas, (N, 2)."""
        assert self.grid is not None
        return self.grid.corners - np.asarray(self.canvas.origin)

    @cached_property
    def labels(self) -> np.ndarray:
        """Prototype of the largest share, (N,); the first of equal ones."""
        assert self.assignment is not None
        return self.assignment.argmax(1)

    @cached_property
    def touching(self) -> Touching | None:
        """Which prototypes lie beside which; None where patches have no place, or no prototype."""
        return None if self.grid is None or self.assignment is None else touching(self.assignment, self.grid)

    @cached_property
    def cells(self) -> Cells:
        """Patches by their place on the canvas."""
        assert self.grid is not None
        return Cells(self.grid, self.canvas.origin)

    @cached_property
    def identity(self) -> object:
        """Identifies this map in the keys of results that were computed from it, without keeping it alive."""
        return object()


def recorded_mpp(entry: SlideEntry) -> float | None:
    """Resolution that a slide's features were computed at, if they record it; run in a worker process."""
    return None if entry.features is None else entry.features.open().spec.mpp_level0


@contextmanager
def _noted(notes: list[str]) -> Iterator[None]:
    """Write errors into the notes."""
    try:
        yield
    except (InputError, OSError) as error:
        notes.append(str(error))


def read_patches(entry: SlideEntry, prototypes: Prototypes | None, settings: MapSettings) -> PatchMap:
    """Read a slide's features and assign its patches; run in a worker process. The notes list what cannot be shown."""
    notes: list[str] = []
    bag = slide = grid = assignment = weights = None
    if entry.features is None:
        notes.append(f"{entry.name}: no features of this slide, so only its image can be shown.")
    else:
        with _noted(notes):
            bag = entry.features.open()
    with ExitStack() as stack:
        if entry.image is not None:  # without one patches lie on a blank canvas
            recorded = None if bag is None else bag.spec.mpp_level0
            with _noted(notes):
                slide = stack.enter_context(open_slide(entry.image, settings.resolution(entry.image, recorded)))
        if bag is not None:
            with _noted(notes):
                grid = locate(bag, slide)
        canvas = _canvas(slide, bag, grid)
        side = 0.0 if bag is None or grid is None else _side(bag, grid, slide)
    if bag is not None and prototypes is not None:
        with _noted(notes):
            assigned = assign(prototypes.prepared(bag), build(settings.method, prototypes, settings.options))
            assignment, weights = assigned.assignment.float().numpy(), assigned.weights.float().numpy()
    return PatchMap(entry.name, canvas, grid, assignment, weights, side, tuple(notes))


def _canvas(slide: Slide | None, bag: Bag | None, grid: Grid | None) -> Canvas:
    if slide is not None:
        return Canvas(*slide.dimensions, slide.mpp)
    if bag is None or grid is None:
        return Canvas(0, 0, None, image=False)
    # as on a blank map: a margin of one patch
    low, high = grid.corners.min(0) - grid.pitch, grid.corners.max(0) + 2 * grid.pitch
    width, height = (math.ceil(length - 1e-9) for length in (high - low).tolist())
    return Canvas(width, height, level0_mpp(bag.spec), (float(low[0]), float(low[1])), False, bag.spec.coords_unit)


def _side(bag: Bag, grid: Grid, slide: Slide | None) -> float:
    """Side of a patch; where patches overlap it is larger than its cell."""
    spec = bag.spec
    if spec.coords_unit != "um":
        return float(spec.size_level0 or grid.pitch)
    side = spec.mpp * spec.size if spec.mpp and spec.size else grid.pitch * (1.0 if slide is None else slide.mpp)
    return side if slide is None else side / slide.mpp
