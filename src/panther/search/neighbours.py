"""Ways to compare embeddings, the search among them, and whose slides they are: those of one patient, or of one site, are no neighbours."""

import re
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Union

import numpy as np
import torch

from panther.errors import InputError, suggestion
from panther.search.distances import Euclidean, Hellinger, MixtureDistance, as_mixture, as_proportions, variance_floor
from panther.statistics import Apart, Cosine, Measure, Nearest, nearest_rows
from panther.storage.clinical import (
    PATIENT_COLUMNS,
    SITE_COLUMNS,
    TCGA,
    USUAL,
    Columns,
    ColumnsLike,
    as_columns,
    read_clinical,
)
from panther.storage.embeddings import READERS, Embeddings, EmbeddingTable, is_in_memory, of_memory, open_embeddings
from panther.storage.names import without_suffix
from panther.storage.slide_vectors import read_slide_vectors
from panther.storage.tables import MISSING
from panther.types import Rows

if TYPE_CHECKING:
    import anndata
    import pandas as pd


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
    if not key and Path(path).suffix in READERS:
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


@dataclass(frozen=True)
class Whose:
    """Patient and site of every slide."""

    patients: tuple[str, ...]
    sites: tuple[str | None, ...]
    notes: tuple[str, ...] = ()


def whose_slides(
    cohort: Embeddings, table: "Path | str | pd.DataFrame | None" = None, columns: ColumnsLike = USUAL
) -> Whose:
    """Patients and sites as the table says, else the embeddings' own columns, else TCGA's barcodes."""
    columns = as_columns(columns)
    return _as_own_columns_say(cohort, columns) if table is None else _as_table_says(cohort, table, columns)


def _as_table_says(cohort: Embeddings, table: "Path | str | pd.DataFrame", columns: Columns) -> Whose:
    who = read_clinical(table, columns=columns).who
    names = [without_suffix(name) for name in cohort.samples]
    patients = dict(zip(who.slide, who.patient, strict=True)) | {name: name for name in who.patient}
    sites = dict(zip(who.slide, who.site, strict=True)) | dict(zip(who.patient, who.site, strict=True))
    missing = [name for name in names if name not in patients]
    if len(missing) == len(names):
        said = f"The table names none of the slides of {cohort.source}: it says e.g. {who.slide[0]!r}, the embeddings {names[0]!r}."
        raise InputError(who.with_hint(said))
    notes = list(who.notes)
    if missing:
        notes.append(f"{len(missing)} slides are not in the table, e.g. {missing[0]}; each counts as its own patient.")
    return Whose(tuple(patients.get(n, n) for n in names), tuple(sites.get(n) for n in names), tuple(notes))


def _as_own_columns_say(cohort: Embeddings, columns: Columns) -> Whose:
    patients = _column(cohort, columns.patient, PATIENT_COLUMNS, ("", "nan"))  # one may be called NA
    sites = _column(cohort, columns.site, SITE_COLUMNS, MISSING)
    codes = [name if re.match(TCGA, name) else None for name in cohort.samples]  # TCGA-<site>-<patient>
    own = [p or (code and code[:12]) for p, code in zip(patients, codes, strict=True)]
    unknown = own.count(None)
    note = f"{cohort.source}: does not say whose slides {unknown} of {len(own)} are, so each counts as its own patient; give `table=`."
    return Whose(
        tuple(patient or name for patient, name in zip(own, cohort.samples, strict=True)),
        tuple(site or (code and code[5:7]) for site, code in zip(sites, codes, strict=True)),
        (note,) if unknown else (),
    )


def _column(cohort: Embeddings, name: str | None, usual: Sequence[str], missing: Container[str]) -> list[str | None]:
    """Column of every slide, None where it says what means ``missing``, or is not there."""
    if name is not None and name not in cohort.columns:
        raise InputError(f"{cohort.source}: there is no column {name!r}; give `table=` with it.")
    found = name or next((alias for alias in usual if alias in cohort.columns), None)
    values = [""] * len(cohort.samples) if found is None else cohort.columns[found]
    return [None if value.strip().lower() in missing else value for value in values]


def groups(own: Sequence[str | None], others: Sequence[str | None]) -> Apart:
    """Slides of one group are no neighbours; those without a group (None) are anybody's."""
    codes = {name: code for code, name in enumerate(dict.fromkeys((*own, *others))) if name is not None}
    return Apart(*(np.array([-1 if name is None else codes[name] for name in side]) for side in (own, others)))
