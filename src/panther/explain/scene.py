"""Where a bag's patches lie, and the picture they lie on."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from panther.errors import InputError
from panther.explain.assign import check_patches
from panther.explain.geometry import Grid, View, blank_view, grid
from panther.explain.names import Names, Naming, as_names, as_namings
from panther.explain.palette import Paint
from panther.slides import Slide, open_slide
from panther.slides.contours import read_contours
from panther.slides.polygons import Polygon
from panther.slides.slide import slide_name
from panther.storage.names import composed
from panther.types import Bag


@dataclass(frozen=True)
class MapSettings:
    """How patches are assigned to prototypes and how maps are drawn; the same for all slides.

    Parameters
    ----------
    method : str
        Aggregator that assigns patches: panther, ot, h2t or protocounts (the nearest prototype).
    options : mapping
        Its settings, as of `panther.build`.
    names : mapping
        Names of the prototypes by their number.
    max_side : int
        Longest side of a picture, pixels.
    slide_mpp : float, optional
        True resolution of the images, um/px, where their tags are wrong.
    slide_mpp_table : mapping
        The same by file or slide name; goes before ``slide_mpp``.
    paint : Paint
        What is behind the colours.
    namings : mapping
        Notes, colours and groups of the prototypes (`Naming`) by their number; such colours go before the palette's.
    device : str
        Where patches are assigned; whoever takes ``work`` takes its device.
    """

    method: str = "panther"
    options: Mapping[str, Any] = field(default_factory=dict)
    names: Mapping[int, str] = field(default_factory=dict)
    max_side: int = 2048
    slide_mpp: float | None = None
    slide_mpp_table: Mapping[str, float] = field(default_factory=dict)
    paint: Paint = field(default_factory=Paint)
    namings: Mapping[int, Naming] = field(default_factory=dict)
    device: str = "cpu"

    def named(self, names: Names, count: int) -> "MapSettings":
        """Settings with what a file or dictionary says of the ``count`` prototypes; unchanged where there is none."""
        found = as_namings(names, count)
        return replace(self, names=as_names(found, count), namings=found) if found else self

    def resolution(self, image: Path, recorded: float | None = None) -> float | None:
        """Resolution of an image where its tags do not count: what the user gives, else what its features were made with."""
        keys = [
            key for key in map(composed, (str(image), image.name, slide_name(image))) if key in self.slide_mpp_table
        ]
        return self.slide_mpp_table[keys[0]] if keys else self.slide_mpp or recorded


class Scene(NamedTuple):
    """A bag's patches on their slide."""

    grid: Grid
    view: View
    outline: tuple[Polygon, ...]


def place(bag: Bag, settings: MapSettings, image: Path | None = None, contours: Path | None = None) -> Scene:
    """Place of a bag's patches on their slide, or without an image on the grid of their coordinates."""
    if image is None:
        placed = locate(bag)
        return Scene(placed, blank_view(placed, settings.max_side, bag.spec), _outline(bag, contours, False))
    with open_slide(image, settings.resolution(image, bag.spec.mpp_level0)) as slide:
        placed = locate(bag, slide)
        view = _slide_view(slide, settings.max_side)
    return Scene(placed, view, _outline(bag, contours, True))


def locate(bag: Bag, slide: Slide | None = None) -> Grid:
    """Cells of a bag's patches; on a slide they must lie inside of it."""
    check_patches(bag)
    if bag.places is None:
        raise InputError(
            f"{bag.source}: the file has no coordinates, so its patches have no place on a slide; "
            "give a feature file with `coords` (h5 of TRIDENT, CLAM, STAMP or `panther slides`)."
        )
    placed = _grid(bag, None if slide is None else slide.mpp)
    if slide is not None:
        _check_inside(bag, placed, slide)
    return placed


def _grid(bag: Bag, mpp: float | None) -> Grid:
    assert bag.places is not None
    try:
        return grid(bag.places(), bag.spec, mpp)
    except InputError as error:
        raise InputError(f"{bag.source}: {error}") from error


def _slide_view(slide: Slide, max_side: int) -> View:
    picture = slide.thumbnail(max_side)
    scale = picture.shape[1] / slide.dimensions[0], picture.shape[0] / slide.dimensions[1]
    return View(picture, scale, (0.0, 0.0), slide.mpp)


def _check_inside(bag: Bag, placed: Grid, slide: Slide) -> None:
    """Patches of this slide begin on it; others were cut from another slide or another level."""
    # a padded patch may end beyond the slide, however far
    outside = (placed.corners + placed.pitch / 2 < 0).any(1) | (placed.corners >= np.array(slide.dimensions)).any(1)
    if outside.any():
        width, height = slide.dimensions
        raise InputError(
            f"{bag.source}: {int(outside.sum())} of {len(bag)} patches lie outside {slide.path.name} ({width} x {height} pixels); "
            "give the slide that the features were made from, with coordinates at level 0."
        )


def _outline(bag: Bag, contours: Path | None, with_image: bool) -> tuple[Polygon, ...]:
    if contours is None:
        return ()
    if not contours.is_file():
        raise InputError(f"{contours}: there is no such file of contours.")
    if bag.spec.coords_unit == "um" and not with_image:
        raise InputError(
            f"{bag.source}: its coordinates are micrometres and the contours pixels; give the image with `slides=` to join them."
        )
    tissue = read_contours(contours).tissue
    return (*tissue.regions, *tissue.ignored)
