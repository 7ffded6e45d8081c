"""Whose slides they are: slides of one patient, or of one site, are no neighbours."""

import re
from collections.abc import Container, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from panther.errors import InputError
from panther.statistics import Apart
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
from panther.storage.embedding_files.opened import Embeddings
from panther.storage.names import without_suffix
from panther.storage.tables import MISSING

if TYPE_CHECKING:
    import pandas as pd


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
        raise InputError(who.explained(said))
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
