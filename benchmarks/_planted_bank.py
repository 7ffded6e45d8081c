"""Tiles of single tissues under the stains of several laboratories, encoded once: slides are then composed of their features in no time."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from panther.errors import InputError
from panther.store import atomic_write
from panther_demo.layout import SCALE, smooth_noise
from panther_demo.nuclei import paint
from panther_demo.stain import Stain, concentrations, site_stain, transmitted, usual_stain
from panther_demo.tissues import Area, tissues

TILE = 256
ACROSS = 16  # tiles in a row of the strip that they are cut from
USUAL = "usual"  # the laboratory without a shift


@dataclass(frozen=True)
class Bank:
    """Features of the same tiles under several stains."""

    features: Mapping[str, np.ndarray]  # laboratory -> (M, d)
    tissue: np.ndarray  # (M,), number of the tissue
    names: tuple[str, ...]  # of the tissues

    def rows_of(self, tissue: int, half: int | None = None) -> np.ndarray:
        """Tiles of one tissue; of one half of them, so that training and test slides share none."""
        rows = np.flatnonzero(self.tissue == tissue)
        return rows if half is None else rows[half::2]

    def dealt(self, count: int, rng: np.random.Generator) -> list["Bank"]:
        """The tiles of every tissue dealt out at random to ``count`` banks that share none."""
        order = rng.permutation(len(self.tissue))
        place = np.empty(len(order), np.int64)  # of a tile among those of its tissue
        for tissue in range(len(self.names)):
            own = self.tissue[order] == tissue
            place[own] = np.arange(own.sum())
        parts = [order[place % count == number] for number in range(count)]
        return [
            Bank({lab: x[rows] for lab, x in self.features.items()}, self.tissue[rows], self.names) for rows in parts
        ]

    def save(self, path: Path) -> None:
        """Write it as one file of NumPy's."""
        stored: dict[str, Any] = {f"features_{lab}": x.astype(np.float16) for lab, x in self.features.items()}
        with atomic_write(path) as temporary, open(temporary, "wb") as file:
            np.savez(file, tissue=self.tissue, names=np.array(self.names), **stored)

    @classmethod
    def load(cls, path: Path) -> "Bank":
        """Read what `save` wrote."""
        if not path.is_file():
            raise InputError(f"{path}: there is no such bank of tiles; `python benchmarks/blind_spots.py` makes it.")
        with np.load(path) as file:
            labs = [name.removeprefix("features_") for name in file.files if name.startswith("features_")]
            features = {lab: file[f"features_{lab}"].astype(np.float32) for lab in labs}
            return cls(features, file["tissue"], tuple(file["names"].tolist()))


def laboratories(count: int, spread: float, seed: int = 0) -> dict[str, Stain]:
    """The usual stain and ``count`` others; a ``spread`` of 1 is what sites of the demo differ by."""
    others = {f"lab{n}": site_stain(np.random.default_rng([seed, 7, n]), spread) for n in range(count)}
    return {USUAL: usual_stain(), **others}


def drawn_concentrations(name: str, count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Haematoxylin and eosin of ``count`` tiles of one tissue, each (count, 256, 256)."""
    rows = -(-count // ACROSS)
    shape = rows * TILE, ACROSS * TILE
    rng = np.random.default_rng([seed, 6, tissues.names().index(name)])
    area = Area(0, 0, np.ones((shape[0] // SCALE, shape[1] // SCALE), bool), np.ones(shape, np.float32))
    texture = tissues[name](rng, area)
    painted = np.zeros(shape, np.float32)
    for nuclei in texture.nuclei:
        paint(painted, nuclei, rng)
    painted *= 1 + 0.22 * smooth_noise(rng, shape, 3)
    shown = np.minimum(painted, 1.0)
    h = texture.haematoxylin * (1 - shown) + painted
    e = np.maximum(texture.eosin, 0) * (1 - 0.6 * shown)
    return _cut(h)[:count], _cut(e)[:count]


def _cut(field: np.ndarray) -> np.ndarray:
    rows = field.shape[0] // TILE
    return field.reshape(rows, TILE, ACROSS, TILE).swapaxes(1, 2).reshape(-1, TILE, TILE)


def stained(h: np.ndarray, e: np.ndarray, stain: Stain, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Tiles (h, w, 3) of concentrations, one after the other."""
    for one_h, one_e in zip(h, e, strict=True):
        yield transmitted(one_h, one_e, stain, rng)


def read_tiles(folder: Path) -> tuple[list[np.ndarray], np.ndarray, tuple[str, ...]]:
    """Pictures of a folder per tissue, the number of the tissue of each, and the tissues' names."""
    from PIL import Image

    kinds = sorted(path for path in folder.iterdir() if path.is_dir())
    files = [(number, file) for number, kind in enumerate(kinds) for file in sorted(kind.iterdir())]
    if not files:
        raise InputError(f"{folder}: there are no tiles; a folder per tissue with pictures in it is expected.")
    pictures = [np.asarray(Image.open(file).convert("RGB")) for _, file in files]
    return pictures, np.array([number for number, _ in files]), tuple(kind.name for kind in kinds)


def encoded(pictures: Iterator[np.ndarray], encoder: str = "lite0", device: str = "cpu") -> np.ndarray:
    """Features (M, d) of tiles."""
    from panther.encoders._base import Preprocess
    from panther.encoders.loading import load_encoder

    network = load_encoder(encoder, device=device, precision="float32")
    fitted, found, batch = Preprocess.of(network.about), [], []
    for picture in pictures:
        batch.append(fitted(picture))
        if len(batch) == 64:
            found.append(network(np.stack(batch)).numpy())
            batch = []
    if batch:
        found.append(network(np.stack(batch)).numpy())
    return np.concatenate(found)


def drawn_bank(stains: Mapping[str, Stain], count: int = 160, seed: int = 0, device: str = "cpu") -> Bank:
    """Tiles of the seven drawn tissues."""
    names = tuple(tissues.names())
    parts = [drawn_concentrations(name, count, seed) for name in names]
    h, e = (np.concatenate([part[k] for part in parts]) for k in (0, 1))
    features = {
        lab: encoded(stained(h, e, s, np.random.default_rng([seed, 8])), device=device) for lab, s in stains.items()
    }
    return Bank(features, np.repeat(np.arange(len(names)), count), names)


def real_bank(folder: Path, stains: Mapping[str, Stain], device: str = "cpu") -> Bank:
    """Tiles of a folder per tissue; other laboratories' stains are put on them by Beer and Lambert's law."""
    pictures, tissue, names = read_tiles(folder)
    split = [concentrations(picture, stains[USUAL]) for picture in pictures]

    def under(lab: str, stain: Stain) -> Iterator[np.ndarray]:
        if lab == USUAL:
            yield from pictures
            return
        rng = np.random.default_rng(8)
        for h, e in split:
            yield transmitted(h, e, stain, rng)

    features = {lab: encoded(under(lab, stain), device=device) for lab, stain in stains.items()}
    return Bank(features, tissue, names)
