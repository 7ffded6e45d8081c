"""The drawn tissue compared with the results: tissue under patches, names of prototypes, agreement of maps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from panther.errors import InputError
from panther.explain.scene import assign
from panther.storage.files import read_errors, write_text
from panther.storage.readers import open_bag
from panther.storage.tables import write_csv
from panther.types import Aggregator, Prototypes
from panther_demo.layout import GLASS, SCALE
from panther_demo.tissues import tissues


@dataclass(frozen=True)
class Labelled:
    """Patches of one slide, the tissue drawn under them and their prototypes."""

    slide: str
    coords: np.ndarray  # (N, 2), level-0 pixels
    counts: np.ndarray  # (N, T + 1), pixels of the mask under each patch, by label; 0 is glass
    prototype: np.ndarray  # (N,)

    @property
    def tissue(self) -> np.ndarray:
        """Most frequent tissue of each patch (N,); GLASS where there is no tissue."""
        return np.where(self.counts[:, 1:].any(1), self.counts[:, 1:].argmax(1) + 1, GLASS)


def read_mask(path: Path) -> np.ndarray:
    """Labels (h, w) at 1/8 scale: 0 glass, t the t-th tissue."""
    with read_errors(path, "mask", "draw the cohort again"):
        return np.asarray(Image.open(path))


def labelled(features: Path, truth: Path, prototypes: Prototypes, module: Aggregator) -> Labelled:
    """Compare one slide's features with its mask."""
    bag = open_bag(features)
    if bag.places is None or bag.spec.size_level0 is None:
        raise InputError(f"{features}: found no coordinates or patch size.")
    coords = np.asarray(bag.places())
    counts = count_under(read_mask(truth / f"{bag.slide_id}.png"), coords, bag.spec.size_level0)
    shares = assign(prototypes.prepared(bag), module).assignment
    return Labelled(bag.slide_id, coords, counts, shares.argmax(1).numpy())


def count_under(mask: np.ndarray, coords: np.ndarray, size: int) -> np.ndarray:
    """Pixels of the mask under squares of ``size`` level-0 pixels at ``coords`` (N, 2), by label: (N, T + 1)."""
    side = max(1, size // SCALE)
    counts = np.zeros((len(coords), len(tissues.names()) + 1), np.int64)
    for row, (x, y) in enumerate(np.asarray(coords) // SCALE):
        under = mask[y : y + side, x : x + side]
        counts[row] = np.bincount(under.ravel(), minlength=counts.shape[1])
    return counts


def majority_names(slides: Sequence[Labelled], count: int) -> dict[int, str]:
    """Most frequent tissue under a prototype's patches, by prototype; those without tissue have no name."""
    pixels = np.zeros((count, len(tissues.names()) + 1), np.int64)
    for slide in slides:
        np.add.at(pixels, slide.prototype, slide.counts)
    names = tissues.names()
    return {c: names[int(row[1:].argmax())] for c, row in enumerate(pixels) if row[1:].any()}


def pixel_table(slide: Labelled, names: Mapping[int, str]) -> np.ndarray:
    """Pixels of tissue under the patches, (T + 1, T): by the name of their prototype (the first row: none) and by drawn tissue."""
    label = {name: number + 1 for number, name in enumerate(tissues.names())}
    named = np.array([label.get(names.get(int(c), ""), GLASS) for c in slide.prototype], int)
    pixels = np.zeros((len(label) + 1, len(label)), np.int64)
    np.add.at(pixels, named, slide.counts[:, 1:])
    return pixels


def held_out_table(slides: Sequence[Labelled], count: int) -> np.ndarray:
    """The sum of the slides' tables, each with the names from all other slides."""
    others = ([other for other in slides if other is not slide] for slide in slides)
    tables = [pixel_table(slide, majority_names(rest, count)) for slide, rest in zip(slides, others, strict=True)]
    return np.sum(tables, axis=0)


def agreement(table: np.ndarray) -> float:
    """Share of the pixels on whose tissue the name of the prototype and the mask agree."""
    return float(np.trace(table[1:]) / max(table.sum(), 1))


def write_names(path: Path, names: Mapping[int, str]) -> None:
    """Write names in the format of `--names`, and their source."""
    lines = [
        "# From the masks that the synthetic slides were drawn by.",
        *(f"C{c}: {name}" for c, name in sorted(names.items())),
    ]
    write_text(path, "\n".join(lines) + "\n")


def write_labels(path: Path, slides: Sequence[Labelled]) -> None:
    """Write the tissue of every patch, like a pathologist's annotations: slide_id, x, y, label."""
    names, rows = ["glass", *tissues.names()], []
    for slide in slides:
        rows += [[slide.slide, int(x), int(y), names[k]] for (x, y), k in zip(slide.coords, slide.tissue, strict=True)]
    write_csv(path, ["slide_id", "x", "y", "label"], rows)
