"""The folder of a job over slides: where everything lies (TRIDENT's layout), and what the files of one slide hold.

thumbnails/SLIDE.png  contours/SLIDE.png  contours_geojson/SLIDE.geojson
20x_256px_0px_overlap/patches/SLIDE_patches.h5
summary.csv
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from panther.slides.contours import Contours, read_contours
from panther.slides.listing import SlideRef
from panther.storage.trident import Coords, read_coords


@dataclass(frozen=True)
class Job:
    """Where everything of a job lies."""

    folder: Path

    @property
    def locks(self) -> Path:
        """Folder of the locks; it is there only while a process works."""
        return self.folder / ".locks"

    @property
    def summary(self) -> Path:
        """Table of all slides, one row each."""
        return self.folder / "summary.csv"

    def geojson(self, slide: str) -> Path:
        """Contours of the tissue."""
        return self.folder / "contours_geojson" / f"{slide}.geojson"

    def thumbnail(self, slide: str) -> Path:
        """Small picture of the slide."""
        return self.folder / "thumbnails" / f"{slide}.png"

    def overlay(self, slide: str) -> Path:
        """Small picture with the contours."""
        return self.folder / "contours" / f"{slide}.png"

    def coords(self, slide: str, patches: str) -> Path:
        """Coordinates of a set of patches named e.g. `20x_256px_0px_overlap`."""
        return self.folder / patches / "patches" / f"{slide}_patches.h5"


class SlideFiles:
    """One slide of a job and what its files hold, each read once; a step that writes one puts it here, too."""

    def __init__(self, slide: SlideRef, job: Job) -> None:
        self.slide, self.job = slide, job
        self._coords: dict[str, Coords] = {}

    @cached_property
    def contours(self) -> Contours | None:
        """Contours: of `SLIDE.geojson`, or, before it, of one named after the whole file name, `SLIDE.svs.geojson`."""
        own = self.job.geojson(self.slide.name)
        found = (path for path in (own.with_name(f"{self.slide.path.name}.geojson"), own) if path.exists())
        return next(map(read_contours, found), None)

    def coords(self, patches: str) -> Coords | None:
        """Coordinates of a set of patches, None where there are none."""
        path = self.job.coords(self.slide.name, patches)
        if patches not in self._coords and path.exists():
            self._coords[patches] = read_coords(path)
        return self._coords.get(patches)

    def forget_coords(self, patches: str) -> None:
        """Read them again when they are asked for: they were written anew."""
        self._coords.pop(patches, None)
