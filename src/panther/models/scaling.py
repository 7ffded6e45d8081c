r"""Scaling of embeddings before a head; by default share-weighted, with one scale per kind of statistic.

Standardising every coordinate is unstable: the mean and variance of a prototype that is nearly absent from the training slides hardly vary
there, and divided by their tiny deviation they explode on a test slide that has it. With a single scale, C proportions are lost among 2 C d
other numbers. With equal weights of all prototypes, the noisy mean and variance of a prototype with three patches in a slide count as much
as those of three hundred. With `share-weighted` the parameters of a component are weighted by the square root of its share, so that
distances are

.. math:: \sum_c \Big(\sqrt{\pi_c} - \sqrt{\pi'_c}\Big)^2,\quad \sum_c \big\|\sqrt{\pi_c} (\mu_c - m_c) - \sqrt{\pi'_c} (\mu'_c - m_c)\big\|^2

and likewise for the variances; m and V are the mean parameters of the training slides. The mean of all patches, :math:`\sum_c \pi_c \mu_c`,
is added: where single tissues are too small, it is the best estimate. Measured in `docs/decisions/0005`, `0007`, `0009`.

Representations side by side are scaled separately, then to the same total variance.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from inspect import signature
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from panther.aggregators import mixture_columns
from panther.cohort.covariates import COVARIATES
from panther.errors import InputError, suggestion
from panther.models.blocks import PCA, Block, Columns, Reduction, principal_components
from panther.models.probes import OPTIONAL
from panther.models.settings import Named
from panther.registry import Nothing, Registry

SLIDE_MEAN = "slide mean"


class UsualMixture(NamedTuple):
    """Mean parameters of the training slides, weighted by their shares of the prototype."""

    means: Tensor  # (C, d)
    variances: Tensor  # (C, d)
    parts: Tensor  # (C, d), mean of pi_c mu_c: the contribution of each prototype to a slide's mean


def mixture_shape(columns: Columns | None) -> tuple[int, int] | None:
    """(C, d) of a whole mixture, [pi_c, mu_c, Sigma_c] of each prototype; None for other columns."""
    if columns is None or len(columns) == 0:
        return None
    count = max(1, 1 + columns[-1][0])
    dim = (len(columns) // count - 1) // 2
    return (count, dim) if dim > 0 and tuple(columns) == mixture_columns(tuple(range(count)), dim) else None


def split(x: Tensor, count: int, dim: int) -> tuple[Tensor, Tensor, Tensor]:
    """Shares (B, C, 1), means (B, C, d) and variances (B, C, d) of embeddings (B, C (1 + 2 d))."""
    return x.reshape(len(x), count, 1 + 2 * dim).split([1, dim, dim], -1)


def usual_mixture(blocks: Iterable[Tensor], count: int, dim: int) -> UsualMixture:
    """Mean parameters of training embeddings in blocks of rows (n, C (1 + 2 d)); unweighted for prototypes with no patch."""
    weighed = torch.zeros(count, 1 + 2 * dim, dtype=torch.float64)  # sums of pi [1, mu, Sigma]
    plain, rows = torch.zeros_like(weighed), 0
    for x in blocks:
        weights, means, variances = split(x.double(), count, dim)
        parameters = torch.cat([torch.ones_like(weights), means, variances], -1)
        weighed += (weights * parameters).sum(0)
        plain += parameters.sum(0)
        rows += len(x)
    mass, sums = torch.where(weighed[:, :1] > 0, weighed, plain).split([1, 2 * dim], -1)
    means, variances = (sums / mass).split(dim, -1)
    return UsualMixture(means, variances, weighed[:, 1 : 1 + dim] / rows)


def share_weighted_coordinates(x: Tensor, usual: UsualMixture) -> Tensor:
    r"""Embeddings (B, C (1 + 2 d)) -> (B, C (1 + 2 d) + d): one token per prototype as before, then the slide's mean.

    .. math:: \sqrt{\pi_c},\quad \sqrt{\pi_c} (\mu_c - m_c),\quad \sqrt{\pi_c} (\Sigma_c - V_c);\quad \sum_c \pi_c \mu_c
    """
    weights, means, variances = split(x, *usual.means.shape)
    root = weights.clamp_min(0).sqrt()
    tokens = torch.cat([root, root * (means - usual.means), root * (variances - usual.variances)], -1)
    return torch.cat([tokens.flatten(1), (weights * means).sum(1)], 1)


@lru_cache(8)
def share_weighted_columns(count: int, dim: int) -> tuple[tuple[int, str, int], ...]:
    """Prototype (-1: the whole slide), statistic and dimension of each coordinate."""
    return (*mixture_columns(tuple(range(count)), dim), *((-1, SLIDE_MEAN, j) for j in range(dim)))


ROWS = 64  # per read: embeddings may be memory maps


@dataclass(frozen=True)
class Scaler:
    """A fitted scaling, x -> (r(x) - shift) / scale; r is the identity, a reduction, or the weighting of a mixture by its shares."""

    shift: Tensor  # (D',)
    scale: Tensor  # (D',)
    usual: UsualMixture | None = None  # of the training slides; then D' = D + d, else D' = D
    weigh: bool = False  # whether a probe may weigh the statistics
    reduction: Reduction | None = None  # fitted on training rows; then D' is its width

    def __call__(self, x: Tensor) -> Tensor:
        """Scale rows (..., D), as float32 (or as the scaling itself is)."""
        if x.shape[-1] != self.dim_in:
            raise InputError(f"The embedding has {x.shape[-1]} numbers, but the scaling was fitted to {self.dim_in}")
        x = x.to(self.shift.dtype)
        if self.reduction is not None:
            x = self.reduction(x)
        if self.usual is not None:
            x = share_weighted_coordinates(x, UsualMixture(*(t.to(x.device) for t in self.usual)))
        return (x - self.shift.to(x.device)) / self.scale.to(x.device)

    @property
    def dim_in(self) -> int:
        """Width of an embedding."""
        if self.reduction is not None:
            return len(self.reduction.mean)
        return len(self.shift) - (0 if self.usual is None else self.usual.means.shape[1])

    def columns(self, columns: Columns) -> Columns:
        """Prototype, statistic and dimension of each scaled number, from those of the embedding."""
        if self.reduction is not None:
            return [(-1, "component", j) for j in range(len(self.shift))]
        return columns if self.usual is None else share_weighted_columns(*self.usual.means.shape)

    def blocks(self, columns: Columns) -> np.ndarray | None:
        """Statistic of each scaled number (D',), where a probe may weigh the statistics."""
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


scalers: Registry[Callable[..., Scaler], Nothing] = Registry(
    "scaling", Nothing
)  # training rows (n, D), columns, *, settings


@scalers.register("block")
def by_block(x: Tensor | np.ndarray, columns: Columns | None = None) -> Scaler:
    r"""One number per statistic: the root mean square deviation over all columns of that statistic.

    .. math:: s_b^2 = \frac{1}{|b|} \sum_{j \in b} \mathrm{Var}_{train}(x_j)

    Ratios within a block, between prototypes and between dimensions, are preserved. Without columns (unknown embeddings) the
    whole vector is one block.
    """
    mean, variance = moments(x)
    return _scaler(mean, _mean_of_each(variance, _statistics(columns, len(variance))[0]))


@scalers.register("balanced")
def balanced(
    x: Tensor | np.ndarray, columns: Columns | None = None, read: Callable[[Tensor], Tensor] | None = None
) -> Scaler:
    r"""One number per statistic, such that every statistic has the same total variance, for any number of columns.

    .. math:: s_b^2 = \frac{B}{D} \sum_{j \in b} \mathrm{Var}_{train}(x_j)

    with B statistics and D columns. C proportions weigh as much as C d means; with `block` they are few among 2 d times as many numbers of
    the same size. Statistics of one kind (`tail_share`, `tail_mean`) count as one. ``columns`` are those after ``read``.
    """
    mean, variance = moments(x, read)
    member, names = _statistics(columns, len(variance))
    kinds = sorted({kind_of(name) for name in names})
    kind = torch.tensor([kinds.index(kind_of(name)) for name in names])[member]
    size = torch.bincount(kind)
    return _scaler(mean, _mean_of_each(variance, member) * (size * len(size) / size.sum())[kind])


@scalers.register("share-weighted")
def share_weighted(x: Tensor | np.ndarray, columns: Columns | None = None, *, weigh: bool = True) -> Scaler:
    r"""Share-weighted mixtures (:mod:`panther.models.scaling`), four statistics of the same total variance.

    Other embeddings (other methods; the readouts wa, top, bottom) are scaled by `balanced`. With ``weigh`` a probe weighs the statistics by
    inner cross-validation.
    """
    shape = mixture_shape(columns)
    if shape is None:
        return balanced(x, columns)
    usual = usual_mixture(_blocks(x), *shape)
    read = balanced(x, share_weighted_columns(*shape), partial(share_weighted_coordinates, usual=usual))
    return replace(read, usual=UsualMixture(*(t.float() for t in usual)), weigh=weigh)


@scalers.register("none")
def unscaled(x: Tensor | np.ndarray, columns: Columns | None = None) -> Scaler:
    """Embeddings as they are."""
    return Scaler(torch.zeros(x.shape[1]), torch.ones(x.shape[1]))


def moments(x: Tensor | np.ndarray, read: Callable[[Tensor], Tensor] | None = None) -> tuple[Tensor, Tensor]:
    """Mean and variance of each column of the rows, after ``read``, float64, in two passes over blocks of rows; NaN is refused."""
    if len(x) == 0:
        raise InputError("There are no training rows to fit the scaling on")
    square = torch.zeros(1, dtype=torch.float64)
    held = list(_blocks(x, read)) if len(x) <= ROWS else None  # one block is read once
    mean = column_means(x, held or _blocks(x, read))
    for block in held or _blocks(x, read):
        square = square + (block - mean).square().sum(0)
    return mean, square / len(x)


def column_means(x: Tensor | np.ndarray, blocks: Iterable[Tensor] | None = None) -> Tensor:
    """Mean of each column of the rows, or of these blocks of them, float64; NaN is refused."""
    total = torch.zeros(1, dtype=torch.float64)
    for block in _blocks(x) if blocks is None else blocks:
        total = total + block.sum(0)
    mean = total / len(x)
    if not bool(torch.isfinite(mean).all()):
        finite = torch.cat([torch.isfinite(block).all(1) for block in _blocks(x)])
        raise InputError(f"Training row {int(finite.int().argmin())} holds NaN or an infinite number; embed it again")
    return mean


def build_scaler(name: str, options: Mapping[str, Any] | None = None) -> Callable[..., Scaler]:
    """Scaling of that name, a function of training rows (n, D) and their columns."""
    known = [option for option, p in signature(scalers[name]).parameters.items() if p.kind is p.KEYWORD_ONLY]
    for option in options or {}:
        if option not in known:
            raise InputError(f"The scaling {name!r} has no setting {option!r}; {suggestion(option, known)}")
    return partial(scalers[name], **(options or {}))


def _mean_of_each(variance: Tensor, member: Tensor) -> Tensor:
    """Mean over the columns of the same statistic, for each column."""
    size = torch.bincount(member)
    return (torch.zeros(len(size), dtype=torch.float64).index_add(0, member, variance) / size)[member]


def kind_of(statistic: str) -> str:
    """Kind of a statistic: `tail` of `tail_share`.

    A single number that separates the training slides perfectly is unreliable on others. With a fifth of the tail's variance each, its
    share and its excess moved the threshold of every test slide (`docs/decisions/0020`).
    """
    return statistic.partition("_")[0]


def _statistics(columns: Columns | None, width: int) -> tuple[Tensor, list[str]]:
    """Number of the statistic of each column (D,), and the names of the statistics; without columns there is one."""
    if columns is None:
        return torch.zeros(width, dtype=torch.int64), [""]
    statistics = list(map(itemgetter(1), columns))
    names = sorted(set(statistics))
    number = {name: position for position, name in enumerate(names)}
    return torch.from_numpy(np.fromiter(map(number.__getitem__, statistics), np.int64, width)), names


def _scaler(shift: Tensor, variance: Tensor) -> Scaler:
    scale = variance.sqrt()
    return Scaler(shift.float(), torch.where(scale > 1e-12, scale, 1.0).float())  # constants are only shifted


def _blocks(x: Tensor | np.ndarray, read: Callable[[Tensor], Tensor] | None = None) -> Iterator[Tensor]:
    for start in range(0, len(x), ROWS):
        rows = x[start : start + ROWS]
        block = torch.as_tensor(np.array(rows) if isinstance(rows, np.ndarray) else rows).double()
        yield block if read is None else read(block)


class Part(NamedTuple):
    """Columns that are scaled separately."""

    columns: Columns
    method: Named
    optional: bool = False  # whether it is an optional block of the method


@dataclass(frozen=True)
class JointScaler:
    """Scalings of several representations, from left to right."""

    parts: tuple[Scaler, ...]
    optional: tuple[bool, ...] = ()  # whether each part is an optional block; used only while a probe is fitted

    def __call__(self, x: Tensor) -> Tensor:
        """Scale rows (..., D) part by part."""
        if x.shape[-1] != sum(self._widths):
            raise InputError(f"The embedding has {x.shape[-1]} numbers, the scaling {sum(self._widths)}")
        pieces = x.split(self._widths, -1)
        return torch.cat([part(piece) for part, piece in zip(self.parts, pieces, strict=True)], -1)

    def columns(self, columns: Columns) -> Columns:
        """Part and statistic of each scaled number; the prototype is always -1, because other parts have none."""
        parts = enumerate(self.columns_of_parts(columns))
        return [(-1, f"{number} {statistic}", j) for number, part in parts for j, (_, statistic, _) in enumerate(part)]

    def blocks(self, columns: Columns) -> np.ndarray:
        """Name of the block of each scaled number, its part (and statistic, where it is weighed): a probe weighs the blocks."""
        names = []
        for number, (part, scaled) in enumerate(zip(self.parts, self.columns_of_parts(columns), strict=True)):
            prefix = OPTIONAL if self.optional[number] else ""
            for _, statistic, _ in scaled:
                name = f"{number} {statistic if part.weigh else ''}"
                names.append(prefix + (statistic if statistic == COVARIATES else name))
        return np.array(names)

    def state(self) -> dict[str, Tensor]:
        """Plain tensors to save."""
        return {f"{number}.{name}": t for number, part in enumerate(self.parts) for name, t in part.state().items()}

    @property
    def _widths(self) -> list[int]:
        return [part.dim_in for part in self.parts]

    def columns_of_parts(self, columns: Columns) -> list[Columns]:
        """Prototype, statistic and dimension of the scaled numbers of each part."""
        ends = np.cumsum(self._widths).tolist()
        return [part.columns(columns[end - part.dim_in : end]) for part, end in zip(self.parts, ends, strict=True)]


AnyScaler = Scaler | JointScaler


def scaler_parts(scaler: AnyScaler) -> tuple[Scaler, ...]:
    """Scalings of the parts of an embedding, from left to right."""
    return scaler.parts if isinstance(scaler, JointScaler) else (scaler,)


def fit_scaler(scaling: Named, x: Tensor | np.ndarray, blocks: Sequence[Block]) -> AnyScaler:
    """Scaling of training rows (n, D) of these blocks side by side."""
    parts = [
        Part(columns, block.method, number > 0) for block in blocks for number, columns in enumerate(block.parts())
    ]
    return fit_parts(scaling, x, parts)


def fit_parts(scaling: Named, x: Tensor | np.ndarray, parts: Sequence[Part]) -> AnyScaler:
    """Scaling of training rows (n, D) of these parts side by side; parts with a reduction are reduced first."""
    fit, fitted, start = build_scaler(scaling.name, scaling.options), [], 0
    for part in parts:
        rows, start = x[:, start : start + len(part.columns)], start + len(part.columns)
        if part.method.name != PCA:
            fitted.append(fit(rows, part.columns))
        else:
            reduction = principal_components(rows, **part.method.options)
            reduced = reduction(torch.as_tensor(np.asarray(rows)).float())
            fitted.append(replace(fit(reduced), reduction=reduction))
    if len(fitted) == 1:
        return fitted[0]
    if scaling.name != "none":
        # a scaled part of D numbers has a total variance of D: without this the widest part would dominate
        mean = sum(len(part.shift) for part in fitted) / len(fitted)
        fitted = [replace(part, scale=part.scale * math.sqrt(len(part.shift) / mean)) for part in fitted]
    return JointScaler(tuple(fitted), tuple(part.optional for part in parts))


def scaler_from_state(state: Mapping[str, Tensor]) -> AnyScaler:
    """Scaling from saved tensors."""
    if "shift" in state:
        return Scaler.from_state(state)
    parts: dict[int, dict[str, Tensor]] = {}
    for name, tensor in state.items():
        number, _, field = name.partition(".")
        parts.setdefault(int(number), {})[field] = tensor
    return JointScaler(tuple(Scaler.from_state(parts[number]) for number in sorted(parts)))
