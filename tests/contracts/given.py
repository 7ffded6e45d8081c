"""What the contract suites are run over: every entry of both registries with every one of its variants, and one bag."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from mixture_bags import mixture_bag
from panther.aggregators import aggregators
from panther.aggregators import build as build_aggregator
from panther.mil import build as build_network
from panther.mil import networks
from panther.types import Aggregator, Places, Prototypes

D, C, OUTPUTS = 6, 4, 3


def a_bag() -> torch.Tensor:
    """80 patches of four tissues that overlap."""
    return mixture_bag(80, D, C, separation=1.0)[0]


def some_prototypes() -> Prototypes:
    """The tissues' centres."""
    centres = mixture_bag(1, D, C, separation=1.0)[1]
    return Prototypes(centres, within_variance=torch.full((D,), 0.8), surprise=torch.tensor([[9.0, 20.0]] * 3))


def call(module: Aggregator, x: torch.Tensor, mask: torch.Tensor | None = None, **more: Any) -> Any:
    """Call a module; one that reads where patches lie is told: a patch keeps its place wherever its row stands."""
    if getattr(module, "needs_places", False):
        bags = [x] if x.dim() == 2 else [x[b] if mask is None else x[b][mask[b]] for b in range(len(x))]
        places = [_places(bag) for bag in bags]
        more["places"] = places[0] if x.dim() == 2 else places
    return module(x, mask, **more)


def _places(rows: torch.Tensor) -> Places:
    """Rows of `a_bag` (or what float16 made of them) in nine columns."""
    number = torch.cdist(rows.detach().float(), a_bag()).argmin(1).numpy()
    return Places(256.0 * np.stack([number % 9, number // 9], 1), 256.0, (len(number),))


@dataclass(frozen=True)
class Variant:
    """An entry with settings."""

    name: str
    options: dict[str, Any]
    metadata: Any

    def __str__(self) -> str:
        return f"{self.name}-{self.options}"

    def build(self, seed: int = 0) -> Aggregator:
        """Module on the prototypes above."""
        if self.name in networks:
            return build_network(self.name, D, OUTPUTS, some_prototypes(), self.options, seed=seed)
        torch.manual_seed(seed)
        return build_aggregator(self.name, some_prototypes(), self.options)


def variants(registry: Iterable[Any]) -> list[Variant]:
    """All variants of a registry."""
    return [Variant(e.name, dict(options), e.metadata) for e in registry for options in e.metadata.variants]


SUPERVISED = variants(networks)
EVERYTHING = [*variants(aggregators), *SUPERVISED]
