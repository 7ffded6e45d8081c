"""Which files belong to a slide: its features, its image and the outline of its tissue, matched by name."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from panther.errors import InputError
from panther.slides import list_slides
from panther.slides.listing import DICOM, SUFFIXES
from panther.slides.slide import slide_name
from panther.storage.names import decomposed
from panther.types import Openable

Images = Path | str | Mapping[str, Path] | None  # one image, a folder of them, or images by the slides' names


@dataclass(frozen=True)
class SlideJob:
    """One slide to explain."""

    ref: Openable
    image: Path | None = None
    contours: Path | None = None
    notes: tuple[str, ...] = ()  # what could not be found

    @property
    def sample(self) -> str:
        """Name of the slide."""
        return self.ref.sample

    @property
    def files(self) -> tuple[Path, ...]:
        """Files that are read."""
        return (*self.ref.files, *(path for path in (self.image, self.contours) if path is not None))


def slide_jobs(refs: Sequence[Openable], slides: Images = None, contours: Path | None = None) -> list[SlideJob]:
    """Each slide with its image (of ``slides``) and its outline (of the file or folder ``contours``), where they are at hand."""
    images = find_images(slides, [ref.sample for ref in refs])
    return [_job(ref, images.get(ref.sample), contours, image_wanted=slides is not None) for ref in refs]


def find_images(slides: Images, names: Sequence[str]) -> Mapping[str, Path]:
    """Image of each slide: the one given, or those of a folder by their names."""
    if slides is None or isinstance(slides, Mapping):
        return slides or {}
    place = Path(slides)
    if not place.exists():
        raise InputError(f"{place}: there is no such slide image; leave it out to draw on the coordinates.")
    if not is_slide(place):
        return {ref.name: ref.path for ref in list_slides([place]).refs}
    if len(names) > 1:
        raise InputError(f"{place} is one slide but there are {len(names)} feature files; give the folder of images.")
    return dict.fromkeys(names, place)


def of_slide(refs: Sequence[Openable], slide: Path) -> Sequence[Openable]:
    """Features of one slide's image: those of its name, or the only ones that were named."""
    name = slide_name(slide)
    named = [ref for ref in refs if ref.sample == name]
    if not named and len(refs) == 1 and getattr(refs[0], "meant", True):
        return refs
    if not named:
        raise InputError(
            f"There are no features of the slide {name} among the {len(refs)} given, e.g. {refs[0].sample}."
        )
    return named


def none_of(failures: Mapping[str, str], what: str) -> str:
    """Sentence for a request of which nothing is left: why, and of how many slides."""
    reason = next(iter(failures.values()), "No file holds features.")
    return reason if len(failures) < 2 else f"None of the {len(failures)} slides {what}. {reason}"


def is_slide(place: Path) -> bool:
    """Whether a path is one slide's image, by its ending; a folder is one where it holds DICOM files."""
    if place.is_dir():
        return any(place.glob(f"*{DICOM}"))
    return place.name.lower().endswith((*SUFFIXES, DICOM, ".png", ".jpg", ".jpeg", ".bmp"))


def _job(ref: Openable, image: Path | None, contours: Path | None, *, image_wanted: bool) -> SlideJob:
    notes = []
    if image_wanted and image is None:
        notes.append(f"{ref.sample}: no slide image has this name; the map is drawn on the coordinates.")
    if contours is not None and contours.is_dir():
        # QuPath names its export after the whole file name; as in `panther slides` that one goes first
        endings = [f"{image.name}.geojson"] if image else []
        names = (*endings, f"{decomposed(ref.sample)}.geojson", f"{ref.sample}.geojson")
        files = [contours / name for name in names]
        contours = next((file for file in files if file.is_file()), None)
        if contours is None:
            notes.append(f"{ref.sample}: there are no contours of this name ({files[-1]}); no outline is drawn.")
    return SlideJob(ref, image, contours, tuple(notes))
