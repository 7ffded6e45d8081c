"""A lock that the system takes away when the process dies, however it dies."""

from pathlib import Path
from typing import IO

from panther.errors import InputError

try:
    import fcntl
except ImportError:  # not a Unix
    fcntl = None  # type: ignore[assignment]


def lock_folder(folder: Path, doing: str) -> IO[bytes]:
    """File in ``folder`` that is locked as long as it is open; refused where another run holds it, ``doing`` the same."""
    lock = (folder / "lock").open("wb")
    if fcntl is not None:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            lock.close()
            raise InputError(
                f"{folder}: another run is {doing}; wait until it has finished, or give another output."
            ) from error
        except OSError:  # a file system without locks
            pass
    return lock
