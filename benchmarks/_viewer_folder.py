"""Folders to look at: a slide of 100,000 patches, a real one, and a thousand small ones."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np
import torch

from panther.storage.prototypes import save_prototypes
from panther.types import Prototypes

COMPONENTS, SIDE, TILE = 16, 64, 256  # prototypes; pixels of a patch; pixels of the file's tiles
REAL = Path(__file__).resolve().parents[2] / "shared" / "data" / "slides" / "CMU-1-Small-Region.svs"
OPTIONS = {"tile": (TILE, TILE), "compression": "jpeg", "photometric": "rgb", "compressionargs": {"level": 80}}


def write_folder(folder: Path, patches: int, dim: int) -> None:
    """Slide `generated` of so many patches, and the real one where it is at hand; features and prototypes of both."""
    (folder / "slides").mkdir(parents=True)
    (folder / "features").mkdir()
    across = int(np.ceil(patches**0.5))
    write_image(folder / "slides" / "generated.tif", across * SIDE, real_tissue())
    write_features(folder / "features" / "generated.h5", lattice(across)[:patches], dim)
    if REAL.exists():
        shutil.copy(REAL, folder / "slides" / "CMU-1-Small-Region.svs")
        write_features(folder / "features" / "CMU-1-Small-Region.h5", lattice(34), dim)
    write_prototypes(folder, dim)


def write_many(folder: Path, slides: int, dim: int = 16) -> None:
    """So many slides, all of the same content, under names of their own."""
    (folder / "slides").mkdir(parents=True)
    (folder / "features").mkdir()
    write_image(folder / "slides" / "S0.tif", 1024, real_tissue())
    write_features(folder / "features" / "S0.h5", lattice(16), dim)
    for number in range(1, slides):
        for name, ending in (("slides", "tif"), ("features", "h5")):
            os.link(folder / name / f"S0.{ending}", folder / name / f"S{number}.{ending}")
    write_prototypes(folder, dim)


def lattice(across: int) -> np.ndarray:
    """Corners of a square of patches."""
    return np.stack(np.divmod(np.arange(across**2), across)[::-1], 1) * SIDE


def centroids(dim: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(COMPONENTS, dim)).astype(np.float32)


def write_prototypes(folder: Path, dim: int) -> None:
    save_prototypes(
        Prototypes(torch.from_numpy(centroids(dim)), encoder="generated"), folder / "prototypes.safetensors"
    )


def write_features(path: Path, corners: np.ndarray, dim: int) -> None:
    """Tissues in blocks with some strays, as TRIDENT's file in float16."""
    rng = np.random.default_rng(1)
    cells = corners // SIDE
    label = (cells[:, 0] // 9 + 3 * (cells[:, 1] // 7)) % COMPONENTS
    stray = rng.random(len(label)) < 0.1
    label[stray] = rng.integers(COMPONENTS, size=int(stray.sum()))
    noise = rng.normal(scale=0.5, size=(1000, dim)).astype(np.float32)
    with h5py.File(path, "w") as file:
        features = file.create_dataset("features", (len(corners), dim), np.float16)
        features.attrs["encoder"] = "generated"
        for start in range(0, len(corners), 1000):
            part = label[start : start + 1000]
            features[start : start + 1000] = (centroids(dim)[part] + noise[: len(part)]).astype(np.float16)
        coords = file.create_dataset("coords", data=corners)
        coords.attrs.update(patch_size=SIDE, patch_size_level0=SIDE, target_magnification=20, overlap=0)


def real_tissue() -> np.ndarray:
    """Pixels to repeat: of the real slide, else noise, which is harder to decode."""
    if not REAL.exists():
        return np.random.default_rng(0).integers(0, 256, (2048, 2048, 3), dtype=np.uint8)
    from openslide import OpenSlide

    with OpenSlide(REAL) as slide:
        return np.asarray(slide.read_region((0, 0), 0, (2048, 2048)).convert("RGB"))


def write_image(path: Path, side: int, tissue: np.ndarray) -> None:
    """A pyramid of JPEG tiles with downsamples 1, 4 and 16, tissue repeated; never whole in memory."""
    import tifffile

    with tifffile.TiffWriter(path, bigtiff=True) as file:
        for level in range(3):
            step = 4**level
            small = tissue[::step, ::step]
            size = -(-side // step)
            file.write(
                _tiles(small, size),
                shape=(size, size, 3),
                dtype=np.uint8,
                subfiletype=int(level > 0),
                resolution=(2e4, 2e4),
                resolutionunit="CENTIMETER",
                metadata=None,
                **OPTIONS,
            )


def _tiles(tissue: np.ndarray, size: int) -> Iterator[np.ndarray]:
    repeated = np.pad(tissue, ((0, TILE), (0, TILE), (0, 0)), mode="wrap")
    height, width = tissue.shape[:2]
    for row in range(-(-size // TILE)):
        for column in range(-(-size // TILE)):
            y, x = row * TILE % height, column * TILE % width
            yield np.ascontiguousarray(repeated[y : y + TILE, x : x + TILE])
