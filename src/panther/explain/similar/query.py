"""The slide asked about, and whose slides are whose."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from panther.aggregators.embed import embed
from panther.alike.distances import as_proportions
from panther.alike.search import Searchable
from panther.errors import InputError, suggestion
from panther.statistics import Apart
from panther.storage.bags import as_bag
from panther.storage.clinical import PATIENT_COLUMNS, TCGA, Columns, read_clinical
from panther.storage.prototypes import as_prototypes
from panther.storage.vectors.opened import Embeddings
from panther.types import Prototypes

if TYPE_CHECKING:
    import pandas as pd

OWN = ("prototypes", "kernel", "method")  # of an embedding's settings: not the method's


@dataclass(frozen=True, eq=False)
class Query:
    """The slide asked about."""

    name: str
    row: np.ndarray  # (1, D), as it is searched
    position: int = -1  # in the embeddings; -1: a new slide
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
    options = {name: value for name, value in cohort.settings.items() if name not in OWN}
    embedded = embed(bag, fitted, str(cohort.settings.get("method", "panther")), **options)
    vector = embedded.vector.double().numpy()[None]
    weights = embedded.aux.get("weights")
    pi = None if weights is None else as_proportions(weights.double().numpy())
    searched = pi[None] if way.by == "pi" and pi is not None else vector
    return Query(bag.slide_id, searched, -1, pi, vector if cohort.mixtures else None)


def patients_of(
    cohort: Embeddings, table: "Path | str | pd.DataFrame | None", columns: Columns
) -> tuple[list[str], list[str]]:
    """Patient of every slide, as the table says, the embeddings' own columns or TCGA's barcodes; and notes about it."""
    if table is not None:
        who = read_clinical(table, columns=columns).who
        known = dict(zip(who.slide, who.patient, strict=True))
        missing = [name for name in cohort.samples if name not in known]
        note = (
            f"{len(missing)} slides are not in the table, e.g. {''.join(missing[:1])}; each counts as its own patient."
        )
        return [known.get(name, name) for name in cohort.samples], [note] if missing else []
    own = next((name for name in (columns.patient, *PATIENT_COLUMNS) if name in cohort.columns), None)
    if own is not None:
        return list(cohort.columns[own]), []
    if all(re.match(TCGA, name) for name in cohort.samples):
        return [name[:12] for name in cohort.samples], []
    note = f"{cohort.source}: does not say whose slides they are, so other slides of the same patient may be found; give `table=`."
    return list(cohort.samples), [note]


def own_patient(cohort: Embeddings, asked: Query, patients: list[str]) -> Apart:
    """Slides of the patient asked about; a new slide is matched by its barcode where it has one."""
    own = patients[asked.position] if asked.position >= 0 else asked.name
    tcga = re.match(TCGA, own)
    mine = {own, own[:12] if tcga else own}
    return Apart(np.zeros(1, int), np.array([0 if patient in mine else 1 for patient in patients]))
