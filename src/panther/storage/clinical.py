"""Clinical tables: slide, patient and site of each row, and the bags of the slides of a table."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from panther.errors import InputError, check_choice, listed, suggestion
from panther.storage.bags import AS_WRITTEN, BagsLike, Reading, as_bags, explicit, group_by_patient
from panther.storage.names import composed, differ_in_case, without_suffix
from panther.storage.tables import is_missing, read_parts, refuse_shared_patients, source_of, with_types
from panther.types import Openable

if TYPE_CHECKING:
    import pandas as pd

SLIDE_COLUMNS = ("slide_id", "FILENAME", "slide", "wsi", "image_id")
PATIENT_COLUMNS = ("case_id", "PATIENT", "patient_id", "patient", "submitter_id")
SITE_COLUMNS = ("tissue_source_site", "site_id", "center_id", "center", "centre", "institution", "hospital", "data_provider")  # fmt: skip
TCGA = r"TCGA-\w\w-\w{4}(?!\w)"


@dataclass(frozen=True)
class Columns:
    """Names of the columns of slide, patient and site, if they are not the usual ones; `load_cohort` also takes a dictionary.

    Attributes
    ----------
    slide, patient, site : str, optional
        Columns of the names of slides, patients and sites.
    """

    __pydantic_config__: ClassVar = {"extra": "forbid"}  # a study file holds it

    slide: str | None = None
    patient: str | None = None
    site: str | None = None

    def among(self, rows: "pd.DataFrame") -> "Columns":
        """Those that this table has: another part of a split may be a plain list of slides."""
        return Columns(**{key: name for key, name in asdict(self).items() if name in rows.columns})


USUAL = Columns()
ColumnsLike = Columns | Mapping[str, str | None]


def as_columns(columns: ColumnsLike) -> Columns:
    """Names of columns, also from a dictionary."""
    if isinstance(columns, Columns):
        return columns
    known = [entry.name for entry in fields(Columns)]
    if not isinstance(columns, Mapping) or not set(columns) <= set(known):
        raise InputError(f"columns: found {columns!r}, expected names of {listed(known)}")
    return Columns(**columns)


@dataclass(frozen=True)
class Identities:
    """Slide, patient and site of every row."""

    slide: list[str]
    patient: list[str]
    site: list[str | None]
    patients_known: bool  # by a column or TCGA's barcodes; else every slide counts as its own patient
    notes: list[str]
    stand_in: str = ""  # note, if the patient column is used as the slide column

    def with_hint(self, sentence: str) -> str:
        """Message about slides that do not match, with a note if the table has no slide column."""
        return f"{sentence.rstrip('.')}. {self.stand_in}" if self.stand_in else sentence


@dataclass(frozen=True)
class OtherParts:
    """Slides and patients of the other parts of a split."""

    slides: frozenset[str] = frozenset()
    patients: Mapping[str, list[str]] = field(default_factory=dict)  # of each part
    where: str = ""  # description of these parts, for messages


@dataclass(frozen=True, eq=False)
class ClinicalTable:
    """A clinical table as written, one row per slide."""

    source: str
    rows: "pd.DataFrame"  # all cells strings, indexed by slide
    who: Identities
    duplicates: int = 0  # rows that repeat another exactly; they count once
    split: str | None = None  # part of the split
    others: OtherParts = OtherParts()

    def with_ids(self) -> "pd.DataFrame":
        """Rows with the columns `slide_id` and, where patients are known, `case_id`."""
        ids = {"slide_id": self.who.slide} | ({"case_id": self.who.patient} if self.who.patients_known else {})
        return self.rows.assign(**ids)

    def refuse_shared_patients(self) -> None:
        """Refuse a part of a split that shares a patient with another part."""
        refuse_shared_patients(self.source, {str(self.split): self.who.patient, **self.others.patients})


def read_clinical(
    table: "Path | str | pd.DataFrame", split: str | None = None, columns: Columns = USUAL
) -> ClinicalTable:
    """Read a clinical table, or one part of it (see :func:`read_parts`), with one row per slide.

    A row that repeats another exactly counts once; a slide with rows that differ is refused.
    """
    parts = read_parts(table, split)
    written = parts.chosen
    source, unique = source_of(written), written.drop_duplicates()
    who = identify(unique, columns)
    rows = unique.set_axis(who.slide)
    repeated = rows.index[rows.index.duplicated()].unique()
    if len(repeated):
        example = f"{len(repeated)} slides have several rows that differ, e.g. {repeated[0]}"
        raise InputError(who.with_hint(f"{source}: {example}; keep one row per slide"))
    others = {part: identify(rows, columns.among(rows)) for part, rows in parts.others.items()}
    slides = {slide for ids in others.values() for slide in ids.slide}
    patients = {part: ids.patient for part, ids in others.items() if part}  # "": rows of no part, used nowhere
    elsewhere = OtherParts(frozenset(slides - set(who.slide)), patients, parts.where)
    return ClinicalTable(source, rows, who, len(written) - len(unique), split, elsewhere)


def find_column(table: "pd.DataFrame", name: str | None, aliases: Sequence[str], what: str) -> str | None:
    """Column by its name, which must exist, or the first of the aliases that exists (in any case of letters), or None."""
    if name is not None and name not in table.columns:
        known = [str(column) for column in table.columns]
        raise InputError(f"{source_of(table)}: there is no {what} column {name!r}; {suggestion(name, known)}")
    if exact := name or next((alias for alias in aliases if alias in table.columns), None):
        return exact
    for alias in aliases:
        matches = called(table.columns, [alias])
        if len(matches) > 1:
            columns = listed(map(repr, matches))
            raise InputError(f"{source_of(table)}: {columns} may each be the {what} column; rename all but one")
        if matches:
            return matches[0]
    return None


def called(columns: Iterable[object], aliases: Iterable[str]) -> list[str]:
    """Columns with one of these names, in any case of letters."""
    plain = {alias.lower() for alias in aliases}
    return [str(column) for column in columns if str(column).lower() in plain]


def identify(table: "pd.DataFrame", columns: Columns = USUAL) -> Identities:
    """Slide, patient and site of every row of a table of strings."""
    source = source_of(table)
    slide = find_column(table, columns.slide, SLIDE_COLUMNS, "slide")
    patient = find_column(table, columns.patient, PATIENT_COLUMNS, "patient")
    site = find_column(table, columns.site, SITE_COLUMNS, "site")
    if slide is None and patient is None:
        raise InputError(f"{source}: neither a slide nor a patient column among {listed(table.columns)}")
    row_names = f"{source} has no slide column: each row is one slide named like its patient ({patient}), unless the slide column is named"
    stand_in = row_names if slide is None else ""
    notes = [stand_in] if stand_in else []
    slides = [without_suffix(name) for name in _ids(table, slide or str(patient))]
    barcodes = all(re.match(TCGA, name) for name in slides)
    if patient is not None:
        patients = _ids(table, patient)
        if pairs := differ_in_case(patients):
            names = f"{' and '.join(pairs[0])} differ only in upper and lower case"
            notes.append(f"{source}: {names} and count as two patients ({len(pairs)} such in all), which may leak")
    elif barcodes:
        patients = [name[:12] for name in slides]
        notes.append(f"{source} has no patient column: patients are the first 12 characters of the TCGA barcodes")
    else:
        patients = slides
        notes.append(f"{source} has no patient column: every slide counts as its own patient, which may leak")
    known = patient is not None or barcodes
    return Identities(slides, patients, _sites(table, site, patients), known, notes, stand_in)


def _ids(table: "pd.DataFrame", column: str) -> list[str]:
    names = table[column].str.strip().map(composed)
    blank = (names == "").to_numpy()
    if blank.any():
        line = table.index[int(blank.argmax())] + 2  # counting the header, as a spreadsheet does
        raise InputError(f"{source_of(table)}: {int(blank.sum())} rows have no {column}, the first is line {line}")
    return list(names)


def _sites(table: "pd.DataFrame", column: str | None, patients: list[str]) -> list[str | None]:
    """Site column; if it is empty or absent, the second part of a TCGA barcode."""
    import pandas as pd

    site = pd.Series(patients, dtype=str).str.extract(r"^TCGA-(\w\w)-\w{4}(?!\w)", expand=False)
    if column is not None:
        written = table[column].str.strip().reset_index(drop=True)
        site = written.mask(is_missing(written), site)
    return [None if pd.isna(name) else str(name) for name in site]


@dataclass(frozen=True)
class Selection:
    """Bags selected by a table."""

    refs: tuple[Openable, ...]
    problems: Mapping[str, str]  # slide -> reason
    notes: list[str] = field(default_factory=list)
    table: ClinicalTable | None = None  # as written
    clinical: "pd.DataFrame | None" = None  # one row per slide or patient, numbers as numbers

    def patients(self) -> dict[str, str] | None:
        """Patient of each bag, if the table names patients."""
        if self.clinical is None or "case_id" not in self.clinical.columns:
            return None
        return {str(name): str(case) for name, case in self.clinical["case_id"].dropna().items()}


def refuse_whole_split(table: "Path | str | pd.DataFrame", split: str | None) -> None:
    """Refuse a folder of the parts of a split without the name of a part."""
    if split is None and isinstance(table, (str, Path)) and Path(table).is_dir():
        raise InputError(f"{table} is a folder, expected one of its tables, or a part, `split=train`")


def select_slides(
    features: BagsLike,
    table: "Path | str | pd.DataFrame | None" = None,
    split: str | None = None,
    *,
    level: str = "slide",
    reading: Reading = AS_WRITTEN,
    columns: Columns = USUAL,
    training: bool = False,
) -> Selection:
    """Bags of ``features``; with a table those of its slides, and with ``level="patient"`` one bag per patient.

    For ``training``, a patient in two parts of the split is refused.
    """
    listing = as_bags(features, reading)
    check_choice("level", level, ("slide", "patient"))
    if table is None:
        if split is not None or level == "patient":
            raise InputError("table: is missing; `split` and `level=patient` require a clinical table")
        return Selection(listing.refs, listing.problems)
    refuse_whole_split(table, split)
    read = read_clinical(table, split, columns)
    if training:
        read.refuse_shared_patients()
    if level == "patient" and not read.who.patients_known:
        raise InputError(f"{read.source}: no patient column; `level=patient` requires one, e.g. case_id")
    slides = set(read.who.slide)
    place = f" in {features}" if isinstance(features, (str, Path)) else ""
    known = {ref.sample for ref in listing.refs} | set(listing.problems)
    refs = tuple(explicit(ref) for ref in listing.refs if ref.sample in slides)
    missing = [slide for slide in read.who.slide if slide not in known]
    if not refs:
        names = f"the table has e.g. {read.who.slide[0]!r}, the features {listing.refs[0].sample!r}"
        raise InputError(read.who.with_hint(f"{read.source}: no slide has features{place}: {names}"))
    elsewhere = sum(ref.sample in read.others.slides for ref in listing.refs)
    left_out = {
        f"in {read.others.where}": elsewhere,
        f"not in {read.source}": len(listing.refs) - len(refs) - elsewhere,
    }
    notes = [f"{n} slides{place} are {where} and were left out" for where, n in left_out.items() if n]
    problems = {slide: reason for slide, reason in listing.problems.items() if slide in slides}
    named = f"{read.source}, split {split}" if split else read.source
    problems |= {slide: without_features(slide, named) for slide in missing}
    # types come from the whole table: they do not depend on which slides have features
    identified = read.with_ids()
    # names are never numbers, and never missing: a patient may be called NA
    ids = {
        *called(identified.columns, (*SLIDE_COLUMNS, *PATIENT_COLUMNS)),
        *filter(None, (columns.slide, columns.patient)),
    }
    clinical = with_types(identified, [columns.site] if columns.site else [], ids)
    if level == "slide":
        return Selection(refs, problems, notes, read, clinical)
    grouped, _ = group_by_patient(listing, dict(clinical["case_id"]))
    return Selection(grouped.refs, problems, notes, read, _per_patient(clinical.loc[[ref.sample for ref in refs]]))


def _per_patient(clinical: "pd.DataFrame") -> "pd.DataFrame":
    """One row per patient: the columns that are equal for all slides of every patient, and the number of slides."""
    groups = clinical.groupby("case_id", sort=True)
    agreed = [c for c in clinical.columns if c != "slide_id" and (groups[c].nunique(dropna=False) <= 1).all()]
    patients = groups[agreed].first()
    patients["n_slides"] = groups.size()
    return patients


def without_features(slide: str, table: str) -> str:
    """Reason for a slide of a table without a feature file."""
    return f"{slide}: {table} names it, but there is no feature file of this name"
