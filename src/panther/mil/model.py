"""A network with a head, as the trainer expects it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from panther.errors import InputError
from panther.mil._base import Network, build
from panther.types import Prototypes, Rows, SlideEmbedding


class HasLoss(Protocol):
    """The part of a task that a model uses."""

    @property
    def loss(self) -> Callable[[Tensor, Mapping[str, Tensor]], Tensor]:
        """Loss of logits (B, n_outputs) given the encoded target."""


@dataclass(frozen=True)
class NetworkOutputs:
    """Outputs of a model for a batch of bags."""

    logits: Tensor  # (B, n_outputs), the prediction
    streams: tuple[Tensor, ...]  # each (B, n_outputs); the prediction is their mean and each is trained
    embedding: SlideEmbedding


class MILModel(nn.Module):
    r"""Logits of bags: a network, and a head on its vector.

    A network that predicts by itself too (DSMIL's `instance_logits`) has two streams: the prediction is the mean of their logits, the loss the
    mean of their losses (Li et al. 2021, eq. 7 and section 3.3).

    Parameters
    ----------
    network : Network
        From :func:`panther.mil.build`.
    head : nn.Module
        (B, out_dim) to (B, n_outputs).
    """

    def __init__(self, network: Network, head: nn.Module) -> None:
        super().__init__()
        self.network, self.head = network, head

    def forward(self, x: Rows, mask: Tensor | None = None, *, with_assignment: bool = False) -> NetworkOutputs:
        """Predict for bags (B, N, d) with a mask (B, N), or for one bag (N, d)."""
        if len(x.shape) == 2:
            x = (x if isinstance(x, Tensor) else x[:]).unsqueeze(0)
        embedding = self.network(x, mask, with_assignment=with_assignment)
        streams: tuple[Tensor, ...] = (self.head(embedding.vector),)
        if "instance_logits" in embedding.aux:
            streams = (*streams, embedding.aux["instance_logits"])
        if len({stream.shape for stream in streams}) != 1:
            raise InputError(
                f"The network has {streams[-1].shape[-1]} outputs but the head {streams[0].shape[-1]}; build both for the same task."
            )
        return NetworkOutputs(torch.stack(streams).mean(0), streams, embedding)

    def loss(self, outputs: NetworkOutputs, batch: Mapping[str, Tensor], task: HasLoss) -> Tensor:
        """Mean of the streams' losses."""
        return torch.stack([task.loss(stream.float(), batch) for stream in outputs.streams]).mean()


def build_model(
    name: str,
    dim_in: int,
    n_outputs: int,
    prototypes: Prototypes | None = None,
    options: Mapping[str, Any] | None = None,
    *,
    seed: int = 0,
) -> MILModel:
    """Network of that name with a linear head, both initialised from ``seed``."""
    network = build(name, dim_in, n_outputs, prototypes, options, seed=seed)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(int(seed) + 1)
        return MILModel(network, nn.Linear(network.out_dim, n_outputs))


def count_parameters(module: nn.Module) -> int:
    """Trainable numbers."""
    return sum(p.numel() for p in module.parameters() if p.requires_grad)
