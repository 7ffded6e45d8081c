"""What players own: the numbers of an embedding or, where a head reads share-weighted mixtures, the numbers that it reads.

Of these the slide's mean belongs to all prototypes at once; it is the sum of what each of them adds, pi_c mu_c, and so it is shared out exactly.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

from panther.models.blocks.joint_scaling import AnyScaler, scaler_parts
from panther.models.scaling import Scaler
from panther.models.share_weighted import share_weighted_columns, share_weighted_coordinates, split

Columns = Sequence[tuple[int, str, int]]
PART_OF_MEAN = "part of mean"  # what a prototype adds to the slide's mean


class HeadView(NamedTuple):
    """An embedding (B, D) as numbers (B, E) that each belong to one prototype and statistic."""

    columns: Columns  # E, (prototype, statistic, dimension)
    baseline: Tensor  # (E,), the training slides' usual values
    expand: Callable[[Tensor], Tensor]  # (B, D) -> (B, E)
    scaled: Callable[[Tensor], Tensor]  # (B, E) -> what the head sees (B, D')


def view_of(scaler: AnyScaler, columns: Columns, mean: Tensor) -> HeadView:
    """What a head reads of embeddings under this scaling; ``mean`` (D,) is the mean training embedding."""
    parts = scaler_parts(scaler)
    ends = list(accumulate(part.dim_in for part in parts))
    own = [
        _view_of_part(part, columns[end - part.dim_in : end], mean[end - part.dim_in : end])
        for part, end in zip(parts, ends, strict=True)
    ]
    if len(own) == 1:
        return own[0]
    whole, owned = [part.dim_in for part in parts], [len(view.columns) for view in own]
    return HeadView(
        [column for view in own for column in view.columns],
        torch.cat([view.baseline for view in own]),
        lambda x: torch.cat([view.expand(piece) for view, piece in zip(own, x.split(whole, 1), strict=True)], 1),
        lambda x: torch.cat([view.scaled(piece) for view, piece in zip(own, x.split(owned, 1), strict=True)], 1),
    )


def _view_of_part(scaler: Scaler, columns: Columns, mean: Tensor) -> HeadView:
    exact = scaler.double()
    usual = exact.usual
    if usual is None:
        return HeadView(columns, mean, lambda x: x, exact)
    count, dim = usual.means.shape
    tokens = count * (1 + 2 * dim)

    def expand(x: Tensor) -> Tensor:
        weights, means, _ = split(x, count, dim)
        return torch.cat([share_weighted_coordinates(x, usual)[:, :tokens], (weights * means).flatten(1)], 1)

    def scaled(x: Tensor) -> Tensor:
        whole = x[:, tokens:].unflatten(1, (count, dim)).sum(1)  # (B, d), the slide's mean
        return (torch.cat([x[:, :tokens], whole], 1) - exact.shift) / exact.scale

    names = [
        *share_weighted_columns(count, dim)[:tokens],
        *((c, PART_OF_MEAN, j) for c in range(count) for j in range(dim)),
    ]
    return HeadView(names, torch.cat([exact.shift[:tokens], usual.parts.flatten()]), expand, scaled)
