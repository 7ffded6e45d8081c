"""What was drawn, held against what was found: tissue under patches, names of prototypes, agreement of maps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from panther.errors import InputError
from panther.explain.scene import assign
from panther.storage.readers import open_bag
from panther.storage.tables import write_csv
from panther.store import atomic_write
from panther.types import Aggregator, Prototypes
from panther_demo.layout import GLASS, SCALE
from panther_demo.tissues import tissues


@dataclass(frozen=True)
class Labelled:
    """Patches of one slide, what was drawn under them and the prototype they were given."""

    slide: str
    coords: np.ndarray  # (N, 2), level-0 pixels
    counts: np.ndarray  # (N, T + 1), pixels of the mask under each patch, by label; 0 is glass
    prototype: np.ndarray  # (N,)

    @property
    def tissue(self) -> np.ndarray:
        """Label of most of a patch (N,), glass aside; GLASS where there is nothing else."""
        return np.where(self.counts[:, 1:].any(1), self.counts[:, 1:].argmax(1) + 1, GLASS)

    @property
    def purity(self) -> np.ndarray:
        """Part of a patch that is its tissue (N,)."""
        return self.counts[:, 1:].max(1) / np.maximum(self.counts.sum(1), 1)


def read_mask(path: Path) -> np.ndarray:
    """Labels (h, w) at 1/8 scale: 0 glass, t the t-th tissue."""
    try:
        return np.asarray(Image.open(path))
    except OSError as error:
        raise InputError(f"{path}: the truth of this slide cannot be read ({error}); draw the cohort again.") from error


def labelled(features: Path, truth: Path, prototypes: Prototypes, module: Aggregator) -> Labelled:
    """Compare one slide's features with its mask."""
    bag = open_bag(features)
    if bag.places is None or bag.spec.size_level0 is None:
        raise InputError(f"{features}: coordinates and the patch size are needed to look under the patches.")
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
    """Tissue that most pixels of a prototype's patches are, by prototype; those without patches have no name."""
    pixels = np.zeros((count, len(tissues.names()) + 1), np.int64)
    for slide in slides:
        np.add.at(pixels, slide.prototype, slide.counts)
    names = tissues.names()
    return {c: names[int(row[1:].argmax())] for c, row in enumerate(pixels) if row[1:].any()}


def pixel_table(slide: Labelled, names: Mapping[int, str]) -> np.ndarray:
    """Pixels of tissue under the patches, (T + 1, T): by the name of their prototype (the first row: none) and by what was drawn."""
    label = {name: number + 1 for number, name in enumerate(tissues.names())}
    named = np.array([label.get(names.get(int(c), ""), GLASS) for c in slide.prototype], int)
    pixels = np.zeros((len(label) + 1, len(label)), np.int64)
    np.add.at(pixels, named, slide.counts[:, 1:])
    return pixels


def held_out_table(slides: Sequence[Labelled], count: int) -> np.ndarray:
    """The same summed over slides, each with the names that the majority on all other slides gives."""
    tables = []
    for slide in slides:
        names = majority_names([other for other in slides if other is not slide], count)
        tables.append(pixel_table(slide, names))
    return np.sum(tables, axis=0)


def agreement(table: np.ndarray) -> float:
    """Part of the pixels whose prototype's name is what was drawn."""
    return float(np.trace(table[1:]) / max(table.sum(), 1))


def write_names(path: Path, names: Mapping[int, str]) -> None:
    """Write names as people would, and say where they are from."""
    lines = [f"C{c}: {name}" for c, name in sorted(names.items())]
    with atomic_write(path) as temporary:
        temporary.write_text(
            "\n".join(["# From the masks that the synthetic slides were drawn by.", *lines]) + "\n", encoding="utf-8"
        )


def write_labels(path: Path, slides: Sequence[Labelled]) -> None:
    """Write the tissue of every patch, as a pathologist's annotations would be: slide_id, x, y, label."""
    names = ["glass", *tissues.names()]
    rows = [
        [slide.slide, int(x), int(y), names[int(tissue)]]
        for slide in slides
        for (x, y), tissue in zip(slide.coords, slide.tissue, strict=True)
    ]
    write_csv(path, ["slide_id", "x", "y", "label"], rows)
