"""Slides centred on the training slides before prototypes see them: what was fitted, and rows seen through it."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from panther.errors import InputError

if TYPE_CHECKING:
    from panther.types import Bag, Rows

BLOCK = 4096  # patches that a slide's mean is read by


@dataclass(frozen=True, eq=False)
class Alignment:
    r"""Mean of the training slides, and what the slides of each site differ from it by.

    .. math:: x' = m + (x - m - g_s)

    with the training slides' mean m, and the shift g_s of the means of site s. With ``centre=slide`` g is the slide's mean less m.
    Patches are moved back to m, so that prototypes lie where features lie.
    """

    kind: str  # "slide" or "site"
    mean: Tensor  # (d,), of the training slides' means
    sites: tuple[str, ...] = ()
    shift: Tensor | None = None  # (S, d)
    members: Mapping[str, str] = field(default_factory=dict)  # slide or patient -> its site
    fitted: int = 0  # how many of the sites, the first ones, the training slides are of

    TENSORS: ClassVar = {"slide": ("mean",), "site": ("mean", "shift")}

    def move_of(self, sample: str, source: str) -> "Move":
        """How a slide or patient is moved; one of a site that is not known is refused."""
        if self.kind == "slide":
            return Move(self.mean)
        site = self.members.get(sample)
        if site is None:
            raise InputError(
                f"{source}: the prototypes are centred by site, and no table names a site of {sample} to them."
            )
        assert self.shift is not None
        return Move(self.mean, self.mean + self.shift[self.sites.index(site)])

    def view(self, bag: "Bag") -> "Aligned":
        """Features of a bag, moved as they are read."""
        return self.move_of(bag.slide_id, bag.source).view(bag)

    def digest(self, *, added: bool = False) -> bytes:
        """Hash of what the training slides gave; with ``added`` also of sites that were estimated later."""
        upto = None if added else self.fitted
        about = (self.kind, self.sites[:upto], sorted(self.members.items()) if added else None)
        digest = hashlib.blake2b(repr(about).encode(), digest_size=16)
        for tensor in self.tensors().values():
            rows = tensor[:upto] if tensor.ndim == 2 else tensor
            digest.update(rows.detach().cpu().float().contiguous().numpy().tobytes())
        return digest.digest()

    def tensors(self) -> dict[str, Tensor]:
        """What is written beside prototypes."""
        return {name: tensor for name in ("mean", "shift") if (tensor := getattr(self, name)) is not None}

    def settings(self) -> dict[str, Any]:
        """The rest of it, in plain values."""
        return {
            "kind": self.kind,
            "fitted": self.fitted,
            "sites": list(self.sites),
            "members": dict(self.members),
        }

    @classmethod
    def from_state(cls, about: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> "Alignment":
        """As written by `settings` and `tensors`; what cannot be raises KeyError, TypeError or ValueError."""
        plain = {"kind": str, "fitted": int, "sites": list, "members": dict}
        for name, kind in plain.items():
            if type(about[name]) is not kind:
                raise TypeError(f"{name} is {about[name]!r}")
        strange = [name for name in (*about["sites"], *about["members"].values()) if not isinstance(name, str)]
        if strange or not all(tensor.is_floating_point() for tensor in tensors.values()):
            raise TypeError(f"{strange[0]!r} names no site" if strange else "whole numbers where others are expected")
        if tuple(sorted(tensors)) != cls.TENSORS.get(about["kind"]):
            raise ValueError(f"kind {about['kind']!r} with tensors {sorted(tensors)}")
        numbers: dict[str, Any] = {name: tensor.float() for name, tensor in tensors.items()}
        alignment = cls(**{name: about[name] for name in plain} | numbers | {"sites": tuple(about["sites"])})
        alignment._check()
        return alignment

    def _check(self) -> None:
        dim, count = self.mean.shape[0], len(self.sites)
        for name, tensor in self.tensors().items():
            shape = (count, dim) if name == "shift" else (dim,)
            if tuple(tensor.shape) != shape or not bool(torch.isfinite(tensor).all()):
                raise ValueError(f"{name} has shape {tuple(tensor.shape)}, expected {shape} of finite numbers")
        if not set(self.members.values()) <= set(self.sites) or len(set(self.sites)) < count:
            raise ValueError("slides of sites that it does not hold, or a site twice")
        if not 0 <= self.fitted <= count:
            raise ValueError(f"{self.fitted} training sites of {count} in all")


@dataclass(frozen=True, eq=False)
class Move:
    """How one bag is moved; small enough to send with it."""

    to: Tensor  # (d,)
    centre: Tensor | None = None  # (d,), where patches are moved from; None: from the mean of their slide

    def view(self, bag: "Bag") -> "Aligned":
        """Features of the bag, moved as they are read."""
        return Aligned(bag.features, self, bag.lengths or (len(bag),))


@dataclass(frozen=True, eq=False)
class Aligned:
    """Rows that are moved as they are read."""

    rows: "Rows"  # (N, d)
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
        """Where these rows are moved from, (d,) or (n, d)."""
        if self.move.centre is not None:
            return self.move.centre
        if len(self.lengths) == 1:
            return self._slide_means[0]
        ends = torch.tensor(self.lengths).cumsum(0)
        return self._slide_means[torch.bucketize(start + step * torch.arange(count), ends, right=True)]

    @cached_property
    def _slide_means(self) -> Tensor:
        """Mean of each slide (k, d), read once; a slide without patches has none and needs none."""
        means, start = [], 0
        for length in self.lengths:
            total = torch.zeros(self.shape[1], dtype=torch.float64)
            for first in range(start, start + length, BLOCK):
                block = self.rows[first : min(first + BLOCK, start + length)]
                total += block.sum(0, dtype=torch.float64).cpu()
            means.append(total / max(length, 1))
            start += length
        return torch.stack(means).to(self.dtype)
