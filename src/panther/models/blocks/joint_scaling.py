"""Scaling of representations that stand side by side: each by itself, then all of the same total variance."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from panther.cohort.covariates import COVARIATES
from panther.errors import InputError
from panther.models.blocks import Block
from panther.models.blocks.reduction import fit_reduction
from panther.models.blocks.weightings import OPTIONAL
from panther.models.named import Named
from panther.models.scaling import Scaler, build_scaler
from panther.models.share_weighted import Columns

UNSCALED = "none"  # the scaling that leaves embeddings as they are


class Part(NamedTuple):
    """Numbers that are scaled by themselves."""

    columns: Columns
    method: Named
    optional: bool = False  # whether it is of an optional block, which follows the method's own numbers


@dataclass(frozen=True)
class JointScaler:
    """Scalings of several representations, from left to right."""

    parts: tuple[Scaler, ...]
    optional: tuple[bool, ...] = ()  # of each part, whether it is of an optional block; a fitted probe needs it no more

    def __call__(self, x: Tensor) -> Tensor:
        """Scale rows (..., D), each part of them by its own scaling."""
        if x.shape[-1] != sum(self._widths):
            raise InputError(
                f"The embedding has {x.shape[-1]} numbers but the scaling was fitted to {sum(self._widths)}; join the same representations."
            )
        pieces = x.split(self._widths, -1)
        return torch.cat([part(piece) for part, piece in zip(self.parts, pieces, strict=True)], -1)

    def columns(self, columns: Columns) -> Columns:
        """Part and statistic of each scaled number; none belongs to one prototype, because other parts have none."""
        own = enumerate(self._scaled_columns(columns))
        return [(-1, f"{number} {statistic}", j) for number, part in own for j, (_, statistic, _) in enumerate(part)]

    def blocks(self, columns: Columns) -> np.ndarray:
        """Part (and statistic, where it is weighed) of each scaled number: a probe weighs the parts against each other."""
        own = enumerate(zip(self.parts, self.optional, self._scaled_columns(columns), strict=True))
        return np.array(
            [_block_name(n, s, part.weigh, optional) for n, (part, optional, names) in own for _, s, _ in names]
        )

    def state(self) -> dict[str, Tensor]:
        """Plain tensors to save."""
        return {f"{number}.{name}": t for number, part in enumerate(self.parts) for name, t in part.state().items()}

    @property
    def _widths(self) -> list[int]:
        return [part.dim_in for part in self.parts]

    def _scaled_columns(self, columns: Columns) -> list[Columns]:
        ends = np.cumsum(self._widths).tolist()
        return [part.columns(columns[end - part.dim_in : end]) for part, end in zip(self.parts, ends, strict=True)]


def _block_name(number: int, statistic: str, weigh: bool, optional: bool) -> str:
    name = statistic if statistic == COVARIATES else f"{number} {statistic if weigh else ''}"
    return OPTIONAL + name if optional else name


AnyScaler = Scaler | JointScaler


def scaler_parts(scaler: AnyScaler) -> tuple[Scaler, ...]:
    """Scalings of what stands side by side, from left to right; one where there is nothing beside."""
    return scaler.parts if isinstance(scaler, JointScaler) else (scaler,)


def fit_scaler(scaling: Named, x: Tensor | np.ndarray, blocks: Sequence[Block]) -> AnyScaler:
    """Scaling of training rows (n, D), which are these blocks side by side."""
    parts = [Part(own, block.method, number > 0) for block in blocks for number, own in enumerate(block.parts())]
    return fit_parts(scaling, x, parts)


def fit_parts(scaling: Named, x: Tensor | np.ndarray, parts: Sequence[Part]) -> AnyScaler:
    """Scaling of training rows (n, D), which are these parts side by side."""
    ends = np.cumsum([len(part.columns) for part in parts]).tolist()
    fitted = [
        _fit_part(scaling, part.method, x[:, end - len(part.columns) : end], part.columns)
        for part, end in zip(parts, ends, strict=True)
    ]
    if len(fitted) == 1:
        return fitted[0]
    optional = tuple(part.optional for part in parts)
    if scaling.name == UNSCALED:
        return JointScaler(tuple(fitted), optional)
    # a scaled part of D numbers has a total variance of D: without this the widest would be all that a head sees
    widths = [len(part.shift) for part in fitted]
    mean = sum(widths) / len(widths)
    scaled = (replace(part, scale=part.scale * math.sqrt(w / mean)) for part, w in zip(fitted, widths, strict=True))
    return JointScaler(tuple(scaled), optional)


def _fit_part(scaling: Named, method: Named, x: Tensor | np.ndarray, columns: Columns) -> Scaler:
    """Scaling of one block, after its reduction where it has one."""
    fits, reduction = build_scaler(scaling.name, scaling.options), fit_reduction(method, x)
    if reduction is None:
        return fits.fit(x, columns)
    return replace(fits.fit(reduction(torch.as_tensor(np.asarray(x)).float())), reduction=reduction)


def scaler_from_state(state: Mapping[str, Tensor]) -> AnyScaler:
    """Scaling from saved tensors."""
    if "shift" in state:
        return Scaler.from_state(state)
    parts: dict[int, dict[str, Tensor]] = {}
    for name, tensor in state.items():
        number, _, own = name.partition(".")
        parts.setdefault(int(number), {})[own] = tensor
    return JointScaler(tuple(Scaler.from_state(parts[number]) for number in sorted(parts)))
