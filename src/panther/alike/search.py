"""Ways to compare embeddings, and the search among them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Union

import numpy as np
import torch

from panther.alike.distances import as_mixture, as_proportions, variance_floor
from panther.alike.measures import Euclidean, Hellinger, MixtureDistance
from panther.errors import InputError, suggestion
from panther.statistics import Apart, Cosine, Measure, Nearest, nearest_rows
from panther.storage.embedding_files.in_memory import is_in_memory, of_memory
from panther.storage.embedding_files.opened import OPENERS, Embeddings, open_embeddings
from panther.storage.embeddings import EmbeddingTable
from panther.storage.slide_vectors import read_slide_vectors
from panther.types import Rows

if TYPE_CHECKING:
    import anndata

AT_ONCE = 256  # queries that are searched in one pass
EmbeddingsLike = Union[Path, str, EmbeddingTable, Embeddings, "anndata.AnnData"]


@dataclass(frozen=True, eq=False)
class Searchable:
    """Rows of a cohort with a way to compare them."""

    on: str  # what is compared
    rows: Rows
    measure: Callable[[np.ndarray], Measure]  # queries (q, D), float64 -> how near rows are to them
    distance: Callable[[np.ndarray], np.ndarray]  # nearness -> distance as it is told

    def nearest(self, queries: np.ndarray, k: int, apart: Sequence[Apart] = ()) -> list[Nearest]:
        """The ``k`` nearest rows of each query (q, D), with their distances in place of nearness."""
        found: list[Nearest] = []
        for start in range(0, len(queries), AT_ONCE):
            part = slice(start, start + AT_ONCE)
            groups = [one._replace(queries=one.queries[part]) for one in apart]
            found += nearest_rows(self.rows, self.measure(queries[part]), k, groups)
        return [Nearest(one.rows, self.distance(one.nearness)) for one in found]

    def row(self, number: int) -> np.ndarray:
        """One row (1, D) as a query."""
        return self.rows[number : number + 1].double().numpy()


def as_embeddings(given: EmbeddingsLike) -> Embeddings:
    """Embeddings of a file or folder, or in memory: a table, or AnnData."""
    return of_memory(given) if is_in_memory(given) else _opened(str(given))


def _opened(place: str) -> Embeddings:
    """Embeddings of `panther embed`, or vectors of a slide encoder in any layout, e.g. `titan.h5ad#obsm/X_titan`."""
    path, _, key = place.partition("#")
    if not key and Path(path).suffix in OPENERS:
        return open_embeddings(Path(path))
    found = read_slide_vectors(Path(path), key or None)
    return Embeddings(
        place, tuple(found.names), torch.from_numpy(found.vectors), problems=tuple(found.problems.values())
    )


def searchable(embeddings: Embeddings, on: str | None = None) -> Searchable:
    """Embeddings to be compared on ``on``: by default proportions where there are any, else the angle between vectors."""
    on = on or ("pi" if embeddings.weights is not None else "cosine")
    if on not in WAYS:
        raise InputError(f"`on={on}`: slides are not compared so; {suggestion(on, WAYS)}.")
    return WAYS[on](embeddings)


def _on_pi(embeddings: Embeddings) -> Searchable:
    if embeddings.weights is None:
        raise InputError(
            f"{embeddings.source}: holds no proportions (pi) to compare; embed with panther, protocounts or h2t, or use `on=cosine`."
        )
    return Searchable("pi", torch.from_numpy(embeddings.weights), lambda q: Hellinger(as_proportions(q)), _root)


def _on_mixture(embeddings: Embeddings) -> Searchable:
    components = embeddings.mixtures
    if not components:
        raise InputError(
            f"{embeddings.source}: its rows are not whole mixtures; embed with the method panther and all that it reads out "
            "(readout all, no blocks), or use `on=cosine`."
        )
    floor = variance_floor(embeddings.rows, components)
    return Searchable(
        "mixture", embeddings.rows, lambda q: MixtureDistance(as_mixture(q, components, floor), floor), _root
    )


def _on_cosine(embeddings: Embeddings) -> Searchable:
    return Searchable("cosine", embeddings.rows, lambda q: Cosine(_directions(q)), lambda nearness: 1 - nearness)


def _on_euclidean(embeddings: Embeddings) -> Searchable:
    return Searchable("euclidean", embeddings.rows, Euclidean, _root)


WAYS: dict[str, Callable[[Embeddings], Searchable]] = {
    "pi": _on_pi,
    "mixture": _on_mixture,
    "cosine": _on_cosine,
    "euclidean": _on_euclidean,
}


def _root(nearness: np.ndarray) -> np.ndarray:
    """Distance of minus its square."""
    return np.sqrt(np.maximum(-nearness, 0.0))


def _directions(queries: np.ndarray) -> np.ndarray:
    """Vectors (q, D) of length 1; one that is 0 stays so and is as far from everything as it can be."""
    with np.errstate(invalid="ignore", divide="ignore"):
        scaled = queries / np.abs(queries).max(1, keepdims=True)
        return np.nan_to_num(scaled / np.sqrt((scaled * scaled).sum(1, keepdims=True)))


def refuse_unsound(queries: np.ndarray, names: Sequence[str], source: str) -> None:
    """Refuse vectors that hold NaN or infinite numbers: nothing is near them."""
    bad = np.flatnonzero(~np.isfinite(queries).all(1))
    if len(bad):
        raise InputError(
            f"{source}: the embedding of {names[bad[0]]} holds NaN or an infinite number, so nothing can be compared with it; embed it again."
        )
