"""The shared folder of a command's shards: what was asked for, who works on what, and what is done.

OUTPUT.shards/request.json      what all shards were asked for; another request begins anew
              claims/ID.lock    somebody works on it; the lock expires where its owner dies
              results/ID        what came of it, written whole
              finished/INDEX    shards that have come to their end
"""

import os
import pickle
import shutil
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from panther.content import hash_of
from panther.errors import InputError
from panther.shards.shard import Shard
from panther.storage.files import read_bytes, read_json, write_bytes, write_json
from panther.storage.locks import lock, owner
from panther.storage.working import MARKER, TEXT

REQUEST, CLAIMS, RESULTS, FINISHED = "request.json", "claims", "results", "finished"
PATIENCE = 60.0  # seconds to wait while another shard begins


def session_folder(output: Path) -> Path:
    """Where the shards of a command that writes ``output`` meet."""
    return output.with_name(f"{output.name}.shards")


class Session:
    """What shards share; every method may be called by all of them at once."""

    def __init__(self, folder: Path, request: Mapping[str, Any], command: Sequence[str] = ()) -> None:
        self.folder = folder
        self.key = hash_of(dict(request))
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{folder}: the shards' folder cannot be made ({error.strerror}).") from error
        for _ in range(int(PATIENCE / 0.1)):
            with lock(folder / "begin.lock") as got:
                if got:
                    self._begin(list(command))
                    return
            time.sleep(0.1)
        raise InputError(f"{folder}: another shard has been beginning for a minute ({owner(folder / 'begin.lock')}).")

    def has(self, identity: str) -> bool:
        """Whether somebody has done it."""
        return self._result(identity).exists()

    def read(self, identity: str) -> Any:
        """What came of it."""
        path = self._result(identity)
        _refuse_others(path)
        return pickle.loads(read_bytes(path))

    def keep(self, identity: str, value: Any) -> None:
        """Let the others have it."""
        write_bytes(self._result(identity), pickle.dumps(value))

    @contextmanager
    def claim(self, identity: str) -> Iterator[bool]:
        """Yield True where it is ours to do: nobody alive is at it."""
        with lock(self.folder / CLAIMS / f"{identity}.lock") as got:
            yield got and not self.has(identity)

    def who(self, identity: str) -> str:
        """Who works on it, in words."""
        return owner(self.folder / CLAIMS / f"{identity}.lock")

    def finish(self, shard: Shard, again: Collection[str] = ()) -> None:
        """Note that a shard has come to its end. The last one removes the folder or, where items failed, what is to be tried ``again``."""
        with suppress(OSError):
            write_bytes(self.folder / FINISHED / str(shard.index), b"")
            if len(list((self.folder / FINISHED).glob("[0-9]*"))) < shard.count:
                return
            if not again:
                self.remove()
                return
            for identity in again:
                self._result(identity).unlink(missing_ok=True)
            shutil.rmtree(self.folder / FINISHED)

    def remove(self) -> None:
        """Remove the folder, and nothing that is not ours."""
        if (self.folder / MARKER).exists():
            shutil.rmtree(self.folder, ignore_errors=True)

    def _begin(self, command: list[str]) -> None:
        request = self.folder / REQUEST
        begun = None
        with suppress(OSError, ValueError, TypeError, KeyError):
            begun = read_json(request)["key"]
        if begun == self.key:
            return
        others = [path for path in self.folder.iterdir() if path.name not in ("begin.lock", CLAIMS)]
        if others and not (self.folder / MARKER).exists():
            raise InputError(f"{self.folder}: shards cannot meet there, because it is somebody else's; move it away.")
        busy = self._busy()
        if busy:
            raise InputError(
                f"{self.folder}: shards of another request are at work there ({busy}); wait for them, or give another output."
            )
        for name in (RESULTS, FINISHED):
            shutil.rmtree(self.folder / name, ignore_errors=True)
        self.folder.chmod(0o700)  # parts are pickles: nobody else may put one there
        write_bytes(self.folder / MARKER, TEXT.encode())
        write_json(request, {"key": self.key, "command": command, "folder": os.getcwd()})

    def _busy(self) -> str | None:
        """Somebody alive who has a claim."""
        for path in sorted((self.folder / CLAIMS).glob("*.lock")):
            with lock(path) as got:
                if not got:
                    return owner(path)
        return None

    def _result(self, identity: str) -> Path:
        return self.folder / RESULTS / identity


def _refuse_others(path: Path) -> None:
    """Results are pickles: those of other users, or that others may write to, are not opened."""
    about = path.stat()
    if about.st_uid != os.getuid() or about.st_mode & 0o002:
        raise InputError(
            f"{path}: this part belongs to another user, or anybody may write to it, so it is not opened; let one user run all shards."
        )


def command_of(folder: Path) -> tuple[list[str], Path]:
    """The command that the shards of a folder were given, and where."""
    try:
        request = read_json(folder / REQUEST)
        return [str(word) for word in request["command"]], Path(request["folder"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{folder}: there is no readable request of shards ({error}).") from error
