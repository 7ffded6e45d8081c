"""Files as the viewer finds them: features, coordinates, prototypes."""

from pathlib import Path

import h5py
import numpy as np
import torch

import panther

RNG = np.random.default_rng(0)


def h5(
    path: Path, encoder: str | None = "uni", dim: int = 8, magnification: int = 20, features: str = "features"
) -> Path:
    """A file of features with coordinates; TRIDENT's where the encoder is named, CLAM's where not."""
    path.parent.mkdir(parents=True, exist_ok=True)
    corners = np.stack(np.divmod(np.arange(20), 5), 1) * 256
    with h5py.File(path, "w") as file:
        values = file.create_dataset(features, data=RNG.normal(size=(20, dim)).astype(np.float32))
        coords = file.create_dataset("coords", data=corners)
        if encoder is not None:
            values.attrs["encoder"] = encoder
            coords.attrs.update(patch_size=256, patch_size_level0=256, target_magnification=magnification)
    return path


def coordinates(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        file["coords"] = np.zeros((20, 2), int)


def prototypes(path: Path, encoder: str | None = "uni", dim: int = 8, count: int = 3) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    centroids = torch.from_numpy(RNG.normal(size=(count, dim)).astype(np.float32))
    panther.save_prototypes(panther.Prototypes(centroids, encoder=encoder), path)
    return path
