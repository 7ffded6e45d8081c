"""A slide of 100,000 patches mapped: time and memory, from the feature file to the written pictures.

`python benchmarks/map.py` needs no arguments; one thread.
"""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch

import _harness as harness
from panther.explain.maps import map_slide, write_map
from panther.explain.scene import MapSettings
from panther.storage.readers import open_bag
from panther.types import Prototypes

PATCHES, DIM, COMPONENTS, SIDE, ROUNDS = 100_000, 1024, 16, 256, 3
SECONDS, MEGABYTES = 10.0, 1000.0
FORMATS = {"png and geojson": ("png", "geojson"), "png, svg, tiff and geojson": ("png", "svg", "tiff", "geojson")}


def make_slide(path: Path, patches: int = PATCHES) -> Prototypes:
    """Patches on a square with tissues in blocks and some strays, as TRIDENT's file in float16."""
    rng = np.random.default_rng(0)
    centroids = rng.normal(size=(COMPONENTS, DIM)).astype(np.float32)
    width = int(np.ceil(patches**0.5))
    cells = np.stack(np.divmod(np.arange(patches), width)[::-1], 1)
    label = (cells[:, 0] // 9 + 3 * (cells[:, 1] // 7)) % COMPONENTS
    stray = rng.random(patches) < 0.1
    label[stray] = rng.integers(COMPONENTS, size=int(stray.sum()))
    with h5py.File(path, "w") as file:
        features = file.create_dataset("features", (patches, DIM), np.float16)
        features.attrs["encoder"] = "generated"
        for start in range(0, patches, 5000):
            part = label[start : start + 5000]
            noise = 0.5 * rng.normal(size=(len(part), DIM))
            features[start : start + 5000] = (centroids[part] + noise).astype(np.float16)
        coords = file.create_dataset("coords", data=cells * SIDE)
        coords.attrs.update(patch_size=SIDE, patch_size_level0=SIDE, target_magnification=20, overlap=0)
    return Prototypes(torch.from_numpy(centroids), encoder="generated")


def whole(path: Path, prototypes: Prototypes, folder: Path, formats: tuple[str, ...]) -> list[Path]:
    found = map_slide(open_bag(path), prototypes, MapSettings())
    return write_map(found, folder, list(range(COMPONENTS)), formats)


@contextmanager
def prepared(formats: tuple[str, ...]) -> Iterator[Callable[[], Any]]:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        whole(folder / "small.h5", make_slide(folder / "small.h5", 500), folder, formats)
        prototypes = make_slide(folder / "slide.h5")
        yield partial(whole, folder / "slide.h5", prototypes, folder, formats)


def main() -> None:
    torch.set_num_threads(1)
    print(harness.machine("matplotlib", "scipy"))
    print(
        f"{PATCHES:,} x {DIM} float16, C = {COMPONENTS}: map, side by side, {COMPONENTS} heatmaps, overlay and regions; medians of {ROUNDS}."
    )
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prototypes = make_slide(folder / "slide.h5")
        sides = {n: partial(whole, folder / "slide.h5", prototypes, folder, formats) for n, formats in FORMATS.items()}
        seconds = harness.interleaved(sides, ROUNDS)
    for title, formats in FORMATS.items():
        rows.append(harness.verdict(f"{title}: seconds", seconds[title], SECONDS, at_most=True, unit=" s"))
        peak = harness.peak_extra(prepared, formats)
        rows.append(harness.verdict(f"{title}: peak extra memory", peak, MEGABYTES, at_most=True, unit=" MB"))
    harness.table("Map of one slide", ["what", "target", "found", ""], rows)


if __name__ == "__main__":
    main()
