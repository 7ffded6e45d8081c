"""Steps over the slides of a job folder, each resumable, by one process or many.

A step is an object with a name, ``done(files)``, ``run(files)`` and ``about(files)``; what it did stands in files, so a job that was
killed goes on from what is there.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from panther.attempts import reason_of
from panther.errors import InputError
from panther.execution import HERE, ItemResult, Work, map_slides
from panther.job_folder import PARTLY, Job
from panther.progress import WorkRecord
from panther.slides.cache import SlideCache, remove_copy
from panther.slides.folder import SlideFiles
from panther.slides.listing import SlideRef
from panther.slides.summary import write_summary
from panther.storage.locks import lock, owner, sweep

# share of a slide that may be undecodable before the slide counts as partly read, which is reported as a failure
MOST_LOST = 0.05


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
    busy: str | None = None  # who works on it
    failed: str | None = None  # why it failed in another shard
    about: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Worker:
    """All steps on one slide; it is sent to worker processes."""

    job: Job
    steps: tuple[Step, ...]
    record: WorkRecord | None = None
    earlier: tuple[Step, ...] = ()  # not run, but told of

    def __call__(self, slide: SlideRef) -> SlideResult:
        """Run what is not done, unless another process is at it or has seen it fail."""
        try:
            return self._worked_on(slide)
        except InputError as error:
            raise InputError(_of_the_original(str(error), slide)) from error
        finally:
            remove_copy(slide)

    def needs(self, slide: SlideRef) -> bool:
        """Whether there is something to do, and nobody is at it."""
        files = SlideFiles(slide, self.job)
        done = all(step.done(files) for step in self.steps)
        return not done and not (self.job.locks / f"{slide.name}.lock").exists()

    def _worked_on(self, slide: SlideRef) -> SlideResult:
        files, ran, began = SlideFiles(slide, self.job), tuple[str, ...](), time.monotonic()
        if not all(step.done(files) for step in self.steps):
            path = self.job.locks / f"{slide.name}.lock"
            with lock(path) as got:
                if not got:
                    return SlideResult(busy=owner(path))
                if self.record is not None and (reason := self.record.failure(slide.name)) is not None:
                    return SlideResult(failed=reason)
                files = SlideFiles(slide, self.job)  # read anew: another process may have worked on it until now
                ran = self._run(files)
        about = _merged([step.about(files) for step in (*self.earlier, *self.steps)])
        if self.record is not None:
            for step in self.steps:
                seconds = round(time.monotonic() - began, 3) if step.name in ran else None
                self.record.note(step.name, slide.name, seconds, int(about.get("patches", about.get("features")) or 0))
        return SlideResult(ran, about=about)

    def _run(self, files: SlideFiles) -> tuple[str, ...]:
        try:
            return tuple(step.name for step in self.steps if _run_if_needed(step, files))
        except Exception as error:
            now = SlideFiles(files.slide, files.job)
            if all(
                step.done(now) for step in self.steps
            ):  # by another process, while this one was stopped and lost its lock
                return ()
            if self.record is not None:  # while the lock is held: whoever has it next knows
                self.record.fail(files.slide.name, _of_the_original(reason_of(error, files.slide), files.slide))
            raise

    def close(self) -> None:
        """End what steps keep between slides, in a process that was lent."""
        for step in self.steps:
            if hasattr(step, "close"):
                step.close()


def _of_the_original(sentence: str, slide: SlideRef) -> str:
    """Sentence about a slide where the user knows it, and not about its copy."""
    return sentence if slide.copy is None else sentence.replace(str(slide.copy.parent), str(slide.path.parent))


def _run_if_needed(step: Step, files: SlideFiles) -> bool:
    if step.done(files):
        return False
    step.run(files)
    return True


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
    def busy(self) -> dict[str, str]:
        """Slides that another process has in hand, and which."""
        return {row["slide"]: row["reason"] for row in self.rows if row["status"] == "busy"}

    @property
    def patches(self) -> int:
        """Patches of all slides."""
        return sum(self.patches_by_slide.values())

    @property
    def patches_by_slide(self) -> dict[str, int]:
        """Patches of every slide that has been laid out."""
        return {row["slide"]: int(row["patches"]) for row in self.rows if row.get("patches") not in (None, "")}

    def remaining(self, slides: Iterable[SlideRef]) -> list[SlideRef]:
        """Slides that neither failed nor are in other hands."""
        left_out = {row["slide"] for row in self.rows if row["status"] in ("failed", "busy")}
        return [slide for slide in slides if slide.name not in left_out]


def run_job(
    slides: Sequence[SlideRef],
    steps: Iterable[Step],
    job: Job,
    *,
    work: Work = HERE,
    problems: Mapping[str, str] | None = None,
    before: JobReport | None = None,
    record: WorkRecord | None = None,
    cache: SlideCache | None = None,
    earlier: Iterable[Step] = (),
) -> JobReport:
    """Run the steps over the slides and write the summary; slides that fail are listed in it, the others go on.

    ``before`` is the report of earlier steps on the same slides: what failed or was busy there is left out, the columns of the others are kept.
    ``earlier`` are steps that are not run: the summary has what their files say. ``record`` lets others see how far the work is, and shards
    share what has failed; ``cache`` copies slides ahead.
    """
    worker = Worker(job, tuple(steps), record, tuple(earlier))
    known = {} if before is None else {row["slide"]: row for row in before.rows}
    slides = slides if before is None else before.remaining(slides)
    results: dict[str, ItemResult[SlideResult]] = {}
    what = ", ".join(step.name for step in worker.steps)
    coming = slides if cache is None else cache.ahead(slides, worker.needs)
    for result in work.track(map_slides(worker, coming, work.executor), what, len(slides)):
        results[slides[result.index].name] = result
        if record is not None and result.reason is not None:  # said here, where a worker died of it
            record.fail(slides[result.index].name, result.reason)
    # what another process had in hand, or has seen fail, may be finished, or left behind, by now
    again = [slide for slide in slides if (v := results[slide.name].value) is not None and (v.busy or v.failed)]
    for result in map_slides(worker, again, work.executor):
        results[again[result.index].name] = result
    rows = [_row(slide, results[slide.name], known.get(slide.name, {})) for slide in slides]
    rows += [{"slide": name, "status": "failed", "reason": sentence} for name, sentence in (problems or {}).items()]
    rows += [dict(row) for name, row in known.items() if name not in results]
    write_summary(job, rows)
    sweep(job.locks)
    ran = {name for name, result in results.items() if result.value is not None and result.value.ran}
    ran |= frozenset() if before is None else before.ran
    return JobReport(tuple(rows), frozenset(ran))


def _row(slide: SlideRef, result: ItemResult[SlideResult], earlier: Mapping[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {"slide": slide.name, "path": str(slide.path)}
    failed = result.reason if result.value is None else result.value.failed
    if result.value is None or failed:
        return {**row, "status": "failed", "reason": failed}
    if result.value.busy:
        return {**row, "status": "busy", "reason": f"{result.value.busy} is working on it"}
    about = _merged([{k: v for k, v in earlier.items() if k not in ("status", "reason")}, result.value.about])
    lost = _lost_share(about)
    if lost > MOST_LOST:
        reason = f"{slide.name}: {lost:.0%} of it could not be decoded and is left out; copy or scan the slide again."
        return {**row, "status": PARTLY, **about, "reason": reason}
    return {**row, "status": "done", **about}


def _merged(columns: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Columns of all steps; what two of them note (the resolution's) stands once."""
    notes = dict.fromkeys(part for one in columns for part in str(one.get("note", "")).split("; ") if part)
    return {**{key: value for one in columns for key, value in one.items()}, "note": "; ".join(notes)}


def _lost_share(about: Mapping[str, Any]) -> float:
    """Largest share that could not be decoded: of the overview, or of the patches that were to be encoded."""
    masked, kept = float(about.get("masked") or 0), float(about.get("features") or 0)
    return max(float(about.get("unread") or 0), masked / max(masked + kept, 1))
