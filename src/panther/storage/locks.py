"""Locks between processes, on one machine or several that share a folder: a file with pid and host that expires.

A lock only saves double work: results are written whole and rows with a checksum, and they are the same whoever computes them, so two
owners would do no harm.
"""

import errno
import glob
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from panther.errors import InputError
from panther.users import DENIED, other_user, refusal, runs, started, still_runs

LOCK_LIMIT = "PANTHER_LOCK_LIMIT"  # environment variable: seconds, the same in all processes
NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)  # file systems without hard links: FAT, some shares
ASIDE = "stale"  # in the names of locks that are being taken away
EXPIRES = 600.0  # seconds without a sign of life, for owners on other machines


def expiry() -> float:
    """Seconds without a sign of life after which an owner on another machine counts as dead."""
    with suppress(ValueError):
        seconds = float(os.environ.get(LOCK_LIMIT, EXPIRES))
        return seconds if seconds > 0 else EXPIRES
    return EXPIRES


@contextmanager
def lock(path: Path, expires: float | None = None) -> Iterator[bool]:
    """Yield True where the lock was got, False where somebody alive has it; it is given back at the end."""
    expires = expiry() if expires is None else min(expires, expiry())
    mine = _take(path, expires)
    if mine is None:
        yield False
        return
    stop = threading.Event()
    beat = threading.Thread(target=_beat, args=(path, mine, expires / 20, stop), daemon=True)
    beat.start()
    try:
        yield True
    finally:
        stop.set()
        beat.join()
        with suppress(OSError):
            _give_back(path, mine)


def hold(path: Path) -> ExitStack:
    """Return the lock, held until it is closed; refused where somebody alive has it."""
    held = ExitStack()
    if not held.enter_context(lock(path)):
        raise InputError(
            f"{path.parent}: another run is writing there ({owner(path)}); wait until it has finished, or give another output. "
            f"A run that was killed on another machine is forgotten after {expiry() / 60:.0f} minutes."
        )
    return held


def sweep(folder: Path) -> None:
    """Remove what killed processes left in the folder of locks, and the folder when it is empty."""
    for file in folder.glob("*") if folder.is_dir() else ():
        parts = file.name.rsplit(".", 3)  # NAME.HOST.PID.part
        dead = len(parts) == 4 and parts[3] == "part" and parts[2].isdigit() and not runs(int(parts[2]))
        with suppress(OSError, InputError):  # gone by now, or another user's
            if dead and parts[1] == host_name():
                file.unlink()
            elif file.suffix == ".lock" and _stale(file, expiry()):
                _break(file, expiry())
    with suppress(OSError):
        folder.rmdir()


def owner(path: Path) -> str:
    """Who has the lock, in words."""
    name = other_user(path)
    somebody = "" if name is None else f" of {name}"
    with suppress(OSError, ValueError, KeyError):
        about = json.loads(path.read_text(encoding="utf-8"))
        return f"process {about['pid']} on {about['host']}{somebody}"
    return f"another process{somebody}"


class Holder(NamedTuple):
    """Who has a lock, or had it and died."""

    name: str  # of the lock
    host: str
    pid: int
    since: float  # when it was taken, and
    seen: float  # the last sign of life, both by the file system's clock
    alive: bool


def holders(folder: Path) -> tuple[list[Holder], float]:
    """Everybody who has a lock in a folder, and what time it is there; for whoever only looks: no lock is taken or broken."""
    paths, now = locks_in(folder)
    found = []
    for path in paths:
        with suppress(OSError, ValueError, TypeError, KeyError, AttributeError):  # given back meanwhile, or not ours
            about, seen = _read(path)
            since, alive = float(about.get("since", seen)), not _dead(about, now - seen, expiry())
            found.append(Holder(path.stem, str(about["host"]), int(about["pid"]), since, seen, alive))
    return found, now


def locks_in(folder: Path) -> tuple[list[Path], float]:
    """Locks of a folder, and what time it is there. Where a file has just been made no machine lists what it remembers."""
    now = _now_at(folder / "look")
    return sorted(folder.glob("*.lock")), now


def clock_offset(folder: Path) -> float:
    """Seconds by which the clock of a folder's file system is ahead of this machine's."""
    return _now_at(folder / "look") - time.time()


def _take(path: Path, expires: float) -> str | None:
    for _ in range(3):
        content = _create(path)
        if content is not None:
            return content
        if _stale(path, expires):
            _break(path, expires)
        elif path.exists():
            return None
    return None


def _give_back(path: Path, mine: str) -> None:
    """Remove the lock, also one that somebody who takes it for a dead one holds aside and is about to put back."""
    for _ in range(20):
        with suppress(FileNotFoundError):
            if _is(path, mine):
                path.unlink()
            return
        if not any(path.parent.glob(f"{glob.escape(path.name)}.{ASIDE}-*")):
            return
        time.sleep(0.05)


def _create(path: Path) -> str | None:
    """Make the lock with its content in one step: a process killed in between must not leave an empty one."""
    temporary = _beside(path)
    content = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.touch()
        since = temporary.stat().st_mtime  # by the clock that the signs of life are dated by
        content = json.dumps({"pid": os.getpid(), "host": host_name(), "started": started(os.getpid()), "since": since})
        temporary.write_text(content, encoding="utf-8")
        os.link(temporary, path)
    except FileExistsError:
        return content if content and _has_two_names(temporary) else None
    except FileNotFoundError:  # another process has just swept the folder away
        return None
    except OSError as error:
        if content and error.errno in NO_LINKS:
            return _create_in_two_steps(path, content)
        if error.errno in DENIED:
            raise InputError(
                f"{path.parent}: work cannot be claimed there ({refusal(error, path.parent)}); "
                "its owner can let the group write (chmod -R g+w, and umask 002 from then on), or choose another output."
            ) from error
        error.filename = str(path)
        raise
    finally:
        with suppress(OSError):
            temporary.unlink()
    return content


def _has_two_names(path: Path) -> bool:
    """Whether a link was made although the system says that it was there: NFS may lose the answer and ask once more."""
    with suppress(OSError):
        return path.stat().st_nlink > 1
    return False


def _create_in_two_steps(path: Path, content: str) -> str | None:
    """Make the lock where the file system has no hard links; an empty one that a killed process leaves expires."""
    try:
        with path.open("x", encoding="utf-8") as handle:
            handle.write(content)
    except (FileExistsError, PermissionError):  # SFTP has one word for both; that we may write here is known by now
        return None
    return content


def _beside(path: Path, purpose: str = "new") -> Path:
    """A file of this thread alone beside a lock: one that two threads shared would be written under the lock's own name."""
    return path.with_name(f"{path.name}.{purpose}-{threading.get_ident()}.{host_name()}.{os.getpid()}.part")


def _break(path: Path, expires: float) -> None:
    """Take a stale lock away. Renaming succeeds for one process only; a fresh lock that came in between is put back."""
    aside = _beside(path, ASIDE)
    try:
        path.rename(aside)
    except FileNotFoundError:
        return
    except PermissionError as error:
        raise InputError(
            f"{path}: a process that has died left it ({refusal(error, path)}); only its owner can remove it there: "
            "ask for that, or choose another output."
        ) from error
    if not _stale(aside, expires):
        _put_back(aside, path)
    aside.unlink(missing_ok=True)


def _put_back(aside: Path, path: Path) -> None:
    try:
        os.link(aside, path)
    except FileExistsError:  # there is a newer one already
        return
    except OSError:  # no links here, or none of another user's files
        with suppress(OSError):
            aside.rename(path)


def _stale(path: Path, expires: float) -> bool:
    """Whether the owner is dead (on this machine) or has given no sign of life for long."""
    now = _now_at(path)
    try:
        about, seen = _read(path)
    except OSError:  # given back meanwhile
        return False
    return _dead(about, now - seen, expires)


def _read(path: Path) -> tuple[Any, float]:
    """What a lock says, and when its last sign of life was; in this order, since other machines remember times of a file for a while:
    NFS asks for them when it is opened, SFTP when it is read to its end.
    """
    about = None  # empty, not ours, or not for us to read: it expires as one of another machine
    try:
        with path.open("rb") as handle:
            with suppress(ValueError):
                about = json.loads(handle.read())
            return about, os.fstat(handle.fileno()).st_mtime
    except PermissionError:
        return about, path.stat().st_mtime


def _dead(about: Any, silent: float, expires: float) -> bool:
    """Whether the owner that a lock tells of is gone; ``silent`` is how long it has given no sign of life."""
    here = isinstance(about, dict) and about.get("host") == host_name()
    # an owner that was stopped gives no sign of life either; should it come back, it finds its work done
    return silent > expires or (here and not still_runs(about.get("pid"), about.get("started")))


def _now_at(path: Path) -> float:
    """Time by the clock that the signs of life are dated by: the file system's, which may be another machine's."""
    probe = _beside(path, "now")
    try:
        probe.touch()
        return probe.stat().st_mtime
    except OSError:  # a folder that is read-only, or gone
        return time.time()
    finally:
        with suppress(OSError):
            probe.unlink()


def _beat(path: Path, mine: str, every: float, stop: threading.Event) -> None:
    while not stop.wait(every):
        with suppress(OSError):
            _give_sign(path, mine.encode("utf-8"))


def _give_sign(path: Path, mine: bytes) -> None:
    """Write the same words again, which the file server dates; a time that is set would be this machine's over SFTP."""
    with path.open("r+b", buffering=0) as handle:
        if handle.read() == mine:
            handle.seek(0)
            handle.write(mine)


def _is(path: Path, content: str) -> bool:
    """Whether a lock is still this one: one that has expired may be another's by now."""
    return path.read_text(encoding="utf-8") == content


def host_name() -> str:
    """Name of this machine, as files are called after it."""
    return socket.gethostname().replace(".", "-")
