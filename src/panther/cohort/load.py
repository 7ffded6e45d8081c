"""A cohort: samples with their slides and target, and a report of what was left out."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from panther.cohort.outcomes import usual_label
from panther.cohort.spec import Level, NoOutcome, TaskSpec, checked
from panther.cohort.targets import Target
from panther.errors import InputError, listed
from panther.storage.bags import BagsLike, Listing, as_bags, join
from panther.storage.clinical import (
    USUAL,
    ClinicalTable,
    ColumnsLike,
    Identities,
    as_columns,
    find_column,
    read_clinical,
)
from panther.storage.names import without_suffix
from panther.types import Openable


@dataclass(frozen=True)
class Sample:
    """Unit of prediction: a patient with all slides, or one slide."""

    id: str
    slides: tuple[str, ...]
    patient: str
    site: str | None = None


@dataclass(frozen=True)
class CohortReport:
    """Summary of a table, and what was left out."""

    source: str
    rows: int
    samples: int
    slides: int
    patients: int
    sites: int
    columns: str  # of the outcome, and the meaning of their values
    outcome: str  # one sentence about classes or events, with the columns
    counts: Mapping[str, int]  # samples per class, or "event" and "censored"
    dropped: Mapping[str, int] = field(default_factory=dict)  # reason -> rows
    duplicates: int = 0  # repeated rows
    missing_features: tuple[str, ...] = ()  # slides of the table without features
    without_labels: tuple[str, ...] = ()  # slides with features that the table does not label
    notes: tuple[str, ...] = ()

    def sentences(self) -> list[str]:
        """Report for reading."""
        size = f"{self.samples} samples ({self.patients} patients, {self.slides} slides"
        size += f", {self.sites} sites)" if self.sites else ")"
        lines = [f"{self.source}: {size} from {self.rows} rows.", *self.notes, self.outcome]
        lines += self.unused_rows("dropped")
        if self.duplicates:
            lines.append(f"{self.duplicates} rows repeat another word for word and count once.")
        lacks = {"have no features": self.missing_features, "have features but no label": self.without_labels}
        lines += [f"{len(s)} slides {what} and are left out, e.g. {s[0]}." for what, s in lacks.items() if s]
        return lines

    def unused_rows(self, fate: str) -> list[str]:
        """Numbers of rows without a usable target and the reasons; ``fate`` is the verb, e.g. dropped."""
        return [f"{n} rows were {fate}: {reason}." for reason, n in self.dropped.items()]

    def to_dict(self) -> dict[str, Any]:
        """Report for a machine."""
        return asdict(self)


@dataclass(frozen=True, eq=False)
class Cohort:
    """Slides or patients in the order of their names, with their target.

    Attributes
    ----------
    samples
        Units of prediction: patients with all slides, or slides.
    target
        `Classes`, `Survival`, `Values` or `Labels`, one entry for each.
    table
        (n, columns) strings, indexed by name: the columns on which all slides of every patient agree, and n_slides.
    report
        What the table holds, and what was left out.
    rows
        The rows of the table that are used, unchanged, indexed by slide.
    bags
        Features of each, the slides of a patient as one bag; empty without features.
    """

    samples: tuple[Sample, ...]
    target: Target
    table: pd.DataFrame
    report: CohortReport
    rows: pd.DataFrame
    bags: tuple[Openable, ...] = ()

    def __len__(self) -> int:
        return len(self.samples)

    @property
    def ids(self) -> tuple[str, ...]:
        """Names of the slides or patients."""
        return tuple(sample.id for sample in self.samples)

    @property
    def patients(self) -> np.ndarray:
        """Patient of each (n,)."""
        return np.array([sample.patient for sample in self.samples])

    @property
    def sites(self) -> np.ndarray:
        """Site of each (n,), None where it is not known."""
        return np.array([sample.site for sample in self.samples], dtype=object)

    @property
    def y(self) -> np.ndarray:
        """Target as scikit-learn takes it: names of classes (n,), time and event (n, 2), values (n,), or labels (n, L) with NaN."""
        return self.target.as_y()

    def positions(self, ids: Sequence[str]) -> np.ndarray:
        """Positions of names, e.g. those of a part of a `Split`."""
        where = {name: index for index, name in enumerate(self.ids)}
        return np.array([where[name] for name in ids], dtype=np.int64)

    def column(self, name: str, what: str) -> pd.Series:
        """Cells of each in a column, ``what`` it is for; slides of one patient must agree on it."""
        if name not in self.table.columns:
            find_column(self.rows, name, (), what)
            source = self.report.source
            raise InputError(f"{source}: {what} {name} differs between slides of one patient; or use `level=slide`")
        return self.table[name]

    def join_bags(self, listing: Listing) -> tuple[Openable, ...]:
        """Features of each, the slides of a patient as one bag."""
        refs = {without_suffix(ref.sample): ref for ref in listing.refs}
        return tuple(join(sample.id, [refs[slide] for slide in sample.slides]) for sample in self.samples)


def load_cohort(
    table: Path | str | pd.DataFrame,
    label: str | None = None,
    survival: str | None = None,
    *,
    classes: Sequence[str] | None = None,
    time: str | None = None,
    event: str | None = None,
    censorship: str | None = None,
    value: str | None = None,
    labels: Sequence[str] | None = None,
    level: Level = "patient",
    bags: BagsLike | None = None,
    columns: ColumnsLike = USUAL,
) -> Cohort:
    """Read a clinical table, join it with features, and report what was left out.

    Parameters
    ----------
    table : path or DataFrame
        CSV, TSV or parquet file, or a data frame, one row per slide.
    label : str, optional
        Column of the class; by default the first of its usual names.
    survival : str, optional
        Endpoint os, dss, dfi or pfi; its columns are found by their usual names.
    classes : list of str, optional
        Classes in their order; all others are left out.
    time, event, censorship : str, optional
        Columns of survival with other names: the time, and 1 = event or 1 = censored.
    value : str, optional
        Column of numbers.
    labels : list of str, optional
        Columns of several labels, each 0 or 1, empty where unknown.
    level : "patient" or "slide"
        Unit of prediction; the slides of a patient are one bag.
    bags : path, list, mapping or Listing, optional
        Features, as :func:`panther.storage.bags.as_bags` takes them; slides without any are left out.
    columns : Columns or dict
        Names of the columns `slide`, `patient` and `site`, where they are not the usual ones.

    Returns
    -------
    Cohort

    Examples
    --------
    >>> import pandas as pd
    >>> from panther import load_cohort
    >>> table = pd.DataFrame({"slide_id": ["a1", "a2", "b1"], "case_id": ["a", "a", "b"], "grade": ["high", "high", "low"]})
    >>> cohort = load_cohort(table, label="grade")
    >>> cohort.ids
    ('a', 'b')
    >>> cohort.y.tolist()
    ['high', 'low']
    """
    read = read_clinical(table, columns=as_columns(columns))
    if not any((label, survival, time, event, censorship, value, labels)):
        label = usual_label(read.rows)
    others = {"survival": survival, "time": time, "event": event, "censorship": censorship, "value": value}
    several = {"classes": tuple(classes) if classes else None, "labels": tuple(labels) if labels else None}
    task = checked(TaskSpec, label=label, level=level, **several, **others)
    if bags is None:
        return make_cohort(read, task)
    listing = as_bags(bags)
    cohort = make_cohort(read, task, [ref.sample for ref in listing.refs])
    return replace(cohort, bags=cohort.join_bags(listing))


def make_cohort(table: ClinicalTable, task: TaskSpec | NoOutcome, slides: Collection[str] | None = None) -> Cohort:
    """Slides or patients of a table with a target, among the ``slides`` with features (None: all)."""
    source, who = table.source, table.who
    parsed = task.parse(table.rows)
    available = None if slides is None else {without_suffix(name) for name in slides}
    labelled = [value is not None for value in parsed.values]
    keep = [i for i, slide in enumerate(who.slide) if labelled[i] and (available is None or slide in available)]
    if not any(labelled):
        raise InputError(
            f"{source}: none of the {len(labelled)} rows has the label or endpoint; choose another column."
        )
    if not keep:
        example = next(iter(sorted(available or set())), "nothing")
        lack = f"{source}: none of the {sum(labelled)} labelled slides has features: the table says e.g. {who.slide[0]!r}, "
        raise InputError(who.with_hint(f"{lack}the features say {example!r}."))
    members, samples, values = _grouped(who, keep, task.level), [], []
    for name, rows in members.items():
        different = sorted({str(parsed.values[row]) for row in rows})
        if len(different) > 1:
            labels = f"different labels, {listed(different)}"
            raise InputError(f"{source}: slides of patient {name} have {labels}; correct them, or use `level=slide`")
        sites = {who.site[row] for row in rows}
        site = sites.pop() if len(sites) == 1 else None
        samples.append(Sample(name, tuple(who.slide[row] for row in rows), who.patient[rows[0]], site))
        values.append(parsed.values[rows[0]])
    target = parsed.make(values, source)
    known = {slide for slide, ok in zip(who.slide, labelled, strict=True) if ok}
    lacking = known - available if available is not None else set()
    notes = [*who.notes, *parsed.notes]
    sites_of: dict[str, set[str | None]] = {}
    for row in keep:
        sites_of.setdefault(who.patient[row], set()).add(who.site[row])
    if several := [patient for patient, names in sites_of.items() if len(names) > 1]:
        notes.append(f"{len(several)} patients have slides from several sites, e.g. {several[0]}.")
    if other := table.others.slides & (available or set()):
        notes.append(f"{len(other)} slides are in {table.others.where} and are left out, e.g. {min(other)}.")
    report = CohortReport(
        source=source,
        rows=len(table.rows) + table.duplicates,
        samples=len(samples),
        slides=len(keep),
        patients=len({sample.patient for sample in samples}),
        sites=len({sample.site for sample in samples} - {None}),
        columns=parsed.columns,
        outcome=f"{parsed.columns}: {target.describe()}" if isinstance(task, TaskSpec) else "No outcome is named.",
        counts=target.counts(),
        dropped={reason: n for reason, n in parsed.dropped.items() if n},
        duplicates=table.duplicates,
        missing_features=tuple(slide for slide in who.slide if slide in lacking),
        without_labels=() if available is None else tuple(sorted(available - known - table.others.slides)),
        notes=tuple(notes),
    )
    return Cohort(tuple(samples), target, _per_sample(table.rows, members), report, table.rows.iloc[keep])


def _grouped(who: Identities, keep: list[int], level: Level) -> dict[str, list[int]]:
    """Rows of each sample, sorted by its name."""
    names = who.patient if level == "patient" else who.slide
    members: dict[str, list[int]] = {}
    for row in sorted(keep, key=lambda row: (names[row], who.slide[row])):
        members.setdefault(names[row], []).append(row)
    return members


def rows_per_sample(table: ClinicalTable, level: Level) -> pd.DataFrame:
    """One row per slide or patient: the columns on which the slides of every patient agree."""
    rows = _per_sample(table.rows, _grouped(table.who, list(range(len(table.rows))), level))
    rows.attrs["source"] = table.source
    return rows


def _per_sample(table: pd.DataFrame, members: Mapping[str, list[int]]) -> pd.DataFrame:
    """One row per sample: the columns on which the slides of every sample agree, and how many slides it has."""
    order = [row for rows in members.values() for row in rows]
    names = [name for name, rows in members.items() for _ in rows]
    used = table.iloc[order]
    groups = used.groupby(np.array(names), sort=False)
    agreed = [column for column in used.columns if (groups[column].nunique() <= 1).all()]
    per_sample = groups[agreed].first() if agreed else pd.DataFrame(index=list(members))
    return per_sample.assign(n_slides=[len(rows) for rows in members.values()])
