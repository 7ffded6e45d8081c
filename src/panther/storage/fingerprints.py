"""Fingerprints of samples: a hash of all their features, and whether a hash that was taken earlier still holds."""

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from panther.content import HashedRows
from panther.engine import HERE, Work, stream
from panther.errors import InputError, not_finite
from panther.statistics import first_bad_row
from panther.types import Openable

# A file that changes twice within one tick of its file system's clock shows the same time: FAT counts two seconds, NFS remembers
# times for three, and clocks of machines differ. What is younger than this when it is read is read again the next time.
UNSETTLED_SECONDS = 10.0

SOUND = "finite"  # beside a stored fingerprint: its features hold no NaN

Stamp = tuple[tuple[int, ...], ...]  # of each file: size, time of its content, time of its entry (both ns), inode
Version = tuple[tuple[int, int] | None, ...]  # of each file: time of its content and size; None: it is not there


@dataclass(frozen=True)
class Fingerprint:
    """Hash of a sample's features, and what its files looked like when it was taken."""

    content: str
    stamp: Stamp = ()  # empty: nothing to know the files by, they are read again

    def holds_for(self, files: Sequence[Path]) -> bool:
        """Whether the files are untouched since: then they need not be read."""
        return bool(self.stamp) and self.stamp == stamp_of(files)

    @classmethod
    def from_plain(cls, content: Any, stamp: Any) -> "Fingerprint | None":
        """As it stands in a JSON file; None where that is no fingerprint."""
        if not isinstance(content, str) or not isinstance(stamp, list):
            return None
        if not all(isinstance(file, list) and all(type(n) is int for n in file) for file in stamp):
            return None
        return cls(content, tuple(tuple(file) for file in stamp))


def stamp_of(files: Sequence[Path]) -> Stamp:
    """Size, times and inode of files; nothing where one is missing or has just been written."""
    try:
        found = [file.stat() for file in files]
    except OSError:
        return ()
    settled = time.time_ns() - int(UNSETTLED_SECONDS * 1e9)
    if any(max(s.st_mtime_ns, s.st_ctime_ns) > settled for s in found):
        return ()
    return tuple((s.st_size, s.st_mtime_ns, s.st_ctime_ns, s.st_ino) for s in found)


def version_of(files: Iterable[Path]) -> Version:
    """Time of the last change and size of each file: enough to notice that one was written anew, or is gone."""
    return tuple(_version(file) for file in files)


def _version(file: Path) -> tuple[int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def unchanged_since(stamp: Stamp, files: Sequence[Path]) -> Stamp:
    """Return the stamp taken before the files were read, or nothing if they changed meanwhile."""
    return stamp if stamp == stamp_of(files) else ()


def fingerprint(sample: Openable, known: Fingerprint | None = None) -> Fingerprint:
    """Fingerprint of a sample; its features are only read where ``known`` does not hold any more. NaN has none: it raises, naming the row."""
    if known is not None and known.holds_for(sample.files):
        return known
    stamp = stamp_of(sample.files)
    return Fingerprint(sound_content(sample), unchanged_since(stamp, sample.files))


def sound_content(sample: Openable) -> str:
    """Hash of a sample's features, read once; NaN and infinite numbers are refused."""
    bag = sample.open()
    rows = HashedRows(bag.features)
    bad = first_bad_row(rows)  # which reads them in order
    if bad is None:
        return rows.digest()
    for part in bag.slides or (bag,):  # of a patient: the slide that is meant
        if bad < len(part):
            raise not_finite(part.source, bad)
        bad -= len(part)
    raise not_finite(bag.source, bad)


def fingerprint_all(
    samples: Mapping[str, Openable],
    store: "FingerprintStore",
    work: Work = HERE,
) -> tuple[dict[str, str], dict[str, str]]:
    """Hash of the features behind every name, of untouched files from the store; and a sentence for each that cannot be read, or
    holds NaN.
    """
    found: dict[str, str] = {}
    failures: dict[str, str] = {}
    names = list(samples)[::-1]  # who reads them next begins with the first, which are in the page cache then
    jobs = [(samples[name], store.get(name)) for name in names]
    for index, value in stream(_job, jobs, "looking for changed features", work, failures):
        store.add(names[index], value)
        found[names[index]] = value.content
    return dict(reversed(found.items())), dict(reversed(failures.items()))


def _job(job: tuple[Openable, Fingerprint | None]) -> Fingerprint:
    return fingerprint(*job)


class LineLog:
    """JSON values, one per line, in a file that is only ever appended to, also by several processes at once.

    A line that a killed process left unfinished, or that is no JSON, counts as none.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> list[Any]:
        """All values, in the order in which they were added; none where there is no file."""
        found = []
        with suppress(OSError), self._path.open("rb") as lines:
            for line in lines:
                with suppress(ValueError, RecursionError):
                    found.append(json.loads(line))
        return found

    def append(self, value: Any) -> None:
        """Add a value; an OSError where the disk does not take it."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("ab") as handle:  # a line of its own, also after one that a killed process left unfinished
            handle.write(f"{chr(10) if handle.tell() else ''}{json.dumps(value)}\n".encode("ascii"))


class FingerprintStore:
    """Fingerprints of earlier runs in a log; of several under one name the last counts. Losing it costs reading, never truth."""

    def __init__(self, path: Path) -> None:
        self._path, self._log = path, LineLog(path)
        self._known: dict[str, Fingerprint] = {}
        for line in self._log.read():
            with suppress(ValueError, TypeError):  # not a line of ours
                name, content, stamp, _ = line  # three are of a version that did not look for NaN
                taken = Fingerprint.from_plain(content, stamp)
                if isinstance(name, str) and taken is not None:
                    self._known[name] = taken

    def get(self, name: str) -> Fingerprint | None:
        """Last fingerprint that was taken under this name."""
        return self._known.get(name)

    def add(self, name: str, taken: Fingerprint) -> None:
        """Keep a fingerprint that says something new and can be known to hold later."""
        if not taken.stamp or taken == self._known.get(name):
            return
        try:
            self._log.append([name, taken.content, taken.stamp, SOUND])
        except OSError as error:
            raise InputError(f"{self._path}: cannot be written ({error.strerror}); free some space.") from error
        self._known[name] = taken
