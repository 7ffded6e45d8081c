"""Patches of a slide as the pages need them: where they lie, which prototypes they belong to, on which canvas."""

import math
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np

from panther.aggregators import build
from panther.errors import InputError
from panther.explain.geometry import Grid, level0_mpp
from panther.explain.scene import MapSettings, assign, locate
from panther.explain.touching import Touching, touching
from panther.slides import Slide, open_slide
from panther.types import Bag, Prototypes
from panther.viewer.contents import SlideEntry
from panther.viewer.tiles.pyramid import Cells

T = TypeVar("T")


@dataclass(frozen=True)
class Canvas:
    """What is panned and zoomed: the slide's level-0 pixels or, without an image, the area of the patches."""

    width: int
    height: int
    mpp: float | None  # micrometres per unit; None: not known
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
        """Stands for this very map in the key of what was made of it, without keeping it."""
        return object()


def recorded_mpp(entry: SlideEntry) -> float | None:
    """Resolution that a slide's features were computed at, if they record it; run in a worker process."""
    return None if entry.features is None else entry.features.open().spec.mpp_level0


def read_patches(entry: SlideEntry, prototypes: Prototypes | None, settings: MapSettings) -> PatchMap:
    """Read a slide's features and assign its patches; run in a worker process. The notes list what cannot be shown."""
    notes: list[str] = []

    def attempt(make: Callable[[], T]) -> T | None:
        try:
            return make()
        except (InputError, OSError) as error:
            notes.append(str(error))
            return None

    bag = slide = placed = assigned = None
    if entry.features is None:
        notes.append(f"{entry.name}: no features of this slide, so only its image can be shown.")
    else:
        bag = attempt(entry.features.open)
    with ExitStack() as stack:
        if (image := entry.image) is not None:  # without one patches lie on a blank canvas
            recorded = None if bag is None else bag.spec.mpp_level0
            slide = attempt(lambda: stack.enter_context(open_slide(image, settings.resolution(image, recorded))))
        if bag is not None:
            placed = attempt(lambda: locate(bag, slide))
        canvas = _canvas(slide, bag, placed)
        side = 0.0 if bag is None or placed is None else _side(bag, placed, slide)
    if bag is not None and prototypes is not None:
        assigned = attempt(
            lambda: assign(prototypes.prepared(bag), build(settings.method, prototypes, settings.options))
        )
    return PatchMap(
        entry.name,
        canvas,
        placed,
        None if assigned is None else assigned.assignment.float().numpy(),
        None if assigned is None else assigned.weights.float().numpy(),
        side,
        tuple(notes),
    )


def _canvas(slide: Slide | None, bag: Bag | None, placed: Grid | None) -> Canvas:
    if slide is not None:
        return Canvas(*slide.dimensions, slide.mpp)
    if bag is None or placed is None:
        return Canvas(0, 0, None, image=False)
    # as on a blank map: a margin of one patch
    low, high = placed.corners.min(0) - placed.pitch, placed.corners.max(0) + 2 * placed.pitch
    width, height = (math.ceil(length - 1e-9) for length in (high - low).tolist())
    return Canvas(width, height, level0_mpp(bag.spec), (float(low[0]), float(low[1])), False, bag.spec.coords_unit)


def _side(bag: Bag, placed: Grid, slide: Slide | None) -> float:
    """Side of a patch; where patches overlap it is larger than its cell."""
    spec = bag.spec
    if spec.coords_unit != "um":
        return float(spec.size_level0 or placed.pitch)
    side = spec.mpp * spec.size if spec.mpp and spec.size else placed.pitch * (1.0 if slide is None else slide.mpp)
    return side if slide is None else side / slide.mpp
