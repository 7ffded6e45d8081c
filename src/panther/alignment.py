"""Slides of every site moved onto the training slides, before prototypes see them: what was fitted, and rows seen through it."""

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

KINDS = {  # as messages write them
    "slide": "centre=slide",
    "site": "centre=site",
    "harmonise": "harmonise=True",
}
BLOCK = 4096  # patches that a slide's mean is read by


@dataclass(frozen=True, eq=False)
class Alignment:
    r"""Location and scale of every site, estimated on slides without any label of theirs.

    .. math:: x' = m + (x - m - g_s)\, e^{-l_s / 2}

    with the training slides' mean m, and of site s the shift g_s of its slides' means and the excess l_s of their log variances.
    With ``centre=slide`` g is the slide's own mean less m, and l is 0. Patches are moved back to m, so that prototypes lie where
    features lie.
    """

    kind: str  # of KINDS
    mean: Tensor  # (d,), of the training slides' means
    slides: int = 0  # training slides
    sites: tuple[str, ...] = ()
    shift: Tensor | None = None  # (S, d)
    log_scale: Tensor | None = None  # (S, d); None: variances stay as they are
    members: Mapping[str, str] = field(default_factory=dict)  # slide or patient -> its site
    fitted: int = 0  # how many of the sites, the first ones, the training slides are of
    spread: Tensor | None = None  # (d,), of slides' means within a site: what a new site's are weighed against
    log_variance: Tensor | None = None  # (d,), mean over the training slides
    log_spread: Tensor | None = None  # (d,)

    TENSORS: ClassVar = ("mean", "shift", "log_scale", "spread", "log_variance", "log_spread")

    def move_of(self, sample: str, source: str) -> "Move":
        """How a slide or patient is moved; one of a site that is not known is refused."""
        if self.kind == "slide":
            return Move(self.mean)
        site = self.members.get(sample)
        if site is None:
            raise InputError(
                f"{source}: the prototypes were fitted with {KINDS[self.kind]}, and the site of {sample} is not known to them. Let them know it "
                "with `panther add-sites PROTOTYPES FEATURES --table TABLE -o NEW`; `panther embed` and `panther predict` take the table themselves."
            )
        assert self.shift is not None
        row = self.sites.index(site)
        scale = None if self.log_scale is None else torch.exp(-self.log_scale[row] / 2)
        return Move(self.mean, self.mean + self.shift[row], scale)

    def view(self, bag: "Bag") -> "Aligned":
        """Features of a bag, moved as they are read."""
        return self.move_of(bag.slide_id, bag.source).view(bag)

    def digest(self, *, added: bool = False) -> bytes:
        """Hash of what the training slides gave; with ``added`` also of sites that were estimated later."""
        upto = None if added else self.fitted
        about = (self.kind, self.slides, self.sites[:upto], sorted(self.members.items()) if added else None)
        digest = hashlib.blake2b(repr(about).encode(), digest_size=16)
        for name in self.TENSORS:
            tensor = getattr(self, name)
            if tensor is not None:
                rows = tensor[:upto] if tensor.ndim == 2 else tensor
                digest.update(rows.detach().cpu().float().contiguous().numpy().tobytes())
        return digest.digest()

    def tensors(self) -> dict[str, Tensor]:
        """What is written beside prototypes."""
        return {name: getattr(self, name) for name in self.TENSORS if getattr(self, name) is not None}

    def settings(self) -> dict[str, Any]:
        """The rest of it, in plain values."""
        plain = ("kind", "slides", "fitted")
        return {name: getattr(self, name) for name in plain} | {
            "sites": list(self.sites),
            "members": dict(self.members),
        }

    @classmethod
    def from_state(cls, about: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> "Alignment":
        """As written by `settings` and `tensors`; what cannot be raises KeyError, TypeError or ValueError."""
        plain = {"kind": str, "slides": int, "fitted": int, "sites": list, "members": dict}
        for name, kind in plain.items():
            if type(about[name]) is not kind:
                raise TypeError(f"{name} is {about[name]!r}")
        strange = [name for name in (*about["sites"], *about["members"].values()) if not isinstance(name, str)]
        if strange or not all(tensor.is_floating_point() for tensor in tensors.values()):
            raise TypeError(f"{strange[0]!r} names no site" if strange else "whole numbers where others are expected")
        own: dict[str, Any] = {name: tensors[name].float() for name in cls.TENSORS if name in tensors}
        found = cls(**{name: about[name] for name in plain} | own | {"sites": tuple(about["sites"])})
        found._check()
        return found

    def _check(self) -> None:
        dim, count = self.mean.shape[0], len(self.sites)
        for name, tensor in self.tensors().items():
            shape = (count, dim) if name in ("shift", "log_scale") else (dim,)
            if tuple(tensor.shape) != shape or not bool(torch.isfinite(tensor).all()):
                raise ValueError(f"{name} has shape {tuple(tensor.shape)}, expected {shape} of finite numbers")
        if tuple(self.tensors()) != {"slide": ("mean",), "site": ("mean", "shift"), "harmonise": self.TENSORS}.get(
            self.kind
        ):
            raise ValueError(f"kind {self.kind!r} with tensors {sorted(self.tensors())}")
        for name in ("spread", "log_spread"):
            if getattr(self, name) is not None and bool((getattr(self, name) < 0).any()):
                raise ValueError(f"{name} has negative numbers")
        if self.log_scale is not None and not bool(torch.exp(-self.log_scale / 2).isfinite().all()):
            raise ValueError("log_scale is too small to be undone")
        if not set(self.members.values()) <= set(self.sites) or len(set(self.sites)) < count:
            raise ValueError("slides of sites that it does not hold, or a site twice")
        if not 0 <= self.fitted <= count or self.slides < 1:
            raise ValueError(f"{self.fitted} sites of {self.slides} training slides, and {count} sites in all")


@dataclass(frozen=True, eq=False)
class Move:
    """How one bag is moved; small enough to send with it."""

    to: Tensor  # (d,)
    centre: Tensor | None = None  # (d,), where patches are moved from; None: from their own slide's mean
    scale: Tensor | None = None  # (d,)

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
        moved = x - self._centres(start, step, len(x)).to(x)
        if self.move.scale is not None:
            moved *= self.move.scale.to(x)
        return moved.add_(self.move.to.to(x))

    def _centres(self, start: int, step: int, count: int) -> Tensor:
        """Where these rows are moved from, (d,) or (n, d)."""
        if self.move.centre is not None:
            return self.move.centre
        if len(self.lengths) == 1:
            return self._own_means[0]
        ends = torch.tensor(self.lengths).cumsum(0)
        return self._own_means[torch.bucketize(start + step * torch.arange(count), ends, right=True)]

    @cached_property
    def _own_means(self) -> Tensor:
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
