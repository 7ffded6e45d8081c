"""Results of a running job, kept as they come, so that a killed run goes on where it was."""

import errno
import json
import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import xxhash

from panther.errors import InputError
from panther.storage.locks import hold
from panther.storage.working import make_working_folder, remove_working_folder
from panther.users import refusal


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
        with self.open() as handle:
            add_line(handle, value)

    def open(self) -> IO[bytes]:
        """File to which lines are added."""
        return self._path.open("ab")


def add_line(handle: IO[bytes], value: Any) -> None:
    """Write a value as a line of its own, also after one that a killed process left unfinished."""
    begin = "\n" if handle.tell() else ""
    handle.write(f"{begin}{json.dumps(value)}\n".encode("ascii"))
    handle.flush()


class Block(NamedTuple):
    """Rows that were added together."""

    rows: int
    about: Any  # what was kept with them


class RowLog:
    """A matrix (N, width) on disk that fills up by blocks of rows, in any order, and a list of the blocks that are whole.

    A block counts once its line, with a checksum of the numbers, stands in `done.jsonl`, which is written after them; a line cut short
    by a kill is dropped, and so is a block that a crash of the machine has lost. Rows of another ``key`` are thrown away.
    Without a folder everything is kept in a temporary one. (An HDF5 file would be lost as a whole when the process is killed.)
    """

    def __init__(self, folder: Path | None, key: str, width: int, dtype: np.dtype | type = np.float32) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="panther-") if folder is None else None
        self._folder = Path(self._temporary.name) if self._temporary else Path(folder or ".")
        self._width, self._dtype = width, np.dtype(dtype)
        self._log, self._path = LineLog(self._folder / "done.jsonl"), self._folder / "rows"
        try:
            make_working_folder(self._folder)
            self._lock = hold(self._folder / "lock")
            self._begin(json.dumps({"key": key, "width": width, "dtype": self._dtype.str}))
            self.done = self._read()
            # written, not mapped: a full disk is then an error and not the death of the process
            self._rows = self._path.open("r+b")
            self._lines = self._log.open()  # held: opening it anew for every block costs time
        except OSError as error:
            raise self._refused(error) from error

    def add(self, start: int, rows: np.ndarray, about: Any) -> None:
        """Keep the block (n, width) that begins at row ``start``, and plain values with it."""
        numbers = np.ascontiguousarray(rows, self._dtype).reshape(-1).view(np.uint8).data  # no copy
        try:
            self._rows.seek(start * self.row_bytes)
            self._rows.write(numbers)
            self._rows.flush()  # a full disk says so here, before the block is counted
            self._path.stat()  # gone where another process has finished the work, while this one was stopped
            if os.fstat(self._lines.fileno()).st_nlink == 0:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self._folder / "done.jsonl"))
            add_line(self._lines, [start, len(rows), xxhash.xxh3_64_intdigest(numbers), about])
        except OSError as error:
            raise self._refused(error) from error
        self.done[start] = Block(len(rows), about)

    def whole(self) -> int:
        """Rows from the first on that are done without a gap."""
        end = 0
        while end in self.done and self.done[end].rows:
            end += self.done[end].rows
        return end

    def rows(self, wanted: Sequence[int], total: int, columns: slice = slice(None)) -> np.ndarray:
        """Return the ``wanted`` rows of ``total``, of all columns or some; where these are all, a map of the file, which may be written to and
        stays when the file has gone.
        """
        if not len(wanted):
            return np.empty((0, self._width), self._dtype)[:, columns]
        try:
            self._rows.truncate(total * self.row_bytes)  # the last rows may have failed
            matrix = np.memmap(self._path, self._dtype, "c", shape=(total, self._width))[:, columns]
        except OSError as error:
            raise self._refused(error) from error
        stays = self._temporary is None or os.name == "posix"  # elsewhere a file cannot go while it is mapped
        return matrix if len(wanted) == total and stays else np.asarray(matrix[list(wanted)])

    def close(self) -> None:
        """Close the files; they stay on disk if there is a row in them."""
        for file in (self._rows, self._lines):
            with suppress(OSError):  # what a full disk has not taken was refused already
                file.close()
        self._lock.close()
        if self._temporary:
            self._temporary.cleanup()
        elif not self.done:
            remove_working_folder(self._folder)  # nothing to go on from

    @property
    def row_bytes(self) -> int:
        """Size of one row on disk."""
        return self._width * self._dtype.itemsize

    def _begin(self, header: str) -> None:
        """Throw away what belongs to another request."""
        path = self._folder / "header.json"
        if not path.exists() or path.read_text(encoding="utf-8") != header:
            for name in ("done.jsonl", "rows"):
                (self._folder / name).unlink(missing_ok=True)
            path.write_text(header, encoding="utf-8")
        self._path.touch()

    def _read(self) -> dict[int, Block]:
        done: dict[int, Block] = {}
        with self._path.open("rb") as rows:
            for line in self._log.read():
                with suppress(ValueError, TypeError, OSError, OverflowError, MemoryError):  # not a line of ours
                    start, count, checksum, about = line
                    rows.seek(start * self.row_bytes)
                    if xxhash.xxh3_64_intdigest(rows.read(count * self.row_bytes)) == checksum:
                        done[start] = Block(count, about)
        return done

    def _refused(self, error: OSError) -> InputError:
        return InputError(
            f"{self._folder}: intermediate results cannot be written ({refusal(error, self._folder)}); "
            "free some space and run the command again, or choose another output."
        )
