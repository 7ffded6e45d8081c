"""Small files of text, plain values and arrays, written whole or not at all.

Reading raises the errors of the system and the parser; callers use `read_errors` to add what the file should be.
"""

import hashlib
import json
import struct
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO, TextIOWrapper
from pathlib import Path
from tokenize import TokenError
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

from panther.errors import InputError, error_context
from panther.store import atomic_write

if TYPE_CHECKING:
    import numpy as np  # imported with the first array: completion in the shell reads and writes text only

# Errors that numpy, zipfile, pyarrow, anndata and h5py raised for files of every kind damaged at random; not MemoryError: the machine may be too
# small for a sound file
DAMAGE = (
    OSError,
    EOFError,
    LookupError,
    ValueError,
    TypeError,
    AttributeError,
    ArithmeticError,
    RuntimeError,  # h5py; of a kind that is not implemented: zipfile
    SyntaxError,
    TokenError,  # numpy, of the header of an array
    BadZipFile,
    struct.error,
    zlib.error,
)


@contextmanager
def read_errors(path: object, kind: str, remedy: str = "") -> Iterator[None]:
    """Turn any error raised inside into one line that names the file; ``kind`` is what the file should be."""
    try:
        with error_context(path):
            yield
    except (InputError, MemoryError):
        raise
    except Exception as error:  # a broken file may raise anything
        if isinstance(error, FileNotFoundError):
            raise InputError(f"{path}: there is no such {kind}") from error
        if isinstance(error, OSError) and error.strerror is not None:
            raise InputError(f"{path}: cannot be read ({error.strerror})") from error
        what = f"not a readable {kind} ({first_sentence(error)})"
        raise InputError(f"{path}: {what}{remedy and f'; {remedy}'}") from error


def first_sentence(error: Exception) -> str:
    """First line of a library's message, without HDF5's "Unable to synchronously open file (...)" around it."""
    text = str(error).split("(", 1)[-1].rstrip(")") if isinstance(error, OSError) else str(error)
    return (text.strip().splitlines() or [type(error).__name__])[0]


def read_text(path: Path) -> str:
    """Text of a UTF-8 file, with or without a byte order mark."""
    return TextIOWrapper(BytesIO(read_bytes(path)), encoding="utf-8-sig").read()


def write_text(path: Path, text: str) -> None:
    """Write text as UTF-8 with its line ends unchanged on every system."""
    with atomic_write(path) as temporary:
        # file names that are not Unicode hold lone surrogates; written as \udc80 they are valid JSON
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace", newline="")


def read_bytes(path: Path) -> bytes:
    """Content of a file, read until nothing more comes: network file systems may remember the size of a file that was replaced."""
    with path.open("rb") as handle:
        return b"".join(iter(handle.read, b""))


def read_json(path: Path) -> Any:
    """Plain values of a JSON file."""
    return json.loads(read_text(path))


def write_json(path: Path, value: Any) -> None:
    """Write plain values as JSON; NaN and infinity, which JSON lacks, are refused."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def read_array(path: Path) -> "np.ndarray":
    """Array of a .npy file, memory-mapped; pickled arrays are refused."""
    import numpy as np

    return np.load(path, mmap_mode="r", allow_pickle=False)


def write_array(path: Path, array: "np.ndarray") -> None:
    """Write a .npy file."""
    import numpy as np

    with atomic_write(path) as temporary, temporary.open("wb") as handle:
        np.save(handle, np.asarray(array, order="C"))  # a quarter of the time for columns of a wider array


def read_arrays(path: Path) -> "dict[str, np.ndarray]":
    """Arrays of a .npz file; pickled arrays are refused."""
    import numpy as np

    # opened here: np.load leaves a file open that is not an archive
    with path.open("rb") as handle, np.load(handle, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


def write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write a .npz file of plain arrays."""
    import numpy as np

    with atomic_write(path) as temporary, temporary.open("wb") as handle:  # np.savez would append .npz to the name
        np.savez(handle, **arrays)


def content_of(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
