"""The step `pieces` of a job: the encoded patches of each connected piece of tissue (a section, a core of a TMA) as a bag of their own."""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import ndimage

from panther.encoders.step import FeatureStep
from panther.machine import reading
from panther.patches import stated_step
from panther.slides.job import SlideFiles
from panther.storage.names import piece_name, slide_of
from panther.storage.readers import open_bag
from panther.storage.trident import FeatureRows, feature_attributes, write_bag
from panther.store import atomic_write
from panther.types import Bag

COLUMNS = ("slide_id", "slide", "piece", "patches", "tissue_mm2", "x", "y")


def connected(coords: np.ndarray, step: float) -> np.ndarray:
    """Piece (N,) of each patch at ``coords`` (N, 2), from 0: patches that touch, also at a corner, are in one piece."""
    if not len(coords):
        return np.empty(0, np.int64)
    cells = np.round((coords - coords.min(0)) / step).astype(np.int64)  # (N, 2)
    occupied = np.zeros(cells.max(0) + 1, bool)
    occupied[tuple(cells.T)] = True
    return ndimage.label(occupied, np.ones((3, 3)))[0][tuple(cells.T)] - 1


def numbered(pieces: np.ndarray, coords: np.ndarray) -> np.ndarray:
    """Number (N,) of each patch's piece, from 1: the largest piece first, of equal ones the upper, then the left."""
    _, index, counts = np.unique(pieces, return_inverse=True, return_counts=True)
    corner = np.full((len(counts), 2), np.inf)
    np.minimum.at(corner, index, coords)
    number = np.empty(len(counts), np.int64)
    number[np.lexsort((corner[:, 0], corner[:, 1], -counts))] = np.arange(1, len(counts) + 1)
    return number[index]


@dataclass(frozen=True)
class PieceStep:
    """Divides the features of a slide; every encoded patch is in one piece."""

    features: FeatureStep
    name: str = "pieces"

    def folder(self, files: SlideFiles) -> Path:
        """Folder of the pieces, beside that of the features of whole slides."""
        whole = self.features.path(files).parent
        return whole.with_name(f"{whole.name}_pieces")

    def paths(self, files: SlideFiles) -> list[Path]:
        """Files of the slide's pieces."""
        first = self.folder(files) / f"{piece_name(files.slide.name, 1)}.h5"
        count = int(feature_attributes(first).get("pieces", 0))
        return [first.with_name(f"{piece_name(files.slide.name, k)}.h5") for k in range(1, count + 1)]

    def done(self, files: SlideFiles) -> bool:
        """Whether the pieces are those of the present features."""
        coords = files.coords(self.features.patches)
        if coords is not None and not len(coords.coords):
            return True
        key, paths = feature_attributes(self.features.path(files)).get("key"), self.paths(files)
        return bool(paths) and all(feature_attributes(path).get("key") == key for path in paths)

    def run(self, files: SlideFiles) -> None:
        """Write one file per piece, in the layout of the features."""
        import h5py

        source, name = self.features.path(files), files.slide.name
        bag = open_bag(source)
        with reading(), h5py.File(source, "r") as file:
            about, geometry = dict(file["features"].attrs), dict(file["coords"].attrs)
        coords, step = _corners(bag.places), stated_step(bag.spec)
        assert step is not None
        every = coords if bag.population is None else _corners(bag.population.places)
        piece = dict(zip(map(tuple, every.tolist()), connected(every, step).tolist(), strict=True))
        number = numbered(np.array([piece[corner] for corner in map(tuple, coords.tolist())], np.int64), coords)
        label = {piece[tuple(corner)]: int(k) for corner, k in zip(coords.tolist(), number, strict=True)}
        of_all = np.array([label.get(piece[corner], 0) for corner in map(tuple, every.tolist())])  # 0: none encoded
        features, folder, count = bag.features[:].numpy(), self.folder(files), int(number.max(initial=0))
        for k in range(1, count + 1):
            rows, target = number == k, folder / f"{piece_name(name, k)}.h5"
            block = features[rows]
            saved = {"name": target.stem, "savetodir": f"{folder.parent.name}/{folder.name}"}
            part = {"slide": name, "piece": k, "pieces": count}
            written = FeatureRows(block.shape, block.dtype, [block], about | saved | part)
            population = None if bag.population is None else every[of_all == k]
            with atomic_write(target) as temporary:
                write_bag(temporary, written, (coords[rows], {**geometry, "name": target.stem}), population=population)
        for stale in folder.glob(f"{piece_name(name, 0)[:-1]}*.h5"):
            if slide_of(stale.stem) == name and int(stale.stem.rpartition("_piece")[2]) > count:
                stale.unlink()

    def about(self, files: SlideFiles) -> Mapping[str, Any]:
        """Number of pieces, for the summary."""
        return {"pieces": len(self.paths(files))}


def _corners(places: Any) -> np.ndarray:
    return np.asarray(places()).reshape(-1, 2)


def write_pieces(path: Path, folder: Path) -> None:
    """Table of all pieces in ``folder``: slide, encoded patches, their area, and the middle in level-0 pixels."""
    rows = []
    for file in sorted(folder.glob("*.h5")):
        bag: Bag = open_bag(file)
        middle = _corners(bag.places).mean(0) + (bag.spec.size_level0 or 0) / 2
        patches = len(bag) if bag.population is None else bag.population.total
        area = patches * ((bag.spec.mpp or 0) * (bag.spec.size or 0) / 1000) ** 2
        slide, _, number = bag.slide_id.rpartition("_piece")
        rows.append((bag.slide_id, slide, number, len(bag), f"{area:.4g}", *middle.round().astype(int)))
    with atomic_write(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as handle:
        csv.writer(handle, lineterminator="\n").writerows([COLUMNS, *rows])
