"""Small files of text, plain values and arrays, written whole or not at all. Reading raises what the system or the parser raises:
the caller knows what the file should have been, and says so in its sentence.
"""

import errno
import hashlib
import json
import os
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO, TextIOWrapper
from pathlib import Path
from tokenize import TokenError
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

from panther.errors import InputError, error_context
from panther.store import atomic_write

if TYPE_CHECKING:
    import numpy as np  # read when an array is: completing a word in the shell writes and reads text alone

# What numpy, zipfile, pyarrow, anndata and h5py raise on a damaged file, seen with files of every kind damaged at random; a MemoryError is none of
# it: the machine may be too small for a file that is sound
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
BLOCK = 8 * 2**20  # bytes that are copied at a time


@contextmanager
def read_errors(path: object, kind: str, remedy: str = "") -> Iterator[None]:
    """Make one line, which names the file, of what is raised inside; ``kind`` is what the file should be."""
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
    """Message of a library, one line, without HDF5's "Unable to synchronously open file (...)" around it."""
    text = str(error).split("(", 1)[-1].rstrip(")") if isinstance(error, OSError) else str(error)
    return (text.strip().splitlines() or [type(error).__name__])[0]


def read_text(path: Path) -> str:
    """Text of a file, with or without a byte order mark; an OSError or UnicodeDecodeError where it is none."""
    return TextIOWrapper(BytesIO(read_bytes(path)), encoding="utf-8-sig").read()


def write_text(path: Path, text: str) -> None:
    """Write text with the line ends that it has; the same text gives the same bytes on every system."""
    with atomic_write(path) as temporary:
        # a file name that is no Unicode holds lone surrogates; as \udc80 they are JSON and come back the same
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace", newline="")


def read_bytes(path: Path) -> bytes:
    """Content of a file. Where it has just replaced a shorter one that a network file system remembers, its end comes after the end."""
    with path.open("rb") as handle:
        return b"".join(iter(handle.read, b""))


def write_bytes(path: Path, content: bytes) -> None:
    """Write bytes."""
    with atomic_write(path) as temporary:
        temporary.write_bytes(content)


def read_json(path: Path) -> Any:
    """Plain values of a JSON file; an OSError or ValueError where it is none."""
    return json.loads(read_text(path))


def write_json(path: Path, value: Any) -> None:
    """Write plain values; the same ones give the same bytes. NaN and infinity are refused: JSON has no word for them."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def read_array(path: Path) -> "np.ndarray":
    """Array of a .npy file, mapped into memory; one that would need a pickle is refused."""
    import numpy as np

    return np.load(path, mmap_mode="r", allow_pickle=False)


def write_array(path: Path, array: "np.ndarray") -> None:
    """Write a .npy file."""
    import numpy as np

    with atomic_write(path) as temporary, temporary.open("wb") as handle:
        np.save(handle, np.asarray(array, order="C"))  # columns of a wider array in a quarter of the time


def read_arrays(path: Path) -> "dict[str, np.ndarray]":
    """Arrays of a .npz file; those that would need a pickle are refused."""
    import numpy as np

    # opened here, because np.load leaves a file open that turns out to be no archive
    with path.open("rb") as handle, np.load(handle, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


def write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write a .npz file; arrays alone, nothing in it needs a pickle."""
    import numpy as np

    with atomic_write(path) as temporary, temporary.open("wb") as handle:  # np.savez would append .npz to the name
        np.savez(handle, **arrays)


def content_of(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def copy_file(source: Path, target: Path, stopped: Callable[[], bool]) -> None:
    """Copy a file with its times; an OSError where the disk does not take it, or once somebody has ``stopped`` it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with source.open("rb") as there, target.open("wb") as here:
        while block := there.read(BLOCK):
            if stopped():
                raise OSError(errno.ECANCELED, os.strerror(errno.ECANCELED))
            here.write(block)
        about = os.fstat(there.fileno())
    os.utime(target, ns=(about.st_atime_ns, about.st_mtime_ns))
