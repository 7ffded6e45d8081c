r"""Heads: from a slide embedding to logits. Input is a vector (B, D) or tokens (B, C, t), D = C t in the same order; or, of shape
(C, t, e), C tokens and then e numbers of the whole slide (its mean, with the scaling `share-weighted`).

The structured head learns one small network per prototype (paper eq. 8),

.. math:: g(z) = g^{pred}\big([g_1(s(z_1)), \dots, g_C(s(z_C))]\big)

with an optional network s shared by all prototypes; all C networks are one batched matrix product.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from operator import itemgetter
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from panther.errors import InputError, check_choice, check_fields
from panther.models.blocks import Columns, trial
from panther.registry import Registry, Settings

heads: Registry[Callable[..., nn.Module], Settings] = Registry("head", Settings)
PROBE = "probe"  # the convex model of the loss, with inner cross-validation; not trained by gradient descent


def build_head(
    name: str,
    shape: Sequence[int],
    n_outputs: int,
    options: Mapping[str, Any] | None = None,
    *,
    seed: int | None = None,
) -> nn.Module:
    """Head for embeddings of this shape, (D,), (C, t) or (C, t, e); with a seed its initialisation is reproducible."""
    heads.check_options(name, options or {})
    with torch.random.fork_rng(devices=[], enabled=seed is not None):
        if seed is not None:
            # torch.manual_seed would also queue the seed for GPUs, with a stack trace each
            torch.default_generator.manual_seed(int(seed))
        return heads[name](tuple(shape), n_outputs, **(options or {}))


def head_names() -> list[str]:
    """All heads for embeddings."""
    return [PROBE, *heads.names()]


def check_head(name: str, options: Mapping[str, Any]) -> None:
    """Refuse an unknown head and unknown settings."""
    check_choice("head", name, head_names())
    if name == PROBE and options:
        raise InputError(f"The head {name!r} has no setting {min(options)!r}")
    if name != PROBE:
        with trial():
            build_head(name, (2, 3), 2, options)


class PerPrototypeLinear(nn.Module):
    r"""C linear maps at once: :math:`y_c = x_c W_c + b_c`, (B, C, i) -> (B, C, o), one batched product."""

    def __init__(self, n_prototypes: int, n_in: int, n_out: int) -> None:
        super().__init__()
        bound = 1 / math.sqrt(n_in)  # the initialisation of nn.Linear
        self.weight = nn.Parameter(torch.empty(n_prototypes, n_in, n_out).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(n_prototypes, 1, n_out).uniform_(-bound, bound))

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, i) -> (B, C, o)."""
        return torch.baddbmm(self.bias, x.transpose(0, 1), self.weight).transpose(0, 1)


Layer = Callable[[int, int], nn.Module]  # (n_in, n_out) -> linear map


Stage = Literal["identity", "linear", "mlp"]
Width = Annotated[int, Field(ge=1, le=1_000_000)]


def _stage(kind: str, layer: Layer, n_in: int, n_out: int, dropout: float) -> tuple[nn.Module, int]:
    """A stage of a structured head, and its width."""
    if kind == "identity":
        return nn.Identity(), n_in
    linear = layer(n_in, n_out)
    return (nn.Sequential(linear, nn.ReLU(), nn.Dropout(dropout)) if kind == "mlp" else linear), n_out


@dataclass(frozen=True)
class StructuredSettings:
    """The three stages, each identity, linear or mlp (one layer, ReLU, dropout), and their widths."""

    shared: Stage = "identity"
    per_prototype: Stage = "mlp"
    after: Stage = "identity"
    shared_dim: Width = 256
    per_prototype_dim: Width = 128
    after_dim: Width = 1024
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.1
    gates: bool = True  # one learnable factor per statistic, where the scaling `share-weighted` gives four of them

    def __post_init__(self) -> None:
        check_fields(self)


PAPER = {
    "paper-classification": StructuredSettings(per_prototype="mlp", after="mlp"),
    "paper-survival": StructuredSettings(shared="mlp", per_prototype="mlp"),
}
STRUCTURED = ("structured", *PAPER)  # heads that need one token per prototype


class StatisticGates(nn.Module):
    r"""One positive factor per statistic (pi, mu, Sigma, the slide's mean), :math:`x_b \, e^{100 a_b}`, initially 1.

    With a factor of 100 in the exponent the small steps of the paper's training (1e-4) can double a factor in some seventy steps.
    """

    STRETCH = 100.0

    def __init__(self, n_prototypes: int, token: int, dim: int) -> None:
        super().__init__()
        statistics = torch.cat([torch.zeros(1), torch.ones(dim), torch.full((token - 1 - dim,), 2.0)]).long()
        self.register_buffer(
            "statistic", torch.cat([statistics.repeat(n_prototypes), torch.full((dim,), 3)]), persistent=False
        )
        self.exponent = nn.Parameter(torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        """(B, D) -> (B, D)."""
        return x * (self.STRETCH * self.exponent).exp()[self.get_buffer("statistic")]


class Structured(nn.Module):
    """Shared network, one network per prototype, concatenation, network after it, linear without bias.

    Numbers of the whole slide pass a separate network, as wide as a prototype's, and join the concatenation.
    """

    def __init__(self, shape: tuple[int, ...], n_outputs: int, settings: StructuredSettings) -> None:
        super().__init__()
        if len(shape) < 2:
            raise InputError("A structured head needs one token per prototype: use panther without blocks, ot or h2t")
        n_prototypes, token = shape[:2]
        rest = shape[2] if len(shape) == 3 else 0
        self.sizes = (n_prototypes, token, rest)
        self.gates = StatisticGates(n_prototypes, token, rest) if rest and settings.gates else nn.Identity()
        dropout = settings.dropout
        self.shared, width = _stage(settings.shared, nn.Linear, token, settings.shared_dim, dropout)
        layer = partial(PerPrototypeLinear, n_prototypes)
        self.per_prototype, width = _stage(settings.per_prototype, layer, width, settings.per_prototype_dim, dropout)
        width *= n_prototypes
        if rest:
            self.slide, extra = _stage(settings.per_prototype, nn.Linear, rest, settings.per_prototype_dim, dropout)
            width += extra
        self.after, width = _stage(settings.after, nn.Linear, width, settings.after_dim, dropout)
        self.out = nn.Linear(width, n_outputs, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, t), (B, C t) or (B, C t + e) -> (B, n_outputs)."""
        n_prototypes, token, rest = self.sizes
        tokens, slide = self.gates(x.flatten(1)).split([n_prototypes * token, rest], 1)
        read = [self.per_prototype(self.shared(tokens.unflatten(1, (n_prototypes, token)))).flatten(1)]
        read += [self.slide(slide)] if rest else []
        return self.out(self.after(torch.cat(read, 1)))


class Flat(nn.Module):
    """A network on the flattened embedding."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        """(B, D) or (B, C, t) -> (B, n_outputs)."""
        return self.network(x.flatten(1))


def _size(shape: tuple[int, ...]) -> int:
    """Number of entries of an embedding of this shape."""
    return math.prod(shape[:2]) + (shape[2] if len(shape) == 3 else 0)


@heads.register("linear", options=("bias",))
def linear(shape: tuple[int, ...], n_outputs: int, bias: bool = True) -> nn.Module:
    """Linear probe."""
    return Flat(nn.Linear(_size(shape), n_outputs, bias=bias))


@heads.register("mlp", options=("hidden", "dropout"))
def mlp(shape: tuple[int, ...], n_outputs: int, hidden: int | Sequence[int] = 512, dropout: float = 0.1) -> nn.Module:
    """One or more hidden layers on the flattened embedding."""
    widths = [_size(shape), *([hidden] if isinstance(hidden, int) else hidden)]
    if len(widths) < 2 or min(widths) < 1:
        raise InputError(f"hidden: {hidden}, expected one or more layers of at least 1 unit")
    if not 0 <= dropout < 1:
        raise InputError(f"dropout: {dropout}, expected 0 to below 1")
    layers = [_stage("mlp", nn.Linear, a, b, dropout)[0] for a, b in pairwise(widths)]
    return Flat(nn.Sequential(*layers, nn.Linear(widths[-1], n_outputs)))


def _structured(preset: StructuredSettings, shape: tuple[int, ...], n_outputs: int, **options: Any) -> nn.Module:
    """Structured head of a preset, changed by options."""
    return Structured(shape, n_outputs, replace(preset, **options))


for _name, _preset in {"structured": StructuredSettings(), **PAPER}.items():
    heads.register(_name, options=tuple(StructuredSettings.__dataclass_fields__))(partial(_structured, _preset))


def token_shape(columns: Columns) -> tuple[int, ...]:
    """(C, t) where every number belongs to a prototype; (C, t, e) where e numbers of the whole slide follow them; else (D,)."""
    owners = list(map(itemgetter(0), columns))
    rest = owners.count(-1)
    if rest == len(columns) or -1 in owners[: len(columns) - rest]:
        return (len(columns),)
    count = len(set(owners)) - bool(rest)
    token = (len(columns) - rest) // count
    return (count, token, rest) if rest else (count, token)
