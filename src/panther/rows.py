"""Rows of features, read by slices: arrays as tensors, concatenated, projected, or centred."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from panther.errors import InputError

if TYPE_CHECKING:
    from panther.types import Bag


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
    """Concatenated rows of several sources, e.g. the slides of a patient as one bag."""

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
    """Bags of different lengths concatenated in one tensor: a batch without padding."""

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
    """Transformation of features before prototypes: L2 normalisation, then PCA; the identity by default."""

    normalise: bool = False
    mean: Tensor | None = None  # (d_in,)
    basis: Tensor | None = None  # (d_in, d_out)

    @property
    def is_identity(self) -> bool:
        """Whether features stay unchanged."""
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
        """The rows, projected when read."""
        if isinstance(rows, Ragged):
            return Ragged(self(rows.rows), rows.lengths)
        return rows if self.is_identity else Projected(rows, self)


@dataclass(frozen=True)
class Projected:
    """Rows that are projected when read."""

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


MATRIX = "expected floating-point numbers (N, d), one row per patch"


def as_matrix(what: str, values: Any, expected: str = MATRIX) -> Tensor:
    """Tensor (N, d) of floating-point numbers from anything (N, d) or (1, N, d); messages call it ``what``."""
    tensor = as_tensor(what, values, expected)
    if tensor.ndim == 3 and len(tensor) == 1:
        tensor = tensor[0]
    if tensor.ndim != 2 or not tensor.is_floating_point():
        raise InputError(f"{what}: found shape {tuple(tensor.shape)} and type {tensor.dtype}, {expected}")
    return tensor


def as_tensor(what: str, values: Any, expected: str = MATRIX) -> Tensor:
    """Tensor of numbers of any shape and type; it shares the memory of an array if torch can read it."""
    if isinstance(values, Tensor):
        return values
    if isinstance(values, (list, tuple)):
        try:
            return torch.as_tensor(values)
        except (TypeError, ValueError, RuntimeError) as error:  # rows of different lengths, or text
            raise InputError(f"{what}: found a list of unequal rows or of text, {expected}") from error
    if np.ma.is_masked(values):
        raise InputError(f"{what}: found a masked array, expected one without masked rows")
    if not hasattr(values, "__array__"):
        raise InputError(f"{what}: found {None if values is None else type(values).__name__}, {expected}")
    if hasattr(values, "select_dtypes"):  # a pandas DataFrame
        others = values.columns.difference(values.select_dtypes("number").columns)
        if len(others):
            raise InputError(f"{what}: the column {others[0]!r} holds no numbers, {expected}")
        if any(not isinstance(dtype, np.dtype) for dtype in values.dtypes):  # pandas' nullable types
            values = values.to_numpy(np.float64, na_value=np.nan)
    array = np.asarray(values)
    if array.dtype.kind not in "fiub" or (array.dtype.kind == "f" and array.itemsize > 8):
        dtype = "Python objects" if array.dtype.kind == "O" else array.dtype
        raise InputError(f"{what}: found an array of {dtype}, {expected}")
    if not array.dtype.isnative or any(step < 0 or step % array.itemsize for step in array.strides):
        array = np.array(array, array.dtype.newbyteorder("="), order="C")  # torch reads neither
    return torch.from_numpy(array if array.flags.writeable else np.asarray(_Shared(array)))


@dataclass(frozen=True)
class LoadedCoords:
    """Coordinates in memory, returned when called."""

    coords: Tensor

    def __call__(self) -> Tensor:
        """Return (N, 2)."""
        return self.coords


def as_coords(what: str, values: Any, count: int) -> LoadedCoords:
    """Coordinates of ``count`` patches from an array (N, 2) or (1, N, 2); messages call them ``what``."""
    coords = as_tensor(what, values, f"expected coordinates ({count}, 2), the upper left corner of each patch")
    check_coords_shape(what, tuple(coords.shape), count)
    return LoadedCoords(coords.reshape(-1, 2).to(torch.float64 if coords.is_floating_point() else torch.int64))


def check_coords_shape(what: str, shape: tuple[int, ...], count: int) -> None:
    """Refuse coordinates that are not one pair per patch."""
    is_empty = count == 0 and 0 in shape  # an empty list is saved as (0,)
    if shape not in ((count, 2), (1, count, 2)) and not is_empty:
        raise InputError(f"{what}: found shape {shape}, expected ({count}, 2), the upper left corner of each patch")


def as_centroids(values: Any) -> Tensor:
    """Centroids (C, d) from an array (C, d) or (1, C, d) of finite numbers."""
    expected = "expected prototypes, a file of them, or their centroids, floating-point numbers (C, d)"
    centroids = as_matrix("prototypes", values, expected)
    if 0 in centroids.shape:
        raise InputError(f"prototypes: found shape {tuple(centroids.shape)}, {expected}")
    if not bool(torch.isfinite(centroids).all()):
        raise InputError("prototypes: found NaN or infinite numbers")
    return centroids


class _Shared:
    """Memory of a read-only array, e.g. of a file, marked as writable: torch warns otherwise, and features are never written to."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array  # keeps the memory
        interface = array.__array_interface__
        self.__array_interface__ = {**interface, "data": (interface["data"][0], False)}


BLOCK = 4096  # patches read at once for a slide's mean


@dataclass(frozen=True, eq=False)
class Alignment:
    r"""Mean of the training slides, and the shift of each site from it.

    .. math:: x' = m + (x - m - g_s)

    with the training slides' mean m and the shift g_s of the mean of site s. With ``centre=slide``, g is the slide's mean less m.
    Patches are centred on m and not on 0, so that prototypes stay in the space of the features.
    """

    kind: str  # "slide" or "site"
    mean: Tensor  # (d,), of the training slides' means
    sites: tuple[str, ...] = ()
    shift: Tensor | None = None  # (S, d)
    members: Mapping[str, str] = field(default_factory=dict)  # slide or patient -> its site
    fitted: int = 0  # number of sites of training slides; sites added later follow them

    TENSORS: ClassVar = {"slide": ("mean",), "site": ("mean", "shift")}

    def move_of(self, sample: str, source: str) -> "Move":
        """Move of a slide or patient; samples of an unknown site are refused."""
        if self.kind == "slide":
            return Move(self.mean)
        site = self.members.get(sample)
        if site is None:
            raise InputError(f"{source}: the prototypes are centred by site, but the site of {sample} is unknown")
        assert self.shift is not None
        return Move(self.mean, self.mean + self.shift[self.sites.index(site)])

    def view(self, bag: "Bag") -> "Aligned":
        """Features of a bag, moved when read."""
        return self.move_of(bag.slide_id, bag.source).view(bag)

    def digest(self) -> bytes:
        """Hash of the means of the training slides, without sites that were added later."""
        digest = hashlib.blake2b(repr((self.kind, self.sites[: self.fitted], None)).encode(), digest_size=16)
        for tensor in self.tensors().values():
            rows = tensor[: self.fitted] if tensor.ndim == 2 else tensor
            digest.update(rows.detach().cpu().float().contiguous().numpy().tobytes())
        return digest.digest()

    def tensors(self) -> dict[str, Tensor]:
        """Tensors, for files."""
        return {name: tensor for name in ("mean", "shift") if (tensor := getattr(self, name)) is not None}

    def settings(self) -> dict[str, Any]:
        """All other fields as plain values, for files."""
        return {"kind": self.kind, "fitted": self.fitted, "sites": list(self.sites), "members": dict(self.members)}

    @classmethod
    def from_state(cls, about: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> "Alignment":
        """Alignment from `settings` and `tensors`; invalid ones raise KeyError, TypeError or ValueError."""
        plain = {"kind": str, "fitted": int, "sites": list, "members": dict}
        for name, expected in plain.items():
            if type(about[name]) is not expected:
                raise TypeError(f"{name} is {about[name]!r}")
        sites, members, fitted = about["sites"], about["members"], about["fitted"]
        if tuple(sorted(tensors)) != cls.TENSORS.get(about["kind"]):
            raise ValueError(f"kind {about['kind']!r} with tensors {sorted(tensors)}")
        shapes = {"mean": tensors["mean"].shape, "shift": (len(sites), *tensors["mean"].shape)}
        for name, tensor in tensors.items():
            is_vector = tensor.is_floating_point() and tensors["mean"].ndim == 1
            if not is_vector or tuple(tensor.shape) != shapes[name] or not bool(torch.isfinite(tensor).all()):
                raise ValueError(f"{name} is {tuple(tensor.shape)} of {tensor.dtype}, expected finite floats")
        if not all(isinstance(name, str) for name in sites) or len(set(sites)) < len(sites):
            raise ValueError(f"sites are {sites}, expected different names")
        if not set(members.values()) <= set(sites) or not 0 <= fitted <= len(sites):
            raise ValueError("slides of unknown sites, or more training sites than sites")
        numbers: dict[str, Any] = {name: tensor.float() for name, tensor in tensors.items()}
        return cls(about["kind"], sites=tuple(sites), members=members, fitted=fitted, **numbers)


@dataclass(frozen=True, eq=False)
class Move:
    """Translation of one bag's features; small enough to send to another process."""

    to: Tensor  # (d,)
    centre: Tensor | None = None  # (d,), subtracted from patches; None: the mean of their slide

    def view(self, bag: "Bag") -> "Aligned":
        """Features of the bag, moved when read."""
        return Aligned(bag.features, self, bag.lengths or (len(bag),))


@dataclass(frozen=True, eq=False)
class Aligned:
    """Rows that are moved when read."""

    rows: Rows  # (N, d)
    move: Move
    lengths: tuple[int, ...]  # patches of each slide

    @property
    def shape(self) -> tuple[int, ...]:
        """Return (N, d)."""
        return tuple(map(int, self.rows.shape))

    @property
    def dtype(self) -> torch.dtype:
        """Type of the moved numbers."""
        return torch.float64 if self.rows.dtype == torch.float64 else torch.float32

    def __getitem__(self, rows: slice) -> Tensor:
        x = self.rows[rows].to(self.dtype)
        start, _, step = rows.indices(self.shape[0])
        return (x - self._centres(start, step, len(x)).to(x)).add_(self.move.to.to(x))

    def _centres(self, start: int, step: int, count: int) -> Tensor:
        """Centres to subtract from these rows, (d,) or (n, d)."""
        if self.move.centre is not None:
            return self.move.centre
        if len(self.lengths) == 1:
            return self._slide_means[0]
        ends = torch.tensor(self.lengths).cumsum(0)
        return self._slide_means[torch.bucketize(start + step * torch.arange(count), ends, right=True)]

    @cached_property
    def _slide_means(self) -> Tensor:
        """Mean of each slide (k, d), read once; 0 for a slide without patches."""
        means, start = [], 0
        for length in self.lengths:
            total = torch.zeros(self.shape[1], dtype=torch.float64)
            for first in range(start, start + length, BLOCK):
                block = self.rows[first : min(first + BLOCK, start + length)]
                total += block.sum(0, dtype=torch.float64).cpu()
            means.append(total / max(length, 1))
            start += length
        return torch.stack(means).to(self.dtype)
