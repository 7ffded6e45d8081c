"""Given vectors become rows of a study: whose each is, means over a patient's slides, and who has none."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from panther.cohort.load import Sample
from panther.cohort.spec import Level
from panther.errors import InputError, listed
from panther.storage.clinical import Identities
from panther.storage.slide_vectors import SlideVectors, read_slide_vectors
from panther.store import hash_of
from panther.study.parts import NOT_NAMED, Given


@dataclass(frozen=True, eq=False)
class GivenRows:
    """One vector for each sample of a study that has one."""

    names: tuple[str, ...]  # of samples
    vectors: np.ndarray  # (n, d) float32

    @cached_property
    def contents(self) -> dict[str, str]:
        """Hash of each vector."""
        return {name: hash_of("vector", row.tobytes()) for name, row in zip(self.names, self.vectors, strict=True)}

    def joined(self, other: "GivenRows", title: str) -> "GivenRows":
        """With the rows of another cohort."""
        if other.vectors.shape[1] != self.vectors.shape[1]:
            raise InputError(
                f"{title}: the vectors have {self.vectors.shape[1]} numbers in the study and {other.vectors.shape[1]} in the external cohort; "
                "encode both with the same slide encoder."
            )
        return GivenRows((*self.names, *other.names), np.concatenate([self.vectors, other.vectors]))


Key = tuple[str, str]  # name of the row, and encoder


@dataclass(frozen=True, eq=False)
class Found:
    """Vectors as they were read, and for whom: the names of slides, or of patients."""

    vectors: SlideVectors
    level: Level


def title_of(key: Key) -> str:
    """What messages call them."""
    name, encoder = key
    return name if encoder == NOT_NAMED else f"{name} ({encoder})"


def read_given(
    embeddings: Mapping[str, Mapping[str, Given]], who: Identities, without: Collection[str] = ()
) -> tuple[dict[Key, Found], dict[str, str]]:
    """All given vectors that can be used, and a sentence for each file that cannot; one that is not there is a mistake in the study."""
    found: dict[Key, Found] = {}
    problems: dict[str, str] = {}
    for key, one in _each(embeddings):
        if title_of(key) in without:
            continue
        if not one.path.exists():
            raise InputError(
                f"{one.path}: there is no such file or folder; the study names it as embeddings of {title_of(key)!r}."
            )
        try:
            vectors = read_slide_vectors(one.path, one.key)
            found[key] = Found(vectors, _level(title_of(key), vectors, one.level, who))
        except InputError as error:
            problems[title_of(key)] = str(error)
    return found, problems


def slides_with(found: Found, who: Identities) -> set[str]:
    """Slides of a table that have a vector, their own or their patient's."""
    names = set(found.vectors.names)
    owners = who.slide if found.level == "slide" else who.patient
    return {slide for slide, owner in zip(who.slide, owners, strict=True) if owner in names}


def rows_for(title: str, found: Found, samples: Sequence[Sample], level: Level) -> tuple[GivenRows, list[str], str]:
    """Vectors of samples, notes about how they came about, and a sentence about those who have none (empty: all have one)."""
    if found.level == "patient" and level == "slide":
        raise InputError(
            f"{found.vectors.source}: {title} has vectors of patients, but the study predicts slides; use `level: patient` in the task."
        )
    where = {name: row for row, name in enumerate(found.vectors.names)}
    members = [sample.slides if found.level == "slide" else (sample.patient,) for sample in samples]
    rows = [[where[name] for name in own if name in where] for own in members]
    names = tuple(sample.id for sample, own in zip(samples, rows, strict=True) if own)
    if not names:
        raise InputError(f"{found.vectors.source}: none of the study's {level}s has a vector of {title}.")
    # in float64, so that the mean of a patient's slides does not depend on their order
    vectors = np.stack([found.vectors.vectors[own].mean(0, dtype=np.float64) for own in rows if own])
    missing = sorted(name for own in members for name in own if name not in where)
    return GivenRows(names, vectors.astype(np.float32)), _notes(title, found, rows), _lacking(title, found, missing)


def _notes(title: str, found: Found, rows: Sequence[Sequence[int]]) -> list[str]:
    several = sum(len(own) > 1 for own in rows)
    about = f"{title}: {found.vectors.dim} numbers per {found.level} from {found.vectors.source}"
    averaged = f"; the vectors of a patient's slides are averaged ({several} patients have several)" if several else ""
    return [f"{about}{averaged}."]


def _lacking(title: str, found: Found, missing: Sequence[str]) -> str:
    if not missing:
        return ""
    return (
        f"{found.vectors.source}: {len(missing)} {found.level}s of the study have no vector of {title} ({listed(missing, 5)}); "
        "its rows are trained and judged without them, and comparisons are on the patients that both have."
    )


def _level(title: str, vectors: SlideVectors, said: Level | None, who: Identities) -> Level:
    """Whether names are those of slides or of patients: as somebody says, else as more of them are."""
    names = set(vectors.names)
    slides, patients = len(names & set(who.slide)), len(names & set(who.patient))
    known: Level = said or vectors.level or ("patient" if patients > slides else "slide")
    if not (patients if known == "patient" else slides):
        example = min(who.patient if known == "patient" else who.slide)
        raise InputError(
            f"{vectors.source}: none of its names is a {known} of the table: the file of {title} says e.g. {min(names)!r}, the table "
            f"{example!r}."
        )
    return known


def _each(embeddings: Mapping[str, Mapping[str, Given]]) -> list[tuple[Key, Given]]:
    return [((name, encoder), one) for name, own in embeddings.items() for encoder, one in own.items()]
