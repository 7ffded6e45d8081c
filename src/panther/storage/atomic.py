"""Files appear whole or not at all."""

import glob
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from panther.errors import InputError


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; on success it is flushed to disk and renamed, on failure removed."""
    if path.is_dir():
        raise InputError(f"{path} is a folder; give the name of a file to write.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{path.parent}: the folder cannot be made ({error.strerror}); choose another place."
        ) from error
    _remove_leftovers(path)
    temporary = path.parent / f".{path.name}.{socket.gethostname()}.{os.getpid()}.part"
    try:
        yield temporary
        with temporary.open("rb+") as handle:
            os.fsync(handle.fileno())
        temporary.replace(path)
    except OSError as error:
        if error.errno is None:  # not the system's answer but a library's
            raise
        raise InputError(
            f"{path}: cannot be written ({error.strerror}); free some space or choose another place."
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


def check_writable(path: Path) -> None:
    """Fail before the work, not after it, where ``path`` cannot be written."""
    with atomic_write(path.parent / f".{path.name}.probe") as temporary:
        temporary.touch()
    (path.parent / f".{path.name}.probe").unlink()
    if path.is_dir():
        raise InputError(f"{path} is a folder; give the name of a file to write.")


def _remove_leftovers(path: Path) -> None:
    """Temporary files of killed processes of this machine."""
    for leftover in path.parent.glob(glob.escape(f".{path.name}.{socket.gethostname()}.") + "*.part"):
        pid = leftover.name.rsplit(".", 2)[1]
        if pid.isdigit() and int(pid) != os.getpid() and not psutil.pid_exists(int(pid)):
            leftover.unlink(missing_ok=True)
