"""Steps over the slides of a job folder, each resumable.

A step is an object with a name, ``done(files)``, ``run(files)`` and ``about(files)``; what it did stands in files, so a job that was
killed goes on from what is there. Two processes at the same slide lose time, not data: files appear whole.
"""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from panther.engine import LOCAL, ItemResult, Work, map_slides
from panther.errors import InputError
from panther.slides.cache import SlideCache, remove_copy
from panther.slides.listing import SlideRef
from panther.slides.polygons import Contours, read_contours
from panther.slides.slide import Slide
from panther.storage.files import write_text
from panther.storage.names import PARTLY, Job, read_summary
from panther.storage.trident import Coords, read_coords

# share of a slide that may be undecodable before the slide counts as partly read, which is reported as a failure
MOST_LOST = 0.05
COLUMNS = (
    "slide",
    "path",
    "status",
    "mpp",
    "mpp_source",
    "tissue",
    "tissue_mm2",
    "unread",
    "patches",
    "edge_lost",
    "reason",
    "note",
)


class SlideFiles:
    """One slide of a job, opened once, and the content of its files, each read once; a step that writes one puts it here, too."""

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
        """Contours: of `SLIDE.geojson`, or, before it, of one named after the whole file name, `SLIDE.svs.geojson`."""
        path = self.job.geojson(self.slide.name)
        paths = (path.with_name(f"{self.slide.path.name}.geojson"), path)
        return next((read_contours(path) for path in paths if path.exists()), None)

    def coords(self, patches: str) -> Coords | None:
        """Coordinates of a set of patches, None where there are none."""
        path = self.job.coords(self.slide.name, patches)
        if patches not in self._coords and path.exists():
            self._coords[patches] = read_coords(path)
        return self._coords.get(patches)

    def forget_coords(self, patches: str) -> None:
        """Read them again when they are next used: they were written anew."""
        self._coords.pop(patches, None)


class Step(Protocol):
    """One thing that is done to every slide."""

    @property
    def name(self) -> str:
        """What `steps=` calls it."""

    def done(self, files: SlideFiles) -> bool:
        """Whether its files are there and were made from what is there now, with these settings."""

    def run(self, files: SlideFiles) -> None:
        """Do it; files appear whole. An InputError fails this slide only."""

    def about(self, files: SlideFiles) -> Mapping[str, Any]:
        """Columns for the summary, read from the files."""


@dataclass(frozen=True)
class SlideResult:
    """What happened when a slide's turn came."""

    ran: tuple[str, ...] = ()  # steps that were not done before
    about: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Worker:
    """All steps on one slide; it is sent to worker processes."""

    job: Job
    steps: tuple[Step, ...]
    earlier: tuple[Step, ...] = ()  # not run, but in the summary

    def __call__(self, slide: SlideRef) -> SlideResult:
        """Run what is not done."""
        files, ran = SlideFiles(slide, self.job), []
        try:
            for step in self.steps:
                if not step.done(files):
                    step.run(files)
                    ran.append(step.name)
            return SlideResult(tuple(ran), _merged([step.about(files) for step in (*self.earlier, *self.steps)]))
        except InputError as error:
            if slide.copy is None:
                raise
            # name the slide itself and not its copy
            raise InputError(str(error).replace(str(slide.copy.parent), str(slide.path.parent))) from error
        finally:
            files.close()
            remove_copy(slide)

    def needs(self, slide: SlideRef) -> bool:
        """Whether there is something to do."""
        files = SlideFiles(slide, self.job)
        return not all(step.done(files) for step in self.steps)

    def close(self) -> None:
        """End what steps keep between slides, in a process that was lent."""
        for step in self.steps:
            if hasattr(step, "close"):
                step.close()


@dataclass(frozen=True)
class JobReport:
    """What a run of a job came to."""

    rows: tuple[Mapping[str, Any], ...]  # as in summary.csv
    ran: frozenset[str] = frozenset()  # slides of which at least one step was run

    @property
    def worked(self) -> int:
        """Number of slides that were not done already."""
        return len(self.ran)

    @property
    def failures(self) -> dict[str, str]:
        """Slides that failed or could be read in part only, and why."""
        return {row["slide"]: row["reason"] for row in self.rows if row["status"] in ("failed", PARTLY)}

    @property
    def patches(self) -> int:
        """Patches of all slides."""
        return sum(self.patches_by_slide.values())

    @property
    def patches_by_slide(self) -> dict[str, int]:
        """Patches of every slide that has been laid out."""
        return {row["slide"]: int(row["patches"]) for row in self.rows if row.get("patches") not in (None, "")}

    def count(self, status: str) -> int:
        """Slides of that status."""
        return sum(row["status"] == status for row in self.rows)

    def remaining(self, slides: Iterable[SlideRef]) -> list[SlideRef]:
        """Slides that have not failed."""
        left_out = {row["slide"] for row in self.rows if row["status"] == "failed"}
        return [slide for slide in slides if slide.name not in left_out]


def run_job(
    slides: Sequence[SlideRef],
    steps: Iterable[Step],
    job: Job,
    *,
    work: Work = LOCAL,
    problems: Mapping[str, str] | None = None,
    before: JobReport | None = None,
    cache: SlideCache | None = None,
    earlier: Iterable[Step] = (),
    part: str = "",
) -> JobReport:
    """Run the steps over the slides and write the summary; slides that fail are listed in it, the others go on.

    ``before`` is the report of earlier steps on the same slides: what failed there is left out, the columns of the others are kept.
    ``earlier`` are steps that are not run: the summary has what their files say. ``cache`` copies slides ahead; ``part`` names the part of a
    job array that these slides are.
    """
    worker = Worker(job, tuple(steps), tuple(earlier))
    known = {row["slide"]: row for row in (read_summary(job) if before is None else before.rows)}
    queued = ({"slide": slide.name, "path": str(slide.path), "status": "queued"} for slide in slides)
    write_summary(job, [known.get(row["slide"]) or row for row in queued], part)
    known = {} if before is None else known
    slides = slides if before is None else before.remaining(slides)
    results: dict[str, ItemResult[SlideResult]] = {}
    what = ", ".join(step.name for step in worker.steps)
    coming = slides if cache is None else cache.ahead(slides, worker.needs)
    for result in work.track(map_slides(worker, coming, work.executor), what, len(slides)):
        results[slides[result.index].name] = result
    rows = [_row(slide, results[slide.name], known.get(slide.name, {})) for slide in slides]
    rows += [{"slide": name, "status": "failed", "reason": sentence} for name, sentence in (problems or {}).items()]
    rows += [dict(row) for name, row in known.items() if name not in results]
    write_summary(job, rows, part)
    ran = {name for name, result in results.items() if result.value is not None and result.value.ran}
    ran |= frozenset() if before is None else before.ran
    return JobReport(tuple(rows), frozenset(ran))


def _row(slide: SlideRef, result: ItemResult[SlideResult], earlier: Mapping[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {"slide": slide.name, "path": str(slide.path)}
    if result.value is None:
        return {**row, "status": "failed", "reason": result.reason}
    about = _merged([{k: v for k, v in earlier.items() if k not in ("status", "reason")}, result.value.about])
    masked, kept = float(about.get("masked") or 0), float(about.get("features") or 0)
    # the largest share that could not be decoded: of the overview, or of the patches that were to be encoded
    lost = max(float(about.get("unread") or 0), masked / max(masked + kept, 1))
    if lost > MOST_LOST:
        reason = f"{slide.name}: {lost:.0%} of it could not be decoded and is left out; copy or scan the slide again"
        return {**row, "status": PARTLY, **about, "reason": reason}
    return {**row, "status": "done", **about}


def _merged(columns: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Columns of all steps; what two of them note (the resolution's) stands once."""
    notes = dict.fromkeys(part for one in columns for part in str(one.get("note", "")).split("; ") if part)
    return {**{key: value for one in columns for key, value in one.items()}, "note": "; ".join(notes)}


def write_summary(job: Job, rows: Iterable[Mapping[str, Any]], part: str = "") -> None:
    """Write `summary.csv`, one row per slide; without ``part``, rows of slides that are not in this run stay.

    Tasks of a job array (``part``) write a table each, so that none waits for, or overwrites, another; readers see one table.
    """
    table: dict[str, Mapping[str, Any]] = {} if part else {row["slide"]: row for row in read_summary(job)}
    table |= {row["slide"]: row for row in rows}
    names = [*COLUMNS, *sorted({key for row in table.values() for key in row} - set(COLUMNS))]
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, names, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(table[name] for name in sorted(table))
    write_text(job.summary_of(part), text.getvalue())
