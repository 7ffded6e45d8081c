"""Where the classes of patches come from: a probe, or a table of labels that people gave."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from panther.errors import InputError, listed
from panther.explain.concordance.mathematics import UNKNOWN
from panther.explain.concordance.probe import TissueProbe
from panther.storage.clinical import SLIDE_COLUMNS, find_column
from panther.storage.names import without_suffix
from panther.storage.tables import as_table
from panther.types import Bag, Prototypes


class Labels(Protocol):
    """Gives patches and, where it can, prototypes their classes."""

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes."""

    def of(self, bag: Bag) -> np.ndarray:
        """Probabilities (N, K) of a bag's patches; rows of NaN where nothing is known."""

    def of_prototypes(self, prototypes: Prototypes) -> np.ndarray | None:
        """Classes (C,) of the centroids themselves, None where that cannot be said."""

    def told(self) -> dict[str, Any]:
        """What it is, as plain values."""


def tissue_of(probabilities: np.ndarray) -> np.ndarray:
    """Most probable class (N,) of rows (N, K), the first of equal ones; UNKNOWN for rows of NaN."""
    known = np.isfinite(probabilities).all(1)
    return np.where(known, np.nan_to_num(probabilities).argmax(1), UNKNOWN)


@dataclass(frozen=True)
class ProbeLabels:
    """Classes that a probe sees."""

    probe: TissueProbe
    path: Path

    @property
    def classes(self) -> tuple[str, ...]:
        """Of the probe."""
        return self.probe.classes

    def of(self, bag: Bag) -> np.ndarray:
        """Probabilities (N, K)."""
        return self.probe.label(bag)

    def of_prototypes(self, prototypes: Prototypes) -> np.ndarray | None:
        """Classes of the centroids; those of PCA are brought back to the features, those of normalised features cannot be."""
        self.probe.check_encoder("The prototypes", prototypes.dim_in, prototypes.encoder)
        projection = prototypes.projection
        if projection.normalise:
            return None
        centroids = prototypes.centroids.float()
        if projection.basis is not None and projection.mean is not None:
            centroids = centroids @ projection.basis.float().T + projection.mean.float()
        with torch.no_grad():
            return self.probe.probabilities(centroids).numpy().argmax(1)

    def told(self) -> dict[str, Any]:
        """File, hash and how well the probe did on its own tiles."""
        return {
            "kind": "probe",
            "file": self.path.name,
            "hash": self.probe.content_hash(),
            "encoder": self.probe.encoder,
            "evaluation": dict(self.probe.evaluation),
        }


@dataclass(frozen=True)
class TruthLabels:
    """Classes that people gave to patches, found again by slide and upper left corner."""

    classes: tuple[str, ...]
    places: Mapping[str, Mapping[tuple[int, int], int]] = field(repr=False)  # slide -> corner -> class
    path: Path

    def of(self, bag: Bag) -> np.ndarray:
        """One for the class of a labelled patch, zero for others; rows of NaN for patches without a label."""
        if bag.places is None:
            raise InputError(f"{bag.source}: the file has no coordinates, by which labels are matched; use `probe=`.")
        here = self.places.get(bag.slide_id)
        if here is None:
            raise InputError(f"{self.path}: no row is of the slide {bag.slide_id}; add its patches, or leave it out.")
        corners = np.round(bag.places().double().numpy()).astype(np.int64).tolist()
        found = np.array([here.get((x, y), UNKNOWN) for x, y in corners])
        if (found == UNKNOWN).all():
            x, y = next(iter(here))
            raise InputError(
                f"{self.path}: none of the {len(here)} labels of {bag.slide_id} lies on a patch, e.g. ({x}, {y}) while the first "
                f"patch is at {tuple(corners[0])}; x and y are the upper left corners as in `coords` of {bag.source}."
            )
        rows = np.eye(len(self.classes), dtype=np.float32)[found]
        rows[found == UNKNOWN] = np.nan
        return rows

    def of_prototypes(self, prototypes: Prototypes) -> None:
        """Nobody labelled the centroids."""
        return

    def told(self) -> dict[str, Any]:
        """File and number of labels."""
        return {"kind": "labels", "file": self.path.name, "labels": sum(map(len, self.places.values()))}


def read_labels(path: Path) -> TruthLabels:
    """Read a CSV with the columns slide_id, x, y, label; a patch labelled twice in two ways is refused."""
    import pandas as pd

    table = as_table(path)
    slide = find_column(table, None, SLIDE_COLUMNS, "slide")
    if slide is None or not {"x", "y", "label"} <= set(table.columns):
        raise InputError(f"{path}: has the columns {listed(table.columns)}; expected slide_id, x, y and label.")
    x, y = (pd.to_numeric(table[name], errors="coerce") for name in ("x", "y"))
    bad = x.isna() | y.isna() | (table["label"].str.strip() == "")
    if bad.any():
        line = int(bad.to_numpy().argmax()) + 2  # counting the header, as a spreadsheet does
        raise InputError(f"{path}: line {line} lacks a number in x or y, or a label; every row needs all three.")
    names = table["label"].str.strip()
    classes = tuple(sorted(names.unique()))
    if len(classes) < 2:
        raise InputError(f"{path}: all labels are {classes[0]!r}; agreement needs at least two classes.")
    number = {name: k for k, name in enumerate(classes)}
    places: dict[str, dict[tuple[int, int], int]] = {}
    corners = zip(x.round().astype(int).tolist(), y.round().astype(int).tolist(), strict=True)
    slides = [without_suffix(name) for name in table[slide]]
    for name, corner, label in zip(slides, corners, names, strict=True):
        if places.setdefault(name, {}).setdefault(corner, number[label]) != number[label]:
            raise InputError(f"{path}: the patch {corner} of {name} has two labels; keep one.")
    return TruthLabels(classes, places, path)
