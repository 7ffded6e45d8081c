"""Several methods on several prototypes in one walk over the bags: each bag is opened and read once, whatever the grid.

Bags are spread over workers, and the rows of all methods are kept side by side in a temporary file.
"""

import warnings
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import torch

from panther.aggregators._base import build
from panther.aggregators.sharing import HELD_BYTES, SharedBag, SharedMethods, can_hold, in_memory
from panther.engine import Launched, Work, reason_of, stream
from panther.errors import InputError
from panther.feature_space import Basis
from panther.limits import make_plain
from panther.statistics.kernels import kernel_name
from panther.storage.bags import Listing
from panther.storage.embeddings import EmbeddingTable
from panther.storage.row_matrix import RowMatrix
from panther.store import HashedRows, hash_of
from panther.types import Aggregator, Bag, Openable, SlideEmbedding

_Row = tuple[np.ndarray, dict[str, Any]]  # vectors of all embedders one after the other, and what is kept beside them
FAILED = "failed"  # beside a row: why one of the embedders has no numbers in it


@dataclass(frozen=True)
class Embedder:
    """A method with its settings on given prototypes, or on the features alone."""

    prototypes: Basis
    method: str = "panther"
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        make_plain(self)
        _ = self.module  # a setting that makes no sense is refused at once

    @cached_property
    def module(self) -> Aggregator:
        """The method as a module."""
        return build(self.method, self.prototypes, self.options)

    @property
    def settings(self) -> dict[str, Any]:
        """What an embedding depends on beside the features."""
        return {"method": self.method, **self.options, "prototypes": self.prototypes.content_hash()}

    def __getstate__(self) -> dict[str, Any]:
        """Leave the module behind: where it is sent to, it is built from the prototypes, which many embedders share."""
        return {item.name: self.__dict__[item.name] for item in fields(self)}


def embed_grid(
    listing: Listing, embedders: Sequence[Embedder], work: Work, folder: Path | None = None
) -> Generator[EmbeddingTable | InputError]:
    """Yield the table of each embedder, in their order, after one walk over the bags; an error where it could embed none of them.

    Rows lie in a temporary file in ``folder``; the vectors of a table may be a memory map of it.
    """
    names = [bag.sample for bag in listing.refs]
    widths = [embedder.module.out_dim for embedder in embedders]
    matrix = RowMatrix(folder, sum(widths))
    try:
        done: dict[str, dict[str, Any]] = {}  # what is kept beside the row of each bag
        lost: dict[str, str] = {}  # bags that no embedder could embed
        for index, (vector, about) in stream(_EmbedBag(embedders, work.device), listing.refs, "embedding", work, lost):
            matrix.add(index, vector[None])
            done[names[index]] = about
        for number, end in enumerate(accumulate(widths)):
            failures = {name: why for name in names if (why := lost.get(name) or _failure(done.get(name), number))}
            rows = {name: done[name] for name in names if name in done and name not in failures}
            if not rows:
                first = next(iter(failures.values()), "")
                yield InputError(f"None of the {len(names)} samples could be embedded. {first}")
                continue
            kept = [i for i, name in enumerate(names) if name in rows]
            vectors = matrix.rows(kept, len(names), slice(end - widths[number], end))
            yield _table(embedders[number], number, rows, vectors, {**listing.problems, **failures})
    finally:
        matrix.close()


@dataclass(frozen=True)
class _EmbedBag:
    """Embeds one bag after the other by all embedders."""

    embedders: Sequence[Embedder]
    device: str

    @cached_property
    def _methods(self) -> SharedMethods:
        return SharedMethods([(embedder.prototypes, embedder.module) for embedder in self.embedders], self.device)

    def __getstate__(self) -> dict[str, Any]:
        """Leave behind what is made anew where it is sent to."""
        return {item.name: self.__dict__[item.name] for item in fields(self)}

    def __call__(self, ref: Openable) -> _Row | Launched[_Row]:
        """Vectors of one bag side by side, and what is kept beside them."""
        bag = ref.open()
        features = HashedRows(bag.features)  # hashed as they are read
        place, size = torch.device(self.device).type, len(bag) * bag.dim * bag.features.dtype.itemsize
        several = len(self.embedders) > 1 or place == "cuda"
        held = several and can_hold(size, place)
        bag = replace(bag, features=in_memory(features, self.device) if held else features)
        shared = SharedBag(bag, self._methods)

        row = partial(self._row, shared, ref, bag, features)
        # while a bag is worked on the next ones are read, so that there is more than one
        coming = shared.launch() if held and 2 * size <= HELD_BYTES[place] else None
        return row() if coming is None else Launched(row, coming.is_here)

    def _row(self, shared: SharedBag, ref: Openable, bag: Bag, features: HashedRows) -> _Row:
        """Vectors of all embedders, and what is worth a column; or why there is none."""
        vectors, each, errors = [], [], []
        for basis, module in self._methods.all:
            try:
                embedding = shared.embed(basis, module)
                vectors.append(embedding.vector.cpu().numpy())
                each.append(_summary(embedding))
            except Exception as error:  # the other embedders go on
                vectors.append(np.full(module.out_dim, np.nan, np.float32))
                each.append({FAILED: reason_of(error, ref)})
                errors.append(error)
        if len(errors) == len(self.embedders):
            raise errors[0]
        about = {"content": self._content(bag, features.digest()), "n_patches": len(bag)}
        return np.concatenate(vectors), {**about, "kernel": kernel_name(self.device), "each": each}

    def _content(self, bag: Bag, features: str) -> str:
        """Hash of what a row depends on: the features and, where a method reads them, the places of the patches."""
        needed = any(embedder.module.needs_places for embedder in self.embedders)
        return hash_of([features, bag.places_fingerprint()]) if needed else features


def _failure(about: Mapping[str, Any] | None, number: int) -> str | None:
    """Why this embedder could not embed a bag that others could."""
    return None if about is None else about["each"][number].get(FAILED)


def _table(
    embedder: Embedder,
    number: int,
    rows: Mapping[str, Mapping[str, Any]],
    vectors: np.ndarray,
    failures: Mapping[str, str],
) -> EmbeddingTable:
    """Vectors of one embedder with what was kept beside them."""
    each = [{"n_patches": about["n_patches"], **about["each"][number]} for about in rows.values()]
    weights = np.array([row.pop("weights") for row in each]) if "weights" in each[0] else None
    return EmbeddingTable(
        list(rows),
        vectors,
        {column: [row[column] for row in each] for column in each[0]},
        weights,
        embedder.module.columns(),
        embedder.prototypes,
        {**embedder.settings, "kernel": _kernels(rows.values())},
        failures,
        contents={name: about["content"] for name, about in rows.items()},
    )


def _kernels(rows: Iterable[Mapping[str, Any]]) -> str:
    """Which kernel computed the rows; said where machines have used different ones."""
    names = sorted({about.get("kernel", "unknown") for about in rows})
    if len(names) > 1:
        warnings.warn(
            f"Embeddings were computed by different kernels ({', '.join(names)}): they agree within 1e-5 and not in every byte; "
            "set PANTHER_KERNEL=torch on all machines for the same bytes.",
            stacklevel=2,
        )
    return ", ".join(names)


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
