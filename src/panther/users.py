"""Whose files and processes are: asked here and nowhere else. A folder may be shared by several users of a machine or a cluster."""

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path

import psutil

DENIED = (errno.EACCES, errno.EPERM)


def this_user() -> int | None:
    """Number of the user whom this process runs for; None on systems without such numbers."""
    return os.getuid() if hasattr(os, "getuid") else None


def other_user(path: Path) -> str | None:
    """Name of the user whom a file belongs to, where that is somebody else; None where it is ours or not there."""
    with suppress(OSError):
        number = path.stat().st_uid
        return None if this_user() in (None, number) else _name(number)
    return None


def may_replace(path: Path) -> bool:
    """Whether a file may be put in the place of ``path``: in a folder like /tmp that is for the owners of both alone."""
    with suppress(OSError):
        folder = path.parent.stat()
        owners = (None, 0, folder.st_uid, path.lstat().st_uid)
        return not folder.st_mode & stat.S_ISVTX or this_user() in owners
    return True


def refusal(error: OSError, path: Path) -> str:
    """What the system said of ``path``, and whose the place is, where that is the reason."""
    said = os.strerror(error.errno) if error.errno is not None else str(error)
    return f"{said}{whose(path)}" if error.errno in DENIED else said


def whose(path: Path) -> str:
    """`; NAME belongs to SOMEBODY`: the file, or else the nearest folder that is there; nothing where that is ours."""
    here = path.absolute()
    for place in (here, *here.parents):
        with suppress(OSError):
            place.stat()
            name = other_user(place)
            return "" if name is None else f"; {place.name or place} belongs to {name}"
    return ""


def runs(pid: int) -> bool:
    """Whether there is such a process, of whichever user."""
    return psutil.pid_exists(pid) or is_hidden(pid)


def is_hidden(pid: int) -> bool:
    """Whether a process runs that this user is not shown: many clusters list everybody's own processes only (hidepid)."""
    if os.name != "posix":  # elsewhere the call below would end it
        return False
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return False


def _name(number: int) -> str:
    """What the system calls a user."""
    with suppress(ImportError, KeyError):
        import pwd

        return pwd.getpwuid(number).pw_name
    return f"user {number}"
