"""One bag to its embedding."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from panther.aggregators._base import build
from panther.aggregators.blocks.space import NO_PLACES
from panther.errors import InputError, not_finite, too_large
from panther.feature_space import Basis, space_of
from panther.statistics import first_bad_row
from panther.storage.bags import BagLike, as_bag
from panther.storage.prototypes import as_prototypes
from panther.types import Bag, Openable, Prototypes, SlideEmbedding


def embed(
    bag: BagLike,
    prototypes: Prototypes | Path | str | None = None,
    method: str = "panther",
    *,
    with_assignment: bool = False,
    **options: Any,
) -> SlideEmbedding:
    """Embed one bag on fitted prototypes.

    Parameters
    ----------
    bag : array, tensor, DataFrame, Bag or path
        Patches (N, d) of one slide, or the file that holds them.
    prototypes : Prototypes or path, optional
        Fitted prototypes, or their file; methods without prototypes need none.
    method : str, default="panther"
        `panther`, `ot`, `h2t`, `protocounts` or `deepsets`; without prototypes `mean`, `mean-std`, `max` or `top-k`.
    with_assignment : bool, default=False
        Whether to keep which patch belongs to which prototype, `assignment` (N, C).
    **options
        Settings of the method, e.g. ``preset="calibrated"``.

    Returns
    -------
    SlideEmbedding
        The vector, its view per prototype (`tokens`), the assignment where asked for, and what else is worth knowing (`aux`).

    Examples
    --------
    >>> import torch, panther
    >>> one = panther.embed(torch.randn(50, 3), panther.Prototypes(torch.eye(3)), steps=2)
    >>> one.vector.shape, one.tokens.shape
    (torch.Size([21]), torch.Size([3, 7]))
    """
    opened = as_bag(bag)
    basis = space_of(opened) if prototypes is None else as_prototypes(prototypes)
    return embed_sample(opened, basis, build(method, basis, options), with_assignment=with_assignment)


def embed_sample(
    sample: Openable, prototypes: Basis, module: Callable[..., SlideEmbedding], *, with_assignment: bool = False
) -> SlideEmbedding:
    """Embedding of one bag, checked: NaN raises, naming the row."""
    return embed_prepared(prototypes.prepared(sample.open()), module, with_assignment=with_assignment)


def embed_prepared(bag: Bag, module: Callable[..., SlideEmbedding], *, with_assignment: bool = False) -> SlideEmbedding:
    """The same of a bag that the prototypes have prepared."""
    if len(bag) == 0:
        raise InputError(f"{bag.source}: zero patches; there is nothing to embed.")
    embedding = run_on(bag, module, with_assignment=with_assignment)
    if not _is_finite(embedding.vector):
        bad = first_bad_row(bag.features)
        raise too_large(bag.source) if bad is None else not_finite(bag.source, bad)
    return embedding


def run_on(bag: Bag, module: Callable[..., SlideEmbedding], *, with_assignment: bool = False) -> SlideEmbedding:
    """Call a module on a prepared bag, with the places of its patches where it reads them."""
    more = {}
    if getattr(module, "needs_places", False):
        more["places"] = bag.layout()
        if more["places"] is None:
            raise InputError(f"{bag.source}: {NO_PLACES}")
    with torch.no_grad():
        return module(bag.features, with_assignment=with_assignment, **more)


def _is_finite(x: Tensor) -> bool:
    """Whether every number is; a finite sum says so at once, one that is not may have been too large."""
    return math.isfinite(float(x.sum())) or bool(torch.isfinite(x).all())
