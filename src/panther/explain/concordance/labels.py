"""Classes that people gave to patches: a table with slide, upper left corner and label."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from panther.errors import InputError, listed
from panther.explain.concordance.agreement import UNKNOWN
from panther.storage.clinical import SLIDE_COLUMNS, find_column
from panther.storage.names import without_suffix
from panther.storage.tables import as_table, source_of
from panther.types import Bag, Prototypes

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class PatchLabels:
    """Labels by slide and corner; a source of classes, as a tissue classifier is."""

    classes: tuple[str, ...]
    places: Mapping[str, Mapping[tuple[int, int], int]] = field(repr=False)  # slide -> corner -> class
    source: str

    def label(self, bag: Bag) -> np.ndarray:
        """Probabilities (N, K): one for the class of a labelled patch, zero for others; rows of NaN for patches without a label."""
        if bag.places is None:
            raise InputError(
                f"{bag.source}: the file has no coordinates, by which labels are matched; use `classifier=`."
            )
        here = self.places.get(bag.slide_id)
        if here is None:
            raise InputError(f"{self.source}: no row is of the slide {bag.slide_id}; add its patches, or leave it out.")
        corners = np.round(bag.places().double().numpy()).astype(np.int64).tolist()
        found = np.array([here.get((x, y), UNKNOWN) for x, y in corners])
        if (found == UNKNOWN).all():
            x, y = next(iter(here))
            raise InputError(
                f"{self.source}: none of the {len(here)} labels of {bag.slide_id} lies on a patch, e.g. ({x}, {y}) while the first "
                f"patch is at {tuple(corners[0])}; x and y are the upper left corners as in `coords` of {bag.source}."
            )
        rows = np.eye(len(self.classes), dtype=np.float32)[found]
        rows[found == UNKNOWN] = np.nan
        return rows

    def label_prototypes(self, prototypes: Prototypes) -> None:
        """Nobody labelled the centroids."""
        return

    def to_dict(self) -> dict[str, Any]:
        """What it is, as plain values."""
        return {"kind": "labels", "file": Path(self.source).name, "labels": sum(map(len, self.places.values()))}


def read_labels(table: "Path | str | pd.DataFrame") -> PatchLabels:
    """Read a table with the columns slide_id, x, y, label; a patch labelled twice in two ways is refused."""
    import pandas as pd

    rows = as_table(table)
    source = source_of(rows)
    slide = find_column(rows, None, SLIDE_COLUMNS, "slide")
    if slide is None or not {"x", "y", "label"} <= set(rows.columns):
        raise InputError(f"{source}: has the columns {listed(rows.columns)}; expected slide_id, x, y and label.")
    x, y = (pd.to_numeric(rows[name], errors="coerce") for name in ("x", "y"))
    bad = x.isna() | y.isna() | (rows["label"].str.strip() == "")
    if bad.any():
        line = int(bad.to_numpy().argmax()) + 2  # counting the header, as a spreadsheet does
        raise InputError(f"{source}: line {line} lacks a number in x or y, or a label; every row needs all three.")
    names = rows["label"].str.strip()
    classes = tuple(sorted(names.unique()))
    if len(classes) < 2:
        raise InputError(f"{source}: all labels are {classes[0]!r}; agreement needs at least two classes.")
    number = {name: k for k, name in enumerate(classes)}
    places: dict[str, dict[tuple[int, int], int]] = {}
    corners = zip(x.round().astype(int).tolist(), y.round().astype(int).tolist(), strict=True)
    for name, corner, label in zip(map(without_suffix, rows[slide]), corners, names, strict=True):
        if places.setdefault(name, {}).setdefault(corner, number[label]) != number[label]:
            raise InputError(f"{source}: the patch {corner} of {name} has two labels; keep one.")
    return PatchLabels(classes, places, source)
