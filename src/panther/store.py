"""Files and their content: hashes of features and settings, atomic writes, and checks that outputs are not inputs."""

import errno
import hashlib
import io
import json
import os
import re
import secrets
import shutil
import socket
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from panther.errors import DiskFullError, InputError

if TYPE_CHECKING:
    import h5py
    import torch  # imported when a bag is hashed: settings are hashed without it
    from torch import Tensor

    from panther.types import Rows

BLOCK_BYTES = 2 << 20  # stays in a core's cache
PIECE_BYTES = 512 << 10  # a piece and its copy stay in the cache
# A file that changes twice within one tick of its file system's clock shows the same time: FAT counts two seconds, NFS caches times for three,
# and clocks of machines differ. Files younger than this when read are read again the next time.
UNSETTLED_SECONDS = 10.0
KEPT_BYTES = 1 << 20  # largest write that is kept in memory when the disk is full

Version = tuple[tuple[int, int] | None, ...]  # of each file: time of its content and size; None: it does not exist


def hash_of(value: Any, *contents: bytes) -> str:
    """Key of plain values (settings, names, numbers) and of bytes: 32 hexadecimal digits, the same on every machine."""
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.blake2b(b"".join((text.encode(), *contents)), digest_size=16).hexdigest()


def hash_contents(contents: Mapping[str, str]) -> str:
    """Hash of the names of a cohort's samples and the hashes of their features."""
    text = "\n".join(f"{name} {contents[name]}" for name in sorted(contents))
    return str(_xxh3_128(text.encode("utf-8", "surrogateescape")).hexdigest())


def read_into(rows: "Rows", span: slice, out: "Tensor") -> None:
    """Copy a span of rows into ``out`` (n, d), without an intermediate copy if the rows have `read_into`."""
    if (read := getattr(rows, "read_into", None)) is not None:
        read(span, out)
    else:
        out.copy_(rows[span])


class HashedRows:
    """Rows (N, d) that are hashed while they are read in order; equal features have equal hashes in every layout.

    Rows that were not read in order are read by `digest`.
    """

    def __init__(self, rows: "Rows") -> None:
        self._rows, self.shape = rows, tuple(map(int, rows.shape))  # (N, d)
        self._hash = _xxh3_128(f"{self.shape} {rows.dtype}".encode())
        self._next = 0  # first row that is not hashed yet

    @property
    def dtype(self) -> "torch.dtype":
        """Type of the numbers as stored."""
        return self._rows.dtype

    def __getitem__(self, rows: slice) -> "Tensor":
        block = self._rows[rows]
        self._update(rows, block)
        return block

    def read_into(self, rows: slice, out: "Tensor") -> None:
        """Read rows into ``out`` and hash them piece by piece, while they are in the cache."""
        import torch

        start, stop, _ = rows.indices(self.shape[0])
        if start == self._next and _same_layout(self._rows, out):
            source, target = (block.view(torch.uint8).numpy().reshape(-1) for block in (self._rows[start:stop], out))
            for at in range(0, len(target), PIECE_BYTES):  # by numpy, whose calls cost less than torch's
                piece = target[at : at + PIECE_BYTES]
                piece[:] = source[at : at + PIECE_BYTES]
                self._hash.update(piece)
            self._next = max(start, stop)
            return
        step = max(1, stop - start)
        if hasattr(self._rows, "read_into"):  # others may unpack a whole chunk for every piece
            step = max(1, PIECE_BYTES // (self.shape[1] * self.dtype.itemsize))
        for first in range(start, stop, step):
            span, part = slice(first, min(first + step, stop)), out[first - start : first - start + step]
            read_into(self._rows, span, part)
            self._update(span, part)

    def _update(self, rows: slice, block: "Tensor") -> None:
        start, stop, step = rows.indices(self.shape[0])
        if start == self._next and step == 1 and start < stop:
            import torch

            self._hash.update(block.contiguous().view(torch.uint8).numpy())  # numpy has no bfloat16
            self._next = stop

    def digest(self) -> str:
        """Hash of all rows, 32 hexadecimal digits."""
        count, dim = self.shape
        step = max(1, BLOCK_BYTES // (dim * self.dtype.itemsize))
        while self._next < count:
            self[self._next : self._next + step]
        return str(self._hash.hexdigest())


def _same_layout(rows: "Rows", out: "Tensor") -> bool:
    """Whether rows are a tensor with the same bytes as ``out`` will have."""
    import torch

    if not isinstance(rows, torch.Tensor) or rows.device.type != "cpu":
        return False
    return rows.dtype == out.dtype and rows.is_contiguous() and out.is_contiguous()


def _xxh3_128(data: bytes) -> Any:
    import xxhash  # here, so that the kernel can be imported with numpy and torch alone

    return xxhash.xxh3_128(data)


def version_of(files: Iterable[Path]) -> Version:
    """Modification time and size of each file, to notice that one was replaced or removed."""
    versions: list[tuple[int, int] | None] = []
    for file in files:
        try:
            status = file.stat()
            versions.append((status.st_mtime_ns, status.st_size))
        except OSError:
            versions.append(None)
    return tuple(versions)


def stamp_of(files: Sequence[Path]) -> str:
    """Size, times and inode of files; empty if one is missing, a folder, or so young that a later change may show the same times."""
    try:
        status = [file.stat() for file in files]
    except OSError:
        return ""
    settled = time.time_ns() - int(UNSETTLED_SECONDS * 1e9)
    if any(max(s.st_mtime_ns, s.st_ctime_ns) > settled or stat.S_ISDIR(s.st_mode) for s in status):
        return ""
    return " ".join(f"{s.st_size}:{s.st_mtime_ns}:{s.st_ctime_ns}:{s.st_ino}" for s in status)


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; on success it is flushed to disk and renamed, on failure removed.

    It may be made a folder (of zarr) instead of a file; an earlier folder moves out of the way first.
    """
    _check_is_file(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{path.parent}: cannot be made ({error.strerror})") from error
    prefix = f".{path.name[:32]}.{socket.gethostname()[:64]}."
    _remove_leftovers(path.parent, prefix)
    temporary = path.parent / f"{prefix}{secrets.token_hex(8)}.{os.getpid()}.part"
    try:
        temporary.touch()
        mode = temporary.stat().st_mode  # by the user's umask; safetensors makes files that colleagues cannot read
        yield temporary
        if temporary.is_dir():
            old = temporary.with_name(f"{prefix}{secrets.token_hex(8)}.{os.getpid()}.part")
            if path.exists():
                path.replace(old)
            temporary.replace(path)
            _remove(old)
            return
        temporary.chmod(mode)
        with temporary.open("rb+") as handle:
            os.fsync(handle.fileno())
        temporary.replace(path)
    except Exception as error:
        code = _errno(error)
        if code is None:
            raise
        kind = DiskFullError if code in (errno.ENOSPC, errno.EDQUOT, errno.EROFS) else InputError
        raise kind(f"{path}: cannot be written ({os.strerror(code)})") from error
    finally:
        _remove(temporary)


def _remove(path: Path) -> None:
    """Remove a temporary file or folder; gone by now, or another user's, it is left."""
    with suppress(OSError):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _errno(error: BaseException | None) -> int | None:
    """System error number, also of errors wrapped by a library (HDF5, safetensors); None for other errors."""
    while error is not None and not isinstance(error, InputError):
        if isinstance(error, OSError) and error.errno is not None:
            return error.errno
        if code := re.search(r"(?:errno =|os error) (\d+)", str(error)):
            return int(code[1])
        error = error.__context__
    return None


def _remove_leftovers(folder: Path, prefix: str) -> None:
    """Remove temporary files of killed processes of this machine."""
    names = list[str]()
    with suppress(OSError):  # a folder that may be written to and not listed
        names = os.listdir(folder)  # pathlib's glob takes three times as long in the folder of a large study
    for name in names:
        if name.startswith(prefix) and name.endswith(".part"):
            pid = name.rsplit(".", 2)[1]
            if pid.isdigit() and not is_running(int(pid)):
                _remove(folder / name)


def is_running(pid: int) -> bool:
    """Whether a process of any user exists; many clusters hide those of other users (hidepid)."""
    if os.name != "posix":  # elsewhere the call below would end it
        import psutil

        return psutil.pid_exists(pid)
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return True


class _Sink(io.FileIO):
    """File that keeps its first error for later: HDF5 crashes when it cannot flush its cache, also after closing.

    Small writes that fail stay in memory, because HDF5 reads its metadata (but no rows) back.
    """

    failed: OSError | None = None

    def __init__(self, path: Path) -> None:
        super().__init__(path, "w+")
        self._unwritten: list[tuple[int, bytes]] = []  # place and content

    def write(self, data: Any, /) -> int:
        rest, start = memoryview(data).cast("B"), self.tell()
        size = len(rest)
        while len(rest) and self.failed is None:
            try:
                rest = rest[super().write(rest) :]
            except OSError as error:
                self.failed = error
        if len(rest) and size <= KEPT_BYTES:
            self._unwritten.append((start, bytes(data)))
        return size

    def readinto(self, buffer: Any, /) -> int:
        view, start = memoryview(buffer).cast("B"), self.tell()
        size = super().readinto(view)
        if self.failed is None:
            return size
        view[size:] = bytes(len(view) - size)
        for place, data in self._unwritten:
            first, last = max(start, place), min(start + len(view), place + len(data))
            if first < last:
                view[first - start : last - start] = data[first - place : last - place]
        return len(view)

    def truncate(self, size: int | None = None, /) -> int:
        try:
            return super().truncate(size)
        except OSError as error:
            self.failed = self.failed or error
            return size or 0


@contextmanager
def h5_writer(path: Path) -> "Iterator[h5py.File]":
    """Yield a new HDF5 file, e.g. at the temporary path of :func:`atomic_write`; a full disk is an error at the end."""
    import h5py

    with _Sink(path) as sink:
        try:
            with h5py.File(sink, "w") as file:
                yield file
        finally:
            if sink.failed is not None:
                raise sink.failed


def check_writable(path: Path) -> None:
    """Fail before the work if no file can be written to ``path``; leaves nothing behind."""
    _check_is_file(path)
    check_writable_folder(path.parent)


def check_writable_folder(folder: Path) -> None:
    """Fail if ``folder`` cannot be made or written to."""
    try:
        existing = next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())
        tempfile.TemporaryFile(dir=existing).close()
    except OSError as error:
        raise InputError(f"{folder}: cannot be written to ({error.strerror})") from error


def _check_is_file(path: Path) -> None:
    """Only regular files and embeddings are replaced: renaming over /dev/null would remove the device."""
    if is_stored_embeddings(path):
        return
    if path.is_dir():
        raise InputError(f"{path}: found a folder, expected the name of a file")
    if path.exists() and not path.is_file():
        raise InputError(f"{path}: found a device or a pipe, expected the name of a file")


def is_stored_embeddings(path: Path) -> bool:
    """Whether it is a folder of zarr with embeddings of `panther embed`, or another AnnData."""
    return path.suffix.lower() == ".zarr" and (path / "obs").is_dir() and (path / "var").is_dir()


def check_output(output: Path, *inputs: Any) -> None:
    """Fail if ``output`` cannot be written, or is (a link to) one of the inputs.

    Inputs are paths, bags, or lists of them; other values (a table, prototypes) are ignored.
    """
    check_writable(output)
    _check_no_input([output], inputs)


def check_output_folder(folder: Path, written: Iterable[str], *inputs: Any) -> None:
    """Fail if ``folder`` cannot be written to, or holds an input with a name that matches the ``written`` patterns."""
    check_writable_folder(folder)
    files = list(folder.iterdir()) if folder.is_dir() else []
    _check_no_input([file for file in files if any(fnmatchcase(file.name, pattern) for pattern in written)], inputs)


def _check_no_input(outputs: Iterable[Path], inputs: Iterable[Any]) -> None:
    existing = {identity: file for file in outputs if (identity := _identity(file))}
    for file, is_listed in _files(inputs) if existing else ():
        output = existing.get(_identity(file) or (-1, -1))
        # a result of an earlier command among the features may be written again
        if output is not None and not (is_listed and _is_result(file)):
            raise InputError(f"{output}: would be overwritten, but is an input ({file}); expected another output")


def _is_result(path: Path) -> bool:
    """Whether a file among the features holds prototypes or a model of an earlier command."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="np") as handle:
            return any(key.startswith("panther_") for key in handle.metadata() or {})
    except (SafetensorError, OSError):
        return False


def _identity(file: Path) -> tuple[int, int] | None:
    """Device and inode, the same for all links to a file; None if it does not exist."""
    try:
        status = file.stat()
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino


def _files(inputs: Iterable[Any]) -> Iterator[tuple[Path, bool]]:
    """Every input file, and whether it comes from a bag, e.g. of a listed folder."""
    for value in inputs:
        if isinstance(value, (str, Path)):
            yield Path(value), False
        elif hasattr(value, "open") and hasattr(value, "files"):
            yield from ((file, True) for file in value.files)
        elif isinstance(value, (Sequence, Iterator)):
            yield from _files(value)
