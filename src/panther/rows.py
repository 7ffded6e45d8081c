"""Rows of features, read by slices: what looks like them, several one after the other, and seen through a projection."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor


class Rows(Protocol):
    """Anything that looks like an (N, d) tensor and is read by slices: a tensor, a memory map, a chunked file."""

    @property
    def shape(self) -> Sequence[int]:
        """Return (N, d)."""

    @property
    def dtype(self) -> torch.dtype:
        """Type of the numbers as stored."""

    def __getitem__(self, rows: slice) -> Tensor:
        """Rows as a tensor (n, d); it may be a view of a memory map."""


@dataclass(frozen=True)
class Concatenated:
    """Rows of several sources one after the other: the slides of a patient are one bag."""

    parts: tuple[Rows, ...]

    @property
    def shape(self) -> tuple[int, int]:
        """(sum of N, d)."""
        return sum(int(part.shape[0]) for part in self.parts), int(self.parts[0].shape[1])

    @property
    def dtype(self) -> torch.dtype:
        """Common type of the parts."""
        dtype = self.parts[0].dtype
        for part in self.parts[1:]:
            dtype = torch.promote_types(dtype, part.dtype)
        return dtype

    def __getitem__(self, rows: slice) -> Tensor:
        start, stop, _ = rows.indices(self.shape[0])
        pieces, offset = [], 0
        for part in self.parts:
            length = int(part.shape[0])
            low, high = max(start - offset, 0), min(stop - offset, length)
            if low < high:
                pieces.append(part[low:high].to(self.dtype))
            offset += length
        if not pieces:
            return torch.empty(0, self.shape[1], dtype=self.dtype)
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces)


class Ragged(NamedTuple):
    """Bags of different lengths one after the other in one tensor: a batch without padding."""

    rows: Tensor  # (sum of N, d)
    lengths: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, int, int]:
        """(bags, patches of the smallest, d)."""
        return len(self.lengths), min(self.lengths, default=0), int(self.rows.shape[1])

    @property
    def dtype(self) -> torch.dtype:
        """Type of the numbers."""
        return self.rows.dtype

    def bags(self) -> tuple[Tensor, ...]:
        """Each bag as a view (N, d)."""
        return self.rows.split(self.lengths)


@dataclass(frozen=True)
class Projection:
    """What is done to features before they meet prototypes: L2 normalisation, then PCA; nothing by default."""

    normalise: bool = False
    mean: Tensor | None = None  # (d_in,)
    basis: Tensor | None = None  # (d_in, d_out)

    @property
    def is_identity(self) -> bool:
        """Whether features pass unchanged."""
        return not self.normalise and self.basis is None

    def __call__(self, x: Tensor) -> Tensor:
        """Apply to features (..., d_in)."""
        if self.is_identity:
            return x
        x = x if x.dtype == torch.float64 else x.float()
        if self.normalise:
            x = torch.nn.functional.normalize(x, dim=-1)
        if self.basis is None or self.mean is None:
            return x
        return (x - self.mean.to(x)) @ self.basis.to(x)

    def view(self, rows: Rows) -> Rows:
        """Same rows, projected as they are read."""
        if isinstance(rows, Ragged):
            return Ragged(self(rows.rows), rows.lengths)
        return rows if self.is_identity else Projected(rows, self)


@dataclass(frozen=True)
class Projected:
    """Rows seen through a projection."""

    rows: Rows
    projection: Projection

    @property
    def shape(self) -> tuple[int, ...]:
        """(..., N, d_out)."""
        basis = self.projection.basis
        return (*map(int, self.rows.shape[:-1]), int(self.rows.shape[-1] if basis is None else basis.shape[1]))

    @property
    def dtype(self) -> torch.dtype:
        """Type after projection."""
        return torch.float64 if self.rows.dtype == torch.float64 else torch.float32

    def __getitem__(self, rows: Any) -> Tensor:
        return self.projection(self.rows[rows])
