"""What all readers of slide vectors share: the value they make, and the checks that it went through."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np

from panther.errors import InputError
from panther.storage.names import without_suffix


@dataclass(frozen=True, eq=False)
class SlideVectors:
    """One vector per slide or patient, all of one width."""

    source: str  # file or folder
    names: list[str]
    vectors: np.ndarray  # (n, d) float32
    layout: str  # in words, for `inspect`
    encoder: str | None = None  # what made the vectors, where the files say it
    level: Literal["slide", "patient"] | None = None  # where the files say it
    problems: Mapping[str, str] = field(default_factory=dict)  # of those that cannot be used -> sentence

    @property
    def dim(self) -> int:
        """Width of the vectors."""
        return int(self.vectors.shape[1])


class Named(NamedTuple):
    """A vector as it was found."""

    name: str
    vector: np.ndarray  # (d,)
    where: str  # file, or row of a table, for messages


def checked(
    source: str, found: Sequence[Named], layout: str, problems: Mapping[str, str] | None = None, **known: Any
) -> SlideVectors:
    """Vectors without those that stand twice, differ in width from the others or hold NaN, each with a sentence."""
    problems = dict(problems or {})
    found = [one._replace(name=without_suffix(one.name)) for one in found]
    times = Counter(one.name for one in found)
    width = _usual_width(source, found)
    kept: list[Named] = []
    for one in found:
        if times[one.name] > 1:
            problems[one.name] = f"{one.where}: {one.name} has {times[one.name]} vectors; keep one of them."
        elif len(one.vector) != width:
            problems[one.name] = (
                f"{one.where}: the vector of {one.name} has {len(one.vector)} numbers, those of the others {width}; "
                "encode this slide again with the same slide encoder."
            )
        elif not np.isfinite(one.vector).all():
            problems[one.name] = (
                f"{one.where}: the vector of {one.name} holds NaN or an infinite number; encode this slide again."
            )
        else:
            kept.append(one)
    if not kept:
        first = next(iter(problems.values()), "")
        raise InputError(f"{source}: holds no vector of a slide that can be used. {first}".rstrip())
    vectors = np.stack([one.vector for one in kept]).astype(np.float32, copy=False)
    return SlideVectors(source, [one.name for one in kept], vectors, layout, problems=problems, **known)


def rows_of(source: str, names: Sequence[Any], matrix: np.ndarray, layout: str, **known: Any) -> SlideVectors:
    """Vectors that are the rows of one matrix (n, d)."""
    if matrix.ndim != 2 or matrix.dtype.kind not in "fiu" or 0 in matrix.shape:
        raise InputError(
            f"{source}: holds an array {matrix.shape} of {matrix.dtype}; expected numbers (n, d), one row per slide."
        )
    if len(names) != len(matrix):
        raise InputError(f"{source}: has {len(matrix)} rows but {len(names)} names; expected one name for each row.")
    texts = [str(name).strip() for name in names]
    empty = [row for row, name in enumerate(texts) if not name]
    if empty:
        raise InputError(f"{source}: row {empty[0]} has no name; every vector needs the name of its slide or patient.")
    with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite, and is told
        plain = matrix.astype(np.float32, copy=False)
    found = [Named(name, row, source) for name, row in zip(texts, plain, strict=True)]
    return checked(source, found, layout, **known)


def _usual_width(source: str, found: Sequence[Named]) -> int:
    """Width that most vectors have; where two are equally usual, nobody knows which is meant."""
    widths = Counter(len(one.vector) for one in found).most_common(2)
    if not widths:
        return 0
    if len(widths) > 1 and widths[0][1] == widths[1][1]:
        raise InputError(
            f"{source}: {widths[0][1]} vectors have {widths[0][0]} numbers and as many have {widths[1][0]}; keep those of one slide encoder."
        )
    return widths[0][0]
