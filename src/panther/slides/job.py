"""Steps over the slides of a job folder, each resumable.

A step is an object with a name, ``done(files)``, ``run(files)`` and ``about(files)``. Its results are files, so a killed job
resumes from them. Two processes at the same slide lose time, not data: files appear whole.
"""

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from panther.engine import LOCAL, ItemResult, Work, map_slides
from panther.slides.listing import SlideRef
from panther.slides.polygons import Contours, read_contours, with_edits
from panther.slides.slide import Slide
from panther.storage.names import PARTLY, Job, read_summary
from panther.storage.trident import Coords, read_coords
from panther.store import atomic_write

# share of a slide that may be undecodable before the slide counts as partly read, which is reported as a failure
MOST_LOST = 0.05
COLUMNS = (
    *("slide", "path", "status", "mpp", "mpp_source", "tissue", "tissue_mm2", "unread", "patches", "edge_lost"),
    *("reason", "note"),
)


class SlideFiles:
    """One slide of a job, opened once, and the content of its files, each read once."""

    def __init__(self, slide: SlideRef, job: Job) -> None:
        self.slide, self.job = slide, job
        self._coords: dict[str, Coords] = {}

    @cached_property
    def image(self) -> Slide:
        """The slide, open until `close`."""
        return self.slide.open()

    def close(self) -> None:
        """Close the slide."""
        if "image" in self.__dict__:
            self.__dict__.pop("image").close()

    @cached_property
    def contours(self) -> Contours | None:
        """Contours of `SLIDE.svs.geojson` (named after the whole file name) or else of `SLIDE.geojson`; a step that finds them sets them."""
        path = self.job.geojson(self.slide.name)
        paths = (path.with_name(f"{self.slide.path.name}.geojson"), path)
        contours = next((read_contours(path) for path in paths if path.exists()), None)
        return None if contours is None else self.edited(contours)

    def edited(self, contours: Contours) -> Contours:
        """Contours with the tissue that was added and cut out in the viewer."""
        return with_edits(contours, self.job.annotations(self.slide.name))

    def coords(self, patches: str) -> Coords | None:
        """Coordinates of a set of patches, None where there are none."""
        path = self.job.coords(self.slide.name, patches)
        if patches not in self._coords and path.exists():
            self._coords[patches] = read_coords(path)
        return self._coords.get(patches)

    def forget_coords(self, patches: str) -> None:
        """Have the coordinates read again, after they were written."""
        self._coords.pop(patches, None)


class Step(Protocol):
    """A task that is done for every slide."""

    @property
    def name(self) -> str:
        """Name of the step, as in `steps=`."""

    def done(self, files: SlideFiles) -> bool:
        """Whether its files are there and were made from the present input, with these settings."""

    def run(self, files: SlideFiles) -> None:
        """Write its files. An InputError fails this slide only."""

    def about(self, files: SlideFiles) -> Mapping[str, Any]:
        """Columns for the summary, read from the files."""


@dataclass(frozen=True)
class Worker:
    """Runs all steps on one slide; it is sent to worker processes."""

    job: Job
    steps: tuple[Step, ...]
    earlier: tuple[Step, ...] = ()  # steps that are not run, but are in the summary

    def __call__(self, slide: SlideRef) -> tuple[dict[str, Any], bool]:
        """Run the steps that are not done; columns of the summary, and whether a step was run."""
        files, has_run = SlideFiles(slide, self.job), False
        try:
            for step in self.steps:
                if not step.done(files):
                    step.run(files)
                    has_run = True
            return _merged([step.about(files) for step in (*self.earlier, *self.steps)]), has_run
        finally:
            files.close()

    def close(self) -> None:
        """Close what steps keep between slides in a worker process."""
        for step in self.steps:
            if hasattr(step, "close"):
                step.close()


@dataclass(frozen=True)
class JobReport:
    """Result of a run of a job."""

    rows: tuple[Mapping[str, Any], ...]  # as in summary.csv
    ran: frozenset[str] = frozenset()  # slides of which at least one step was run

    @property
    def failures(self) -> dict[str, str]:
        """Slides that failed or could be read in part only, with the reason."""
        return {row["slide"]: row["reason"] for row in self.rows if row["status"] in ("failed", PARTLY)}

    @property
    def patches(self) -> int:
        """Patches of all slides."""
        return sum(self.patches_by_slide.values())

    @property
    def patches_by_slide(self) -> dict[str, int]:
        """Patches of each slide that has coordinates."""
        return {row["slide"]: int(row["patches"]) for row in self.rows if row.get("patches") not in (None, "")}

    def remaining(self, slides: Iterable[SlideRef]) -> list[SlideRef]:
        """Slides that have not failed."""
        failed = {row["slide"] for row in self.rows if row["status"] == "failed"}
        return [slide for slide in slides if slide.name not in failed]


def run_job(
    slides: Sequence[SlideRef],
    steps: Iterable[Step],
    job: Job,
    *,
    work: Work = LOCAL,
    problems: Mapping[str, str] | None = None,
    before: JobReport | None = None,
    earlier: Iterable[Step] = (),
    part: str = "",
) -> JobReport:
    """Run the steps over the slides and write the summary; slides that fail are listed in it, the others go on.

    ``problems`` are slides that cannot be used, with the reason. ``before`` is the report of earlier steps on the same slides:
    those that failed are left out, the columns of the others are kept. ``earlier`` are steps that are not run; the summary has
    the columns of their files. ``part`` is the slides' part of a job array.
    """
    worker = Worker(job, tuple(steps), tuple(earlier))
    shown = {row["slide"]: row for row in (read_summary(job) if before is None else before.rows)}
    queued = ({"slide": slide.name, "path": str(slide.path), "status": "queued"} for slide in slides)
    write_summary(job, [shown.get(row["slide"]) or row for row in queued], part)
    before = before or JobReport(())
    previous = {row["slide"]: row for row in before.rows}
    slides = before.remaining(slides)
    results: dict[str, ItemResult[tuple[dict[str, Any], bool]]] = {}
    name = ", ".join(step.name for step in worker.steps)
    for result in work.track(map_slides(worker, slides, work.executor), name, len(slides)):
        results[slides[result.index].name] = result
    rows = [_row(slide, results[slide.name], previous.get(slide.name, {})) for slide in slides]
    rows += [{"slide": name, "status": "failed", "reason": reason} for name, reason in (problems or {}).items()]
    rows += [dict(row) for name, row in previous.items() if name not in results]
    write_summary(job, rows, part)
    ran = {name for name, result in results.items() if result.value is not None and result.value[1]}
    return JobReport(tuple(rows), before.ran | ran)


def _row(
    slide: SlideRef, result: ItemResult[tuple[dict[str, Any], bool]], earlier: Mapping[str, Any]
) -> dict[str, Any]:
    row: dict[str, Any] = {"slide": slide.name, "path": str(slide.path)}
    if result.value is None:
        return {**row, "status": "failed", "reason": result.reason}
    columns = _merged([{k: v for k, v in earlier.items() if k not in ("status", "reason")}, result.value[0]])
    masked, kept = float(columns.get("masked") or 0), float(columns.get("features") or 0)
    # the largest share that could not be decoded: of the overview, or of the patches that were to be encoded
    lost = max(float(columns.get("unread") or 0), masked / max(masked + kept, 1))
    if lost > MOST_LOST:
        reason = f"{slide.name}: {lost:.0%} of it could not be decoded and is left out; copy or scan the slide again"
        return {**row, "status": PARTLY, **columns, "reason": reason}
    return {**row, "status": "done", **columns}


def _merged(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Columns of all steps; a note that two of them have (on the resolution) is kept once."""
    notes = dict.fromkeys(note for row in rows for note in str(row.get("note", "")).split("; ") if note)
    return {**{key: value for row in rows for key, value in row.items()}, "note": "; ".join(notes)}


def write_summary(job: Job, rows: Iterable[Mapping[str, Any]], part: str = "") -> None:
    """Write `summary.csv`, one row per slide; without ``part``, rows of slides that are not in this run stay.

    Each task of a job array (``part``) writes its table, so that none waits for, or overwrites, another; readers see one table.
    """
    table: dict[str, Mapping[str, Any]] = {} if part else {row["slide"]: row for row in read_summary(job)}
    table |= {row["slide"]: row for row in rows}
    names = [*COLUMNS, *sorted({key for row in table.values() for key in row} - set(COLUMNS))]
    with (
        atomic_write(job.summary_of(part)) as temporary,
        temporary.open("w", encoding="utf-8", errors="backslashreplace", newline="") as handle,
    ):
        writer = csv.DictWriter(handle, names, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(table[name] for name in sorted(table))
