"""Embed a whole cohort: every sample by itself, resumable, the result in the samples' order."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from panther.aggregators._base import build
from panther.content import HashedRows, hash_of
from panther.errors import InputError, not_finite
from panther.execution import HERE, Work, stream
from panther.statistics import first_bad_row
from panther.storage.embeddings import EmbeddingTable
from panther.storage.fingerprints import Fingerprint, stamp_of, unchanged_since
from panther.storage.row_log import RowLog
from panther.types import Aggregator, Openable, Prototypes, SlideEmbedding
from panther.version import __version__


class _Row(NamedTuple):
    """What comes back from a worker."""

    vector: np.ndarray
    about: dict[str, Any]


def embed_cohort(
    samples: Sequence[Openable],
    prototypes: Prototypes,
    method: str = "panther",
    options: Mapping[str, Any] | None = None,
    *,
    partial_folder: Path | None = None,
    work: Work = HERE,
) -> EmbeddingTable:
    """Embed every sample; those that fail are left out and listed.

    With ``partial_folder`` each finished row is kept there until the caller removes the folder, so that a killed run goes
    on where it was; rows of other prototypes, settings or features are never reused.
    """
    module = build(method, prototypes, options)
    settings = {"method": method, **(options or {}), "prototypes": prototypes.content_hash()}
    names = [sample.sample for sample in samples]
    log = RowLog(partial_folder, hash_of([__version__, settings, names]), module.out_dim)
    failures: dict[str, str] = {}
    skipped: set[str] = set()
    function = partial(_embed_one, prototypes=prototypes, method=method, options=options, device=work.device)
    done = {
        names[index]: Fingerprint.from_plain(block.about.get("fingerprint"), block.about.get("stamp"))
        for index, block in log.done.items()
    }
    jobs = [(sample, done.get(sample.sample)) for sample in samples]
    try:
        for index, row in stream(function, jobs, "embedding", work, failures, skipped):
            if row is not None:
                log.add(index, row.vector[None], row.about)
        whole = [i for i, name in enumerate(names) if i in log.done and name not in failures and name not in skipped]
        vectors, about = log.rows(whole, len(names)), {names[i]: dict(log.done[i].about) for i in whole}
    finally:
        log.close()
    if not about:
        raise InputError(f"None of the {len(samples)} samples could be embedded. {next(iter(failures.values()), '')}")
    kept = [name for name in names if name in about]
    weights = np.array([about[name].pop("weights") for name in kept]) if "weights" in about[kept[0]] else None
    contents = {name: about[name].pop("fingerprint") for name in kept}
    observations = {column: [about[name][column] for name in kept] for column in about[kept[0]] if column != "stamp"}
    return EmbeddingTable(
        kept, vectors, observations, weights, module.columns(), prototypes, settings, failures, contents=contents
    )


def embed_sample(
    sample: Openable, prototypes: Prototypes, module: Aggregator, *, with_assignment: bool = False
) -> SlideEmbedding:
    """Embedding of one sample, checked: a bag with NaN raises, naming the row."""
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
    job: tuple[Openable, Fingerprint | None],
    *,
    prototypes: Prototypes,
    method: str,
    options: Mapping[str, Any] | None,
    device: str,
) -> _Row | None:
    """Row of one sample; None where an earlier run has finished these very features."""
    sample, done = job
    if done is not None and done.holds_for(sample.files):
        return None
    stamp = stamp_of(sample.files)
    bag = sample.open()
    if done is not None and bag.fingerprint() == done.content:  # touched, but the same
        return None
    features = HashedRows(bag.features)  # hashed as the mixture reads them
    embedding = embed_sample(replace(bag, features=features), prototypes, build(method, prototypes, options).to(device))
    kept = {"fingerprint": features.digest(), "stamp": unchanged_since(stamp, sample.files), "n_patches": len(bag)}
    return _Row(embedding.vector.cpu().numpy(), {**kept, **_summary(embedding)})


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
