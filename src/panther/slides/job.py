"""A job folder: steps over slides, each resumable, by one process or many.

A step is an object with a name, ``done(slide, job)`` and ``run(slide, job)``; what it did stands in files, never in memory, so a
job that was killed goes on from what is there. Layout as TRIDENT's:

    thumbnails/SLIDE.png  contours/SLIDE.png  contours_geojson/SLIDE.geojson
    20x_256px_0px_overlap/patches/SLIDE_patches.h5
    summary.csv
"""

import csv
import io
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from panther.execution import HERE, ItemResult, Work, map_slides
from panther.slides.listing import SlideRef
from panther.storage.atomic import atomic_write
from panther.storage.locks import lock, owner, sweep

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

PARTLY = "partly read"
MOST_LOST = (
    0.05  # share of a slide that may be undecodable before the slide counts as partly read, which is told as a failure
)


@dataclass(frozen=True)
class Job:
    """Where everything of a job lies."""

    folder: Path

    @property
    def locks(self) -> Path:
        """Folder of the locks; it is there only while somebody works."""
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


class Step(Protocol):
    """One thing that is done to every slide."""

    @property
    def name(self) -> str:
        """What --steps calls it."""

    def done(self, slide: SlideRef, job: Job) -> bool:
        """Whether its files are there and were made from what is there now, with these settings."""

    def run(self, slide: SlideRef, job: Job) -> None:
        """Do it; files appear whole. An InputError fails this slide only."""

    def about(self, slide: SlideRef, job: Job) -> Mapping[str, Any]:
        """Columns for the summary, read from the files."""


@dataclass(frozen=True)
class SlideResult:
    """What happened when a slide's turn came."""

    ran: tuple[str, ...] = ()  # steps that were not done before
    busy: str | None = None  # who works on it
    about: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Worker:
    """All steps on one slide; it is sent to worker processes."""

    job: Job
    steps: tuple[Step, ...]

    def __call__(self, slide: SlideRef) -> SlideResult:
        """Run what is not done, unless another process is at it."""
        if any(not step.done(slide, self.job) for step in self.steps):
            path = self.job.locks / f"{slide.name}.lock"
            with lock(path) as got:
                if not got:
                    return SlideResult(busy=owner(path))
                ran = tuple(step.name for step in self.steps if self._ran(step, slide))
        else:
            ran = ()
        told = [step.about(slide, self.job) for step in self.steps]
        about = {key: value for columns in told for key, value in columns.items()}
        return SlideResult(ran, about=about | {"note": _joined(str(columns.get("note", "")) for columns in told)})

    def _ran(self, step: Step, slide: SlideRef) -> bool:
        if step.done(slide, self.job):
            return False
        step.run(slide, self.job)
        return True


@dataclass(frozen=True)
class JobReport:
    """What a run of a job came to."""

    rows: tuple[Mapping[str, Any], ...]  # as in summary.csv
    failures: Mapping[str, str]  # slide -> sentence
    worked: int  # slides of which at least one step was run
    busy: Mapping[str, str]  # slide -> who works on it

    @property
    def patches(self) -> int:
        """Patches of all slides."""
        return sum(int(row["patches"]) for row in self.rows if row.get("patches") not in (None, ""))


def run_job(
    slides: Sequence[SlideRef],
    steps: Iterable[Step],
    job: Job,
    *,
    work: Work = HERE,
    problems: Mapping[str, str] | None = None,
) -> JobReport:
    """Run the steps over the slides and write the summary; slides that fail are listed in it, the others go on."""
    worker = Worker(job, tuple(steps))
    what = ", ".join(step.name for step in worker.steps)
    outcomes: dict[str, ItemResult[SlideResult]] = {}
    for outcome in work.track(map_slides(worker, slides, work.executor), what, len(slides)):
        outcomes[slides[outcome.index].name] = outcome
    # what another process had in hand may be finished, or left behind, by now
    again = [slide for slide in slides if (visit := outcomes[slide.name].value) is not None and visit.busy]
    for outcome in map_slides(worker, again):
        outcomes[again[outcome.index].name] = outcome
    rows = [_row(slide, outcomes[slide.name]) for slide in slides]
    rows += [{"slide": name, "status": "failed", "reason": sentence} for name, sentence in (problems or {}).items()]
    write_summary(job, rows)
    sweep(job.locks)
    visits = [outcome.value for outcome in outcomes.values() if outcome.value is not None]
    return JobReport(
        tuple(rows),
        {row["slide"]: row["reason"] for row in rows if row["status"] in ("failed", PARTLY)},
        sum(1 for visit in visits if visit.ran),
        {row["slide"]: row["reason"] for row in rows if row["status"] == "busy"},
    )


def write_summary(job: Job, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write the rows, sorted by slide; rows of slides that this run was not asked about stay."""
    for _ in range(100):  # reading and writing takes milliseconds; whoever holds it longer has died on another machine
        with lock(job.locks / "summary.csv.lock") as got:
            if got:
                _merge(job, rows)
                return
        time.sleep(0.05)
    _merge(job, rows)


def _merge(job: Job, rows: Iterable[Mapping[str, Any]]) -> None:
    table: dict[str, Mapping[str, Any]] = {row["slide"]: row for row in read_summary(job)}
    for row in rows:
        kept = table.get(row["slide"], {})
        # somebody else's finished row is better than our "busy"
        table[row["slide"]] = kept if row["status"] == "busy" and kept.get("status") in ("done", PARTLY) else row
    names = [*COLUMNS, *sorted({key for row in table.values() for key in row} - set(COLUMNS))]
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, names, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(table[name] for name in sorted(table))
    with atomic_write(job.summary) as temporary:
        temporary.write_text(text.getvalue(), encoding="utf-8")


def read_summary(job: Job) -> list[dict[str, str]]:
    """Rows of the summary; none where there is no readable one (it can be made again at any time)."""
    try:
        with job.summary.open(newline="", encoding="utf-8") as handle:
            return [row for row in csv.DictReader(handle) if row.get("slide") and None not in row]
    except (OSError, UnicodeDecodeError, csv.Error):
        return []


def _joined(notes: Iterable[str]) -> str:
    """Notes of all steps; what two of them say (the resolution's) stands once."""
    return "; ".join(dict.fromkeys(part for note in notes for part in note.split("; ") if part))


def _row(slide: SlideRef, outcome: ItemResult[SlideResult]) -> dict[str, Any]:
    row: dict[str, Any] = {"slide": slide.name, "path": str(slide.path)}
    visit = outcome.value
    if visit is None:
        return {**row, "status": "failed", "reason": outcome.reason}
    if visit.busy:
        return {**row, "status": "busy", "reason": f"{visit.busy} is working on it"}
    lost = _lost_share(visit.about)
    if lost > MOST_LOST:
        reason = f"{slide.name}: {lost:.0%} of it could not be decoded and is left out; copy or scan the slide again."
        return {**row, "status": PARTLY, **visit.about, "reason": reason}
    return {**row, "status": "done", **visit.about}


def _lost_share(about: Mapping[str, Any]) -> float:
    """Largest share that could not be decoded: of the overview, or of the patches that were to be encoded."""
    masked, kept = float(about.get("masked") or 0), float(about.get("features") or 0)
    return max(float(about.get("unread") or 0), masked / max(masked + kept, 1))
