"""Ways to compare embeddings, the search, and the patients and sites of slides (slides of one patient or site are excluded as neighbours)."""

import re
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Union

import numpy as np
import torch

from panther.errors import InputError
from panther.search.distances import Hellinger, MixtureDistance, as_mixture, as_proportions, variance_floor
from panther.statistics import Apart, Cosine, Measure, Nearest, nearest_rows
from panther.storage.clinical import PATIENT_COLUMNS, SITE_COLUMNS, TCGA, Columns, read_clinical
from panther.storage.embeddings import READ, Embeddings, EmbeddingTable, is_in_memory, of_memory, open_embeddings
from panther.storage.names import without_suffix
from panther.storage.slide_vectors import read_slide_vectors
from panther.storage.tables import MISSING
from panther.types import Rows

if TYPE_CHECKING:
    import anndata
    import pandas as pd


AT_ONCE = 256  # queries searched in one pass
EmbeddingsLike = Union[Path, str, EmbeddingTable, Embeddings, "anndata.AnnData"]


@dataclass(frozen=True, eq=False)
class Searchable:
    """Rows of a cohort with a way to compare them."""

    on: str  # pi, mixture or cosine
    rows: Rows
    measure: Callable[[np.ndarray], Measure]  # of queries (q, D), float64

    def nearest(self, queries: np.ndarray, k: int, apart: Sequence[Apart] = ()) -> list[Nearest]:
        """The ``k`` nearest rows of each query (q, D), with distances in the field `nearness`."""
        neighbours: list[Nearest] = []
        for start in range(0, len(queries), AT_ONCE):
            part = slice(start, start + AT_ONCE)
            groups = [group._replace(queries=group.queries[part]) for group in apart]
            neighbours += nearest_rows(self.rows, self.measure(queries[part]), k, groups)
        if self.on == "cosine":
            return [Nearest(rows, 1 - nearness) for rows, nearness in neighbours]
        return [Nearest(rows, np.sqrt(np.maximum(-nearness, 0.0))) for rows, nearness in neighbours]


def as_embeddings(value: EmbeddingsLike) -> Embeddings:
    """Embeddings in memory (a table, AnnData), a file of `panther embed`, or vectors of a slide encoder, e.g. `titan.h5ad#obsm/X_titan`."""
    if is_in_memory(value):
        return of_memory(value)
    path, _, key = str(value).partition("#")
    if not key and Path(path).suffix in READ:
        return open_embeddings(Path(path))
    vectors = read_slide_vectors(Path(path), key or None)
    rows, problems = torch.from_numpy(vectors.vectors), tuple(vectors.problems.values())
    return Embeddings(str(value), tuple(vectors.names), rows, problems=problems)


def searchable(embeddings: Embeddings, on: str | None = None) -> Searchable:
    """Embeddings with a way ``on`` to compare them: by default proportions if there are any, else the angle between vectors."""
    on = on or ("pi" if embeddings.weights is not None else "cosine")
    if on == "pi":
        if embeddings.weights is None:
            raise InputError(f"{embeddings.source}: no proportions (pi), expected those of panther, protocounts or h2t")
        return Searchable(on, torch.from_numpy(embeddings.weights), lambda q: Hellinger(as_proportions(q)))
    if on == "mixture":
        count = embeddings.mixtures
        if not count:
            raise InputError(
                f"{embeddings.source}: rows are not whole mixtures, expected those of panther, readout all"
            )
        floor = variance_floor(embeddings.rows, count)
        return Searchable(on, embeddings.rows, lambda q: MixtureDistance(as_mixture(q, count, floor), floor))

    def angle(queries: np.ndarray) -> Cosine:
        """Vectors (q, D) scaled to length 1; a zero vector stays 0."""
        with np.errstate(invalid="ignore", divide="ignore"):
            scaled = queries / np.abs(queries).max(1, keepdims=True)
            return Cosine(np.nan_to_num(scaled / np.sqrt((scaled * scaled).sum(1, keepdims=True))))

    return Searchable(on, embeddings.rows, angle)


@dataclass(frozen=True)
class Ownership:
    """Patient and site of every slide."""

    patients: tuple[str, ...]
    sites: tuple[str | None, ...]
    notes: tuple[str, ...] = ()


def ownership(cohort: Embeddings, table: "Path | str | pd.DataFrame | None", columns: Columns) -> Ownership:
    """Patients and sites by the table, else by the embeddings' columns, else by TCGA's barcodes."""
    if table is None:
        patients = _column(cohort, columns.patient, PATIENT_COLUMNS, ("", "nan"))  # "NA" may be the name of a patient
        sites = _column(cohort, columns.site, SITE_COLUMNS, MISSING)
        for row, name in enumerate(cohort.samples):
            if re.match(TCGA, name):  # TCGA-<site>-<patient>
                patients[row], sites[row] = patients[row] or name[:12], sites[row] or name[5:7]
        unknown = patients.count(None)
        note = f"{cohort.source}: the patients of {unknown} of {len(patients)} slides are unknown, each counts as one; `table` adds them"
        known = [patient or name for patient, name in zip(patients, cohort.samples, strict=True)]
        return Ownership(tuple(known), tuple(sites), (note,) if unknown else ())
    who = read_clinical(table, columns=columns).who
    names = [without_suffix(name) for name in cohort.samples]
    patient_of = dict(zip(who.slide, who.patient, strict=True)) | {name: name for name in who.patient}
    site_of = dict(zip(who.slide, who.site, strict=True)) | dict(zip(who.patient, who.site, strict=True))
    missing = [name for name in names if name not in patient_of]
    if len(missing) == len(names):
        text = f"table: no slide of {cohort.source}; found e.g. {who.slide[0]!r}, expected e.g. {names[0]!r}"
        raise InputError(who.with_hint(text))
    notes = list(who.notes)
    if missing:
        notes.append(f"{len(missing)} slides are not in the table, e.g. {missing[0]}; each counts as a patient")
    return Ownership(tuple(patient_of.get(n, n) for n in names), tuple(site_of.get(n) for n in names), tuple(notes))


def _column(cohort: Embeddings, name: str | None, usual: Sequence[str], missing: Container[str]) -> list[str | None]:
    """Values of a column, None for ``missing`` values or without such a column."""
    if name is not None and name not in cohort.columns:
        raise InputError(f"{cohort.source}: no column {name!r}; `table` adds clinical ones")
    name = name or next((alias for alias in usual if alias in cohort.columns), None)
    values = [""] * len(cohort.samples) if name is None else cohort.columns[name]
    return [None if value.strip().lower() in missing else value for value in values]


def groups(queries: Sequence[str | None], rows: Sequence[str | None]) -> Apart:
    """Exclude slides of the same group as neighbours; slides without a group (None) are never excluded."""
    codes = {name: code for code, name in enumerate(dict.fromkeys((*queries, *rows))) if name is not None}
    return Apart(*(np.array([-1 if name is None else codes[name] for name in side]) for side in (queries, rows)))
