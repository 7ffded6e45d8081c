"""What work that takes long writes down about itself, so that others can see how far it is and what has failed.

FOLDER/plans/NAME.json          steps, and the items that go through them; as old as the work
       noted/HOST-PID.jsonl     what a process has finished, a line each; a file has one writer, so that none is torn on NFS
       failed/HASH.json         an item that failed, why, and which shard says so
       at-work/NAME.lock        a process that is at it
       finished/NAME            a shard that has come to its end

Nothing here is needed for a result: where a line cannot be written the work goes on without it.
"""

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from panther.content import hash_of
from panther.errors import InputError
from panther.storage.files import forget_listing, read_json, remove_tree, write_json
from panther.storage.locks import Holder, clock_offset, holders, host_name, lock
from panther.storage.row_log import LineLog

PLANS, NOTED, FAILED, AT_WORK, FINISHED = "plans", "noted", "failed", "at-work", "finished"
UNREADABLE = (
    OSError,
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    AttributeError,
)  # of a file that is damaged, or gone by now


class Item(NamedTuple):
    """Something that goes through steps."""

    identity: str
    name: str  # for people
    size: int = 1  # slides that it stands for


@dataclass(frozen=True)
class Plan:
    """Steps and the items that go through each of them."""

    steps: tuple[str, ...]
    items: tuple[Item, ...]
    unit: str = "slides"
    places: tuple[str, ...] = ()  # of the steps' files, as far as whoever looks needs them
    began: float = 0.0  # by the file system's clock; known when it is read


class Noted(NamedTuple):
    """An item that has gone through a step."""

    step: str
    identity: str
    at: float  # by the file system's clock
    seconds: float | None = 0.0  # that it took, as far as that is known; None: it was done before
    patches: int = 0


@dataclass(frozen=True)
class WorkRecord:
    """The record in a folder, written by a shard of some work; small, so that it can be sent to worker processes."""

    folder: Path
    key: str = ""  # of the request: what was noted for another one does not count
    shard: str = "0/1"

    def begin(self, name: str, plan: Plan) -> None:
        """Say what will be done; where the same is written already, it began then. Plans that nobody follows any more are removed."""
        items = [item.name if item == Item(item.name, item.name) else list(item) for item in plan.items]
        value = {"key": self.key, "steps": plan.steps, "items": items, "unit": plan.unit, "places": plan.places}
        path = self.folder / PLANS / f"{name}-{hash_of(self.key)[:8]}.json"
        with suppress(*UNREADABLE):
            if hash_of(read_json(path)) == hash_of(value):
                return
        if not any(one.alive for one in self.workers()[0]):
            for other in (self.folder / PLANS).glob("*.json"):
                if self._key_of(other) != self.key:
                    with suppress(OSError):
                        other.unlink()
        write_json(path, value)

    def forget_failures(self) -> None:
        """Let what this shard saw fail, or an earlier request, be tried again."""
        forget_listing(self.folder / FAILED)
        for path, found in self._failed():
            if found.get("key") != self.key or found.get("shard") == self.shard or not self._same_count(found):
                with suppress(OSError):
                    path.unlink()

    def note(self, step: str, identity: str, seconds: float | None, patches: int) -> None:
        """Say that an item has gone through a step; without ``seconds`` that it had done so before."""
        at = time.time() + _offset(self.folder)
        with suppress(OSError):
            LineLog(self._own()).append([self.key, step, identity, round(at, 3), seconds, patches])

    def fail(self, identity: str, reason: str) -> None:
        """Say that an item failed: the other shards need not try it."""
        value = {"key": self.key, "shard": self.shard, "item": identity, "reason": reason}
        with suppress(OSError, InputError):
            write_json(self.folder / FAILED / f"{hash_of(identity)}.json", value)

    def failure(self, identity: str) -> str | None:
        """Why an item failed in this shard or another one; None where it is to be tried."""
        with suppress(*UNREADABLE):
            found = read_json(self.folder / FAILED / f"{hash_of(identity)}.json")
            return str(found["reason"]) if found["key"] == self.key else None
        return None

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Be seen while the work goes on, which has not come to its end."""
        with suppress(OSError):
            self._end().unlink()
        try:
            with lock(self.folder / AT_WORK / f"{host_name()}-{os.getpid()}.lock"):
                yield
        except InputError:
            if not self.plans() and not any(one.alive for one in self.workers()[0]):
                remove_record(self.folder)  # refused before anything began
            raise

    def finish(self) -> None:
        """Say that this shard has come to its end; after the last one nothing is left to be seen, and the record is removed."""
        count = int(self.shard.partition("/")[2])
        with suppress(OSError, InputError):
            write_json(self._end(), {})
            ended = len(list((self.folder / FINISHED).glob(f"*-{count}")))
            if ended >= count and not any(one.alive for one in self.workers()[0]):
                remove_record(self.folder)

    def plans(self) -> list[Plan]:
        """What is to be done, the oldest first."""
        found = []
        for path in (self.folder / PLANS).glob("*.json"):
            with suppress(*UNREADABLE):
                value = read_json(path)
                items = tuple(Item(one, one) if isinstance(one, str) else Item(*one) for one in value["items"])
                steps, places = tuple(map(str, value["steps"])), tuple(map(str, value["places"]))
                found.append(Plan(steps, items, str(value["unit"]), places, path.stat().st_mtime))
        return sorted(found, key=lambda plan: plan.began)

    def noted(self) -> Iterator[Noted]:
        """What was finished, for the request of the plans."""
        keys = {self._key_of(path) for path in (self.folder / PLANS).glob("*.json")}
        for path in (self.folder / NOTED).glob("*.jsonl"):
            for line in LineLog(path).read():
                with suppress(*UNREADABLE):
                    key, step, identity, at, seconds, patches = line
                    if key in keys:
                        seconds = None if seconds is None else float(seconds)
                        yield Noted(str(step), str(identity), float(at), seconds, int(patches))

    def failures(self) -> dict[str, str]:
        """Items that failed, and why."""
        return {str(found["item"]): str(found["reason"]) for _, found in self._failed()}

    def workers(self) -> tuple[list[Holder], float]:
        """Processes at work, and those that died at it; and the file system's time."""
        return holders(self.folder / AT_WORK)

    def _end(self) -> Path:
        return self.folder / FINISHED / self.shard.replace("/", "-")

    def _own(self) -> Path:
        return self.folder / NOTED / f"{host_name()}-{os.getpid()}.jsonl"

    def _failed(self) -> Iterator[tuple[Path, dict[str, Any]]]:
        for path in (self.folder / FAILED).glob("*.json"):
            with suppress(*UNREADABLE):
                found = read_json(path)
                if {"item", "reason"} <= found.keys():
                    yield path, found

    def _same_count(self, found: dict[str, Any]) -> bool:
        return str(found.get("shard")).partition("/")[2] == self.shard.partition("/")[2]

    def _key_of(self, path: Path) -> Any:
        with suppress(*UNREADABLE):
            return read_json(path)["key"]
        return None


def remove_record(folder: Path) -> None:
    """Remove what is written here, and the folder if nothing else is in it."""
    for name in (PLANS, NOTED, FAILED, AT_WORK, FINISHED):
        remove_tree(folder / name)
    with suppress(OSError):
        folder.rmdir()


def items_of(names: Iterable[str]) -> tuple[Item, ...]:
    """Items that are called what they are."""
    return tuple(Item(name, name) for name in names)


@cache
def _offset(folder: Path) -> float:
    """How far the file system's clock is ahead of this machine's."""
    return clock_offset(folder)
