"""Attribution of a trained model: contributions of each prototype's share, mean and variance to a prediction."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from panther.aggregators import embed_bags
from panther.engine import LOCAL, Work
from panther.errors import InputError
from panther.explain.attribution.mathematics import (
    Function,
    Players,
    antithetic_orders,
    largest_pairs,
    linear_shares,
    ownership,
    partner,
    players_of,
    shapley_by_enumeration,
    shapley_by_permutation,
)
from panther.explain.names import Naming, colours, label, plain_names
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
from panther.version import __version__

FORMAT = 1
WRITTEN = ("attribution.json", "attribution.csv", "cohort.png", "*.attribution.png")  # patterns
Columns = Sequence[tuple[int, str, int]]
PART_OF_MEAN = "part of mean"  # contribution of a prototype to the slide's mean
ENUMERATE = 10  # players up to which all coalitions are tried: 1,024 evaluations per slide or patient


class HeadView(NamedTuple):
    """An embedding (B, D) as numbers (B, E) that each belong to one prototype and statistic."""

    columns: Columns  # E, (prototype, statistic, dimension)
    baseline: Tensor  # (E,), the training slides' usual values
    expand: Callable[[Tensor], Tensor]  # (B, D) -> (B, E)
    scaled: Callable[[Tensor], Tensor]  # (B, E) -> input of the head (B, D')


def view_of(scaler: AnyScaler, columns: Columns, mean: Tensor) -> HeadView:
    """Input of a head in embeddings under this scaling; ``mean`` (D,) is the mean training embedding."""
    parts = scaler_parts(scaler)
    sizes = [part.dim_in for part in parts]
    starts = np.cumsum([0, *sizes]).tolist()
    views = [
        _view_of_part(part, columns[start : start + part.dim_in], mean[start : start + part.dim_in])
        for part, start in zip(parts, starts, strict=False)
    ]
    owned = [len(view.columns) for view in views]
    return HeadView(
        [column for view in views for column in view.columns],
        torch.cat([view.baseline for view in views]),
        lambda x: torch.cat([view.expand(piece) for view, piece in zip(views, x.split(sizes, 1), strict=True)], 1),
        lambda x: torch.cat([view.scaled(piece) for view, piece in zip(views, x.split(owned, 1), strict=True)], 1),
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


@dataclass(frozen=True, eq=False)
class Attribution:
    """Contribution of each prototype's statistic to each output of each slide or patient, relative to the usual training values."""

    kind: str  # exact or shapley
    outputs: tuple[str, ...]  # K
    samples: tuple[str, ...]  # n slides or patients
    players: tuple[tuple[int, str], ...]  # P, (prototype, statistic)
    contributions: np.ndarray  # (n, K, P)
    values: np.ndarray  # (n, K), f(x)
    baseline: np.ndarray  # (K,), f(mean)
    prototypes_hash: str
    sampling_error: float | None = None  # largest standard error of a Shapley value; None where nothing was sampled
    namings: Mapping[int, Naming] = field(default_factory=dict)  # names, notes, colours and groups of the prototypes
    notes: tuple[str, ...] = ()
    failures: Mapping[str, str] = field(default_factory=dict)  # slide or patient -> sentence
    files: tuple[Path, ...] = ()  # that were written

    @property
    def names(self) -> dict[int, str]:
        """Names of the prototypes by their number."""
        return plain_names(self.namings)

    @property
    def gap(self) -> float:
        """Largest |sum of contributions - (f(x) - f(mean))|."""
        return float(np.abs(self.contributions.sum(2) - (self.values - self.baseline)).max())

    @property
    def colours(self) -> list[str]:
        """Colour of each prototype, #RRGGBB."""
        return colours(self.namings, ownership(self.players).shape[1])

    def by_prototype(self) -> np.ndarray:
        """Contributions (n, K, C), summed over a prototype's statistics; a pair that touches counts half to each."""
        return self.contributions @ ownership(self.players)

    def mean_contributions(self) -> list[dict[str, Any]]:
        """Mean contribution and mean absolute one over the cohort: one row per output, prototype and statistic."""
        mean, size = self.contributions.mean(0).tolist(), np.abs(self.contributions).mean(0).tolist()  # (K, P) each
        return [
            {"output": output, "prototype": c, "statistic": statistic, "mean": mean[k][p], "mean_absolute": size[k][p]}
            for k, output in enumerate(self.outputs)
            for p, (c, statistic) in enumerate(self.players)
        ]

    def pair_title(self, row: Mapping[str, Any]) -> str:
        """`C3 lymphocytes beside C7 tumour`, of a row of two prototypes that touch."""
        first, second = row["prototype"], partner(row["statistic"])
        assert second is not None
        return f"{label(first, self.names)} beside {'itself' if second == first else label(second, self.names)}"

    def content(self) -> dict[str, Any]:
        """Attribution of the cohort as in `attribution.json`; those of each slide or patient are in the CSV."""
        prototypes = [{"prototype": c, "name": self.names.get(c), "colour": x} for c, x in enumerate(self.colours)]
        return {
            "format": FORMAT,
            "version": __version__,
            "prototypes_hash": self.prototypes_hash,
            "kind": self.kind,
            "outputs": list(self.outputs),
            "samples": list(self.samples),
            "prototypes": prototypes,
            "cohort": self.mean_contributions(),
            "baseline": dict(zip(self.outputs, self.baseline.tolist(), strict=True)),
            "gap": self.gap,
            "sampling_error": self.sampling_error,
            "notes": list(self.notes),
        }

    def to_lines(self) -> list[str]:
        """The most important prototypes, and pairs of them, for each output."""
        size, rows = np.abs(self.by_prototype()).mean(0), self.mean_contributions()  # (K, C)
        error = "" if self.sampling_error is None else f", sampling error at most {self.sampling_error:.2g}"
        lines = [f"{len(self.samples)} samples attributed ({self.kind}; gap {self.gap:.1e}{error})"]
        for name, sizes in list(zip(self.outputs, size, strict=True))[:10]:
            largest = np.argsort(-sizes, kind="stable")[:3].tolist()
            text = ", ".join(f"{label(c, self.names)} {sizes[c]:.3g}" for c in largest)
            lines.append(f"  {name}: mean |contribution|, statistics of a prototype summed: {text}")
            if pairs := largest_pairs([row for row in rows if row["output"] == name], 3):
                text = ", ".join(f"{self.pair_title(row)} {row['mean_absolute']:.3g}" for row in pairs)
                lines.append(f"    of pairs that touch: {text}")
        return lines

    def to_json(self) -> dict[str, Any]:
        """How it was computed, and the files that were written."""
        about = {"kind": self.kind, "gap": self.gap, "sampling_error": self.sampling_error}
        return {**about, "samples": len(self.samples), "files": [str(file) for file in self.files]}


@dataclass(frozen=True)
class ExplainedOutputs:
    """Outputs that are explained: functions of a task's logits."""

    names: tuple[str, ...]
    of: Callable[[Tensor], Tensor]  # logits (B, n) -> (B, K)
    linear: bool = True


def against_the_others(logits: Tensor) -> Tensor:
    r"""A class's logit minus the mean of the others' (B, K): :math:`\frac{K}{K-1} (l_k - \bar l)`; of two classes, the log-odds.

    Only differences of logits are meaningful: a probe of two classes fixes the first logit at 0.
    """
    classes = logits.shape[-1]
    return classes / (classes - 1) * (logits - logits.mean(-1, keepdim=True))


# values are relative to the training mean, in the units of the table; a log-risk is the head's output;
# discrete time has one risk, minus the expected number of bins survived
OUTPUTS: dict[str, Callable[[Any], ExplainedOutputs]] = {
    "cross-entropy": lambda task: ExplainedOutputs(tuple(task.names), against_the_others),
    "cox": lambda task: ExplainedOutputs(("log-risk",), nn.Identity()),
    "ranking": lambda task: ExplainedOutputs(("risk",), nn.Identity()),
    "ordinal": lambda task: ExplainedOutputs(("score",), lambda logits: logits[:, :1]),  # larger: a higher grade
    "mse": lambda task: ExplainedOutputs(("value",), lambda logits: task.scale * logits),
    "binary-cross-entropy": lambda task: ExplainedOutputs(tuple(task.names), nn.Identity()),  # log-odds of each label
    "nll": lambda task: ExplainedOutputs(("risk",), lambda logits: risk_from_hazards(logits)[:, None], linear=False),
}


def check_attributable(model: Model) -> None:
    """Refuse a model whose embedding has no part for each prototype."""
    name = model.method.name
    if model.scaler is None:
        raise InputError(
            f"model: found the network {name!r}, expected prototypes; `panther map --model` draws its attention"
        )
    parts = [] if model.prototypes is None else Block(model.method, model.prototypes).parts()[0]
    if not parts or any(prototype < 0 for prototype, _, _ in parts):
        readout = f" with the readout {model.method.options['readout']!r}" if "readout" in model.method.options else ""
        raise InputError(
            f"model: found {name!r}{readout}, which has no part for each prototype, expected panther (readout all), h2t, ot or protocounts"
        )


def attribute_bags(
    model: Model,
    bags: Sequence[Openable],
    kind: str | None = None,
    *,
    pairs: int = 8,
    seed: int = 0,
    work: Work = LOCAL,
) -> Attribution:
    """Attribution of every bag by a model that `check_attributable` accepts; bags that cannot be embedded are its failures.

    ``kind`` is exact (linear heads, the default there) or shapley (the default elsewhere, from so many antithetic ``pairs`` of orders where
    there are too many players to try all coalitions).
    """
    assert model.prototypes is not None
    assert model.scaler is not None
    assert model.baseline is not None
    outputs = OUTPUTS[model.task.name](model.task)
    slope = _slope(model, outputs)
    if kind == "exact" and slope is None:
        raise InputError(
            f"kind: exact requires a linear head and output, found {model.head.name} with the loss {model.task.name}"
        )
    kind = kind or ("shapley" if slope is None else "exact")
    table = embed_bags(bags, model.prototypes, model.method.name, model.method.options, work=work)
    view = view_of(model.scaler, table.columns, model.baseline.double())
    players = players_of(view.columns)
    precise = copy.deepcopy(model.network).double().eval().requires_grad_(False)  # or sums of differences lose digits

    def explained(x: Tensor) -> Tensor:
        return outputs.of(precise(view.scaled(x)))  # (B, E) -> (B, K)

    share = _share_function(kind, explained, view.baseline, players, slope, pairs, seed)
    contributions, errors, values = [], [], []
    for row in work.track(range(len(table.samples)), "attributing", len(table.samples)):
        x = view.expand(torch.from_numpy(np.array(table.vectors[row])).double()[None])[0]
        shares, error = share(x)
        contributions.append(shares.numpy())
        if error is not None:
            errors.append(float(error.max()))
        with torch.no_grad():
            values.append(explained(x[None])[0].numpy())
    with torch.no_grad():
        baseline = explained(view.baseline[None])[0].numpy()
    return Attribution(
        kind,
        outputs.names,
        tuple(table.samples),
        players.names,
        np.stack(contributions),
        np.stack(values),
        baseline,
        model.prototypes.content_hash(),
        max(errors, default=None),
        failures=dict(table.failures),
    )


def _share_function(
    kind: str, f: Function, mean: Tensor, players: Players, slope: Tensor | None, pairs: int, seed: int
) -> Callable[[Tensor], tuple[Tensor, Tensor | None]]:
    """Function of an embedding (E,) to its shares (K, P), and to their standard errors where they are sampled."""
    if kind == "exact":
        assert slope is not None
        return lambda x: (linear_shares(slope, x, mean, players.member), None)
    if len(players) <= ENUMERATE:
        return lambda x: (shapley_by_enumeration(f, x, mean, players.member), None)
    orders = antithetic_orders(len(players), pairs, seed)
    return lambda x: shapley_by_permutation(f, x, mean, players.member, orders)


def _slope(model: Model, outputs: ExplainedOutputs) -> Tensor | None:
    """Weights (K, E) of the explained outputs, where both head and output are linear."""
    inner = model.network.network if isinstance(model.network, Flat) else None
    if not isinstance(inner, nn.Linear) or model.scaler is None or not outputs.linear:
        return None
    parts = scaler_parts(model.scaler)
    slopes = []
    for part, weight in zip(parts, inner.weight.detach().double().split([len(p.shift) for p in parts], 1), strict=True):
        slope = weight / part.scale.double()  # (n, D')
        if part.usual is not None:  # a slide's mean is the sum of its prototypes' parts
            count, dim = part.usual.means.shape
            slope = torch.cat([slope[:, :-dim], slope[:, -dim:].repeat(1, count)], 1)
        slopes.append(slope)
    return outputs.of(torch.cat(slopes, 1).T).T
