"""A matrix that may be larger than memory, filled row by row while a cohort is embedded."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from panther.errors import InputError
from panther.store import refusal


class RowMatrix:
    """Rows (N, width) in a temporary file without a name, which the system removes with the process.

    It is written, not mapped: a full disk is then an error and not the death of the process.
    """

    def __init__(self, folder: Path | None, width: int, dtype: np.dtype | type = np.float32) -> None:
        self._folder, self._width, self._dtype = folder or Path(tempfile.gettempdir()), width, np.dtype(dtype)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._file = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115
        except OSError as error:
            raise self._refused(error) from error

    def add(self, start: int, rows: np.ndarray) -> None:
        """Write the rows (n, width) that begin at row ``start``."""
        try:
            self._file.seek(start * self._row_bytes)
            self._file.write(np.ascontiguousarray(rows, self._dtype).reshape(-1).view(np.uint8).data)
            self._file.flush()  # a full disk is reported here
        except OSError as error:
            raise self._refused(error) from error

    def rows(self, indices: Sequence[int], total: int, columns: slice = slice(None)) -> np.ndarray:
        """Return some of ``total`` rows, of all columns or some; all of them as a map of the file, which outlives `close`."""
        if not len(indices):
            return np.empty((0, self._width), self._dtype)[:, columns]
        try:
            self._file.truncate(total * self._row_bytes)  # the last rows may have failed
            matrix = np.memmap(self._file, self._dtype, "c", shape=(total, self._width))[:, columns]
        except OSError as error:
            raise self._refused(error) from error
        return matrix if len(indices) == total else np.asarray(matrix[list(indices)])

    def close(self) -> None:
        """Close the file; what has been mapped stays."""
        self._file.close()

    @property
    def _row_bytes(self) -> int:
        return self._width * self._dtype.itemsize

    def _refused(self, error: OSError) -> InputError:
        return InputError(f"{self._folder}: embeddings cannot be kept there ({refusal(error, self._folder)})")
