"""Vectors of slides as bags with one row each: the mean over a patient's slides is then that of any bag."""

from pathlib import Path

import torch

from panther.errors import InputError
from panther.storage.bags import Listing
from panther.storage.clinical import USUAL, ColumnsLike, read_clinical
from panther.storage.slide_vectors._base import SlideVectors
from panther.storage.slide_vectors.read import read_slide_vectors
from panther.types import Bag


def split_key(text: Path | str) -> tuple[Path, str | None]:
    """`titan.h5ad#obsm/X_titan` as a path and the place in it; embeddings in memory are left alone."""
    if not isinstance(text, (str, Path)):
        return text, None
    path, mark, key = str(text).rpartition("#")
    return (Path(path), key) if mark and path and not Path(text).exists() else (Path(text), None)


def vector_bags(
    text: Path | str, table: object = None, split: str | None = None, columns: ColumnsLike = USUAL
) -> Listing:
    """Bags of a file or folder of vectors; a vector of a patient stands for each of the slides that the table has of them."""
    vectors = read_slide_vectors(*split_key(text))
    if table is None:
        return _listing(vectors, {name: name for name in vectors.names})
    who = read_clinical(table, split, columns).who  # type: ignore[arg-type]
    names = set(vectors.names)
    by_slide = {slide: slide for slide in who.slide if slide in names}
    by_patient = {s: p for s, p in zip(who.slide, who.patient, strict=True) if p in names}
    owners = by_patient if len(by_patient) > len(by_slide) or vectors.level == "patient" else by_slide
    if not owners:
        raise InputError(
            f"{vectors.source}: none of its names is a slide or a patient of the table: it says e.g. {vectors.names[0]!r}, the table "
            f"{who.slide[0]!r} of {who.patient[0]!r}."
        )
    return _listing(vectors, owners)


def _listing(vectors: SlideVectors, owners: dict[str, str]) -> Listing:
    row = {name: number for number, name in enumerate(vectors.names)}
    numbers = torch.from_numpy(vectors.vectors)
    bags = [Bag(name, numbers[row[owner]][None], format=vectors.layout) for name, owner in owners.items()]
    return Listing(tuple(bags), dict(vectors.problems))
