"""How far the shards of a command are: from the folder that they meet in."""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from panther.progress import Noted, Plan, WorkRecord
from panther.shards.session import CLAIMS, FAILED, FINISHED, MEMBERS, REQUEST, RESULTS, command_of, session_folder
from panther.status.measure import Seen, StepStatus, WorkStatus, measure, people
from panther.storage.files import read_json
from panther.storage.locks import holders

__all__ = ["is_session", "session_folder", "status_of_session"]


def is_session(folder: Path) -> bool:
    """Whether shards meet, or have met, in a folder."""
    return (folder / REQUEST).is_file()


def status_of_session(folder: Path) -> WorkStatus:
    """Status of shards: of every kind of walk the latest one."""
    workers, now = holders(folder / MEMBERS)
    held, _ = holders(folder / CLAIMS)
    done = {path.name: path.stat().st_mtime for path in _files(folder / RESULTS)}
    walks: dict[str, list[Plan]] = {}
    for plan in WorkRecord(folder).plans():
        walks.setdefault(plan.steps[0], []).append(plan)
    steps = []
    for what, plans in walks.items():
        plan = plans[-1]
        noted = [Noted(what, item.identity, done[item.identity]) for item in plan.items if item.identity in done]
        (step,) = measure(plan, Seen(noted, held, {}, workers, now))
        named = what if len(plans) == 1 else f"{what} ({_ordinal(len(plans))} walk)"
        steps.append(replace(_with_failures(step, plan, folder), name=named))
    command, _ = command_of(folder)
    what = f"shards of panther {' '.join(command)}"
    people_at_work, dead = people(workers, alive=True), people(workers, alive=False)
    return WorkStatus(str(folder), what, now, tuple(steps), people_at_work, dead, _ended(folder), unfinished=True)


def _ended(folder: Path) -> tuple[str, ...]:
    """How many shards have come to their end."""
    ended = [path.name.partition("-") for path in _files(folder / FINISHED)]
    counts = {count for _, _, count in ended if count.isdigit()}
    return tuple(
        f"{sum(count == n for _, _, n in ended)} of {count} shards have come to their end." for count in sorted(counts)
    )


def _with_failures(step: StepStatus, plan: Plan, folder: Path) -> StepStatus:
    """A part is done when its items are, also where some of these failed."""
    failed: dict[str, str] = {}
    for item in plan.items:
        with suppress(OSError, ValueError, TypeError):
            failed |= {str(name): str(reason) for name, reason in read_json(folder / FAILED / item.identity)}
    return replace(step, done=max(step.done - len(failed), 0), failed=failed)


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.glob("*") if path.suffix != ".part"]


def _ordinal(number: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th") if number % 100 not in (11, 12, 13) else "th"
    return f"{number}{ending}"
