"""The shared folder of a command's shards: what was asked for, who works on what, and what is done.

OUTPUT.shards/request.json         what all shards were asked for; another request begins anew
              members/ANY.lock     a shard is at work; this lock, too, expires where its owner dies
              claims/ID.lock       somebody works on it; the lock expires where its owner dies
              results/ID           what came of it, written whole
              failed/ID            [name, reason] of each item of it that failed
              finished/INDEX-COUNT shards that have come to their end
              plans/NAME.json      parts of a walk that has begun, for whoever looks how far it is
"""

import os
import pickle
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from panther.content import hash_of
from panther.errors import InputError
from panther.progress import PLANS, Item, Plan, WorkRecord
from panther.shards.shard import Shard
from panther.storage.files import forget_listing, read_bytes, read_json, remove_tree, write_bytes, write_json
from panther.storage.locks import lock, locks_in, owner
from panther.storage.working import MARKER, TEXT
from panther.users import other_user, refusal

REQUEST, BEGIN, MEMBERS, CLAIMS = "request.json", "begin.lock", "members", "claims"
RESULTS, FAILED, FINISHED = "results", "failed", "finished"
BEGINNING = 60.0  # seconds after which a shard that died or was stopped while it began is forgotten
PATIENCE = 90.0  # seconds to wait while another shard begins


class SessionOverError(InputError):
    """The others have ended, or another request has begun, while this process was stopped or cut off."""


def session_folder(output: Path) -> Path:
    """Where the shards of a command that writes ``output`` meet."""
    return output.with_name(f"{output.name}.shards")


class Session:
    """What shards share; every method may be called by all of them at once."""

    def __init__(self, folder: Path, request: Mapping[str, Any], command: Sequence[str] = ()) -> None:
        self.folder = folder
        self.key = hash_of(dict(request))
        self._present = ExitStack()
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{folder}: the shards' folder cannot be made ({refusal(error, folder)}).") from error
        refuse_others_folder(folder)
        with self._alone():
            self._begun = self._begin(list(command))

    def join(self, shard: Shard) -> None:
        """Say that this process is at work, until it leaves. A shard that had come to its end is run anew: what failed is tried again."""
        with self._alone():
            self._refuse_when_over()
            if self._finished(shard).exists() and self._member() is None:
                self._forget_failed()
            self._finished(shard).unlink(missing_ok=True)
            self._present.enter_context(lock(self.folder / MEMBERS / f"{uuid.uuid4().hex}.lock"))

    def leave(self) -> None:
        """No longer be at work; all that was done stays."""
        self._present.close()

    def has(self, identity: str) -> bool:
        """Whether somebody has done it."""
        return self._result(identity).exists()

    def read(self, identity: str) -> Any:
        """What came of it."""
        path = self._result(identity)
        try:
            _refuse_others(path)
            return pickle.loads(read_bytes(path))
        except InputError:
            raise
        except Exception as error:  # a damaged pickle may raise anything
            self._refuse_when_over()
            raise InputError(
                f"{path}: this part of the work is damaged ({error}); remove {self.folder} and start all shards again."
            ) from error

    def keep(self, identity: str, value: Any, failures: Sequence[tuple[str, str]] = ()) -> None:
        """Let the others have it; ``failures`` are the names of items that failed, and why. What another has done meanwhile stays."""
        self._refuse_when_over()
        if self.has(identity):
            return
        if failures:
            write_json(self.folder / FAILED / identity, failures)
        write_bytes(self._result(identity), pickle.dumps(value))

    @contextmanager
    def claim(self, identity: str) -> Iterator[bool]:
        """Yield True where it is ours to do: nobody alive is at it."""
        self._refuse_when_over()
        with lock(self.folder / CLAIMS / f"{identity}.lock") as got:
            yield got and not self.has(identity)

    def announce(self, what: str, items: Sequence[Item]) -> None:
        """Say which parts a walk has, so that others see how far it is."""
        with suppress(OSError, InputError):  # nobody's result depends on it
            WorkRecord(self.folder, self.key).begin(hash_of(items)[:8], Plan((what,), tuple(items), "items"))

    def who(self, identity: str) -> str:
        """Who works on it, in words."""
        return owner(self.folder / CLAIMS / f"{identity}.lock")

    def finish(self, shard: Shard) -> None:
        """Note that a shard has come to its end. The last one removes the folder or, where items failed, what is to be tried again."""
        with suppress(OSError, InputError), self._alone():
            self._refuse_when_over()
            write_bytes(self._finished(shard), b"")
            self.leave()
            ended = len(list((self.folder / FINISHED).glob(f"*-{shard.count}")))
            if ended < shard.count or self._member() is not None:
                return
            if (self.folder / FAILED).exists():
                self._forget_failed()
            else:
                self._remove()
        self.leave()
        with suppress(OSError):
            self.folder.rmdir()  # where nothing is left in it

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """While a shard begins, joins or ends no other one does."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            with lock(self.folder / BEGIN, BEGINNING) as got:
                if got:
                    yield
                    return
            time.sleep(0.1)
        raise InputError(
            f"{self.folder}: another shard has been beginning for a minute ({owner(self.folder / BEGIN)})."
        )

    def _begin(self, command: list[str]) -> str:
        """Make the folder ready for this request; what is returned tells this beginning from others."""
        known = _request(self.folder)
        if known.get("key") == self.key:
            return str(known.get("begun"))
        others = [path for path in self.folder.iterdir() if path.name != BEGIN and path.suffix != ".part"]
        if others and not (self.folder / MARKER).exists():
            raise InputError(f"{self.folder}: shards cannot meet there, because it is somebody else's; move it away.")
        busy = self._member()
        if busy:
            raise InputError(
                f"{self.folder}: shards of another request are at work there ({busy}); wait for them, or give another output."
            )
        self._remove()
        self.folder.chmod(0o700)  # parts are pickles: nobody else may put one there
        write_bytes(self.folder / MARKER, TEXT.encode())
        begun = uuid.uuid4().hex
        about = {"key": self.key, "begun": begun, "command": command, "folder": os.getcwd()}
        write_json(self.folder / REQUEST, about)
        return begun

    def _remove(self) -> None:
        """Remove what is ours; the marker last, so that whoever is killed here leaves a folder that is known as ours."""
        if (self.folder / MARKER).exists():
            (self.folder / REQUEST).unlink(missing_ok=True)  # from now on the others know that this session is over
            for name in (RESULTS, FAILED, FINISHED, CLAIMS, MEMBERS, PLANS):
                remove_tree(self.folder / name)
            for path in self.folder.glob("*.part"):  # of killed processes
                path.unlink(missing_ok=True)
            (self.folder / MARKER).unlink(missing_ok=True)

    def _forget_failed(self) -> None:
        """Have what failed tried again, by shards that have all yet to end."""
        forget_listing(self.folder / FAILED)
        for path in (self.folder / FAILED).glob("*"):
            self._result(path.name).unlink(missing_ok=True)
        for name in (FAILED, FINISHED):
            remove_tree(self.folder / name)

    def _member(self) -> str | None:
        """Somebody else who is at work here."""
        for path in locks_in(self.folder / MEMBERS)[0]:
            with lock(path) as got:
                if not got:
                    return owner(path)
        return None

    def _refuse_when_over(self) -> None:
        """A process that was stopped may find that the others have ended without it."""
        if _request(self.folder).get("begun") != self._begun:
            raise SessionOverError(
                f"{self.folder}: the other shards have ended, or begun anew, while this one gave no sign of life; "
                "what it had in hand was done by them."
            )

    def _finished(self, shard: Shard) -> Path:
        return self.folder / FINISHED / f"{shard.index}-{shard.count}"

    def _result(self, identity: str) -> Path:
        return self.folder / RESULTS / identity


def _refuse_others(path: Path) -> None:
    """Results are pickles: those of other users, or that others may write to, are not opened."""
    if other_user(path) is not None or path.stat().st_mode & 0o002:
        raise InputError(
            f"{path}: this part belongs to another user, or anybody may write to it, so it is not opened; let one user run all shards."
        )


def _request(folder: Path) -> dict[str, Any]:
    """What the shards of a folder were asked for; nothing where there is no readable request."""
    with suppress(OSError, ValueError):
        found = read_json(folder / REQUEST)
        return found if isinstance(found, dict) else {}
    return {}


def refuse_others_folder(folder: Path) -> None:
    """One user runs all shards: their parts are pickles, and their request is a command, which nobody runs for somebody else."""
    name = other_user(folder)
    if name is not None:
        raise InputError(
            f"{folder}: shards of {name} meet there, and what others have made is not opened; let {name} run all of them, "
            "or give another output."
        )


def command_of(folder: Path) -> tuple[list[str], Path]:
    """The command that the shards of a folder were given, and where."""
    try:
        request = read_json(folder / REQUEST)
        return [str(word) for word in request["command"]], Path(request["folder"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{folder}: there is no readable request of shards ({error}).") from error
