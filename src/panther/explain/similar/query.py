"""The slide asked about: one of the cohort, or a new one that is embedded like the others."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from panther.aggregators.embed import embed
from panther.alike.distances import as_proportions
from panther.alike.search import Searchable
from panther.errors import InputError, suggestion
from panther.storage.bags import as_bag
from panther.storage.embedding_files.opened import Embeddings
from panther.storage.prototypes import as_prototypes
from panther.types import Prototypes

OWN = ("prototypes", "kernel", "method")  # of an embedding's settings: not the method's


@dataclass(frozen=True, eq=False)
class Query:
    """The slide asked about."""

    name: str
    row: np.ndarray  # (1, D), as it is searched
    position: int = -1  # in the embeddings; -1: it is not there
    pi: np.ndarray | None = None  # (C,)
    vector: np.ndarray | None = None  # (1, C(1+2d)), where embeddings are mixtures


def ask(cohort: Embeddings, way: Searchable, query: Any, prototypes: Prototypes | Path | str | None) -> Query:
    """The slide asked about: a row of the cohort by its name, or a new one that is embedded like the others."""
    if isinstance(query, (str, Path)) and str(query) in cohort.samples:
        row = cohort.position(str(query))
        pi = None if cohort.weights is None else as_proportions(cohort.weights[row])
        vector = cohort.rows[row : row + 1].double().numpy() if cohort.mixtures else None
        return Query(str(query), way.row(row), row, pi, vector)
    if isinstance(query, (str, Path)) and not Path(query).exists():
        raise InputError(
            f"{query}: neither a slide of {cohort.source} nor a feature file; among its {len(cohort.samples)} slides "
            f"{suggestion(str(query), cohort.samples, limit=5)}."
        )
    bag = as_bag(query)
    if prototypes is None or not cohort.settings:
        missing = "`prototypes=`, those that the embeddings were made with" if cohort.settings else "a slide of its own"
        raise InputError(f"{bag.source}: a new slide is compared as the others were embedded; give {missing}.")
    fitted = as_prototypes(prototypes)
    if cohort.made_with is not None and fitted.content_hash() != cohort.made_with:
        raise InputError(
            f"{cohort.source}: was embedded with other prototypes than those given, so a new slide's numbers would not be comparable; "
            "give the file that was used."
        )
    method, options = method_of(cohort)
    embedded = embed(bag, fitted, method, **options)
    vector = embedded.vector.double().numpy()[None]
    weights = embedded.aux.get("weights")
    pi = None if weights is None else as_proportions(weights.double().numpy())
    searched = pi[None] if way.on == "pi" and pi is not None else vector
    known = cohort.position(bag.slide_id) if bag.slide_id in cohort.samples else -1  # it is no answer to itself
    return Query(bag.slide_id, searched, known, pi, vector if cohort.mixtures else None)


def method_of(cohort: Embeddings) -> tuple[str, dict[str, Any]]:
    """Method that made the embeddings, and its settings."""
    options = {name: value for name, value in cohort.settings.items() if name not in OWN}
    return str(cohort.settings.get("method", "panther")), options
