"""How far a job over slides is: from its record while it runs or was stopped, from `summary.csv` when it has ended."""

from collections.abc import Mapping
from pathlib import Path

from panther.job_folder import PARTLY, Job, read_summary
from panther.progress import Plan, WorkRecord
from panther.status.measure import Seen, StepStatus, WorkStatus, measure, people
from panther.storage.locks import holders
from panther.storage.row_log import LineLog
from panther.storage.working import partial_folder

ENCODING = "features"  # the step whose speed is told in patches


def is_job(folder: Path) -> bool:
    """Whether a folder is one of `panther slides`."""
    job = Job(folder)
    return job.progress.is_dir() or job.locks.is_dir() or any("status" in row for row in read_summary(job)[:1])


def status_of_job(folder: Path) -> WorkStatus:
    """Status of a job folder."""
    job = Job(folder)
    record = WorkRecord(job.progress)
    workers, now = record.workers()
    rows = {row["slide"]: row for row in read_summary(job)}
    plans = record.plans()
    if not plans:
        return WorkStatus(str(folder), "slides", now, (_from_summary(rows),), notes=_without_record(rows))
    held, _ = holders(job.locks)
    noted = list(record.noted())
    patches = {name: int(row["patches"]) for name, row in rows.items() if (row.get("patches") or "").isdigit()}
    patches |= {one.identity: one.patches for one in noted if one.patches}
    partly = {one.name: _rows(job.folder / place, one.name) for plan in plans for place in plan.places for one in held}
    seen = Seen(noted, held, record.failures(), workers, now, patches, partly)
    steps = tuple(step for plan in plans for step in measure(plan, seen, (ENCODING,)))
    return WorkStatus(
        str(folder), "slides", now, steps, people(workers, alive=True), people(workers, alive=False), _notes(plans)
    )


def _from_summary(rows: Mapping[str, Mapping[str, str]]) -> StepStatus:
    done = sum(row["status"] in ("done", PARTLY) for row in rows.values())
    failed = {name: row["reason"] for name, row in rows.items() if row["status"] in ("failed", PARTLY)}
    return StepStatus(
        "all steps", "slides", len(rows), done - sum(rows[name]["status"] == PARTLY for name in failed), failed=failed
    )


def _without_record(rows: Mapping[str, object]) -> tuple[str, ...]:
    if rows:
        return ("Nobody is at work; this is what summary.csv says.",)
    return ("Neither a summary nor a record of the work is here yet.",)


def _notes(plans: list[Plan]) -> tuple[str, ...]:
    return ("Several requests are at work in this folder, one after the other below.",) if len(plans) > 1 else ()


def _rows(features: Path, slide: str) -> int:
    """Patches of a slide that are encoded while it is not finished."""
    found = LineLog(partial_folder(features / f"{slide}.h5") / "done.jsonl").read()
    return sum(block[1] for block in found if isinstance(block, list) and len(block) > 1 and isinstance(block[1], int))
