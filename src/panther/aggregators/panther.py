"""PANTHER: the parameters of a Gaussian mixture fitted per slide are the slide's embedding (paper eq. 5)."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from panther.aggregators._base import aggregators, mixture_columns
from panther.aggregators.blocks import EmbeddingBlock, build_blocks, read_places
from panther.errors import InputError, suggestion
from panther.mixture import PRESETS, EMSettings, FirstStep, MixtureFit, effective_number, fit_mixture, starting_variance
from panther.types import Aggregator, Mixture, Places, Prototypes, Ragged, Rows, SlideEmbedding


def read_all(mixture: Mixture) -> Tensor:
    r"""All: :math:`[\pi_1, \mu_1, \Sigma_1, \dots, \pi_C, \mu_C, \Sigma_C]`, C(1+2d) numbers."""
    return tokens(mixture).flatten(-2)


def read_weighted_average(mixture: Mixture) -> Tensor:
    r"""WA: :math:`[\sum_c \pi_c \mu_c, \sum_c \pi_c \Sigma_c]`, 2d numbers."""
    weights = mixture.weights.unsqueeze(-2)  # (..., 1, C)
    return torch.cat([weights @ mixture.means, weights @ mixture.variances], -1).squeeze(-2)


def read_top(mixture: Mixture) -> Tensor:
    """Top: the component of the largest weight, 1+2d numbers."""
    return _component(mixture, mixture.weights.argmax(-1))


def read_bottom(mixture: Mixture) -> Tensor:
    """Bottom: the component of the smallest weight, 1+2d numbers."""
    return _component(mixture, mixture.weights.argmin(-1))


def tokens(mixture: Mixture) -> Tensor:
    """(..., C, 1+2d): one row per prototype, for structured heads."""
    return torch.cat([mixture.weights.unsqueeze(-1), mixture.means, mixture.variances], -1)


def _component(mixture: Mixture, index: Tensor) -> Tensor:
    every = tokens(mixture)
    return every.gather(-2, index[..., None, None].expand(*index.shape, 1, every.shape[-1])).squeeze(-2)


READOUT: dict[str, Callable[[Mixture], Tensor]] = {
    "all": read_all,
    "wa": read_weighted_average,
    "top": read_top,
    "bottom": read_bottom,
}


@aggregators.register(
    "panther",
    title="PANTHER",
    permutation_invariant=True,
    # the tail has a minimum number of patches
    duplication_invariant=lambda module: module.settings.tau == 0 and not module.needs_scores,
    differentiable=True,
    trainable=True,
    tokens=lambda options: options.get("readout", "all") == "all" and not options.get("blocks"),
    reads_places=read_places,
    options=("preset", "readout", "blocks", "steps", "tau", "variance", "temperature", "covariance", "weights"),
    variants=(
        {},
        {"preset": "published-code"},
        {"preset": "calibrated", "steps": 3},
        {"readout": "wa"},
        {"readout": "top"},
        {"readout": "bottom", "temperature": 4.0},
        {"covariance": "tied", "steps": 2},
        {"covariance": "spherical", "weights": "uniform"},
        {"blocks": ["space"]},
        {"blocks": ["tail"], "preset": "calibrated", "steps": 2},
        {"blocks": ["tail", "space"], "readout": "wa"},
    ),
)
class PantherAggregator(Aggregator):
    """One EM step (by default) from the prototypes, then a readout of the mixture.

    Parameters
    ----------
    prototypes : Prototypes
        Centroids, and for `variance="pooled"` their within-cluster variance.
    preset : str
        `paper`, `published-code` or `calibrated`; single settings override it.
    readout : str
        `all`, `wa`, `top` or `bottom`.
    blocks : list of str
        What follows the mixture's numbers (:mod:`panther.aggregators.blocks`), e.g. `["space", "tail"]`; nothing by default.
    trainable : bool
        Whether the centroids are parameters for end-to-end training; gradients reach the inputs either way.
    """

    def __init__(
        self,
        prototypes: Prototypes,
        preset: str = "paper",
        readout: str = "all",
        blocks: Sequence[str] | str = (),
        trainable: bool = False,
        **overrides: Any,
    ) -> None:
        super().__init__()
        if preset not in PRESETS:
            raise InputError(f"There is no preset {preset!r}; {suggestion(preset, PRESETS)}.")
        if readout not in READOUT:
            raise InputError(f"There is no readout {readout!r}; {suggestion(readout, READOUT)}.")
        self.settings: EMSettings = replace(PRESETS[preset], **overrides)
        self.readout = readout
        self.centroids = nn.Parameter(prototypes.centroids.clone(), requires_grad=trainable)
        start = starting_variance(self.settings.variance, prototypes.dim, prototypes.within_variance)
        self.register_buffer("variance", start)
        count, dim = prototypes.centroids.shape
        self.blocks = nn.ModuleList(build_blocks(blocks, prototypes, self.settings))
        self.needs_places = any(block.needs_places for block in self._blocks)
        self.needs_scores = any(block.needs_scores for block in self._blocks)
        mixture_width = {"all": count * (1 + 2 * dim), "wa": 2 * dim}.get(readout, 1 + 2 * dim)
        self._parts = [mixture_width, *(width for block in self._blocks for width in block.parts())]
        self.out_dim = sum(self._parts)

    def forward(
        self,
        x: Rows,
        mask: Tensor | None = None,
        *,
        with_assignment: bool = False,
        places: Places | Sequence[Places] | None = None,
    ) -> SlideEmbedding:
        """Fit the mixture and read it out; the assignment is the posterior that made the parameters.

        Of a batch, ``places`` are those of each bag.
        """
        embedding = self.read(self.fit(x, mask, with_assignment=with_assignment), x, mask, places=places)
        return embedding if with_assignment else replace(embedding, assignment=None)

    def fit(
        self,
        x: Rows,
        mask: Tensor | None = None,
        *,
        with_assignment: bool = False,
        with_scores: bool = False,
        first_step: FirstStep | None = None,
        to_host: bool = False,
    ) -> MixtureFit:
        """Fit the mixture, which does not depend on the readout; ``first_step`` is not repeated."""
        return fit_mixture(
            x,
            self.centroids,
            self.get_buffer("variance"),
            self.settings,
            mask=mask,
            keep_assignment=with_assignment or len(self.blocks) > 0,
            keep_scores=with_scores or self.needs_scores,
            first_step=first_step,
            to_host=to_host,
        )

    def read(
        self,
        fit: MixtureFit,
        x: Rows,
        mask: Tensor | None = None,
        *,
        places: Places | Sequence[Places] | None = None,
    ) -> SlideEmbedding:
        """Read a fitted mixture out, and the blocks that follow it."""
        vector = READOUT[self.readout](fit.mixture)
        if self._blocks:
            rest = [torch.cat([block(*one) for block in self._blocks]) for one in _bags(fit, x, mask, places)]
            vector = torch.cat([vector, torch.stack(rest) if vector.dim() > 1 else rest[0]], -1)
        return SlideEmbedding(
            vector,
            tokens(fit.mixture) if self.readout == "all" and not self._blocks else None,
            fit.assignment,
            {
                "mass": fit.mass,
                "weights": fit.mixture.weights,
                "log_likelihood": fit.log_likelihood,
                "effective_prototypes": effective_number(fit.mixture.weights),
                **({"inferred_step": places.inferred} if self.needs_places and isinstance(places, Places) else {}),
            },
        )

    def parts(self) -> list[int]:
        """Sizes of the readout and of the parts of each block."""
        return self._parts

    @property
    def _blocks(self) -> list[EmbeddingBlock]:
        return list(self.blocks)  # type: ignore[arg-type]

    def columns(self) -> list[tuple[int, str, int]]:
        """Prototype (-1: not of one prototype), statistic and dimension of each number."""
        return [*self._mixture_columns(), *(column for block in self._blocks for column in block.columns())]

    def _mixture_columns(self) -> Sequence[tuple[int, str, int]]:
        count, dim = self.centroids.shape
        if self.readout == "wa":
            return mixture_columns((-1,), dim)[1:]  # without a weight
        return mixture_columns(tuple(range(count)) if self.readout == "all" else (-1,), dim)


def _bags(
    fit: MixtureFit, x: Rows, mask: Tensor | None, places: Places | Sequence[Places] | None
) -> Iterator[tuple[MixtureFit, Rows, Places | None]]:
    """Fit, rows and places of each bag of a batch, or of a single bag."""
    if fit.mass.dim() == 1:
        yield fit, x, places if isinstance(places, Places) else None
        return
    count = len(fit.mass)
    where = places if isinstance(places, (list, tuple)) else [None] * count
    if len(where) != count:
        raise InputError(f"places: found those of {len(where)} bags, expected {count}")
    for bag in range(count):
        mixture = Mixture(*(t[bag] for t in fit.mixture))
        if isinstance(x, Ragged):
            rows = x.bags()[bag]
            kept = [None if t is None else t.split(x.lengths)[bag] for t in (fit.assignment, fit.scores)]
        else:
            real = slice(None) if mask is None else mask[bag]
            rows = x[bag][real]  # type: ignore[index]
            kept = [None if t is None else t[bag][real] for t in (fit.assignment, fit.scores)]
        yield MixtureFit(mixture, fit.mass[bag], fit.log_likelihood[bag], *kept), rows, where[bag]
