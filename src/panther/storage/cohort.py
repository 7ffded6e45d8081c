"""Which bags a request is about: a features folder, perhaps narrowed and grouped by a clinical table."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from panther.errors import InputError
from panther.storage.bags import AS_WRITTEN, Reading, group_by_patient, list_bags, meant
from panther.storage.tables import read_table
from panther.types import Openable

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Selection:
    """The samples of a request."""

    refs: tuple[Openable, ...]
    problems: Mapping[str, str]  # sample -> sentence
    notes: list[str] = field(default_factory=list)
    clinical: "pd.DataFrame | None" = None  # indexed by sample

    def patients(self) -> dict[str, str] | None:
        """Patient of each sample, where the table says so."""
        if self.clinical is None or "case_id" not in self.clinical.columns:
            return None
        return {str(sample): str(case) for sample, case in self.clinical["case_id"].dropna().items()}


def select_slides(
    features: Path,
    table: Path | None = None,
    split: str | None = None,
    *,
    by_patient: bool = False,
    reading: Reading = AS_WRITTEN,
) -> Selection:
    """Bags of ``features``; with a table those of its slides, and with ``by_patient`` one sample a patient."""
    listing = list_bags(features, reading=reading)
    if table is None:
        if split is not None or by_patient:
            raise InputError("`split=` and `by_patient=True` need a `table=` that says which slides are meant.")
        return Selection(listing.refs, listing.problems)
    clinical = read_table(table, split)
    known = {ref.sample for ref in listing.refs} | set(listing.problems)
    refs = tuple(meant(ref) for ref in listing.refs if ref.sample in clinical.index)
    missing = [slide for slide in clinical.index if slide not in known]
    if not refs:
        raise InputError(
            f"None of the {len(clinical)} slides of {table} has features in {features}: the table says e.g. {clinical.index[0]!r}, "
            f"the folder {listing.refs[0].sample!r}."
        )
    named = f"{table}, split {split}" if split else str(table)
    unnamed = len(listing.refs) - len(refs)
    notes = [f"{unnamed} slides of {features} are not in {table} and were left out."] if unnamed else []
    problems = {slide: reason for slide, reason in listing.problems.items() if slide in clinical.index}
    problems |= {slide: without_features(slide, named) for slide in missing}
    if not by_patient:
        return Selection(refs, problems, notes, clinical)
    if "case_id" not in clinical.columns:
        raise InputError(f"{table}: no patient column; `by_patient=True` needs one called case_id.")
    grouped, _ = group_by_patient(listing, dict(clinical["case_id"]))
    return Selection(grouped.refs, problems, notes, _patients(clinical.loc[[ref.sample for ref in refs]]))


def _patients(clinical: "pd.DataFrame") -> "pd.DataFrame":
    """One row a patient: the columns on which all slides of every patient agree, and how many slides it has."""
    groups = clinical.groupby("case_id", sort=True)
    agreed = [c for c in clinical.columns if c != "slide_id" and (groups[c].nunique(dropna=False) <= 1).all()]
    patients = groups[agreed].first()
    patients["n_slides"] = groups.size()
    return patients


def without_features(slide: str, table: str) -> str:
    """Sentence for a slide that a table names, but that has no feature file."""
    return f"{slide}: {table} names it, but there is no feature file of this name; extract its features, or take it out of the table."
