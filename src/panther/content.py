"""Hashes: of what a bag holds (the shape, the type and every number, whatever file they lie in), and of settings."""

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch  # read when a bag is hashed: whoever hashes settings needs none
    from torch import Tensor

    from panther.types import Rows

BLOCK_BYTES = 2 << 20  # stays in a core's cache
PIECE_BYTES = 512 << 10  # what is copied and then hashed is there twice


def hash_of(value: Any, *contents: bytes) -> str:
    """Key of plain values (settings, names, numbers), and of bytes: 32 hexadecimal digits, equal wherever and whenever it is taken."""
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.blake2b(b"".join((text.encode(), *contents)), digest_size=16).hexdigest()


def hash_rows(rows: "Rows") -> str:
    """Hash of all rows (N, d); equal features give equal hashes, in whatever layout they are stored."""
    return HashedRows(rows).digest()


def hash_contents(contents: Mapping[str, str]) -> str:
    """Hash over the samples of a cohort, by name, and the hash of each one's features."""
    text = "\n".join(f"{name} {contents[name]}" for name in sorted(contents))
    return str(_xxh3_128(text.encode("utf-8", "surrogateescape")).hexdigest())


def read_into(rows: "Rows", span: slice, out: "Tensor") -> None:
    """Copy a span of rows into memory that is there (n, d); rows that can write to it themselves spare a copy."""
    if (read := getattr(rows, "read_into", None)) is not None:
        read(span, out)
    else:
        out.copy_(rows[span])


class HashedRows:
    """Rows that are hashed as they are read from first to last, so that the hash costs no reading of its own.

    Reading again, or out of order, changes nothing: what was not read in order is read by `digest`.
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
        """Read rows into memory that is there, and hash them where they are then, piece by piece: in the cache."""
        import torch

        start, stop, _ = rows.indices(self.shape[0])
        if start == self._next and _lie_alike(self._rows, out):
            there, here = (block.view(torch.uint8).numpy().reshape(-1) for block in (self._rows[start:stop], out))
            for at in range(0, len(here), PIECE_BYTES):  # by numpy, whose calls cost less than torch's
                piece = here[at : at + PIECE_BYTES]
                piece[:] = there[at : at + PIECE_BYTES]
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


def _lie_alike(rows: "Rows", out: "Tensor") -> bool:
    """Whether the bytes of rows, in memory or mapped, are those of the memory that they are copied into."""
    import torch

    if not isinstance(rows, torch.Tensor) or rows.device.type != "cpu":
        return False
    return rows.dtype == out.dtype and rows.is_contiguous() and out.is_contiguous()


def _xxh3_128(data: bytes) -> Any:
    import xxhash  # here, so that the kernel can be imported with numpy and torch alone

    return xxhash.xxh3_128(data)
