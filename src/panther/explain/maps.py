"""Maps of slides: the prototype of each patch, or a network's attention; as values, pictures, regions and pyramidal TIFF."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from panther.aggregators import build
from panther.charts.style import save
from panther.engine import HERE, Work, collect
from panther.errors import InputError
from panther.explain.assign import assign
from panther.explain.attention import SCALES, map_attention
from panther.explain.geometry import View, raster
from panther.explain.jobs import Images, SlideJob, is_slide, none_of, of_slide, slide_jobs
from panther.explain.names import Names, prototype_number
from panther.explain.regions import regions, write_regions
from panther.explain.scene import MapSettings, place
from panther.explain.slide_map import SlideMap, overlay_pixels
from panther.explain.touching import COLUMNS, neighbour_rows
from panther.models.model import Model, as_model
from panther.storage.bags import BagsLike, as_bags
from panther.storage.prototypes import as_prototypes
from panther.storage.tables import write_spreadsheet
from panther.store import atomic_write, check_output_folder
from panther.types import Bag, Prototypes

CELL = 16  # pixels per patch at the finest level: edges within a sixteenth of a patch
LARGEST = 8192  # pixels of the longer side: the finest level stays below a gigabyte of memory
TILE = 256
PICTURES = ("png", "svg")
FORMATS = (*PICTURES, "tiff", "geojson", "csv")
USUAL = ("png", "geojson", "csv")  # of prototypes
WRITTEN = ("*.geojson", "*.*.png", "*.*.svg", "*.*.tif", "*.neighbours.csv")  # patterns

Make = Callable[..., SlideMap]  # (bag, image=, contours=) -> its map; sent to workers, so it pickles


def levels(slide_map: SlideMap) -> Iterator[tuple[np.ndarray, float]]:
    """Pictures (h, w, 4) from fine to coarse, each half of the one before, and how many level-0 pixels theirs are wide.

    Every level is painted anew from the coordinates, so that none is a blurred or shifted copy of another.
    """
    extent = np.array(slide_map.view.size) / slide_map.view.scale  # of the picture, in level-0 pixels
    factor = max(slide_map.grid.pitch / CELL, float(extent.max()) / LARGEST, 1.0)
    colours = np.concatenate([slide_map.patch_colours, np.zeros((1, 3), np.uint8)])
    while True:
        width, height = (max(1, math.ceil(side / factor - 1e-9)) for side in extent.tolist())
        shape = np.broadcast_to(np.uint8(0), (height, width, 3))  # only its shape is used
        index = raster(slide_map.grid, View(shape, (1 / factor, 1 / factor), slide_map.view.origin))
        yield np.concatenate([colours[index], (index >= 0)[..., None].astype(np.uint8) * 255], -1), factor
        if max(width, height) <= TILE:
            return
        factor *= 2


def write_pyramid(path: Path, slide_map: SlideMap) -> None:
    """Write a tiled, compressed RGBA TIFF with reduced levels and its resolution in the tags."""
    try:
        import tifffile
    except ImportError as error:
        raise InputError(
            "A TIFF needs tifffile; pip install 'panther-wsi[slides]', or leave tiff out of `formats=`."
        ) from error

    with atomic_write(path) as temporary, tifffile.TiffWriter(temporary, bigtiff=True) as file:
        for number, (pixels, factor) in enumerate(levels(slide_map)):
            per_cm = None if slide_map.view.mpp is None else 1e4 / (slide_map.view.mpp * factor)
            file.write(
                pixels,
                tile=(TILE, TILE),
                photometric="rgb",
                extrasamples=("unassalpha",),
                compression="zlib",
                subfiletype=int(number > 0),
                resolution=None if per_cm is None else (per_cm, per_cm),
                resolutionunit=None if per_cm is None else "CENTIMETER",
                metadata=None,
                software=False,
            )


@dataclass(frozen=True)
class MappedSlide:
    """What became of one slide."""

    slide: str
    patches: int
    summary: str  # its largest prototypes, or the prediction
    numbers: Mapping[str, Any]  # plain values: the prototypes' weights, or what the network predicted
    files: tuple[Path, ...] = ()
    notes: tuple[str, ...] = ()
    map: SlideMap | None = field(default=None, repr=False)  # None where it was written to files

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        files = [str(file) for file in self.files]
        return {"slide": self.slide, "patches": self.patches, **self.numbers, "files": files}


@dataclass(frozen=True)
class SlideMaps(Mapping[str, SlideMap]):
    """Maps by slide; where they were written to files, only the summaries in ``slides`` are kept."""

    slides: tuple[MappedSlide, ...]
    failures: Mapping[str, str] = field(default_factory=dict)  # slide -> sentence

    def __getitem__(self, slide: str) -> SlideMap:
        found = {one.slide: one.map for one in self.slides}[slide]
        if found is None:
            raise KeyError(f"{slide}: its map was written to files; leave `output=` out to keep maps.")
        return found

    def __iter__(self) -> Iterator[str]:
        return (one.slide for one in self.slides)

    def __len__(self) -> int:
        return len(self.slides)

    @property
    def notes(self) -> list[str]:
        """What the maps lack, in sentences."""
        return [note for one in self.slides for note in one.notes]


def make_map(
    features: BagsLike | Bag,
    prototypes: Prototypes | Path | str | None = None,
    model: Model | Path | str | None = None,
    slides: Images = None,
    names: Names = None,
    output: Path | str | None = None,
    *,
    contours: Path | str | None = None,
    prototype: int | str | None = None,
    attention: str | None = None,
    formats: Sequence[str] | None = None,
    settings: MapSettings | None = None,
    work: Work = HERE,
) -> SlideMaps:
    """Map prototypes, or a network's attention, onto slides.

    Parameters
    ----------
    features : folder, file, list of bags, or bag
        Features with coordinates, in any form that `as_bags` takes.
    prototypes : Prototypes or path, optional
        What is mapped; or give ``model``.
    model : Model or path, optional
        A trained model: its prototypes are mapped or, where it is a network, its attention.
    slides : path or mapping, optional
        The slide's image, a folder of images, or images by the slides' names; without it maps lie on a blank grid.
    names : path or mapping, optional
        Names of the prototypes, with colours and groups where it has them: a YAML or CSV file, or a dictionary by number.
    output : folder, optional
        Where pictures and regions are written. Without it nothing is written and the maps are returned.
    contours : path, optional
        GeoJSON of the tissue's outline, or a folder of them.
    prototype : int or str, optional
        Prototype (3 or "C3") that gets a heatmap of its own, or "all"; the largest one stands beside the map by default.
    attention : {"rank", "linear"}, optional
        Networks: colours by the rank of the attention within the slide (default), or in proportion to it.
    formats : sequence of str, optional
        Any of png, svg, tiff, geojson, csv; by default png and, for prototypes, geojson and csv.
    settings : MapSettings, optional
        Method, resolutions and look of the maps.
    work : Work
        How the work is run.

    Returns
    -------
    SlideMaps
        Mapping of slide names to `SlideMap` (of a network: `AttentionMap`), with ``notes`` and ``failures``.

    Examples
    --------
    >>> import torch, panther
    >>> corners = torch.tensor([[x, y] for x in range(0, 1024, 256) for y in range(0, 1024, 256)])
    >>> bag = panther.Bag("a", torch.randn(16, 8), lambda: corners, panther.PatchSpec(size_level0=256))
    >>> maps = panther.make_map(bag, panther.Prototypes(torch.randn(3, 8)))
    >>> maps["a"].labels.shape, list(maps["a"].figures())
    ((16,), ['map', 'side_by_side', 'neighbours'])
    """
    shown, settings = _shown(prototypes, model, replace(settings or MapSettings(), device=work.device))
    if isinstance(shown, Model):
        _refuse({"prototype": prototype, "names": names}, "show prototypes, but the model is a network")
        kinds, chosen = _checked_formats(formats or ("png",), network=True), None
        make: Make = partial(map_attention, model=shown, settings=settings, scale=_checked_scale(attention))
    else:
        _refuse({"attention": attention}, "belongs to networks, but prototypes are mapped")
        kinds, chosen = _checked_formats(formats or USUAL), _chosen(prototype, len(shown))
        settings = settings.named(names, len(shown))
        build(settings.method, shown, settings.options)  # refuses a setting that is not there before the work
        make = partial(map_slide, prototypes=shown, settings=settings)
    listing = as_bags([features] if isinstance(features, Bag) else features)
    one_image = isinstance(slides, (str, Path)) and is_slide(Path(slides))
    refs = of_slide(listing.refs, Path(str(slides))) if one_image else listing.refs
    jobs = slide_jobs(refs, slides, None if contours is None else Path(contours))
    folder = None if output is None else Path(output)
    if folder is not None:
        check_output_folder(folder, WRITTEN, [file for job in jobs for file in job.files], prototypes, model, names)
    one = partial(_map_one, make=make, chosen=chosen, formats=kinds, folder=folder)
    mapped, failed = collect(one, jobs, "mapping", work)
    failures = failed if one_image else {**listing.problems, **failed}
    if not mapped:
        raise InputError(none_of(failures, "could be mapped"))
    return SlideMaps(tuple(mapped.values()), failures)


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
    scene = place(bag, settings, image, contours)
    assigned = assign(bag, module, settings.device)
    shares, pi = assigned.assignment.float().numpy(), assigned.weights.numpy()
    return SlideMap(
        bag.slide_id,
        scene.grid,
        shares,
        pi,
        scene.view,
        settings.names,
        scene.outline,
        paint=settings.paint,
        namings=settings.namings,
    )


def write_map(
    slide_map: SlideMap, folder: Path, prototypes: Sequence[int] | None = None, formats: Sequence[str] = USUAL
) -> list[Path]:
    """Write a slide's pictures and regions; ``prototypes`` are those with heatmaps (None: the one of the largest pi, beside the map).

    `SLIDE.NAME.png` of every figure (of prototypes: map, side_by_side, neighbours, and heatmap.C3 or heatmaps where they are asked for),
    `SLIDE.overlay.png` (transparent, pixel for pixel the thumbnail), `SLIDE.overlay.tif` (a pyramid), `SLIDE.geojson` and
    `SLIDE.neighbours.csv`, which prototypes lie beside which.
    """
    written: list[Path] = []
    kinds = [kind for kind in PICTURES if kind in formats]
    for name, make in slide_map.drawings(prototypes).items() if kinds else ():
        figure = make()  # one after the other, so that no two are in memory
        for kind in kinds:
            written.append(folder / f"{slide_map.slide}.{name}.{kind}")
            save(figure, written[-1])
    if "png" in formats:
        written.append(folder / f"{slide_map.slide}.overlay.png")
        _write_overlay(written[-1], slide_map)
    if "tiff" in formats:
        written.append(folder / f"{slide_map.slide}.overlay.tif")
        write_pyramid(written[-1], slide_map)
    if (
        "geojson" in formats and slide_map.view.unit == "px"
    ):  # QuPath counts pixels; micrometres need the image for that
        written.append(folder / f"{slide_map.slide}.geojson")
        write_regions(
            written[-1],
            regions(slide_map.grid, slide_map.labels),
            dict(slide_map.names),
            slide_map.view.mpp,
            slide_map.prototype_colours,
        )
    if "csv" in formats:
        written.append(folder / f"{slide_map.slide}.neighbours.csv")
        write_spreadsheet(written[-1], COLUMNS, neighbour_rows(slide_map.touching))
    return written


def _map_one(
    job: SlideJob,
    *,
    make: Make,
    chosen: Sequence[int] | None,
    formats: Sequence[str],
    folder: Path | None,
) -> MappedSlide:
    """Map one slide, and write it where there is a folder."""
    bag = job.ref.open()
    found = make(bag, image=job.image, contours=job.contours)
    files = () if folder is None else tuple(write_map(found, folder, chosen, formats))
    notes = (*job.notes, *found.notes(formats))
    kept = found if folder is None else None
    return MappedSlide(found.slide, len(bag), found.summary, found.numbers(), files, notes, kept)


def _write_overlay(path: Path, slide_map: SlideMap) -> None:
    from PIL import Image

    with atomic_write(path) as temporary:
        Image.fromarray(overlay_pixels(slide_map)).save(temporary, format="png")


def _shown(
    prototypes: Prototypes | Path | str | None, model: Model | Path | str | None, settings: MapSettings
) -> tuple[Prototypes | Model, MapSettings]:
    """What is mapped, prototypes or a network, and the settings with the method of a model's prototypes."""
    if prototypes is not None and model is None:
        return as_prototypes(prototypes), settings
    if model is None or prototypes is not None:
        found = "neither was given" if model is None else "both were given"
        raise InputError(
            f"A map shows prototypes (`prototypes=`) or a trained model (`model=`), but {found}; give one."
        )
    if settings.options or settings.method != MapSettings().method:
        raise InputError("`method=` and its settings belong to prototypes, the model has its own; leave it out.")
    trained = as_model(model)
    if trained.scaler is not None and trained.prototypes is None:
        raise InputError(
            f"The model stands on {trained.method.title!r}, which assigns patches to no prototypes; map one of panther, ot, h2t, protocounts or a "
            "network."
        )
    if trained.scaler is None or trained.prototypes is None:
        return trained, settings
    return trained.prototypes, replace(settings, method=trained.method.name, options=dict(trained.method.options))


def _chosen(prototype: int | str | None, count: int) -> list[int] | None:
    """Prototypes that get heatmaps of their own."""
    if prototype is None:
        return None
    if prototype == "all":
        return list(range(count))
    return [prototype_number(str(prototype), count, where="`prototype=`: ")]


def _checked_formats(formats: Sequence[str], *, network: bool = False) -> tuple[str, ...]:
    unknown = [name for name in formats if name not in FORMATS]
    if unknown:
        raise InputError(f"`formats={','.join(formats)}`: known are {', '.join(FORMATS)}.")
    needless = [name for name in ("geojson", "csv") if network and name in formats]
    if needless:
        raise InputError(f"`formats={needless[0]}`: attention has no regions; use png, svg or tiff.")
    return tuple(formats)


def _checked_scale(scale: str | None) -> str:
    if scale is not None and scale not in SCALES:
        raise InputError(f"`attention={scale}` is not known; known are {', '.join(SCALES)}.")
    return scale or "rank"


def _refuse(given: Mapping[str, Any], why: str) -> None:
    names = [f"`{name}=`" for name, value in given.items() if value is not None]
    if names:
        raise InputError(f"{' and '.join(names)} {why}; leave it out.")
