"""Maps of slides: pictures, regions, pyramidal TIFF and tables of the prototype of each patch, or of a network's attention."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from panther.aggregators import build
from panther.charts.style import save
from panther.errors import InputError
from panther.explain.geometry import View, feature, raster, regions
from panther.explain.scene import MapSettings, SlideJob, assign, place
from panther.explain.slide_map import SlideMap, overlay, overlay_pixels
from panther.explain.touching import COLUMNS, neighbour_rows
from panther.storage.geojson import write_geojson
from panther.storage.tables import write_spreadsheet
from panther.store import atomic_write
from panther.types import Bag, Prototypes

CELL = 16  # pixels per patch at the finest level: edges within a sixteenth of a patch
LARGEST = 8192  # pixels of the longer side: the finest level stays below a gigabyte of memory
TILE = 256
USUAL = ("png", "geojson", "csv")  # of prototypes
WRITTEN = ("*.geojson", "*.*.png", "*.*.svg", "*.*.tif", "*.neighbours.csv")  # patterns


def levels(slide_map: SlideMap) -> Iterator[tuple[np.ndarray, float]]:
    """Pictures (h, w, 4) from fine to coarse, each half of the one before, with the width of their pixels in level-0 pixels.

    Every level is painted from the coordinates, so that none is a blurred or shifted copy of another.
    """
    extent = np.array(slide_map.view.size) / slide_map.view.scale  # of the picture, in level-0 pixels
    factor = max(slide_map.grid.pitch / CELL, float(extent.max()) / LARGEST, 1.0)
    while True:
        width, height = (max(1, math.ceil(side / factor - 1e-9)) for side in extent.tolist())
        shape = np.broadcast_to(np.uint8(0), (height, width, 3))  # only its shape is used
        index = raster(slide_map.grid, View(shape, (1 / factor, 1 / factor), slide_map.view.origin))
        yield overlay(slide_map.patch_colours, index), factor
        if max(width, height) <= TILE:
            return
        factor *= 2


def write_pyramid(path: Path, slide_map: SlideMap) -> None:
    """Write a tiled, compressed RGBA TIFF with reduced levels and its resolution in the tags."""
    try:
        import tifffile
    except ImportError as error:
        raise InputError("formats: tiff requires tifffile (pip install 'panther-wsi[slides]')") from error

    with atomic_write(path) as temporary, tifffile.TiffWriter(temporary, bigtiff=True) as file:
        for number, (pixels, factor) in enumerate(levels(slide_map)):
            look: dict[str, Any] = {"photometric": "rgb", "extrasamples": ("unassalpha",), "tile": (TILE, TILE)}
            if slide_map.view.mpp is not None:
                per_cm = 1e4 / (slide_map.view.mpp * factor)
                look |= {"resolution": (per_cm, per_cm), "resolutionunit": "CENTIMETER"}
            level = int(number > 0)
            file.write(pixels, compression="zlib", subfiletype=level, metadata=None, software=False, **look)


@dataclass(frozen=True)
class MappedSlide:
    """Map of one slide, or the files that it was written to."""

    slide: str
    patches: int
    summary: str  # its largest prototypes, or the prediction
    numbers: Mapping[str, Any]  # plain values: the prototypes' weights, or the network's prediction
    files: tuple[Path, ...] = ()
    notes: tuple[str, ...] = ()
    map: SlideMap | None = field(default=None, repr=False)  # None where it was written to files


@dataclass(frozen=True)
class SlideMaps(Mapping[str, SlideMap]):
    """Maps by slide; where they were written to files, only the summaries in ``slides`` are kept."""

    slides: tuple[MappedSlide, ...]
    failures: Mapping[str, str] = field(default_factory=dict)  # slide -> sentence

    def __getitem__(self, slide: str) -> SlideMap:
        slide_map = {mapped.slide: mapped.map for mapped in self.slides}[slide]
        if slide_map is None:
            raise KeyError(f"{slide}: its map was written to files; leave `output=` out to keep maps.")
        return slide_map

    def __iter__(self) -> Iterator[str]:
        return (mapped.slide for mapped in self.slides)

    def __len__(self) -> int:
        return len(self.slides)

    @property
    def notes(self) -> list[str]:
        """Sentences about what is missing from the maps."""
        return [note for mapped in self.slides for note in mapped.notes]

    def to_lines(self) -> list[str]:
        """Each slide's largest prototypes, and their neighbours."""
        files = sum(len(mapped.files) for mapped in self.slides)
        lines = [f"{len(self)} slide{'s' if len(self) > 1 else ''} mapped ({files} files)"]
        for mapped in self.slides[:20]:
            lines.append(f"  {mapped.slide}: {mapped.patches:,} patches, {mapped.summary}")
            lines += [f"    {sentence}" for sentence in mapped.numbers.get("neighbours", ())]
        return lines + ([f"  ... and {len(self) - 20} more"] if len(self) > 20 else [])

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        rows = [
            {"slide": mapped.slide, "patches": mapped.patches, **mapped.numbers, "files": list(map(str, mapped.files))}
            for mapped in self.slides
        ]
        return {"slides": rows}


def map_job(
    job: SlideJob,
    *,
    make: Callable[..., SlideMap],
    chosen: Sequence[int] | None,
    formats: Sequence[str],
    folder: Path | None,
) -> MappedSlide:
    """Map one slide by ``make`` (bag, image=, contours=), and write it where there is a folder."""
    bag = job.ref.open()
    slide_map = make(bag, image=job.image, contours=job.contours)
    notes = (*job.notes, *slide_map.notes(formats))
    mapped = MappedSlide(slide_map.slide, len(bag), slide_map.summary, slide_map.numbers(), notes=notes)
    if folder is None:
        return replace(mapped, map=slide_map)
    return replace(mapped, files=tuple(write_map(slide_map, folder, chosen, formats)))


def map_slide(
    bag: Bag,
    prototypes: Prototypes,
    settings: MapSettings | None = None,
    image: Path | None = None,
    contours: Path | None = None,
) -> SlideMap:
    """Map of one slide's prototypes: over its image, or without one on the grid of its coordinates."""
    settings = settings or MapSettings()
    module = build(settings.method, prototypes, settings.options)
    bag = prototypes.prepared(bag)
    cells, view, outline = place(bag, settings, image, contours)
    rows, weights = assign(bag, module, settings.device)
    shares, pi = rows.float().numpy(), weights.numpy()
    return SlideMap(bag.slide_id, cells, shares, pi, view, settings.namings, outline, paint=settings.paint)


def write_map(
    slide_map: SlideMap, folder: Path, prototypes: Sequence[int] | None = None, formats: Sequence[str] = USUAL
) -> list[Path]:
    """Write a slide's pictures and regions; ``prototypes`` are those with heatmaps (None: that of the largest pi, beside the map).

    `SLIDE.NAME.png` of every figure (of prototypes: map, side_by_side, neighbours, heatmap.C3 or heatmaps), `SLIDE.overlay.png`
    (transparent, pixel for pixel the thumbnail), `SLIDE.overlay.tif` (a pyramid), `SLIDE.geojson` and `SLIDE.neighbours.csv`.
    """
    written: list[Path] = []

    def path(ending: str) -> Path:
        written.append(folder / f"{slide_map.slide}.{ending}")
        return written[-1]

    pictures = [kind for kind in ("png", "svg") if kind in formats]
    for name, make in slide_map.drawings(prototypes).items() if pictures else ():
        figure = make()  # one after the other, so that no two are in memory
        for kind in pictures:
            save(figure, path(f"{name}.{kind}"))
    if "png" in formats:
        from PIL import Image

        with atomic_write(path("overlay.png")) as temporary:
            Image.fromarray(overlay_pixels(slide_map)).save(temporary, format="png")
    if "tiff" in formats:
        write_pyramid(path("overlay.tif"), slide_map)
    if "geojson" in formats and slide_map.view.unit == "px":  # the unit of QuPath
        about = slide_map.names, slide_map.view.mpp, slide_map.prototype_colours
        areas = regions(slide_map.grid, slide_map.labels)
        write_geojson(path("geojson"), [feature(region, *about) for region in areas])
    if "csv" in formats:
        write_spreadsheet(path("neighbours.csv"), COLUMNS, neighbour_rows(slide_map.touching))
    return written
