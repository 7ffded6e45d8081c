"""The contract of the supervised networks and their registry."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from panther.errors import InputError
from panther.registry import Registry
from panther.types import Aggregator, Prototypes, Rows, SlideEmbedding


@dataclass(frozen=True)
class NetworkInputs:
    """Input and output of a network: features and task."""

    dim_in: int  # numbers of a patch
    n_outputs: int = 1  # numbers the task predicts: classes, time bins, one risk
    prototypes: Prototypes | None = None  # only for entries with `needs_prototypes`


@dataclass(frozen=True)
class NetworkInfo:
    """The contract of a network, which the contract suite holds it to."""

    title: str  # as papers write it
    permutation_invariant: bool
    duplication_invariant: bool
    differentiable: bool
    needs_prototypes: bool
    options: tuple[str, ...]  # names of the settings
    variants: tuple[Mapping[str, Any], ...]  # settings that the suite runs over
    # raised where a network is no longer what files of earlier versions hold, so that they are refused and not misread
    revision: int = 1


networks: Registry[Callable[..., "Network"], NetworkInfo] = Registry("network", NetworkInfo)


class Network(Aggregator):
    """A bag of patches becomes a vector; subclasses write :meth:`embed` for a batch and need not care about the rest."""

    dim_in: int
    token_count: int = 0  # rows of `tokens`; 0 where the vector has no such view

    def forward(self, x: Rows, mask: Tensor | None = None, *, with_assignment: bool = False) -> SlideEmbedding:
        """Embed ``x``, (N, d) or (B, N, d) with a mask (B, N) that is True for a real patch.

        The assignment (N, k), on request, is the attention to each patch; its columns sum to 1 over the bag.
        """
        batch, real = _prepared(x, mask, next(self.parameters()), self.dim_in)
        embedding = self.embed(batch, real, with_assignment)
        return embedding if len(x.shape) == 3 else _first(embedding)

    def embed(self, x: Tensor, mask: Tensor | None, with_assignment: bool) -> SlideEmbedding:
        """Embed a batch (B, N, d); a mask (B, N) is there only where something is padding, and padding is zero."""
        raise NotImplementedError

    def columns(self) -> list[tuple[int, str, int]]:
        """Token (-1: there are none), "feature" and number of each entry of the vector."""
        width = self.out_dim // max(self.token_count, 1)
        owners = range(self.token_count) if self.token_count else [-1]
        return [(c, "feature", j) for c in owners for j in range(width)]


def build(
    name: str,
    dim_in: int,
    n_outputs: int = 1,
    prototypes: Prototypes | None = None,
    options: Mapping[str, Any] | None = None,
    *,
    seed: int = 0,
) -> Network:
    """Network of that name, initialised from ``seed`` alone: the same numbers on every device and after any other call."""
    metadata = networks.entry(name).metadata
    networks.check_options(name, options or {})
    if metadata.needs_prototypes and prototypes is None:
        raise InputError(
            f"The network {name!r} groups patches by prototypes; give a prototype file (`panther prototypes`)."
        )
    if prototypes is not None and metadata.needs_prototypes and prototypes.dim_in != dim_in:
        raise InputError(
            f"The prototypes expect {prototypes.dim_in} features per patch but the bags have {dim_in}; refit the prototypes on these features."
        )
    if dim_in < 1 or n_outputs < 1:
        raise InputError(f"A network needs at least one feature and one output; found {dim_in} and {n_outputs}.")
    try:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(int(seed))
            return networks[name](NetworkInputs(dim_in, n_outputs, prototypes), **(options or {}))
    except TypeError as error:
        raise InputError(f"A setting of {name!r} has the wrong type ({error}).") from error


def revision(name: str) -> int:
    """Which form of the network this version builds."""
    return networks.entry(name).metadata.revision


def check_sizes(network: str, dropout: float, **sizes: int) -> None:
    """Refuse settings that make no network."""
    for name, value in sizes.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InputError(
                f"The setting {name!r} of {network!r} is {value!r}; expected a whole number of at least 1."
            )
    if not 0 <= dropout < 1:
        raise InputError(f"The setting 'dropout' of {network!r} is {dropout!r}; expected a share from 0 to below 1.")


def check_switches(network: str, **switches: bool) -> None:
    """Refuse values that are not bool."""
    for name, value in switches.items():
        if not isinstance(value, bool):
            raise InputError(f"The setting {name!r} of {network!r} is {value!r}; expected true or false.")


def check_heads(network: str, hidden: int, heads: int) -> None:
    """Refuse a width that does not divide among the heads."""
    if hidden % heads:
        raise InputError(
            f"{network!r}: hidden = {hidden} does not divide by heads = {heads}; give a multiple of {heads}."
        )


def reduction(dim_in: int, hidden: int, dropout: float) -> nn.Sequential:
    """First layer of most networks: a patch's features in fewer numbers."""
    return nn.Sequential(nn.Linear(dim_in, hidden), nn.ReLU(inplace=True), nn.Dropout(dropout))


def _prepared(x: Rows, mask: Tensor | None, like: Tensor, dim_in: int) -> tuple[Tensor, Tensor | None]:
    """(B, N, d) with the network's type and device; the mask, or None where all entries are valid."""
    if x.shape[-1] != dim_in:
        raise InputError(f"The bag has {x.shape[-1]} features per patch but the network was built for {dim_in}.")
    if x.shape[-2] == 0:
        raise InputError("The bag is empty (0 patches); a network needs at least one patch.")
    tensor = x if isinstance(x, Tensor) else x[:]
    tensor = tensor.to(like.device, like.dtype)
    tensor = tensor if tensor.ndim == 3 else tensor.unsqueeze(0)
    if mask is None:
        return tensor, None
    mask = mask.to(like.device).reshape(tensor.shape[:2])
    if bool(mask.all()):
        return tensor, None
    if not bool(mask.any(-1).all()):
        raise InputError("A bag of the batch is empty (its mask has no real patch); leave it out.")
    return tensor.masked_fill(~mask.unsqueeze(-1), 0.0), mask  # padding may hold anything, even NaN


def _first(embedding: SlideEmbedding) -> SlideEmbedding:
    """Embedding of the only bag of a batch."""

    def take(value: Any) -> Any:
        return value[0] if isinstance(value, Tensor) else value

    return replace(
        embedding,
        vector=embedding.vector[0],
        tokens=take(embedding.tokens),
        assignment=take(embedding.assignment),
        aux={name: take(value) for name, value in embedding.aux.items()},
    )
