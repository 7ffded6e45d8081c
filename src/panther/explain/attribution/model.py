"""Attribution of a trained model: which prototypes, and which of their statistics, drive each prediction."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from panther.aggregators import embed_bags
from panther.engine import HERE, Work
from panther.errors import InputError, check_choice
from panther.explain.attribution import mathematics as maths
from panther.explain.attribution.mathematics import ownership
from panther.explain.names import Naming
from panther.models.blocks import Block
from panther.models.heads import Flat
from panther.models.losses import risk_from_hazards
from panther.models.model import Model
from panther.models.scaling import (
    AnyScaler,
    Scaler,
    scaler_parts,
    share_weighted_columns,
    share_weighted_coordinates,
    split,
)
from panther.types import Openable

Columns = Sequence[tuple[int, str, int]]
PART_OF_MEAN = "part of mean"  # what a prototype adds to the slide's mean
ENUMERATE = 10  # players up to which all coalitions are tried: 1,024 evaluations per slide or patient
KINDS = ("exact", "shapley", "integrated-gradients")


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


@dataclass(frozen=True)
class AttributionSettings:
    """How a prediction is shared out."""

    kind: str | None = None  # of KINDS; None: exact for linear heads, else shapley
    pairs: int = 8  # antithetic pairs of orders, where there are too many players to try all coalitions
    steps: int = 128  # of the integral
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Attribution:
    """What each prototype's statistic adds to each output of each slide or patient, measured from the training's usual values."""

    kind: str  # exact, shapley or integrated gradients
    outputs: tuple[str, ...]  # K
    samples: tuple[str, ...]  # n slides or patients
    players: tuple[tuple[int, str], ...]  # P, (prototype, statistic)
    contributions: np.ndarray  # (n, K, P)
    values: np.ndarray  # (n, K), f(x)
    baseline: np.ndarray  # (K,), f(mean)
    prototypes_hash: str
    sampling_error: float | None = None  # largest standard error of a Shapley value; None where nothing was sampled
    names: Mapping[int, str] = field(default_factory=dict)  # of the prototypes
    namings: Mapping[int, Naming] = field(default_factory=dict)  # their notes, colours and groups
    notes: tuple[str, ...] = ()
    failures: Mapping[str, str] = field(default_factory=dict)  # slide or patient -> sentence
    files: tuple[Path, ...] = ()  # that were written

    @property
    def gap(self) -> float:
        """Largest |sum of contributions - (f(x) - f(mean))|."""
        return float(np.abs(self.contributions.sum(2) - (self.values - self.baseline)).max())

    @property
    def n_prototypes(self) -> int:
        """Their number."""
        return ownership(self.players).shape[1]

    def by_prototype(self) -> np.ndarray:
        """Contributions (n, K, C), a prototype's statistics together, and half of what it shares with one that it touches."""
        return self.contributions @ ownership(self.players)


@dataclass(frozen=True)
class ExplainedOutputs:
    """What is explained: numbers that a task makes of its logits."""

    names: tuple[str, ...]
    of: Callable[[Tensor], Tensor]  # logits (B, n) -> (B, K)
    linear: bool = True


def _same(logits: Tensor) -> Tensor:
    return logits


def against_the_others(logits: Tensor) -> Tensor:
    r"""A class's logit minus the mean of the others' (B, K): :math:`\frac{K}{K-1} (l_k - \bar l)`; of two classes, the log-odds.

    Only differences of logits mean anything: a probe of two classes fixes the first at 0, whose logit alone nothing would ever drive.
    """
    classes = logits.shape[-1]
    return classes / (classes - 1) * (logits - logits.mean(-1, keepdim=True))


# a value counts from the training mean, in the units of the table;
# a log-risk is what a head puts out; discrete time has one risk, minus the expected number of bins survived
OUTPUTS: dict[str, Callable[[Any], ExplainedOutputs]] = {
    "cross-entropy": lambda task: ExplainedOutputs(tuple(task.names), against_the_others),
    "cox": lambda task: ExplainedOutputs(("log-risk",), _same),
    "ranking": lambda task: ExplainedOutputs(("risk",), _same),
    "ordinal": lambda task: ExplainedOutputs(("score",), lambda logits: logits[:, :1]),  # larger: a higher grade
    "mse": lambda task: ExplainedOutputs(("value",), lambda logits: task.scale * logits),
    "huber": lambda task: ExplainedOutputs(("value",), lambda logits: task.scale * logits),
    "binary-cross-entropy": lambda task: ExplainedOutputs(tuple(task.names), _same),  # log-odds of each label
    "nll": lambda task: ExplainedOutputs(("risk",), lambda logits: risk_from_hazards(logits)[:, None], linear=False),
}


def check_attributable(model: Model) -> None:
    """Refuse a model whose embedding has no part for each prototype."""
    name = model.method.name
    if model.scaler is not None and model.prototypes is None:
        raise InputError(
            f"The model stands on {model.method.title!r}, whose numbers belong to no prototype, so a prediction cannot be shared among them; "
            "train with panther, h2t, ot or protocounts."
        )
    if model.scaler is None or model.prototypes is None:
        raise InputError(
            f"The model is the network {name!r}, which has no embedding by prototypes to attribute to; "
            "draw its attention with `panther map --model`, or train panther with a head."
        )
    own, *_ = Block(model.method, model.prototypes).parts()
    if any(prototype < 0 for prototype, _, _ in own):
        readout = model.method.options.get("readout")
        raise InputError(
            f"The embedding of {name!r}{f' with the readout {readout!r}' if readout else ''} has no part for each prototype, so a prediction "
            "cannot be shared among them; train with the readout `all` of panther, or with h2t, ot or protocounts."
        )


def attribute_bags(
    model: Model, bags: Sequence[Openable], settings: AttributionSettings, *, work: Work = HERE
) -> Attribution:
    """Attribution of every bag; those that cannot be embedded are its failures."""
    check_attributable(model)
    assert model.prototypes is not None
    assert model.scaler is not None
    assert model.baseline is not None
    outputs = OUTPUTS[model.task.name](model.task)
    kind = _kind(model, outputs, settings.kind)
    table = embed_bags(bags, model.prototypes, model.method.name, model.method.options, work=work)
    view = view_of(model.scaler, table.columns, model.baseline.double())
    who, mean = maths.players(view.columns), view.baseline
    f = _function(model.network, view, outputs)
    one = KIND[kind](f, mean, who, settings, _slope(model, outputs))
    shares, errors, values = [], [], []
    for row in work.track(range(len(table.samples)), "attributing", len(table.samples)):
        x = view.expand(torch.from_numpy(np.array(table.vectors[row])).double()[None])[0]
        share, error = one(x)
        shares.append(share.numpy())
        errors.append(error)
        with torch.no_grad():
            values.append(f(x[None])[0].numpy())
    with torch.no_grad():
        baseline = f(mean[None])[0].numpy()
    sampled = [error for error in errors if error is not None]
    return Attribution(
        kind.replace("-", " "),
        outputs.names,
        tuple(table.samples),
        who.names,
        np.stack(shares),
        np.stack(values),
        baseline,
        model.prototypes.content_hash(),
        max(sampled) if sampled else None,
        failures=dict(table.failures),
    )


def _kind(model: Model, outputs: ExplainedOutputs, asked: str | None) -> str:
    linear = _slope(model, outputs) is not None
    if asked is None:
        return "exact" if linear else "shapley"
    check_choice("kind", asked, KINDS)
    if asked == "exact" and not linear:
        raise InputError(
            f"`kind=exact` needs a head that is linear in the embedding, but the model is {model.head.name} with the loss {model.task.name}; "
            "use shapley or integrated-gradients."
        )
    return asked


def _slope(model: Model, outputs: ExplainedOutputs) -> Tensor | None:
    """Weights (K, E) of what is explained on what players own, where both head and output are linear."""
    inner = model.network.network if isinstance(model.network, Flat) else None
    if not isinstance(inner, nn.Linear) or model.scaler is None or not outputs.linear:
        return None
    parts = scaler_parts(model.scaler)
    weights = inner.weight.detach().double().split([len(part.shift) for part in parts], 1)  # (n, D') of each
    return outputs.of(torch.cat([_weight(own, part) for own, part in zip(weights, parts, strict=True)], 1).T).T


def _weight(weight: Tensor, scaler: Scaler) -> Tensor:
    """Weights of a head (n, D') on what players own of one part, (n, E)."""
    weight = weight / scaler.scale.double()
    if scaler.usual is None:
        return weight
    count, dim = scaler.usual.means.shape  # a slide's mean is the sum of what its prototypes add to it
    return torch.cat([weight[:, :-dim], weight[:, -dim:].repeat(1, count)], 1)


def _function(network: nn.Module, view: HeadView, outputs: ExplainedOutputs) -> maths.Function:
    """What players own (B, E) to what is explained (B, K); in float64, so that sums of differences keep their digits."""
    precise = copy.deepcopy(network).double().eval().requires_grad_(False)
    return lambda x: outputs.of(precise(view.scaled(x)))


Share = Callable[[Tensor], tuple[Tensor, float | None]]  # embedding (D,) -> shares (K, P) and their sampling error


def _exact(
    f: maths.Function, mean: Tensor, who: maths.Players, settings: AttributionSettings, slope: Tensor | None
) -> Share:
    assert slope is not None
    return lambda x: (maths.linear_shares(slope, x[None], mean, who.member)[0], None)


def _shapley(
    f: maths.Function, mean: Tensor, who: maths.Players, settings: AttributionSettings, slope: Tensor | None
) -> Share:
    if len(who) <= ENUMERATE:
        return lambda x: (maths.shapley_by_enumeration(f, x, mean, who.member), None)
    orders = maths.antithetic_orders(len(who), settings.pairs, settings.seed)

    def sampled(x: Tensor) -> tuple[Tensor, float | None]:
        share, error = maths.shapley_by_permutation(f, x, mean, who.member, orders)
        return share, float(error.max())

    return sampled


def _gradients(
    f: maths.Function, mean: Tensor, who: maths.Players, settings: AttributionSettings, slope: Tensor | None
) -> Share:
    return lambda x: (maths.integrated_gradients(f, x, mean, who.member, settings.steps), None)


KIND = {"exact": _exact, "shapley": _shapley, "integrated-gradients": _gradients}
