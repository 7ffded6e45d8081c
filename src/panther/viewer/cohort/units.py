"""Who the points are, slides or patients, and what the table says of them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from panther.errors import InputError
from panther.report.data import numeric
from panther.storage.clinical import ClinicalTable
from panther.storage.tables import is_missing
from panther.viewer.contents import Contents

Value = str | float
Kind = Literal["category", "number"]
LEVELS = ("slides", "patients")
SEVERAL = "several"  # what a patient has whose slides differ
MOST_CATEGORIES = 10  # different numbers of a large cohort; more are a scale


@dataclass(frozen=True, eq=False)
class Units:
    """Slides or patients, in the order of their names."""

    level: str
    names: list[str]
    slides: list[list[str]]  # of each
    patients: list[str]  # of each; a slide whose patient nobody knows is its own


@dataclass(frozen=True, eq=False)
class Column:
    """A column of the table, by slide; slides of which it says nothing are not in it."""

    name: str
    kind: Kind
    values: Mapping[str, Value]


def levels(contents: Contents) -> list[str]:
    """Patients are worth showing where the table knows them and one has several slides."""
    patients = [one.patient for one in contents.slides.values() if one.patient is not None]
    return list(LEVELS) if len(set(patients)) < len(patients) else [LEVELS[0]]


def units_of(contents: Contents, level: str) -> Units:
    """All slides, or whose they are."""
    if level not in LEVELS:
        raise InputError(f"Points are {' or '.join(LEVELS)}, not {level!r}.")
    owner = {name: one.patient or name for name, one in contents.slides.items()}
    if level == "slides":
        return Units(level, list(owner), [[name] for name in owner], list(owner.values()))
    found: dict[str, list[str]] = {}
    for name, patient in owner.items():
        found.setdefault(patient, []).append(name)
    return Units(level, sorted(found), [found[name] for name in sorted(found)], sorted(found))


def columns_of(table: ClinicalTable | None, slides: Iterable[str]) -> list[Column]:
    """Columns of the table for these slides."""
    if table is None:
        return []
    here = [name for name in slides if name in table.rows.index]
    owner = dict(zip(table.who.slide, table.who.patient, strict=True))
    found = []
    for name in table.rows.columns:
        written = table.rows[name].reindex(here).astype(str).str.strip()
        known = ~is_missing(written)
        if here and (list(written) == here or list(written) == [owner[slide] for slide in here]):
            continue  # it only says who they are
        # a score of three steps is a name; of a small cohort also a few numbers are a scale
        fewest = min(MOST_CATEGORIES, int(known.sum()) // 2)
        numbers = numeric(written.where(known, ""), fewest)
        values: dict[str, Value] = (
            {slide: text for slide, text, is_known in zip(here, written, known, strict=True) if is_known}
            if numbers is None
            else {slide: float(n) for slide, n in zip(here, numbers, strict=True) if np.isfinite(n)}
        )
        found.append(Column(str(name), "category" if numbers is None else "number", values))
    return found


def joined(values: Mapping[str, Value], slides: Sequence[str]) -> Value | None:
    """What a unit has of its slides' values: theirs where it is one, the mean of numbers; None where nothing is known."""
    known = [values[slide] for slide in slides if slide in values]
    if not known:
        return None
    if all(isinstance(value, float) for value in known):
        return float(np.mean(known))  # type: ignore[arg-type]
    return known[0] if len(set(known)) == 1 else SEVERAL
