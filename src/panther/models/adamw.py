r"""AdamW (Loshchilov and Hutter 2019) as functions, on torch's own arithmetic without its class.

.. math:: \theta \leftarrow (1 - \eta \lambda)\, \theta - \eta\, \hat m / (\sqrt{\hat v} + \epsilon)

The first `torch.optim.AdamW` of a process imports torch's compiler, more than a second in each worker of a study, and a step of a linear
head costs several times as much in the class, or in the function `torch.optim.adamw`, as in the arithmetic. So the kernel of both is called
directly. The bytes are those of `torch.optim.AdamW(fused=True)`: one pass over memory, not ten.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

BETAS, EPSILON = (0.9, 0.999), 1e-8


class Group(NamedTuple):
    """Parameters that decay alike, and for each of them the moments of its gradient and the steps that it made."""

    params: list[nn.Parameter]
    weight_decay: float
    means: list[Tensor]
    squares: list[Tensor]
    steps: list[Tensor]  # each (), float32

    def state(self) -> dict[str, list[Tensor]]:
        """What a checkpoint keeps, by name."""
        return {"means": self.means, "squares": self.squares, "steps": self.steps}


def group(params: Sequence[nn.Parameter], weight_decay: float) -> Group:
    """Parameters that have made no step yet."""
    return Group(
        list(params),
        weight_decay,
        [torch.zeros_like(p, requires_grad=False) for p in params],
        [torch.zeros_like(p, requires_grad=False) for p in params],
        [torch.zeros((), device=p.device) for p in params],
    )


@torch.no_grad()
def step(groups: Iterable[Group], rate: float) -> None:
    """Follow the gradients, which are gone afterwards; a parameter without one stays where it is, and does not decay."""
    for own in groups:
        there = [p.grad is not None for p in own.params]
        params, means, squares, steps = (
            [value for value, has in zip(values, there, strict=True) if has]
            for values in (own.params, own.means, own.squares, own.steps)
        )
        if not params:
            continue
        torch._foreach_add_(steps, 1)
        torch._fused_adamw_(
            params,
            [p.grad for p in params if p.grad is not None],
            means,
            squares,
            [],  # of AMSGrad
            steps,
            amsgrad=False,
            beta1=BETAS[0],
            beta2=BETAS[1],
            lr=rate,
            weight_decay=own.weight_decay,
            eps=EPSILON,
            maximize=False,
        )
        for p in params:
            p.grad = None


@torch.no_grad()
def restore(groups: Sequence[Group], states: Sequence[dict[str, list[Tensor]]]) -> None:
    """Give the moments and steps that a checkpoint kept back to the same parameters."""
    for own, kept in zip(groups, states, strict=True):
        for name, values in own.state().items():
            for value, before in zip(values, kept[name], strict=True):
                value.copy_(before)
