r"""Scaling embeddings before a head sees them. By default share-weighted, one number per kind of statistic.

The danger in standardising every coordinate: a prototype that is nearly absent from the training slides has a mean and a
variance that hardly vary there; divided by their tiny deviation they explode on a test slide that has it. The danger in one
number for all: C proportions are lost among 2 C d other numbers. The danger in taking all prototypes alike: those that hold three patches are
noise. Measured in `docs/decisions/0005`, `0007` and `0009`.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from panther.errors import InputError
from panther.models.blocks.reduction import Reduction
from panther.models.share_weighted import (
    Columns,
    UsualMixture,
    mixture_shape,
    share_weighted_columns,
    share_weighted_coordinates,
    usual_mixture,
)
from panther.registry import Nothing, Registry

ROWS = 64  # read at a time: embeddings may be memory maps


@dataclass(frozen=True)
class Scaler:
    """A fitted scaling, x -> (r(x) - shift) / scale; r is the identity, a reduction, or weights a mixture by its shares."""

    shift: Tensor  # (D',)
    scale: Tensor  # (D',)
    usual: UsualMixture | None = None  # of the training slides; with it D' = D + d, else D' = D
    weigh: bool = False  # whether a probe may weigh the statistics against each other
    reduction: Reduction | None = None  # by what the training rows say; then D' is its width

    def __call__(self, x: Tensor) -> Tensor:
        """Scale rows (..., D), as float32 (or as the scaling itself is)."""
        if x.shape[-1] != self.dim_in:
            raise InputError(
                f"The embedding has {x.shape[-1]} numbers but the scaling was fitted to {self.dim_in}; embed with the same method and prototypes."
            )
        x = x.to(self.shift.dtype)
        if self.reduction is not None:
            x = self.reduction(x)
        if self.usual is not None:
            x = share_weighted_coordinates(x, UsualMixture(*(t.to(x.device) for t in self.usual)))
        return (x - self.shift.to(x.device)) / self.scale.to(x.device)

    @property
    def dim_in(self) -> int:
        """How many numbers an embedding has."""
        if self.reduction is not None:
            return len(self.reduction.mean)
        return len(self.shift) - (0 if self.usual is None else self.usual.means.shape[1])

    def columns(self, columns: Columns) -> Columns:
        """Prototype, statistic and dimension of each scaled number, given those of the embedding."""
        if self.reduction is not None:
            return [(-1, "component", j) for j in range(len(self.shift))]
        return columns if self.usual is None else share_weighted_columns(*self.usual.means.shape)

    def blocks(self, columns: Columns) -> np.ndarray | None:
        """Statistic of each scaled number (D',), where a probe may weigh statistics against each other."""
        return np.array([statistic for _, statistic, _ in self.columns(columns)]) if self.weigh else None

    def double(self) -> "Scaler":
        """The same scaling in float64."""
        usual = None if self.usual is None else UsualMixture(*(t.double() for t in self.usual))
        reduction = None if self.reduction is None else Reduction(*(t.double() for t in self.reduction))
        return Scaler(self.shift.double(), self.scale.double(), usual, self.weigh, reduction)

    def state(self) -> dict[str, Tensor]:
        """Plain tensors to save."""
        usual = {} if self.usual is None else {f"usual_{name}": t for name, t in self.usual._asdict().items()}
        reduced = {} if self.reduction is None else {f"reduction_{n}": t for n, t in self.reduction._asdict().items()}
        return {"shift": self.shift, "scale": self.scale, **usual, **reduced}

    @classmethod
    def from_state(cls, state: Mapping[str, Tensor]) -> "Scaler":
        """Scaling from saved tensors."""
        usual = [state[f"usual_{name}"].float() for name in UsualMixture._fields if f"usual_{name}" in state]
        reduced = [state[f"reduction_{name}"].float() for name in Reduction._fields if f"reduction_{name}" in state]
        return cls(
            state["shift"].float(),
            state["scale"].float(),
            UsualMixture(*usual) if usual else None,
            reduction=Reduction(*reduced) if reduced else None,
        )


class Fits(Protocol):
    """Settings of a scaling, and how it is fitted."""

    def fit(self, x: Tensor | np.ndarray, columns: Columns | None = None) -> Scaler:
        """Fit on training rows (n, D), and on nothing else."""


scalers: Registry[Callable[..., Fits], Nothing] = Registry("scaling", Nothing)


@scalers.register("block")
@dataclass(frozen=True)
class BlockScaler:
    r"""One number per statistic: the root mean square deviation over all columns of that statistic.

    .. math:: s_b^2 = \frac{1}{|b|} \sum_{j \in b} \mathrm{Var}_{train}(x_j)

    Relations within a block, between prototypes and between dimensions, stay as they are. Without columns (embeddings
    of unknown make) the whole vector is one block.
    """

    centre: bool = True  # subtract the training mean: a shift, which harms nothing

    def fit(self, x: Tensor | np.ndarray, columns: Columns | None = None) -> Scaler:
        """Fit on training rows (n, D)."""
        mean, variance = moments(x)
        return _finished(mean if self.centre else torch.zeros_like(mean), _block_variance(variance, columns))


@scalers.register("balanced")
@dataclass(frozen=True)
class BalancedScaler:
    r"""One number per statistic, such that every statistic has the same total variance, whatever its number of columns.

    .. math:: s_b^2 = \frac{B}{D} \sum_{j \in b} \mathrm{Var}_{train}(x_j)

    with B statistics and D columns. C proportions weigh as much as C d means: by block a penalised head has to find them among 2 d times as
    many numbers of the same size. Statistics of one kind (`tail_share`, `tail_mean`) count as one, and within it every number alike.
    """

    def fit(self, x: Tensor | np.ndarray, columns: Columns | None = None) -> Scaler:
        """Fit on training rows (n, D)."""
        return _balanced(*moments(x), columns)


@scalers.register("share-weighted")
@dataclass(frozen=True)
class ShareWeightedScaler:
    r"""Share-weighted mixtures (:mod:`panther.models.share_weighted`), four statistics of the same total variance.

    Embeddings that are no whole mixture (other methods; the readouts wa, top, bottom) are scaled as by `balanced`.
    """

    weigh: bool = True  # whether a probe weighs the statistics by inner cross-validation

    def fit(self, x: Tensor | np.ndarray, columns: Columns | None = None) -> Scaler:
        """Fit on training rows (n, D)."""
        shape = mixture_shape(columns)
        if shape is None:
            return BalancedScaler().fit(x, columns)
        usual = usual_mixture(_blocks(x), *shape)
        read = _balanced(*moments(x, partial(share_weighted_coordinates, usual=usual)), share_weighted_columns(*shape))
        return Scaler(read.shift, read.scale, UsualMixture(*(t.float() for t in usual)), self.weigh)


@scalers.register("coordinate")
@dataclass(frozen=True)
class CoordinateScaler:
    r"""Every coordinate by its own deviation, shrunk towards its block's: :math:`s_j^2 = (1-\lambda) \mathrm{Var}(x_j) + \lambda s_b^2`."""

    shrinkage: float = 0.5  # lambda: 0 is plain standardisation, 1 is `block`

    def __post_init__(self) -> None:
        if not 0 <= self.shrinkage <= 1:
            raise InputError(
                f"shrinkage is {self.shrinkage}; it lies between 0 (plain standardisation) and 1 (by block)."
            )

    def fit(self, x: Tensor | np.ndarray, columns: Columns | None = None) -> Scaler:
        """Fit on training rows (n, D); warns."""
        warnings.warn(
            "Scaling every coordinate by its own deviation can let nearly absent prototypes explode on slides that have them; "
            "compare with the scaling 'block'.",
            stacklevel=2,
        )
        mean, variance = moments(x)
        block = _block_variance(variance, columns)
        return _finished(mean, (1 - self.shrinkage) * variance + self.shrinkage * block)


@scalers.register("none")
@dataclass(frozen=True)
class NoScaler:
    """Embeddings as they are."""

    def fit(self, x: Tensor | np.ndarray, columns: Columns | None = None) -> Scaler:
        """Nothing to fit."""
        return Scaler(torch.zeros(x.shape[1]), torch.ones(x.shape[1]))


def moments(x: Tensor | np.ndarray, read: Callable[[Tensor], Tensor] | None = None) -> tuple[Tensor, Tensor]:
    """Mean and variance of each column (of what is read of the rows), float64, in two passes over blocks of rows; NaN is refused."""
    if len(x) == 0:
        raise InputError("There are no training rows to fit the scaling on.")
    square = torch.zeros(1, dtype=torch.float64)
    held = list(_blocks(x, read)) if len(x) <= ROWS else None  # one block is read once
    mean = _mean(x, held or _blocks(x, read))
    for block in held or _blocks(x, read):
        square = square + (block - mean).square().sum(0)
    return mean, square / len(x)


def column_means(x: Tensor | np.ndarray) -> Tensor:
    """Mean of each column, float64; NaN is refused."""
    return _mean(x, _blocks(x))


def _mean(x: Tensor | np.ndarray, blocks: Iterable[Tensor]) -> Tensor:
    total = torch.zeros(1, dtype=torch.float64)
    for block in blocks:
        total = total + block.sum(0)
    mean = total / len(x)
    if not bool(torch.isfinite(mean).all()):
        raise InputError(f"Training row {_bad_row(x)} holds NaN or an infinite number; embed this sample again.")
    return mean


def build_scaler(name: str, options: Mapping[str, Any] | None = None) -> Fits:
    """Scaling of that name."""
    try:
        return scalers[name](**(options or {}))
    except TypeError as error:
        raise InputError(f"The scaling {name!r} does not take these settings ({error}).") from error


def _balanced(mean: Tensor, variance: Tensor, columns: Columns | None) -> Scaler:
    """Every kind of statistic the same total variance."""
    member, names = _statistics(columns, len(variance))
    kinds = sorted({kind_of(name) for name in names})
    kind = torch.tensor([kinds.index(kind_of(name)) for name in names])[member]
    size = torch.bincount(kind)
    return _finished(mean, _mean_of_each(variance, member) * (size * len(size) / size.sum())[kind])


def _block_variance(variance: Tensor, columns: Columns | None) -> Tensor:
    return _mean_of_each(variance, _statistics(columns, len(variance))[0])


def _mean_of_each(variance: Tensor, member: Tensor) -> Tensor:
    """Mean over the columns of the same statistic, for each column."""
    size = torch.bincount(member)
    return (torch.zeros(len(size), dtype=torch.float64).index_add(0, member, variance) / size)[member]


def kind_of(statistic: str) -> str:
    """What a statistic is of: `tail` of `tail_share`.

    A single number that divides the training slides without fail is the first to fail on others. With a fifth of the tail's variance each, its
    share and its excess moved the threshold of every test slide (`docs/decisions/0020`).
    """
    return statistic.partition("_")[0]


def _statistics(columns: Columns | None, width: int) -> tuple[Tensor, list[str]]:
    """Which statistic each column is of (D,), and their names in order; without columns all are one."""
    if columns is None:
        return torch.zeros(width, dtype=torch.int64), [""]
    if len(columns) != width:
        raise InputError(f"The embedding has {width} numbers but {len(columns)} names for them.")
    found = list(map(itemgetter(1), columns))
    names = sorted(set(found))
    number = {name: position for position, name in enumerate(names)}
    return torch.from_numpy(np.fromiter(map(number.__getitem__, found), np.int64, width)), names


def _finished(shift: Tensor, variance: Tensor) -> Scaler:
    scale = variance.sqrt()
    return Scaler(shift.float(), torch.where(scale > 1e-12, scale, 1.0).float())  # a constant stays what it is


def _blocks(x: Tensor | np.ndarray, read: Callable[[Tensor], Tensor] | None = None) -> Iterator[Tensor]:
    for start in range(0, len(x), ROWS):
        rows = x[start : start + ROWS]
        block = torch.as_tensor(np.array(rows) if isinstance(rows, np.ndarray) else rows).double()
        yield block if read is None else read(block)


def _bad_row(x: Tensor | np.ndarray) -> int:
    finite = torch.cat([torch.isfinite(block).all(1) for block in _blocks(x)])
    return int((~finite).nonzero()[0]) if not bool(finite.all()) else 0
