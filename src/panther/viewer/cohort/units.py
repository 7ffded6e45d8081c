"""Slides or patients of the cohort page: their columns of the table, shares of the prototypes and vectors.

Functions that read embeddings or models run in worker processes, where a damaged file costs one request.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from panther.errors import InputError
from panther.explain.projection import Plane, principal_components, umap
from panther.explain.shares import Proportions, pooled
from panther.models.model import load_model, read_about
from panther.models.predict import predict_bags
from panther.models.tasks import tasks
from panther.report.data import numeric
from panther.storage.clinical import ClinicalTable
from panther.storage.embeddings import read_vectors, read_weights
from panther.storage.tables import is_missing
from panther.store import version_of
from panther.viewer.contents import Contents, SlideEntry
from panther.viewer.gallery import gallery_of
from panther.viewer.workbench import LruCache, Workbench

Value = str | float
Kind = Literal["category", "number"]
LEVELS = ("slides", "patients")
SEVERAL = "several"  # value of a patient with different values on its slides
MOST_CATEGORIES = 10  # different numbers of a large cohort; more are a scale
RISK, VALUE = "risk", "value"
PLANES = {"pca": principal_components, "umap": umap}


@dataclass(frozen=True, eq=False)
class Units:
    """Slides or patients, in the order of their names."""

    level: str
    names: list[str]
    slides: list[list[str]]  # of each
    patients: list[str]  # of each; a slide of unknown patient stands for itself


@dataclass(frozen=True, eq=False)
class Column:
    """A column of the table, by slide; slides without a value are not in it."""

    name: str
    kind: Kind
    values: Mapping[str, Value]


@dataclass(frozen=True)
class Progress:
    """Progress of a computation in the background."""

    done: int
    total: int
    what: str


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


class AboutModel(NamedTuple):
    """Outputs of a model, and its training set."""

    outputs: list[str]  # its classes or labels, the risk, or the value
    trained_on: frozenset[str]  # slides or patients
    exclusive: bool  # of two outputs one is enough


def levels(contents: Contents) -> list[str]:
    """Patients are offered if the table knows them and one has several slides."""
    patients = [one.patient for one in contents.slides.values() if one.patient is not None]
    return list(LEVELS) if len(set(patients)) < len(patients) else [LEVELS[0]]


def units_of(contents: Contents, level: str) -> Units:
    """Slides, or their patients."""
    owner = {name: one.patient or name for name, one in contents.slides.items()}
    if level == "slides":
        return Units(level, list(owner), [[name] for name in owner], list(owner.values()))
    patients: dict[str, list[str]] = {}
    for name, patient in owner.items():
        patients.setdefault(patient, []).append(name)
    return Units(level, sorted(patients), [patients[name] for name in sorted(patients)], sorted(patients))


def columns_of(table: ClinicalTable | None, slides: Iterable[str]) -> list[Column]:
    """Columns of the table with its values for these slides."""
    if table is None:
        return []
    here = [name for name in slides if name in table.rows.index]
    owner = dict(zip(table.who.slide, table.who.patient, strict=True))
    columns = []
    for name in table.rows.columns:
        written = table.rows[name].reindex(here).astype(str).str.strip()
        known = ~is_missing(written)
        if here and (list(written) == here or list(written) == [owner[slide] for slide in here]):
            continue  # identifiers
        # a score of three steps is a name; of a small cohort also a few numbers are a scale
        fewest = min(MOST_CATEGORIES, int(known.sum()) // 2)
        numbers = numeric(written.where(known, ""), fewest)
        values: dict[str, Value] = (
            {slide: text for slide, text, is_known in zip(here, written, known, strict=True) if is_known}
            if numbers is None
            else {slide: float(n) for slide, n in zip(here, numbers, strict=True) if np.isfinite(n)}
        )
        columns.append(Column(str(name), "category" if numbers is None else "number", values))
    return columns


def joined(values: Mapping[str, Value], slides: Sequence[str]) -> Value | None:
    """Value of a unit by those of its slides: theirs if it is one, the mean of numbers; None if nothing is known."""
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

    def known(self, name: str | None) -> tuple[Mapping[str, Share], Progress | None, Mapping[str, str]]:
        """Shares under a set of prototypes, the progress of those still to come, and why some failed."""
        shares = self._from_file(name)
        contents = self._bench.contents
        left = [slide for slide, one in contents.slides.items() if one.features is not None and slide not in shares]
        if not contents.prototypes or not left:
            return shares, None, {}
        computed, done, total, failures = gallery_of(self._bench, name).shares()
        progress = None if done >= total else Progress(done, total, "shares of the prototypes")
        return {**_by_slide(computed), **shares}, progress, failures

    def count(self, name: str | None) -> int:
        """Number of prototypes."""
        if self._bench.contents.prototypes:
            return len(self._bench.prototypes(name))
        return len(next((share.pi for share in self._from_file(name).values()), ()))

    def _from_file(self, name: str | None) -> Mapping[str, Share]:
        """Those of the file, if they are of the same prototypes, or there are no other prototypes."""
        file, contents = self.embeddings(), self._bench.contents
        if file is None:
            return {}
        if contents.prototypes and file.prototypes_hash != self._bench.prototypes(name).content_hash():
            return {}
        return {slide: share for slide, share in file.shares.items() if slide in contents.slides}


def _by_slide(proportions: Proportions | None) -> dict[str, Share]:
    if proportions is None:
        return {}
    patches = np.ones(len(proportions.samples)) if proportions.patches is None else proportions.patches
    rows = zip(proportions.samples, proportions.pi, patches, strict=True)
    return {slide: Share(pi, float(n)) for slide, pi, n in rows}


def unit_shares(units: Units, shares: Mapping[str, Share]) -> dict[str, np.ndarray]:
    """Pi (C,) of each slide or patient that has any."""
    result = {}
    for name, slides in zip(units.names, units.slides, strict=True):
        members = [shares[slide] for slide in slides if slide in shares]
        if members:
            result[name] = pooled(np.stack([one.pi for one in members]), np.array([one.patches for one in members]))
    return result


def read_embeddings(path: Path) -> EmbeddingsFile:
    """Samples, and their pi if the method keeps it."""
    every, vectors, made_with = read_vectors(path)
    finite = [bool(np.isfinite(vector).all()) for vector in vectors]  # one by one: a copy of all may be gigabytes
    samples, damaged = ([n for n, is_finite in zip(every, finite, strict=True) if is_finite is kind] for kind in (True, False))  # fmt: skip
    try:
        names, pi, columns = read_weights(path, "n_patches")
    except InputError:
        return EmbeddingsFile(samples, damaged, made_with, {})
    patches = [float(value) for value in columns["n_patches"]]
    rows = zip(names, pi.astype(np.float64), patches, strict=True)
    return EmbeddingsFile(samples, damaged, made_with, {name: Share(row, n) for name, row, n in rows if n > 0})


def slide_predictions(entries: Sequence[SlideEntry], model: Path) -> tuple[dict[str, dict[str, float]], dict[str, str]]:
    """Outputs of a model for slides, by their names: probabilities of classes or labels, the risk, or the value."""
    refs = [entry.features for entry in entries if entry.features is not None]
    loaded = load_model(model)
    samples, predictions, failures = predict_bags(loaded, refs)
    names, values = loaded.task.names, loaded.task.numbers(predictions)
    rows = zip(samples, values, strict=True)
    return {sample: dict(zip(names, map(float, row), strict=True)) for sample, row in rows}, dict(failures)


def about_model(model: Path) -> AboutModel:
    """Read the header of a model file; its weights are not read."""
    about = read_about(model)
    loss = about["task"].get("loss")
    kind = tasks[loss].kind if loss in tasks else "classification"
    names = about["task"].get("names") or [VALUE if kind == "regression" else RISK]
    trained_on = frozenset(map(str, about["about"].get("samples") or ()))
    return AboutModel([str(name) for name in names], trained_on, kind == "classification")


def plane_of_file(path: Path, slides: Sequence[Sequence[str]], patches: Mapping[str, float], method: str) -> Plane:
    """Plane of the embeddings of units, which are means of their slides' embeddings, weighted by patches."""
    samples, vectors, _ = read_vectors(path)
    row = {sample: number for number, sample in enumerate(samples)}
    if all(len(members) == 1 for members in slides):
        return plane(vectors[[row[members[0]] for members in slides]], method)
    rows = [[row[name] for name in members] for members in slides]
    counts = [np.array([patches.get(name, 1.0) for name in members]) for members in slides]
    return plane(np.stack([pooled(vectors[r], n) for r, n in zip(rows, counts, strict=True)]), method)


def plane(x: np.ndarray, method: str) -> Plane:
    """Positions (n, 2) of x (n, D)."""
    return PLANES[method](x)
