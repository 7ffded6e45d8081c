"""Whose slides they are: slides of one patient, or of one site, are no neighbours."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from panther.errors import InputError
from panther.statistics import Apart
from panther.storage.clinical import PATIENT_COLUMNS, SITE_COLUMNS, TCGA, USUAL, Columns, read_clinical
from panther.storage.vectors.opened import Embeddings

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Whose:
    """Patient and site of every slide."""

    patients: tuple[str, ...]
    sites: tuple[str | None, ...]
    notes: tuple[str, ...] = ()


def whose_slides(
    cohort: Embeddings, table: "Path | str | pd.DataFrame | None" = None, columns: Columns = USUAL
) -> Whose:
    """Patients and sites as the table says, else the embeddings' own columns, else TCGA's barcodes."""
    if table is not None:
        who = read_clinical(table, columns=columns).who
        patients = dict(zip(who.slide, who.patient, strict=True)) | {name: name for name in who.patient}
        sites = dict(zip(who.slide, who.site, strict=True)) | dict(zip(who.patient, who.site, strict=True))
        missing = [name for name in cohort.samples if name not in patients]
        if len(missing) == len(cohort.samples):
            raise InputError(
                f"The table names none of the slides of {cohort.source}: it says e.g. {who.slide[0]!r}, the embeddings {missing[0]!r}."
            )
        note = (
            f"{len(missing)} slides are not in the table, e.g. {''.join(missing[:1])}; each counts as its own patient."
        )
        found = (tuple(known.get(name) for name in cohort.samples) for known in (patients, sites))
        named, placed = found
        own = tuple(patient or name for patient, name in zip(named, cohort.samples, strict=True))
        return Whose(own, placed, (*who.notes, *((note,) if missing else ())))
    own_column = _column(cohort, columns.patient, PATIENT_COLUMNS)
    barcodes = all(re.match(TCGA, name) for name in cohort.samples)
    patients_found = own_column or (tuple(name[:12] for name in cohort.samples) if barcodes else cohort.samples)
    site = _column(cohort, columns.site, SITE_COLUMNS)
    sites_found: Sequence[str | None] = site or [name[5:7] if barcodes else None for name in cohort.samples]
    note = f"{cohort.source}: does not say whose slides they are, so each counts as its own patient; give `table=`."
    return Whose(tuple(patients_found), tuple(sites_found), () if own_column or barcodes else (note,))


def _column(cohort: Embeddings, name: str | None, usual: Sequence[str]) -> tuple[str, ...] | None:
    if name is not None and name not in cohort.columns:
        raise InputError(f"{cohort.source}: there is no column {name!r}; give `table=` with it.")
    found = name or next((alias for alias in usual if alias in cohort.columns), None)
    return None if found is None else tuple(cohort.columns[found])


def groups(own: Sequence[str | None], others: Sequence[str | None]) -> Apart:
    """Slides of one group are no neighbours; those without a group (None) are anybody's."""
    codes = {name: code for code, name in enumerate(dict.fromkeys((*own, *others))) if name is not None}
    return Apart(
        *(np.array([codes.get(name, -1) if name is not None else -1 for name in side]) for side in (own, others))
    )
