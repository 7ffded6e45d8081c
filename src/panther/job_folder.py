"""The folder of a job over slides: where everything lies (TRIDENT's layout), and its summary.

thumbnails/SLIDE.png  contours/SLIDE.png  contours_geojson/SLIDE.geojson
20x_256px_0px_overlap/patches/SLIDE_patches.h5
summary.csv
"""

import csv
import io
from dataclasses import dataclass
from pathlib import Path

from panther.storage.files import read_text

PARTLY = "partly read"  # status of a slide of which much could not be decoded


@dataclass(frozen=True)
class Job:
    """Where everything of a job lies."""

    folder: Path

    @property
    def locks(self) -> Path:
        """Folder of the locks; it is there only while a process works."""
        return self.folder / ".locks"

    @property
    def progress(self) -> Path:
        """Folder of what is noted while processes work (see :mod:`panther.progress`)."""
        return self.folder / ".progress"

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


def read_summary(job: Job) -> list[dict[str, str]]:
    """Rows of the summary; none where there is no readable one (it can be made again at any time)."""
    try:
        lines = io.StringIO(read_text(job.summary), newline="")
        return [row for row in csv.DictReader(lines) if row.get("slide") and None not in row]
    except (OSError, ValueError, csv.Error):
        return []
