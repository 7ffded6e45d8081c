"""Maps of a slide from stored artefacts: features, prototypes and, where it is at hand, the slide's image."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from panther.aggregators import build
from panther.errors import InputError
from panther.explain import draw
from panther.explain.assign import assign
from panther.explain.geometry import Grid, View, blank_view, grid
from panther.explain.paint import Paint
from panther.explain.pyramid import write_pyramid
from panther.explain.regions import regions, write_regions
from panther.explain.slide_map import SlideMap, overlay_pixels
from panther.slides import Slide, open_slide
from panther.slides.geojson import read_contours
from panther.slides.polygons import Polygon
from panther.slides.slide import slide_name
from panther.storage.atomic import atomic_write
from panther.types import Bag, Prototypes

PICTURES = ("png", "svg")
FORMATS = (*PICTURES, "tiff", "geojson")


@dataclass(frozen=True)
class MapSettings:
    """How maps are made; what all slides of a request share."""

    method: str = "panther"
    options: Mapping[str, Any] = field(default_factory=dict)  # of the method
    names: Mapping[int, str] = field(default_factory=dict)
    max_side: int = 2048  # pixels of the picture
    slide_mpp: float | None = None  # true resolution of the images where their tags are wrong
    mpp_table: Mapping[str, float] = field(default_factory=dict)  # the same by file or slide name; goes first
    paint: Paint = field(default_factory=Paint)  # what is behind the colours

    def resolution(self, image: Path, recorded: float | None = None) -> float | None:
        """Resolution of an image where its tags do not count: what the user gives, else what its features were made with."""
        keys = [key for key in (str(image), image.name, slide_name(image)) if key in self.mpp_table]
        return self.mpp_table[keys[0]] if keys else self.slide_mpp or recorded


def make_map(
    bag: Bag,
    prototypes: Prototypes,
    settings: MapSettings | None = None,
    image: Path | None = None,
    contours: Path | None = None,
) -> SlideMap:
    """Map of one slide: over its image, or without one on the grid of its coordinates."""
    settings = settings or MapSettings()
    module = build(settings.method, prototypes, settings.options)
    prototypes.check(bag)
    check_coordinates(bag)
    assigned = assign(bag, prototypes, module)
    found = place(bag, settings, image, contours)
    shares = assigned.assignment.float().numpy()
    pi = assigned.weights.numpy()
    return SlideMap(
        bag.slide_id, found.grid, shares, pi, found.view, settings.names, found.outline, paint=settings.paint
    )


class Scene(NamedTuple):
    """Where a bag's patches lie, and the picture they lie on."""

    grid: Grid
    view: View
    outline: tuple[Polygon, ...]


def place(bag: Bag, settings: MapSettings, image: Path | None = None, contours: Path | None = None) -> Scene:
    """Place of a bag's patches on their slide, or without an image on the grid of their coordinates."""
    check_coordinates(bag)
    if image is None:
        placed = _grid(bag, None)
        return Scene(placed, blank_view(placed, settings.max_side, bag.spec), _outline(bag, contours, False))
    with open_slide(image, settings.resolution(image, bag.spec.mpp_level0)) as slide:
        placed = _grid(bag, slide.mpp)
        _check_inside(bag, placed, slide)
        view = _slide_view(slide, settings.max_side)
    return Scene(placed, view, _outline(bag, contours, True))


def check_coordinates(bag: Bag) -> None:
    """Refuse patches without a place."""
    if len(bag) and bag.places is None:
        raise InputError(
            f"{bag.source}: the file has no coordinates, so its patches have no place on a slide; "
            "give a feature file with `coords` (h5 of TRIDENT, CLAM, STAMP or `panther slides`)."
        )


def write_map(
    found: SlideMap, folder: Path, prototypes: list[int] | None = None, formats: tuple[str, ...] = ("png", "geojson")
) -> list[Path]:
    """Write a slide's pictures and regions; ``prototypes`` are those with heatmaps (None: the one of the largest pi, beside the map).

    `SLIDE.map`, `SLIDE.side_by_side` and `SLIDE.heatmap.C3` (or `SLIDE.heatmaps`, where several are asked for) as pictures,
    `SLIDE.overlay.png` (transparent, pixel for pixel the thumbnail), `SLIDE.overlay.tif` (a pyramid) and `SLIDE.geojson`.
    """
    single = prototypes is not None and len(prototypes) == 1
    main = prototypes[0] if prototypes and single else int(found.weights.argmax())
    figures: dict[str, Callable[[], Any]] = {
        "map": lambda: draw.draw_map(found),
        "side_by_side": lambda: draw.draw_side_by_side(found, main),
    }
    if single:
        figures[f"heatmap.C{main}"] = lambda: draw.draw_heatmap(found, main)
    elif prototypes:
        figures["heatmaps"] = lambda: draw.draw_heatmaps(found, prototypes)
    written = write_pictures(found, folder, figures, formats)
    if (
        "geojson" in formats and found.view.unit == "px"
    ):  # QuPath counts pixels; micrometres need the image to become such
        written.append(folder / f"{found.slide}.geojson")
        write_regions(written[-1], regions(found.grid, found.labels), dict(found.names), found.view.mpp)
    return written


def write_pictures(
    found: SlideMap, folder: Path, figures: Mapping[str, Callable[[], Any]], formats: tuple[str, ...]
) -> list[Path]:
    """Write figures by name (`SLIDE.NAME.png`, made only where a picture is asked for) and the overlays."""
    written: list[Path] = []
    kinds = [kind for kind in PICTURES if kind in formats]
    for name, make in figures.items() if kinds else ():
        figure = make()
        for kind in kinds:
            written.append(folder / f"{found.slide}.{name}.{kind}")
            draw.save(figure, written[-1])
    if "png" in formats:
        written.append(folder / f"{found.slide}.overlay.png")
        _write_overlay(written[-1], found)
    if "tiff" in formats:
        written.append(folder / f"{found.slide}.overlay.tif")
        write_pyramid(written[-1], found)
    return written


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
            f"{bag.source}: its coordinates are micrometres and the contours pixels; give the image with `slide=` to join them."
        )
    tissue = read_contours(contours).tissue
    return (*tissue.regions, *tissue.ignored)


def _write_overlay(path: Path, found: SlideMap) -> None:
    from PIL import Image

    with atomic_write(path) as temporary:
        Image.fromarray(overlay_pixels(found)).save(temporary, format="png")
