"""Embed a whole cohort: every bag by itself, the result in the order of the bags."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from panther.aggregators.grid import Embedder, embed_grid
from panther.engine import HERE, Work, open_work
from panther.errors import InputError, value_of, warn_left_out
from panther.feature_space import Basis, FeatureSpace, space_of
from panther.storage.bags import BagsLike, Listing, as_bags
from panther.storage.embeddings import EmbeddingTable
from panther.storage.prototypes import as_prototypes


def embed_cohort(
    features: BagsLike,
    prototypes: Basis | Path | str | None = None,
    method: str = "panther",
    options: Mapping[str, Any] | None = None,
    *,
    workers: int | str | None = None,
    work: Work = HERE,
    **settings: Any,
) -> EmbeddingTable:
    """Embed every bag; those that fail are left out and listed, with a warning.

    Parameters
    ----------
    features : path, list, mapping or Listing
        Folder of feature files, or bags in memory.
    prototypes : Prototypes or path, optional
        Fitted prototypes, or their file; methods without prototypes need none.
    method : str, default="panther"
        `panther`, `ot`, `h2t`, `protocounts` or `deepsets`; without prototypes `mean`, `mean-std`, `max` or `top-k`.
    options : mapping, optional
        Settings of the method, e.g. ``{"preset": "calibrated"}``.
    workers : int or str, optional
        Worker processes, 0: one per core; or a Dask cluster, ``"tcp://HOST:PORT"`` or ``"slurm:OPTIONS.yaml"``. By default all is done in
        this process.
    work : Work
        The same with all that can be said about how work is run.
    **settings
        The same as ``options``, e.g. ``preset="calibrated"``.

    Returns
    -------
    EmbeddingTable
        One row per bag, with `to_anndata()` and `to_frame()`; its `failures` say what was left out and why.

    Examples
    --------
    >>> import numpy as np, torch, panther
    >>> rng = np.random.default_rng(0)
    >>> bags = {name: rng.normal(size=(50, 3)) for name in "abc"}
    >>> table = panther.embed_cohort(bags, panther.Prototypes(torch.eye(3)), steps=2)
    >>> table.to_frame().shape
    (3, 21)
    """
    options = {**(options or {}), **settings}
    if workers is None:
        table = embed_bags(features, prototypes, method, options, work=work)
    else:
        with open_work(workers, device=work.device, track=work.track) as pool:
            table = embed_bags(features, prototypes, method, options, work=pool)
    warn_left_out("Left out of the embeddings", table.failures)
    return table


def embed_bags(
    features: BagsLike,
    prototypes: Basis | Path | str | None,
    method: str,
    options: Mapping[str, Any],
    *,
    work: Work = HERE,
) -> EmbeddingTable:
    """The same for callers who tell of the failures themselves."""
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
