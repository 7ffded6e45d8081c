"""A cohort: samples with their slides and target, and an account of everything that was left out."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from panther.cohort.endpoints import Endpoint
from panther.cohort.targets import Classes, Survival, Target
from panther.errors import InputError, listed
from panther.storage.bags import Listing
from panther.storage.clinical import USUAL, ClinicalTable, Columns, Identities, read_clinical
from panther.storage.names import without_suffix

Level = Literal["patient", "slide"]


@dataclass(frozen=True)
class Sample:
    """What gets one prediction: a patient with all slides, or one slide."""

    id: str
    slides: tuple[str, ...]
    patient: str
    site: str | None = None


@dataclass(frozen=True)
class CohortReport:
    """What was found, before anything is done with it."""

    source: str
    rows: int
    samples: int
    slides: int
    patients: int
    sites: int
    outcome: str  # one sentence about classes or events
    counts: Mapping[str, int]  # samples per class, or "event" and "censored"
    dropped: Mapping[str, int] = field(default_factory=dict)  # reason -> rows
    duplicates: int = 0  # rows repeated word for word
    missing_features: tuple[str, ...] = ()  # slides of the table without features
    without_labels: tuple[str, ...] = ()  # slides with features that the table does not label
    notes: tuple[str, ...] = ()

    def sentences(self) -> list[str]:
        """Report for reading."""
        found = f"{self.samples} samples ({self.patients} patients, {self.slides} slides"
        lines = [
            f"{self.source}: {found}{f', {self.sites} sites' if self.sites else ''}) from {self.rows} rows.",
            *self.notes,
        ]
        lines.append(self.outcome)
        lines += [f"{n} rows were dropped: {reason}." for reason, n in self.dropped.items()]
        if self.duplicates:
            lines.append(f"{self.duplicates} rows repeat another word for word and count once.")
        for slides, what in (
            (self.missing_features, "have no features"),
            (self.without_labels, "have features but no label"),
        ):
            if slides:
                lines.append(f"{len(slides)} slides {what} and are left out, e.g. {slides[0]}.")
        return lines

    def to_dict(self) -> dict[str, Any]:
        """Report for a machine."""
        return asdict(self)


@dataclass(frozen=True, eq=False)
class Cohort:
    """Samples in the order of their ids; the target and the table have one row for each."""

    samples: tuple[Sample, ...]
    target: Target
    table: (
        pd.DataFrame
    )  # (n, columns) strings, indexed by sample: the columns on which all its slides agree, and n_slides
    report: CohortReport
    rows: pd.DataFrame  # one row a slide that is used, word for word, indexed by slide

    def __len__(self) -> int:
        return len(self.samples)

    @property
    def ids(self) -> tuple[str, ...]:
        """Names of the samples."""
        return tuple(sample.id for sample in self.samples)

    def positions(self, ids: Sequence[str]) -> np.ndarray:
        """Where samples stand."""
        where = {name: index for index, name in enumerate(self.ids)}
        return np.array([where[name] for name in ids], dtype=np.int64)


def load_cohort(
    table: Path | pd.DataFrame | ClinicalTable,
    endpoint: Endpoint,
    features: Listing | Collection[str] | None = None,
    level: Level = "patient",
    columns: Columns = USUAL,
) -> Cohort:
    """Join a clinical table with features into samples that have both, and say what was left out.

    Parameters
    ----------
    table
        CSV, TSV or parquet file, or a data frame; one row a slide.
    endpoint
        A `LabelEndpoint` or a `SurvivalEndpoint`.
    features
        Bags, or names of slides, that exist; None leaves the question open.
    level
        One sample a patient (all its slides are one bag), or one a slide.
    columns
        Names of the slide, patient and site columns, where they are not the usual ones.
    """
    read = table if isinstance(table, ClinicalTable) else read_clinical(table, columns=columns)
    source, who = read.source, read.who
    parsed = endpoint.parse(read.rows, source)
    here = _slides(features)
    labelled = [value is not None for value in parsed.values]
    keep = [i for i, slide in enumerate(who.slide) if labelled[i] and (here is None or slide in here)]
    if not keep:
        raise InputError(_nothing_left(source, who, labelled, here))
    members = _grouped(who, keep, level)
    values = [_one_value(name, rows, parsed.values, who, source) for name, rows in members.items()]
    target = endpoint.build(values, source)
    samples = tuple(_sample(name, rows, who) for name, rows in members.items())
    notes = [*who.notes, *parsed.notes, *_multi_site_patients(samples, who, keep)]
    report = CohortReport(
        source=source,
        rows=len(read.rows) + read.duplicates,
        samples=len(samples),
        slides=len(keep),
        patients=len({sample.patient for sample in samples}),
        sites=len({sample.site for sample in samples} - {None}),
        outcome=f"{parsed.stated}: {endpoint.describe(target)}",
        counts=counts_of(target),
        dropped=parsed.dropped,
        duplicates=read.duplicates,
        missing_features=tuple(
            s for s, ok in zip(who.slide, labelled, strict=True) if ok and here is not None and s not in here
        ),
        without_labels=_unlabelled(who, labelled, here),
        notes=tuple(notes),
    )
    return Cohort(samples, target, _per_sample(read.rows, members), report, read.rows.iloc[keep])


def counts_of(target: Target) -> dict[str, int]:
    """Samples per class, or with and without the event."""
    if isinstance(target, Survival):
        return {"event": int(target.event.sum()), "censored": int((~target.event).sum())}
    tally = np.bincount(target.labels, minlength=len(target.names))
    return {name: int(n) for name, n in zip(target.names, tally, strict=True)}


def absent_classes(target: Target) -> list[str]:
    """Classes that no sample has."""
    return [name for name, n in counts_of(target).items() if n == 0] if isinstance(target, Classes) else []


def _slides(features: Listing | Collection[str] | None) -> set[str] | None:
    if features is None:
        return None
    names = [ref.sample for ref in features.refs] if isinstance(features, Listing) else features
    return {without_suffix(name) for name in names}


def _grouped(who: Identities, keep: list[int], level: Level) -> dict[str, list[int]]:
    """Rows of each sample, sorted by its name."""
    if level not in ("patient", "slide"):
        raise InputError(f"The level is patient or slide, not {level!r}.")
    names = who.patient if level == "patient" else who.slide
    members: dict[str, list[int]] = {}
    for row in sorted(keep, key=lambda row: (names[row], who.slide[row])):
        members.setdefault(names[row], []).append(row)
    return members


def _one_value(name: str, rows: list[int], values: list[Any], who: Identities, source: str) -> Any:
    different = sorted({str(values[row]) for row in rows})
    if len(different) > 1:
        raise InputError(
            f"{source}: the slides of patient {name} ({listed([who.slide[row] for row in rows], 3)}) have different labels, "
            f"{listed(different)}; correct them, or take slides as samples with `level=slide`."
        )
    return values[rows[0]]


def _sample(name: str, rows: list[int], who: Identities) -> Sample:
    sites = {who.site[row] for row in rows}
    return Sample(
        name, tuple(who.slide[row] for row in rows), who.patient[rows[0]], sites.pop() if len(sites) == 1 else None
    )


def _multi_site_patients(samples: tuple[Sample, ...], who: Identities, keep: list[int]) -> list[str]:
    """Patients whose slides name several sites have none; that is worth a word."""
    sites: dict[str, set[str | None]] = {}
    for row in keep:
        sites.setdefault(who.patient[row], set()).add(who.site[row])
    torn = [patient for patient, names in sites.items() if len(names) > 1]
    return [f"{len(torn)} patients have slides from several sites, e.g. {torn[0]}."] if torn else []


def _unlabelled(who: Identities, labelled: list[bool], here: set[str] | None) -> tuple[str, ...]:
    known = {slide for slide, ok in zip(who.slide, labelled, strict=True) if ok}
    return () if here is None else tuple(sorted(here - known))


def _nothing_left(source: str, who: Identities, labelled: list[bool], here: set[str] | None) -> str:
    if not any(labelled):
        return f"{source}: none of the {len(labelled)} rows has the label or endpoint; choose another column."
    example = next(iter(sorted(here or set())), "nothing")
    return (
        f"{source}: none of the {sum(labelled)} labelled slides has features: the table says e.g. {who.slide[0]!r}, "
        f"the features say {example!r}."
    )


def _per_sample(table: pd.DataFrame, members: Mapping[str, list[int]]) -> pd.DataFrame:
    """One row a sample: the columns on which the slides of every sample agree, and how many slides it has."""
    order = [row for rows in members.values() for row in rows]
    names = [name for name, rows in members.items() for _ in rows]
    used = table.iloc[order]
    groups = used.groupby(np.array(names), sort=False)
    agreed = [column for column in used.columns if (groups[column].nunique() <= 1).all()]
    per_sample = groups[agreed].first() if agreed else pd.DataFrame(index=list(members))
    return per_sample.assign(n_slides=[len(rows) for rows in members.values()])
