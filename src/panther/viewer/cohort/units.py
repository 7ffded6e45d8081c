"""Units of the cohort page, slides or patients: their columns of the table and their shares of the prototypes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from panther.errors import InputError
from panther.explain.shares import Proportions, pooled
from panther.report.data import numeric
from panther.storage.clinical import ClinicalTable
from panther.storage.tables import is_missing
from panther.store import version_of
from panther.viewer.cohort.worker import EmbeddingsFile, Share, read_embeddings
from panther.viewer.contents import Contents
from panther.viewer.gallery import gallery_of
from panther.viewer.kept import Kept
from panther.viewer.workbench import Workbench

Value = str | float
Kind = Literal["category", "number"]
LEVELS = ("slides", "patients")
SEVERAL = "several"  # value of a patient with different values on its slides
MOST_CATEGORIES = 10  # different numbers of a large cohort; more are a scale


@dataclass(frozen=True, eq=False)
class Units:
    """Slides or patients, in the order of their names."""

    level: str
    names: list[str]
    slides: list[list[str]]  # of each
    patients: list[str]  # of each; a slide of unknown patient is its own


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
    """Slides, or their patients."""
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


@dataclass(frozen=True)
class Progress:
    """How far something is."""

    done: int
    total: int
    what: str


class CohortShares:
    """How much of each prototype every slide has, by set of prototypes."""

    def __init__(self, bench: Workbench) -> None:
        self._bench = bench
        self._file: Kept[EmbeddingsFile] = Kept(1)

    def embeddings(self) -> EmbeddingsFile | None:
        """What the embeddings file holds; None without one. What is damaged is an error."""
        path = self._bench.contents.embeddings
        if path is None:
            return None

        def read() -> EmbeddingsFile:
            self._bench.refuse_links([path])
            return self._bench.compute(read_embeddings, path)

        return self._file.get(path, read, version_of([path]))

    def known(self, name: str | None) -> tuple[Mapping[str, Share], Progress | None, Mapping[str, str]]:
        """Shares that there are under a set of prototypes, how far the others are, and why some will not come."""
        filed = self._filed(name)
        contents = self._bench.contents
        left = [slide for slide, one in contents.slides.items() if one.features is not None and slide not in filed]
        if not contents.prototypes or not left:
            return filed, None, {}
        looked, done, total, failures = gallery_of(self._bench, name).shares()
        progress = None if done >= total else Progress(done, total, "shares of the prototypes")
        return {**_by_slide(looked), **filed}, progress, failures

    def count(self, name: str | None) -> int:
        """How many prototypes there are."""
        if self._bench.contents.prototypes:
            return len(self._bench.prototypes(name))
        filed = self._filed(name)
        return len(next(iter(filed.values())).pi) if filed else 0

    def _filed(self, name: str | None) -> Mapping[str, Share]:
        """Those of the file, where they are of the same prototypes, or where there are no other prototypes."""
        found = self.embeddings()
        if found is None:
            return {}
        contents = self._bench.contents
        if contents.prototypes and found.prototypes_hash != self._bench.prototypes(name).content_hash():
            return {}
        return {slide: share for slide, share in found.shares.items() if slide in contents.slides}


def _by_slide(proportions: Proportions | None) -> dict[str, Share]:
    if proportions is None:
        return {}
    patches = np.ones(len(proportions.samples)) if proportions.patches is None else proportions.patches
    return {
        slide: Share(pi, float(n)) for slide, pi, n in zip(proportions.samples, proportions.pi, patches, strict=True)
    }


def unit_shares(units: Units, shares: Mapping[str, Share]) -> dict[str, np.ndarray]:
    """Pi (C,) of each slide or patient that has any."""
    found = {}
    for name, slides in zip(units.names, units.slides, strict=True):
        own = [shares[slide] for slide in slides if slide in shares]
        if own:
            found[name] = pooled(np.stack([one.pi for one in own]), np.array([one.patches for one in own]))
    return found
