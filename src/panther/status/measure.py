"""From plans and what was noted to what is done, running, lost, failed and left of every step, how fast, and when it ends."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from panther.progress import Item, Noted, Plan
from panther.storage.locks import Holder

WINDOW = 1800.0  # seconds: a speed is that of the last half hour


class InHand(NamedTuple):
    """Something that a process works on, or worked on when it died."""

    item: str  # a slide; a shard, where it stands for the process itself
    host: str
    pid: int
    since: float
    seen: float  # last sign of life
    patches: int = 0  # that are done of it


@dataclass(frozen=True)
class StepStatus:
    """How far one step is."""

    name: str
    unit: str  # what is counted
    total: int  # items that come to it: those that failed before do not
    done: int
    running: tuple[InHand, ...] = ()
    lost: tuple[InHand, ...] = ()  # in the hands of processes that are dead
    failed: Mapping[str, str] = field(default_factory=dict)
    rate: float | None = None  # of the last half hour, per second
    rate_unit: str = ""
    seconds_left: float | None = None

    @property
    def left(self) -> int:
        """Items that nobody has begun."""
        return max(self.total - self.done - len(self.running) - len(self.failed), 0)

    @property
    def ended(self) -> bool:
        """Whether nothing is left to do."""
        return self.done + len(self.failed) >= self.total


@dataclass(frozen=True)
class WorkStatus:
    """How far some work is."""

    place: str
    what: str
    now: float  # by the file system's clock
    steps: tuple[StepStatus, ...] = ()
    at_work: tuple[InHand, ...] = ()
    lost: tuple[InHand, ...] = ()  # processes that died
    notes: tuple[str, ...] = ()
    unfinished: bool = False  # there is more to do than the steps that are known

    @property
    def ended(self) -> bool:
        """Whether nothing is left to do."""
        return not self.unfinished and all(step.ended for step in self.steps)

    @property
    def working(self) -> bool:
        """Whether anybody is at it."""
        return bool(self.at_work) or any(step.running for step in self.steps)

    @property
    def failed(self) -> dict[str, str]:
        """Everything that failed, and why."""
        return {name: reason for step in self.steps for name, reason in step.failed.items()}


@dataclass(frozen=True)
class Seen:
    """What was found of some work."""

    noted: Sequence[Noted]
    held: Sequence[Holder]  # claims, by the identities of items
    failures: Mapping[str, str]
    workers: Sequence[Holder]
    now: float
    patches: Mapping[str, int] = field(default_factory=dict)  # of items, where they are known
    partly: Mapping[str, int] = field(default_factory=dict)  # patches of items in hand that are done

    @property
    def alive(self) -> bool:
        """Whether anybody is at work."""
        return any(one.alive for one in (*self.workers, *self.held))


def measure(plan: Plan, seen: Seen, in_patches: Iterable[str] = ()) -> list[StepStatus]:
    """Status of every step of a plan; the speed of some steps is told in patches."""
    remaining: Sequence[Item] = plan.items
    held = {one.name: one for one in seen.held}
    told: set[str] = set()  # an item in hand, or failed, stands at the first step that it has not gone through
    steps = []
    for step in plan.steps:
        finished = {one.identity: one for one in seen.noted if one.step == step}
        open_items = [item for item in remaining if item.identity not in finished]
        here = [item for item in open_items if item.identity not in told]
        failed = {item.name: seen.failures[item.identity] for item in here if item.identity in seen.failures}
        hands = [(item, held[item.identity]) for item in here if item.identity in held and item.name not in failed]
        told |= {item.identity for item in here if item.identity in held or item.identity in seen.failures}
        by_patches = step in in_patches
        todo = [item for item in open_items if item.name not in failed]
        rate = _rate(plan, list(finished.values()), seen, by_patches)
        steps.append(
            StepStatus(
                step,
                plan.unit,
                sum(item.size for item in remaining),
                sum(item.size for item in remaining if item.identity in finished),
                tuple(_in_hand(item, one, seen) for item, one in hands if one.alive),
                tuple(_in_hand(item, one, seen) for item, one in hands if not one.alive),
                failed,
                rate,
                "patches" if by_patches else plan.unit,
                _amount(todo, seen, by_patches) / rate if rate else None,
            )
        )
        remaining = [item for item in remaining if item.name not in failed]
    return steps


def people(holders: Sequence[Holder], *, alive: bool) -> tuple[InHand, ...]:
    """Processes at work, or dead ones."""
    return tuple(InHand(one.name, one.host, one.pid, one.since, one.seen) for one in holders if one.alive == alive)


def _in_hand(item: Item, one: Holder, seen: Seen) -> InHand:
    return InHand(item.name, one.host, one.pid, one.since, one.seen, seen.partly.get(item.identity, 0))


def _rate(plan: Plan, noted: Sequence[Noted], seen: Seen, by_patches: bool) -> float | None:
    """Items, or patches, per second of the last half hour; None where nobody works or nothing has come to its end."""
    if not seen.alive:
        return None
    counts = {item.identity: item.size for item in plan.items}
    oldest = min((one.since for one in seen.workers if one.alive), default=plan.began)
    since = max(seen.now - WINDOW, oldest, plan.began)
    recent = [one for one in noted if one.at >= since and one.seconds is not None and one.identity in counts]
    partly = sum(seen.partly.values()) if by_patches else 0
    if not recent and not partly:
        return None
    # the step began with its first item, which may be long after the work did; where that is not known, with the work
    began = [max(one.at - (one.seconds or seen.now), since) for one in recent] or [
        one.since for one in seen.held if one.alive
    ]
    seconds = max(seen.now - min(began, default=since), 1.0)
    return (sum(one.patches if by_patches else counts[one.identity] for one in recent) + partly) / seconds


def _amount(items: Sequence[Item], seen: Seen, by_patches: bool) -> float:
    """Items that are left, or their patches; of a slide whose patches are not counted yet, as many as others have."""
    if not by_patches:
        return sum(item.size for item in items)
    usual = sum(seen.patches.values()) / max(len(seen.patches), 1)
    return sum(max(seen.patches.get(item.identity, usual) - seen.partly.get(item.identity, 0), 0) for item in items)
