"""How far a study is: from its record and the files of its jobs while it runs or was stopped, from `run.json` when it has ended."""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from panther.progress import Noted, Plan, WorkRecord
from panther.status.measure import Seen, StepStatus, WorkStatus, measure, people
from panther.storage.files import read_json

RECORD = "run.json"


def is_study(folder: Path) -> bool:
    """Whether a folder is one of `panther run`."""
    begun = any((folder / "cache" / name).exists() for name in ("progress", "fingerprints.jsonl"))
    return begun or all((folder / name).is_file() for name in (RECORD, "study.json"))


def status_of_study(folder: Path) -> WorkStatus:
    """Status of a study's folder."""
    record = WorkRecord(folder / "cache" / "progress")
    workers, now = record.workers()
    plans = record.plans()
    at_work, dead = people(workers, alive=True), people(workers, alive=False)
    if not plans:
        return _of_the_past(folder, WorkStatus(str(folder), "study", now, (), at_work, dead, unfinished=True))
    failures = record.failures()
    steps: list[StepStatus] = []
    for plan in plans:
        steps += measure(plan, Seen(_made(plan, folder), (), failures, workers, now))
    return WorkStatus(str(folder), "study", now, tuple(steps), at_work, dead, unfinished=True)


def _made(plan: Plan, folder: Path) -> list[Noted]:
    """Jobs whose files are there, and since when."""
    found = []
    for item in plan.items:
        with suppress(OSError):
            found.append(Noted(plan.steps[0], item.identity, (folder / item.identity).stat().st_mtime))
    return found


def _of_the_past(folder: Path, status: WorkStatus) -> WorkStatus:
    """Status without plans: the study has ended, or only reads its features so far."""
    if status.working:
        return replace(status, notes=("It reads the features; what there is to do is known after that.",))
    run: Any = None
    with suppress(OSError, ValueError):
        run = read_json(folder / RECORD)
    if not isinstance(run, dict) or not isinstance(run.get("trained"), list):
        return replace(status, notes=("What it was to do is not written down.",))
    failed = run.get("failures")
    failed = {str(name): str(why) for name, why in failed.items()} if isinstance(failed, dict) else {}
    lost = {name: why for name, why in failed.items() if name.startswith("models: ")}
    count = len(run["trained"])
    steps = (StepStatus("models", "jobs", count + len(lost), count, failed=lost),)
    notes = tuple(f"Left out: {why}" for name, why in failed.items() if name not in lost)
    return replace(status, steps=steps, notes=notes, unfinished=False)
