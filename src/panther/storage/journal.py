"""Rows of a running job, kept so that a killed run goes on where it was."""

import json
import os
import tempfile
import zlib
from collections.abc import Container
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from panther.errors import InputError
from panther.storage.locking import lock_folder
from panther.storage.working import make_working_folder, remove_working_folder


class Journal:
    """A matrix on disk that fills up row by row, and a list of the rows that are whole.

    A row counts once its line, with a checksum of the numbers, stands in `done.jsonl`, which is written after them; a line
    cut short by a kill is dropped, and so is a row that a crash of the machine has lost.
    Rows of another ``key`` (other prototypes or settings) or another list of samples are thrown away.
    """

    def __init__(self, folder: Path | None, key: str, samples: list[str], width: int) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="panther-") if folder is None else None
        self._folder = Path(self._temporary.name) if self._temporary else Path(folder or ".")
        self._samples, self._width = samples, width
        header = json.dumps({"key": key, "samples": samples, "width": width})
        try:
            make_working_folder(self._folder)
            self._lock = lock_folder(self._folder, "writing there")
            if (
                not self._path("header.json").exists()
                or self._path("header.json").read_text(encoding="utf-8") != header
            ):
                for name in ("done.jsonl", "rows.f32"):
                    self._path(name).unlink(missing_ok=True)
                self._path("header.json").write_text(header, encoding="utf-8")
            for name in ("done.jsonl", "rows.f32"):
                self._path(name).touch()
            self._about = self._read_done()
            # written, not mapped: a full disk is then an error and not the death of the process
            self._matrix = self._path("rows.f32").open("r+b")
            self._log = self._path("done.jsonl").open("a", encoding="utf-8")
        except OSError as error:
            raise self._refused(error) from error

    def done(self) -> dict[str, dict[str, Any]]:
        """What was kept with the row of each sample that is finished."""
        return dict(self._about)

    def add(self, index: int, vector: np.ndarray, about: dict[str, Any]) -> None:
        """Keep one finished row."""
        try:
            numbers = vector.astype(np.float32, copy=False).tobytes()
            self._matrix.seek(index * self._width * 4)
            self._matrix.write(numbers)
            self._matrix.flush()  # a full disk says so here, before the row is counted
            self._log.write(json.dumps([self._samples[index], about, zlib.crc32(numbers)]) + "\n")
            self._log.flush()
        except OSError as error:
            raise self._refused(error) from error
        self._about[self._samples[index]] = about

    def rows(self, leave_out: Container[str]) -> tuple[np.ndarray, dict[str, dict[str, Any]]]:
        """Return the finished rows in the samples' order (a memory map where all are there), and what is known of each."""
        about = {
            name: dict(self._about[name]) for name in self._samples if name in self._about and name not in leave_out
        }
        if not about:
            return np.empty((0, self._width), np.float32), about
        try:
            os.truncate(self._path("rows.f32"), len(self._samples) * self._width * 4)  # the last rows may have failed
            matrix = np.memmap(self._path("rows.f32"), np.float32, "r", shape=(len(self._samples), self._width))
        except OSError as error:
            raise self._refused(error) from error
        keep = [index for index, name in enumerate(self._samples) if name in about]
        complete = len(keep) == len(self._samples) and self._temporary is None
        return matrix if complete else np.asarray(matrix[keep]), about

    def close(self) -> None:
        """Close the files; they stay on disk if there is a row in them."""
        for file in (self._matrix, self._log, self._lock):
            with suppress(OSError):  # what a full disk has not taken was refused already
                file.close()
        if self._temporary:
            self._temporary.cleanup()
        elif not self._about:
            remove_working_folder(self._folder)  # nothing to go on from

    def _path(self, name: str) -> Path:
        return self._folder / name

    def _read_done(self) -> dict[str, dict[str, Any]]:
        done: dict[str, dict[str, Any]] = {}
        whole, index = 0, {name: i for i, name in enumerate(self._samples)}
        with self._path("done.jsonl").open("rb") as lines, self._path("rows.f32").open("rb") as matrix:
            for line in lines:
                try:
                    name, about, checksum = json.loads(line)
                    matrix.seek(index[name] * self._width * 4)
                except (ValueError, TypeError, KeyError):  # not a line of ours: it and what follows is done again
                    break
                if not line.endswith(b"\n"):  # cut short
                    break
                whole += len(line)
                if zlib.crc32(matrix.read(self._width * 4)) == checksum:
                    done[name] = about
        os.truncate(self._path("done.jsonl"), whole)
        return done

    def _refused(self, error: OSError) -> InputError:
        return InputError(
            f"{self._folder}: intermediate results cannot be written ({error.strerror}); free some space and run the command again."
        )
