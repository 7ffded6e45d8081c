"""Embed a whole cohort: every bag by itself, the result in the order of the bags."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from panther.aggregators.grid import Embedder, embed_grid
from panther.engine import HERE, Work
from panther.errors import InputError, value_of
from panther.feature_space import Basis, FeatureSpace, space_of
from panther.storage.bags import BagsLike, Listing, as_bags
from panther.storage.embeddings import EmbeddingTable
from panther.storage.prototypes import as_prototypes


def embed_bags(
    features: BagsLike,
    prototypes: Basis | Path | str | None,
    method: str,
    options: Mapping[str, Any],
    *,
    work: Work = HERE,
) -> EmbeddingTable:
    """Embed every bag; `failures` of the table lists the others."""
    listing = as_bags(features)
    embedder = Embedder(_basis(prototypes, listing), method, options)
    (table,) = embed_grid(listing, [embedder], work)
    return value_of(table)


def _basis(prototypes: Basis | Path | str | None, listing: Listing) -> Basis:
    """Prototypes, or what the features of the first bag that can be opened are: all others must be like it."""
    if isinstance(prototypes, FeatureSpace):
        return prototypes
    if prototypes is not None:
        return as_prototypes(prototypes)
    for ref in listing.refs:
        with suppress(InputError):
            return space_of(ref.open())
    raise InputError("There is no bag that can be read; nothing can be embedded.")
