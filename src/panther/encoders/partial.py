"""Features of a slide that is not finished yet: raw rows and a list of whole batches, so that a killed run goes on."""

import json
import os
import zlib
from pathlib import Path

import numpy as np

from panther.errors import InputError
from panther.storage.locking import lock_folder
from panther.storage.working import make_working_folder, remove_working_folder


class Partial:
    """Rows (N, d) on disk that fill up batch by batch, in order.

    A batch counts once its line, with a checksum, stands in `batches.jsonl`, which is written after the rows; from the first line
    that is cut short or does not fit its rows on, everything is done again. Rows of another ``key`` are thrown away.
    An HDF5 file would be lost as a whole when the process is killed.
    """

    def __init__(self, folder: Path, key: str, width: int, dtype: np.dtype) -> None:
        self._folder, self._width, self._dtype = folder, width, dtype
        header = json.dumps({"key": key}) + "\n"
        try:
            make_working_folder(folder)
            self._lock = lock_folder(self._folder, "extracting this slide")
            if not self._starts_with(header):
                (folder / "rows").write_bytes(b"")
                (folder / "batches.jsonl").write_text(header, encoding="utf-8")
            self.failed: dict[int, str] = {}  # row -> why
            self.batches = self._read(len(header))
            self._rows, self._list = (
                (folder / "rows").open("ab"),
                (folder / "batches.jsonl").open("a", encoding="utf-8"),
            )
        except OSError as error:
            raise self._refused(error) from error

    def add(self, rows: np.ndarray, failed: dict[int, str]) -> None:
        """Keep the next batch; ``failed`` counts from the start of the slide."""
        content = np.ascontiguousarray(rows, self._dtype).tobytes()
        line = [len(rows), zlib.crc32(content), {str(row): why for row, why in failed.items()}]
        try:
            self._rows.write(content)
            self._rows.flush()  # a full disk says so here, before the batch is counted
            self._list.write(json.dumps(line) + "\n")
            self._list.flush()
        except OSError as error:
            raise self._refused(error) from error
        self.failed |= failed
        self.batches += 1

    def rows(self) -> np.ndarray:
        """All rows so far, mapped."""
        if (self._folder / "rows").stat().st_size == 0:
            return np.empty((0, self._width), self._dtype)
        return np.memmap(self._folder / "rows", self._dtype, "r").reshape(-1, self._width)

    def close(self) -> None:
        """Close the files; they stay on disk."""
        for file in (self._rows, self._list, self._lock):
            file.close()

    def remove(self) -> None:
        """Close and delete."""
        self.close()
        remove_partial(self._folder)

    def _starts_with(self, header: str) -> bool:
        path = self._folder / "batches.jsonl"
        if not path.exists() or not (self._folder / "rows").exists():
            return False
        with path.open("rb") as lines:
            return lines.readline() == header.encode()

    def _read(self, header: int) -> int:
        count, whole, end = 0, header, 0
        with (self._folder / "batches.jsonl").open("rb") as lines, (self._folder / "rows").open("rb") as rows:
            lines.seek(header)
            for line in lines:
                try:
                    length, checksum, failed = json.loads(line)
                    content = rows.read(length * self._width * self._dtype.itemsize)
                except (ValueError, TypeError):
                    break
                if not line.endswith(b"\n") or zlib.crc32(content) != checksum:
                    break
                self.failed |= {int(row): why for row, why in failed.items()}
                count, whole, end = count + 1, whole + len(line), end + len(content)
        os.truncate(self._folder / "batches.jsonl", whole)
        os.truncate(self._folder / "rows", end)
        return count

    def _refused(self, error: OSError) -> InputError:
        return InputError(
            f"{self._folder}: intermediate features cannot be written ({error.strerror}); free some space and run the command again."
        )


def remove_partial(folder: Path) -> None:
    """Delete what an unfinished run left, if anything."""
    remove_working_folder(folder)
