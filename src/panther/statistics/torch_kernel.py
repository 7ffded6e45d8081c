"""The kernel in torch: the reference for the others, the fallback, and the one for gradients."""

from dataclasses import replace

import torch
from torch import Tensor

from panther.statistics.assign import Accumulated, Assign, Logits, Statistics
from panther.statistics.blocks import Workspace, blocks
from panther.types import Ragged, Rows


def accumulate_in_torch(
    x: Rows,
    assign: Assign,
    origin: Tensor,
    mask: Tensor | None,
    *,
    squares: bool,
    keep_assignment: bool,
    keep_scores: bool,
) -> Accumulated:
    """Block by block: centre, square, assign, two matrix products. See :func:`panther.statistics.accumulate`."""
    sums: Statistics | None = None
    kept: list[Tensor] = []
    scores: list[Tensor] = []
    work = Workspace(reuse=not torch.is_grad_enabled())
    for block, real in blocks(x, mask, origin):
        z = work.centred(block, origin, real)  # (..., n, d)
        z2 = work.squared(z) if squares else None
        a, score = assign(z, z2)  # (..., n, C), (..., n)
        if real is not None:
            a, score = a * real.unsqueeze(-1).to(a), score * real.to(score)
        part = _sums(z, z2, a, score, real)
        sums = part if sums is None else sums.merge(part)
        if keep_assignment:
            kept.append(a)
        if keep_scores:
            scores.append(score)
    assert sums is not None
    return Accumulated(sums, torch.cat(kept, dim=-2) if kept else None, torch.cat(scores, dim=-1) if scores else None)


def accumulate_bags_in_torch(
    x: Ragged, assign: Assign, origin: Tensor, *, squares: bool, keep_assignment: bool, keep_scores: bool
) -> Accumulated:
    """Statistics of every bag of a batch, separately."""
    keep = {"keep_assignment": keep_assignment, "keep_scores": keep_scores}
    parts = [
        accumulate_in_torch(rows, _of_bag(assign, bag), origin, None, squares=squares, **keep)
        for bag, rows in enumerate(x.bags())
    ]
    sums = Statistics(*map(torch.stack, zip(*(one.statistics for one in parts), strict=True)))
    kept = [one.assignment for one in parts if one.assignment is not None]
    scores = [one.scores for one in parts if one.scores is not None]
    return Accumulated(sums, torch.cat(kept) if kept else None, torch.cat(scores) if scores else None)


def _of_bag(assign: Assign, bag: int) -> Assign:
    """Parameters of one bag, where they differ between bags."""
    if not isinstance(assign, Logits) or assign.linear.dim() == 2:
        return assign
    quadratic = None if assign.quadratic is None else assign.quadratic[bag]
    return replace(assign, linear=assign.linear[bag], bias=assign.bias[bag], quadratic=quadratic, parts=())


def _sums(z: Tensor, z2: Tensor | None, a: Tensor, score: Tensor, real: Tensor | None) -> Statistics:
    """Sums of one block: matrix products in the block's type, handed on in float64 so that 1e8 patches add up safely."""
    by_prototype = a.transpose(-1, -2)  # (..., C, n)
    total = (by_prototype @ z).double()
    square = torch.zeros_like(total) if z2 is None else (by_prototype @ z2).double()
    count = score.new_full(score.shape[:-1], score.shape[-1]) if real is None else real.sum(-1)
    return Statistics(a.sum(-2, dtype=torch.float64), total, square, score.sum(-1, dtype=torch.float64), count.double())
