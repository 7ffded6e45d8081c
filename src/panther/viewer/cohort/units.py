"""Slides or patients of the cohort page: their columns of the table, shares of the prototypes and vectors.

Functions that read embeddings run in worker processes, where a damaged file fails one request only.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from panther.errors import InputError
from panther.explain.projection import Plane, principal_components, umap
from panther.explain.shares import pooled
from panther.report.data import numeric
from panther.storage.clinical import ClinicalTable
from panther.storage.embeddings import read_vectors, read_weights
from panther.storage.tables import is_missing
from panther.store import version_of
from panther.viewer.contents import Contents
from panther.viewer.gallery import gallery_of
from panther.viewer.workbench import InProgressError, LruCache, Workbench

Value = str | float
Kind = Literal["category", "number"]
LEVELS = ("slides", "patients")
SEVERAL = "several"  # value of a patient with different values on its slides
MOST_CATEGORIES = 10  # different numbers of a large cohort; more are a scale
PLANES = {"pca": principal_components, "umap": umap}


@dataclass(frozen=True, eq=False)
class Units:
    """Slides or patients, in the order of their names."""

    level: str
    names: list[str]
    slides: list[list[str]]  # of each
    patients: list[str]  # of each; a slide of unknown patient is its own patient


@dataclass(frozen=True, eq=False)
class Column:
    """A column of the table, by slide; slides without a value are not in it."""

    name: str
    kind: Kind
    values: Mapping[str, Value]


class Share(NamedTuple):
    """Shares of the prototypes in a slide."""

    pi: np.ndarray  # (C,)
    patches: float


class EmbeddingsFile(NamedTuple):
    """Content of a file of embeddings, without its vectors."""

    samples: list[str]  # with finite vectors
    damaged: list[str]  # with NaN or infinity
    prototypes_hash: str | None
    shares: dict[str, Share]  # empty if the file has no pi


def levels(contents: Contents) -> list[str]:
    """Slides, and patients if the table has them and one has several slides."""
    patients = [slide.patient for slide in contents.slides.values() if slide.patient is not None]
    return list(LEVELS) if len(set(patients)) < len(patients) else [LEVELS[0]]


def units_of(contents: Contents, level: str) -> Units:
    """Slides, or their patients."""
    patient_of = {name: slide.patient or name for name, slide in contents.slides.items()}
    if level == "slides":
        return Units(level, list(patient_of), [[name] for name in patient_of], list(patient_of.values()))
    members: dict[str, list[str]] = defaultdict(list)
    for name, patient in patient_of.items():
        members[patient].append(name)
    patients = sorted(members)
    return Units(level, patients, [members[patient] for patient in patients], patients)


def columns_of(table: ClinicalTable | None, slides: Iterable[str]) -> list[Column]:
    """Columns of the table with its values for these slides."""
    if table is None:
        return []
    rows = table.rows.loc[[name for name in slides if name in table.rows.index]]
    patient_of = dict(zip(table.who.slide, table.who.patient, strict=True))
    identifiers = [list(rows.index), [patient_of[slide] for slide in rows.index]]
    columns = []
    for name in rows.columns:
        texts = rows[name].astype(str).str.strip()
        if len(rows) and list(texts) in identifiers:
            continue
        texts = texts[~is_missing(texts)]
        # a score of three steps is a category; in a small cohort a few different numbers are a scale
        numbers = numeric(texts, min(MOST_CATEGORIES, len(texts) // 2))
        if numbers is None:
            columns.append(Column(str(name), "category", dict(zip(texts.index, texts, strict=True))))
        else:
            values = {slide: float(n) for slide, n in zip(texts.index, numbers, strict=True) if np.isfinite(n)}
            columns.append(Column(str(name), "number", values))
    return columns


def unit_value(values: Mapping[str, Value], slides: Sequence[str]) -> Value | None:
    """Value of a unit by those of its slides: the value that they share, the mean of numbers; None without a value."""
    known = [values[slide] for slide in slides if slide in values]
    if not known:
        return None
    if all(isinstance(value, float) for value in known):
        return float(np.mean(known))  # type: ignore[arg-type]
    return known[0] if len(set(known)) == 1 else SEVERAL


class CohortShares:
    """Shares of the prototypes of every slide, by set of prototypes."""

    def __init__(self, bench: Workbench) -> None:
        self._bench = bench
        self._file: LruCache[EmbeddingsFile] = LruCache(1)

    def embeddings(self) -> EmbeddingsFile | None:
        """Content of the embeddings file; None without one. A damaged file is an error."""
        path = self._bench.contents.embeddings
        if path is None:
            return None

        def read() -> EmbeddingsFile:
            self._bench.refuse_links([path])
            return self._bench.compute(read_embeddings, path)

        return self._file.get(path, read, version_of([path]))

    def read(self, name: str | None) -> tuple[Mapping[str, Share], Mapping[str, str]]:
        """Shares under a set of prototypes, and why some failed; `InProgressError` while they are computed."""
        shares = self.of_file(name)
        contents = self._bench.contents
        missing = [name for name, slide in contents.slides.items() if slide.features is not None and name not in shares]
        if not contents.prototypes or not missing:
            return shares, {}
        computed, failures = gallery_of(self._bench, name).shares()
        if computed is not None:
            patches = np.ones(len(computed.samples)) if computed.patches is None else computed.patches
            rows = zip(computed.samples, computed.pi, patches.tolist(), strict=True)
            shares = {slide: Share(pi, n) for slide, pi, n in rows} | shares
        return shares, failures

    def known(self, name: str | None) -> Mapping[str, Share]:
        """Shares that are there without reading features: of the embeddings or of an atlas."""
        try:
            has_atlas = bool(self._bench.contents.artefacts.get("atlas"))
            return self.read(name)[0] if has_atlas else self.of_file(name)
        except (InputError, InProgressError):
            return {}

    def of_file(self, name: str | None) -> dict[str, Share]:
        """Shares of the embeddings file, if they are of these prototypes, or there are no other prototypes."""
        file, contents = self.embeddings(), self._bench.contents
        if file is None:
            return {}
        if contents.prototypes and file.prototypes_hash != self._bench.prototypes(name).content_hash():
            return {}
        return {slide: share for slide, share in file.shares.items() if slide in contents.slides}


def unit_shares(units: Units, shares: Mapping[str, Share]) -> dict[str, np.ndarray]:
    """Pi (C,) of each slide or patient that has some."""
    result = {}
    for name, slides in zip(units.names, units.slides, strict=True):
        members = [shares[slide] for slide in slides if slide in shares]
        if members:
            pi, patches = zip(*members, strict=True)
            result[name] = pooled(np.stack(pi), np.array(patches))
    return result


def read_embeddings(path: Path) -> EmbeddingsFile:
    """Samples, and their pi if the method keeps it."""
    samples, vectors, prototypes_hash = read_vectors(path)
    is_finite = [bool(np.isfinite(vector).all()) for vector in vectors]  # one by one: a copy of all may be gigabytes
    finite = list(compress(samples, is_finite))
    damaged = list(compress(samples, np.logical_not(is_finite)))
    try:
        names, pi, columns = read_weights(path, "n_patches")
    except InputError:
        return EmbeddingsFile(finite, damaged, prototypes_hash, {})
    rows = zip(names, pi.astype(np.float64), map(float, columns["n_patches"]), strict=True)
    return EmbeddingsFile(finite, damaged, prototypes_hash, {name: Share(row, n) for name, row, n in rows if n > 0})


def plane_of_file(path: Path, slides: Sequence[Sequence[str]], patches: Mapping[str, float], method: str) -> Plane:
    """Plane of the embeddings of units, which are means of their slides' embeddings, weighted by patches."""
    samples, vectors, _ = read_vectors(path)
    row_of = {sample: row for row, sample in enumerate(samples)}
    rows = [[row_of[name] for name in members] for members in slides]
    if all(len(members) == 1 for members in slides):
        return PLANES[method](vectors[np.ravel(rows)])
    counts = [np.array([patches.get(name, 1.0) for name in members]) for members in slides]
    return PLANES[method](np.stack([pooled(vectors[r], n) for r, n in zip(rows, counts, strict=True)]))
