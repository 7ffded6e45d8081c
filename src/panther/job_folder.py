"""The folder of a job over slides: where everything lies (TRIDENT's layout), and its summary.

thumbnails/SLIDE.png  contours/SLIDE.png  contours_geojson/SLIDE.geojson
20x_256px_0px_overlap/patches/SLIDE_patches.h5
summary.csv
"""

import csv
import io
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from panther.storage.files import read_text

PARTLY = "partly read"  # status of a slide of which much could not be decoded


@dataclass(frozen=True)
class Job:
    """Where everything of a job lies."""

    folder: Path

    def summary_of(self, part: str = "") -> Path:
        """Table of all slides, one row each; of a ``part`` of the slides, the table of that part."""
        return self.folder / (f"summary-{part.replace('/', '-of-')}.csv" if part else "summary.csv")

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
    """Rows of the summary, the latest of each slide; none where no table can be read (it can be made again at any time)."""
    tables = []
    for path in (job.summary_of(), *job.folder.glob("summary-*-of-*.csv")):
        with suppress(OSError, ValueError, csv.Error):
            written, lines = path.stat().st_mtime_ns, io.StringIO(read_text(path), newline="")
            tables.append((written, [row for row in csv.DictReader(lines) if row.get("slide") and None not in row]))
    rows = {row["slide"]: row for _, table in sorted(tables, key=lambda table: table[0]) for row in table}
    return [rows[name] for name in sorted(rows)]
