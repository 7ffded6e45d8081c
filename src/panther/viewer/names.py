"""Names of prototypes edited in the page: saved at once, never over a change made elsewhere, with undo.

There is one names file, that of the first set of prototypes; other sets are shown by their numbers. The file is read again before every
change. Changes by others are kept; if they changed the same field, nothing is written and both values are shown.
"""

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from panther.errors import InputError
from panther.explain.names import (
    Naming,
    changed_text,
    checked_colour,
    colours,
    file_text,
    parse_namings,
    plain_field,
    titles,
)
from panther.storage.files import write_text
from panther.store import Version, check_writable, version_of

STEPS = 200  # that can be undone


class ConflictError(InputError):
    """The same field was changed elsewhere; the page shows both values."""


@dataclass(frozen=True)
class Step:
    """One change of this session."""

    prototype: int
    before: Mapping[str, str]
    after: Mapping[str, str]


@dataclass(frozen=True)
class NamesState:
    """Content of the file at one moment."""

    namings: Mapping[int, Naming]
    problem: str = ""  # why it cannot be read
    version: str = ""  # of the file


class NamesBook:
    """The names file of ``count`` prototypes. Threads may share it, and so may other programs."""

    def __init__(self, path: Path, count: int, check: Callable[[], None] = lambda: None) -> None:
        self.path, self.count = path, count
        self._check = check  # refuses a file that was replaced by a link
        self._lock = threading.Lock()
        self._steps: deque[Step] = deque(maxlen=STEPS)
        self._last: tuple[Version, NamesState] | None = None

    def state(self) -> NamesState:
        """Content of the file; read again only if it was changed."""
        with self._lock:
            stamp = version_of([self.path])
            if self._last is None or self._last[0] != stamp:
                self._last = stamp, self._read(str(hash(stamp)))[1]
            return self._last[1]

    @property
    def next_undo(self) -> str:
        """Change that undo would revert; empty if there is none."""
        with self._lock:
            return f"{' and '.join(self._steps[-1].after)} of C{self._steps[-1].prototype}" if self._steps else ""

    def change(self, prototype: int, changes: Mapping[str, str], seen: Mapping[str, str]) -> None:
        """Change some fields of a prototype; ``seen`` are the values that the page shows."""
        if not 0 <= prototype < self.count:
            raise InputError(f"there is no prototype C{prototype}, expected C0 to C{self.count - 1}")
        after = {field: plain_field(field, value) for field, value in changes.items()}
        if after.get("colour"):
            after["colour"] = checked_colour(after["colour"])
        with self._writing() as (text, now):
            present = now.get(prototype, Naming())
            for field, value in after.items():
                if getattr(present, field) not in (seen.get(field, ""), value):
                    change = f"to {getattr(present, field)!r}; yours, {value!r}, is not saved"
                    raise ConflictError(f"the {field} of C{prototype} was changed elsewhere {change}")
            after = {field: value for field, value in after.items() if getattr(present, field) != value}
            if after:
                write_text(self.path, changed_text(self.path, text, prototype, after, self.count))
                before = {field: getattr(present, field) for field in after}
                self._steps.append(Step(prototype, before, after))

    def undo(self) -> None:
        """Revert the last change of this session, unless it was changed again elsewhere."""
        with self._writing() as (text, now):
            if not self._steps:
                raise InputError("there is nothing to undo")
            step = self._steps[-1]
            present = now.get(step.prototype, Naming())
            if any(getattr(present, field) != value for field, value in step.after.items()):
                self._steps.pop()
                raise ConflictError(f"C{step.prototype} was changed elsewhere; that change stays")
            write_text(self.path, changed_text(self.path, text, step.prototype, step.before, self.count))
            self._steps.pop()

    @contextmanager
    def _writing(self) -> Iterator[tuple[str, Mapping[int, Naming]]]:
        """Text and content of the file, to be changed."""
        with self._lock, changing(self.path):
            text, now = self._read()
            if now.problem:
                raise InputError(f"{now.problem}; nothing was saved")
            yield text, now.namings
            self._last = None

    def _read(self, version: str = "") -> tuple[str, NamesState]:
        if not self.path.exists():
            return "", NamesState({}, version=version)
        try:
            self._check()
            text = file_text(self.path)
            return text, NamesState(parse_namings(self.path, text, self.count), version=version)
        except InputError as error:
            return "", NamesState({}, str(error), version)


@contextmanager
def changing(path: Path) -> Iterator[None]:
    """Lock the folder of a file against other viewers while it is read, changed and written; refused if it cannot be written.

    No file is left behind. Where the system cannot lock folders (Windows, some network file systems) a change made within the same
    millisecond may be lost.
    """
    if path.is_symlink():
        raise InputError(f"{path}: is a link to another file, expected the file itself")
    if path.exists() and not path.stat().st_mode & 0o222:
        raise InputError(f"{path}: is read-only")
    check_writable(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            with suppress(ImportError, OSError):
                import fcntl

                handle = os.open(path.parent, os.O_RDONLY)
                stack.callback(os.close, handle)
                fcntl.flock(handle, fcntl.LOCK_EX)
            yield
    except OSError as error:
        raise InputError(f"{path}: cannot be changed ({error.strerror}); nothing was saved") from error


def legend(state: NamesState, count: int) -> list[tuple[str, str]]:
    """Title and colour of every prototype."""
    return list(zip(titles(state.namings, count), colours(state.namings, count), strict=True))
