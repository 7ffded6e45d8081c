"""Which files belong to a slide's map, and the map of each: what the command asks for, slide by slide."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from panther.errors import InputError
from panther.explain.maps import MapSettings, make_map, write_map
from panther.explain.slide_map import SlideMap
from panther.slides import list_slides
from panther.slides.listing import DICOM, SUFFIXES
from panther.slides.slide import slide_name
from panther.storage.bags import AS_WRITTEN, Reading, list_bags
from panther.types import Openable, Prototypes


@dataclass(frozen=True)
class MapJob:
    """Files of one slide."""

    ref: Openable
    image: Path | None = None
    contours: Path | None = None
    notes: tuple[str, ...] = ()

    @property
    def sample(self) -> str:
        """Name of the slide."""
        return self.ref.sample


@dataclass(frozen=True)
class MapDone:
    """What was written for one slide."""

    slide: str
    patches: int
    weights: Mapping[str, float]  # prototype -> pi, largest first
    files: tuple[Path, ...]
    notes: tuple[str, ...]

    @property
    def summary(self) -> str:
        """Three prototypes of the largest pi."""
        return ", ".join(f"{name} {weight:.2f}" for name, weight in list(self.weights.items())[:3])

    def told(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "slide": self.slide,
            "patches": self.patches,
            "weights": dict(self.weights),
            "files": [str(file) for file in self.files],
        }


def find_jobs(
    place: Path,
    features: Path | None,
    slide: Path | None,
    contours: Path | None,
    reading: Reading = AS_WRITTEN,
) -> tuple[list[MapJob], dict[str, str]]:
    """Slides to map and a sentence for each file that cannot be used; ``place`` holds features, or is a slide with ``features``."""
    if _is_slide(place):
        if slide is not None:
            raise InputError(f"{place} is a slide already; give `features=` with it, not `slide=`.")
        if features is None:
            raise InputError(
                f"{place.name}: a slide's image has no features by itself; give their file or folder with `features=`."
            )
        listing = list_bags(features, reading=reading)
        wanted = slide_name(place)
        refs = [ref for ref in listing.refs if ref.sample == wanted or features.is_file()]
        if not refs:
            raise InputError(listing.problems.get(wanted, f"{features}: there are no features of the slide {wanted}."))
        return [_job(refs[0], {refs[0].sample: place}, contours, given=True)], {}
    if features is not None:
        raise InputError(f"`features=` belongs to a slide, but {place} is none; give the features alone, and `slide=`.")
    listing = list_bags(place, reading=reading)
    images = _images(slide, [ref.sample for ref in listing.refs])
    jobs = [_job(ref, images, contours, given=slide is not None) for ref in listing.refs]
    return jobs, dict(listing.problems)


def run_one(
    job: MapJob,
    prototypes: Prototypes,
    settings: MapSettings,
    folder: Path,
    chosen: list[int] | None,
    formats: tuple[str, ...],
) -> MapDone:
    """Map one slide and write it."""
    bag = job.ref.open()
    found = make_map(bag, prototypes, settings, job.image, job.contours)
    files = write_map(found, folder, chosen, formats)
    order = np.argsort(-found.weights, kind="stable").tolist()
    weights = {found.title(c): float(found.weights[c]) for c in order}
    return MapDone(found.slide, len(bag), weights, tuple(files), (*job.notes, *notes_of(found, formats)))


def notes_of(found: SlideMap, formats: tuple[str, ...]) -> list[str]:
    """What a map lacks, in sentences."""
    notes = []
    if found.grid.inferred:
        notes.append(
            f"{found.slide}: the file does not tell the patches' size; {found.grid.pitch:g}, the distance of neighbours, was taken."
        )
    if found.view.mpp is None:
        notes.append(f"{found.slide}: micrometres per pixel are not known, so there is no scale bar; give `slide=`.")
    if "geojson" in formats and found.view.unit == "um":
        notes.append(
            f"{found.slide}: no GeoJSON, its coordinates are micrometres and QuPath counts pixels; give `slide=`."
        )
    if found.index.max() < 0:
        notes.append(f"{found.slide}: patches are smaller than a pixel of the picture; give a larger `max_side=`.")
    return notes


def _is_slide(place: Path) -> bool:
    if place.is_dir():
        return any(place.glob(f"*{DICOM}"))
    return place.name.lower().endswith((*SUFFIXES, DICOM, ".png", ".jpg", ".jpeg", ".bmp"))


def _images(slide: Path | None, samples: list[str]) -> dict[str, Path]:
    """Image of each sample: the one given, or those of a folder by their names."""
    if slide is None:
        return {}
    if not slide.exists():
        raise InputError(f"{slide}: there is no such slide image; leave it out to draw on the coordinates.")
    if slide.is_file() or _is_slide(slide):
        if len(samples) > 1:
            raise InputError(
                f"{slide} is one slide but there are {len(samples)} feature files; give the folder of images."
            )
        return dict.fromkeys(samples, slide)
    return {ref.name: ref.path for ref in list_slides([slide]).refs}


def _job(ref: Openable, images: Mapping[str, Path], contours: Path | None, *, given: bool) -> MapJob:
    notes = []
    image = images.get(ref.sample)
    if given and image is None:
        notes.append(f"{ref.sample}: no slide image has this name; the map is drawn on the coordinates.")
    if contours is not None and contours.is_dir():
        # QuPath names its export after the whole file name; as in `panther slides` that one goes first
        endings = [f"{image.name}.geojson"] if image else []
        files = [contours / name for name in (*endings, f"{ref.sample}.geojson")]
        contours = next((file for file in files if file.is_file()), None)
        if contours is None:
            notes.append(f"{ref.sample}: there are no contours of this name ({files[-1]}); no outline is drawn.")
    return MapJob(ref, image, contours, tuple(notes))
