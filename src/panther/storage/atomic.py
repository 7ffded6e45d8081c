"""Files appear whole or not at all."""

import hashlib
import io
import os
import re
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from panther.errors import InputError
from panther.users import may_replace, refusal, runs, whose

if TYPE_CHECKING:
    import h5py

KEPT = 1 << 20  # bytes of one write that are kept where the disk is full
LONGEST_NAME = 255  # bytes, on all file systems in use


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; on success it is flushed to disk and renamed, on failure removed."""
    _refuse_other_things(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{path.parent}: the folder cannot be made ({refusal(error, path.parent)}); choose another place."
        ) from error
    _remove_leftovers(path)
    temporary = path.parent / f"{_prefix(path)}{threading.get_ident()}.{os.getpid()}.part"
    try:
        temporary.touch()
        mode = (
            temporary.stat().st_mode
        )  # as the user's umask has it; safetensors would make files that colleagues cannot read
        yield temporary
        temporary.chmod(mode)
        with temporary.open("rb+") as handle:
            os.fsync(handle.fileno())
        temporary.replace(path)
    except Exception as error:
        code = _errno(error)
        if code is None:
            raise
        reason = refusal(OSError(code, ""), path if path.exists() else path.parent)
        raise InputError(f"{path}: cannot be written ({reason}); free some space or choose another place.") from error
    finally:
        with suppress(OSError):
            temporary.unlink()


class _Sink(io.FileIO):
    """File that keeps its first error for later: HDF5 crashes where it cannot write what it holds, also after it was closed.

    What cannot be written any more stays in memory, as long as it is small: HDF5 reads its own records back, but no rows.
    """

    failed: OSError | None = None

    def __init__(self, path: Path) -> None:
        super().__init__(path, "w+")
        self._unwritten: list[tuple[int, bytes]] = []  # place and content

    def write(self, data: Any, /) -> int:
        rest, start = memoryview(data).cast("B"), self.tell()
        size = len(rest)
        while len(rest) and self.failed is None:
            try:
                rest = rest[super().write(rest) :]
            except OSError as error:
                self.failed = error
        if len(rest) and size <= KEPT:
            self._unwritten.append((start, bytes(data)))
        return size

    def readinto(self, buffer: Any, /) -> int:
        view, start = memoryview(buffer).cast("B"), self.tell()
        size = super().readinto(view)
        if self.failed is None:
            return size
        view[size:] = bytes(len(view) - size)
        for place, data in self._unwritten:
            first, last = max(start, place), min(start + len(view), place + len(data))
            if first < last:
                view[first - start : last - start] = data[first - place : last - place]
        return len(view)

    def truncate(self, size: int | None = None, /) -> int:
        try:
            return super().truncate(size)
        except OSError as error:
            self.failed = self.failed or error
            return size or 0


@contextmanager
def h5_writer(path: Path) -> "Iterator[h5py.File]":
    """Yield a new HDF5 file, e.g. at the temporary path of :func:`atomic_write`; a full disk is an error at the end."""
    import h5py

    with _Sink(path) as sink:
        try:
            with h5py.File(sink, "w") as file:
                yield file
        finally:
            if sink.failed is not None:
                raise sink.failed


def check_writable(path: Path) -> None:
    """Fail before the work, not after it, where ``path`` cannot be written; nothing is left behind."""
    _refuse_other_things(path)
    check_writable_folder(path.parent)
    check_replaceable(path)


def check_replaceable(path: Path) -> None:
    """Fail where a file that is there is another user's, in a folder in which only its owner may replace it."""
    if not may_replace(path):
        raise InputError(
            f"{path}: only its owner may replace a file in this folder{whose(path)}; choose another place."
        )


def check_writable_folder(folder: Path) -> None:
    """Fail where no file can be written to ``folder``, or it cannot be made."""
    check_name(folder)
    here = folder.absolute()
    existing = next(place for place in (here, *here.parents) if place.exists())
    try:
        tempfile.TemporaryFile(dir=existing).close()
    except OSError as error:
        raise InputError(
            f"{folder}: nothing can be written there ({refusal(error, existing)}); choose another place."
        ) from error


def _refuse_other_things(path: Path) -> None:
    """Only files are replaced: renaming over /dev/null would take it from everybody."""
    check_name(path)
    if path.is_dir():
        raise InputError(f"{path} is a folder; give the name of a file to write.")
    if path.exists() and not path.is_file():
        raise InputError(f"{path} is not a file but a device or a pipe; give the name of a file to write.")


def check_name(path: Path) -> None:
    """Refuse a name that no file system takes, or that this locale cannot write."""
    try:
        length = max((len(os.fsencode(part)) for part in path.parts), default=0)
    except UnicodeEncodeError as error:
        raise InputError(
            f"{str(path)!a}: letters of the name cannot be written in this locale ({error.encoding}); set LC_ALL=C.UTF-8."
        ) from error
    if length > LONGEST_NAME:
        raise InputError(
            f"{path}: a name of {length} bytes, but files and folders may have {LONGEST_NAME}; choose a shorter one."
        )


def _prefix(path: Path) -> str:
    """How temporary files of ``path`` begin; of a long name only its hash, since they are longer."""
    name = (
        path.name
        if len(os.fsencode(path.name)) <= LONGEST_NAME - 100
        else hashlib.blake2b(os.fsencode(path.name), digest_size=8).hexdigest()
    )
    return f".{name}.{socket.gethostname()[:64]}."


def _errno(error: BaseException | None) -> int | None:
    """Number of the system's answer, also where a library wrapped it (HDF5, safetensors); None where it is something else."""
    while error is not None and not isinstance(error, InputError):
        if isinstance(error, OSError) and error.errno is not None:
            return error.errno
        if code := re.search(r"(?:errno =|os error) (\d+)", str(error)):
            return int(code[1])
        error = error.__context__
    return None


def _remove_leftovers(path: Path) -> None:
    """Temporary files of killed processes of this machine."""
    prefix, names = _prefix(path), list[str]()
    with suppress(OSError):  # a folder that may be written to and not listed
        names = os.listdir(path.parent)  # pathlib's glob takes three times as long in the folder of a large study
    for name in names:
        if not (name.startswith(prefix) and name.endswith(".part")):
            continue
        pid = name.rsplit(".", 2)[1]
        if pid.isdigit() and int(pid) != os.getpid() and not runs(int(pid)):
            with suppress(OSError):  # gone by now, or another user's
                (path.parent / name).unlink()
