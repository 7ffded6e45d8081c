"""Embed a whole cohort: every bag by itself, resumable, the result in the order of the bags."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from panther.aggregators._base import build
from panther.content import HashedRows, hash_of
from panther.errors import InputError, not_finite
from panther.execution import HERE, Work, open_work, stream
from panther.statistics import first_bad_row
from panther.storage.bags import BagsLike, Listing, as_bags
from panther.storage.embeddings import EmbeddingTable
from panther.storage.fingerprints import Fingerprint, stamp_of, unchanged_since
from panther.storage.prototypes import as_prototypes
from panther.storage.row_log import Block, RowLog
from panther.types import Aggregator, Openable, Prototypes, SlideEmbedding
from panther.version import __version__


def embed_cohort(
    features: BagsLike,
    prototypes: Prototypes | Path | str,
    method: str = "panther",
    options: Mapping[str, Any] | None = None,
    *,
    partial_folder: Path | None = None,
    workers: int | None = None,
    work: Work = HERE,
    **settings: Any,
) -> EmbeddingTable:
    """Embed every bag; those that fail are left out and listed.

    Parameters
    ----------
    features : path, list, mapping or Listing
        Folder of feature files, or bags in memory.
    prototypes : Prototypes or path
        Fitted prototypes, or their file.
    method : str, default="panther"
        `panther`, `ot`, `h2t`, `protocounts` or `deepsets`.
    options : mapping, optional
        Settings of the method, e.g. ``{"preset": "calibrated"}``.
    partial_folder : Path, optional
        Folder for finished rows, until the caller removes it, so that a killed run goes on where it was; rows of other prototypes,
        settings or features are never reused.
    workers : int, optional
        Worker processes, 0: one per core. By default all is done in this process.
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
    prototypes = as_prototypes(prototypes)
    options = {**(options or {}), **settings}
    module = build(method, prototypes, options)
    listing = as_bags(features)
    if workers is None:
        return _embed_all(listing, prototypes, module, {"method": method, **options}, partial_folder, work)
    with open_work(workers, device=work.device, track=work.track) as pool:
        return _embed_all(listing, prototypes, module, {"method": method, **options}, partial_folder, pool)


def _embed_all(
    listing: Listing,
    prototypes: Prototypes,
    module: Aggregator,
    made_by: dict[str, Any],
    partial_folder: Path | None,
    work: Work,
) -> EmbeddingTable:
    settings = {**made_by, "prototypes": prototypes.content_hash()}
    bags = listing.refs
    names = [bag.sample for bag in bags]
    log = RowLog(partial_folder, hash_of([__version__, settings, names]), module.out_dim)
    failures: dict[str, str] = {}
    skipped: set[str] = set()
    function = partial(_embed_one, prototypes=prototypes, module=module, device=work.device)
    jobs = [(bag, _fingerprint(log.done.get(index))) for index, bag in enumerate(bags)]
    try:
        for index, row in stream(function, jobs, "embedding", work, failures, skipped):
            if row is not None:
                vector, about = row
                log.add(index, vector[None], about)
        kept = [i for i, name in enumerate(names) if i in log.done and name not in failures and name not in skipped]
        vectors, rows = log.rows(kept, len(names)), [dict(log.done[i].about) for i in kept]
    finally:
        log.close()
    if not rows:
        raise InputError(f"None of the {len(bags)} samples could be embedded. {next(iter(failures.values()), '')}")
    weights = np.array([row.pop("weights") for row in rows]) if "weights" in rows[0] else None
    contents = {names[i]: row.pop("fingerprint") for i, row in zip(kept, rows, strict=True)}
    observations = {column: [row[column] for row in rows] for column in rows[0] if column != "stamp"}
    return EmbeddingTable(
        [names[i] for i in kept],
        vectors,
        observations,
        weights,
        module.columns(),
        prototypes,
        settings,
        {**listing.problems, **failures},
        contents=contents,
    )


def _fingerprint(done: Block | None) -> Fingerprint | None:
    """Which features an earlier run has finished, and how their files were then."""
    return None if done is None else Fingerprint.from_plain(done.about.get("fingerprint"), done.about.get("stamp"))


def embed_sample(
    sample: Openable, prototypes: Prototypes, module: Aggregator, *, with_assignment: bool = False
) -> SlideEmbedding:
    """Embedding of one bag, checked: NaN raises, naming the row."""
    bag = prototypes.prepared(sample.open())
    if len(bag) == 0:
        raise InputError(f"{bag.source}: zero patches; there is nothing to embed.")
    with torch.no_grad():
        embedding = module(bag.features, with_assignment=with_assignment)
    if not bool(torch.isfinite(embedding.vector).all()):
        bad = first_bad_row(bag.features)
        if bad is None:
            raise InputError(f"{bag.source}: features are too large to square in float32; rescale them.")
        raise not_finite(bag.source, bad)
    return embedding


def _embed_one(
    job: tuple[Openable, Fingerprint | None], *, prototypes: Prototypes, module: Aggregator, device: str
) -> tuple[np.ndarray, dict[str, Any]] | None:
    """Vector of one bag, and what is kept beside it; None where an earlier run has finished these very features."""
    ref, done = job
    if done is not None and done.holds_for(ref.files):
        return None
    stamp = stamp_of(ref.files)
    bag = ref.open()
    if done is not None and bag.fingerprint() == done.content:  # touched, but the same
        return None
    features = HashedRows(bag.features)  # hashed as the mixture reads them
    embedding = embed_sample(replace(bag, features=features), prototypes, module.to(device))
    about = {"fingerprint": features.digest(), "stamp": unchanged_since(stamp, ref.files), "n_patches": len(bag)}
    return embedding.vector.cpu().numpy(), {**about, **_summary(embedding)}


def _summary(embedding: SlideEmbedding) -> dict[str, Any]:
    """Plain numbers worth a column of the table."""
    about: dict[str, Any] = {}
    for name, value in embedding.aux.items():
        if name == "mass":
            about["absent_prototypes"] = int((value < 1).sum())
        elif name == "weights":
            about["weights"] = value.tolist()
        else:
            last = value.reshape(-1)[-1] if isinstance(value, torch.Tensor) else value  # of the last EM step
            about[name] = float(last)
    return about
