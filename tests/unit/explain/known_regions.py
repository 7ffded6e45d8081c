"""A slide painted in flat colours: which tissue lies where is known exactly, and a patch's features are its mean colour."""

import csv

import h5py
import numpy as np
import torch

from panther.slides import PatchReader, open_slide, patch_spec
from panther.storage.prototypes import save_prototypes
from panther.types import Prototypes
from slides.phantoms import write_pyramid

WIDTH, HEIGHT, MPP, SIDE = 1500, 1130, 0.5, 60
COLOURS = np.array([(240, 240, 240), (200, 60, 90), (60, 90, 200), (80, 170, 60)], np.uint8)  # 0 is glass, left out


def tissue_at(x, y):
    """Tissue at places in level-0 pixels: a disc with a nest inside it, a band, glass around."""
    disc = (x - 500) ** 2 + (y - 540) ** 2 < 430**2
    nest = (x - 420) ** 2 + (y - 480) ** 2 < 170**2
    band = (x > 1060) & (y > 0.5 * x - 300)
    return np.select([nest, disc, band], [2, 1, 3], 0)


def truth(width, height):
    """Tissue under the centres of a picture's pixels, (h, w)."""
    x, y = (np.arange(width) + 0.5) * WIDTH / width, (np.arange(height) + 0.5) * HEIGHT / height
    return tissue_at(*np.meshgrid(x, y))


def write_slide(folder):
    """Image, features (TRIDENT's layout) of its tissue patches and prototypes: C0 to C2 are tissues 1 to 3."""
    image, features, prototypes = folder / "s.tif", folder / "s.h5", folder / "p.safetensors"
    write_pyramid(image, COLOURS[truth(WIDTH, HEIGHT)], MPP, levels=2)
    xs, ys = np.meshgrid(np.arange(0, WIDTH - SIDE + 1, SIDE), np.arange(0, HEIGHT - SIDE + 1, SIDE))
    coords = np.stack([xs.ravel(), ys.ravel()], 1)
    coords = coords[tissue_at(*(coords + SIDE / 2).T) > 0]
    with open_slide(image) as slide:
        reader = PatchReader(slide, patch_spec(slide, SIDE, MPP))
        means = np.array([np.asarray(reader.read(int(x), int(y))).mean((0, 1)) for x, y in coords])
    write_bag(features, means / 10, coords)
    save_prototypes(Prototypes(torch.tensor(COLOURS[1:] / 10.0, dtype=torch.float32), encoder="mean"), prototypes)
    return image, features, prototypes


def write_bag(path, features, coords, **attributes):
    """TRIDENT's file; without coordinates where they are None."""
    with h5py.File(path, "w") as file:
        rows = file.create_dataset("features", data=np.asarray(features, np.float32))
        rows.attrs["encoder"] = "mean"
        if coords is not None:
            places = file.create_dataset("coords", data=coords)
            places.attrs.update(
                {"patch_size": SIDE, "patch_size_level0": SIDE, "target_magnification": 20, "overlap": 0} | attributes
            )
    return path


def contents(folder):
    """Bytes of every file below a folder, by name."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def csv_rows(path):
    with path.open(newline="") as handle:
        return list(csv.DictReader(handle))
