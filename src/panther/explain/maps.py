"""Maps of slides: pictures, regions and tables of the prototype of each patch, or of a network's attention."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from scipy.spatial import KDTree

from panther.aggregators import build
from panther.charts.style import save
from panther.explain.geometry import feature, regions
from panther.explain.scene import MapSettings, SlideJob, assign, place
from panther.explain.slide_map import SlideMap, overlay_pixels
from panther.explain.touching import COLUMNS, neighbour_rows
from panther.storage.geojson import write_geojson
from panther.storage.tables import write_spreadsheet
from panther.store import atomic_write
from panther.types import Bag, Prototypes

USUAL = ("png", "geojson", "csv")  # of prototypes
WRITTEN = ("*.geojson", "*.*.png", "*.*.svg", "*.neighbours.csv", "*.*.dcm")  # patterns


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
    written = write_map(slide_map, folder, chosen, formats)
    if {"dicom", "dicom-seg"} & set(formats):
        from panther.explain.dicom import write_dicom

        main = chosen[0] if chosen and len(chosen) == 1 else int(slide_map.weights.argmax())
        written += write_dicom(slide_map, job.image, folder, main, formats)
    return replace(mapped, files=tuple(written))


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
    population = bag.population
    shown = bag if population is None else replace(bag, places=population.places)
    cells, view, outline = place(shown, settings, image, contours)
    rows, weights = assign(bag, module, settings.device)
    shares, pi, filled = rows.float().numpy(), weights.numpy(), None
    if population is not None:
        # a patch that was not encoded has the shares of the nearest one that was
        distance, nearest = KDTree(bag.coords).query(shown.coords)
        shares, filled = shares[nearest], distance > 0
    return SlideMap(
        bag.slide_id, cells, shares, pi, view, settings.namings, outline, paint=settings.paint, filled=filled
    )


def write_map(
    slide_map: SlideMap, folder: Path, prototypes: Sequence[int] | None = None, formats: Sequence[str] = USUAL
) -> list[Path]:
    """Write a slide's pictures and regions; ``prototypes`` are those with heatmaps (None: that of the largest pi, beside the map).

    `SLIDE.NAME.png` of every figure (of prototypes: map, side_by_side, neighbours, heatmap.C3 or heatmaps), `SLIDE.overlay.png`
    (transparent, pixel for pixel the thumbnail), `SLIDE.geojson` and `SLIDE.neighbours.csv`.
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
    if "geojson" in formats and slide_map.view.unit == "px":  # the unit of QuPath
        about = slide_map.names, slide_map.view.mpp, slide_map.prototype_colours
        areas = regions(slide_map.grid, slide_map.labels)
        write_geojson(path("geojson"), [feature(region, *about) for region in areas])
    if "csv" in formats and slide_map.filled is None:
        write_spreadsheet(path("neighbours.csv"), COLUMNS, neighbour_rows(slide_map.touching))
    return written
