"""A small sound cohort with one of everything that commands read, and the commands that read its feature files."""

import csv
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import yaml

from hostile.judging import run_here

SLIDES = tuple(f"s{number:02d}" for number in range(12))
SIDE = 256
STUDY = {
    "name": "small",
    "table": "table.csv",
    "features": {"lab": "feats"},
    "task": {"label": "subtype"},
    "splits": {"scheme": "kfold", "k": 2, "seed": 0},
    "methods": ["protocounts"],
    "heads": ["probe"],
    "n_prototypes": [3],
    "prototypes": {"restarts": 1, "passes": 1},
    "bootstrap": 10,
}

Arguments = tuple[str, ...]


def write_bag(path: Path, seed: int, *, rows: int = 16, dim: int = 6) -> None:
    """TRIDENT's file; odd seeds are another tissue, so that there is something to learn."""
    rng = np.random.default_rng(seed)
    with h5py.File(path, "w") as file:
        features = file.create_dataset("features", data=rng.normal(5 * (seed % 2), 1, (rows, dim)).astype(np.float32))
        features.attrs["encoder"] = "lab"
        coords = file.create_dataset("coords", data=np.argwhere(np.ones((-(-rows // 4), 4)))[:rows] * SIDE)
        coords.attrs.update({"patch_size": SIDE, "patch_size_level0": SIDE, "target_magnification": 20, "overlap": 0})


def write_table(path: Path, slides: tuple[str, ...] = SLIDES) -> None:
    """One patient per slide, a label that follows the tissue, survival."""
    with path.open("w", newline="") as handle:
        writer = csv.writer(handle)
        writer.writerow(["case_id", "slide_id", "subtype", "os_survival_days", "os_censorship"])
        for number, slide in enumerate(slides):
            writer.writerow([f"p{number:02d}", slide, "ab"[number % 2], 100 + 7 * number, int(number % 3 == 0)])


def make_lab(folder: Path) -> Path:
    """`feats`, `table.csv`, `p.safetensors`, `model.pt`, `labels.csv`, `study.yaml`, `s.h5ad`: all made by the commands themselves."""
    (folder / "feats").mkdir(parents=True)
    for number, slide in enumerate(SLIDES):
        write_bag(folder / "feats" / f"{slide}.h5", number)
    write_table(folder / "table.csv")
    (folder / "study.yaml").write_text(yaml.safe_dump(STUDY))
    places = [(x * SIDE, y * SIDE) for x in range(4) for y in range(4)]
    rows = [f"{slide},{x},{y},{'ab'[n % 2]}" for n, slide in enumerate(SLIDES) for x, y in places]
    (folder / "labels.csv").write_text("slide_id,x,y,label\n" + "\n".join(rows) + "\n")
    for arguments in (
        ("prototypes", "feats", "-o", "p.safetensors", "-C", "3", "-j", "1"),
        ("embed", "feats", "-p", "p.safetensors", "-o", "s.h5ad", "--table", "table.csv", "-j", "1"),
        ("train", "feats", "--table", "table.csv", "--label", "subtype", "-o", "model", "-C", "3", "-j", "1"),
    ):
        done = run_here(arguments, folder)
        assert done.code == 0, done.text
    return folder


# What reads a folder of feature files: name -> arguments, to be run in the lab's folder. Add new commands here.
ON_FEATURES: dict[str, Arguments] = {
    "inspect": ("inspect", "feats"),
    "convert": ("convert", "feats", "-o", "converted", "--to", "npy", "-j", "1"),
    "prototypes": ("prototypes", "feats", "-o", "new.safetensors", "-C", "3", "-j", "1"),
    "choose-c": ("choose-c", "feats", "--range", "2:3", "-j", "1"),
    "embed": ("embed", "feats", "-p", "p.safetensors", "-o", "new.h5ad", "-j", "1"),
    "train": ("train", "feats", "--table", "table.csv", "--label", "subtype", "-o", "new.model", "-C", "3", "-j", "1"),
    "predict": ("predict", "model", "feats", "-o", "predictions.csv", "-j", "1"),
    "run": ("run", "study.yaml", "-o", "study", "-j", "1"),
    "map": ("map", "feats", "-p", "p.safetensors", "-o", "maps", "--formats", "geojson"),
    "atlas": ("atlas", "feats", "-p", "p.safetensors", "-o", "atlas", "-j", "1"),
    "concordance": (
        "concordance",
        "feats",
        "-p",
        "p.safetensors",
        "-o",
        "agree",
        "--patch-labels",
        "labels.csv",
        "--no-maps",
    ),
    "attribute": ("attribute", "model", "feats", "-o", "why", "--no-maps", "-j", "1"),
}
# The same where a table says which slides are meant.
WITH_TABLE: dict[str, Arguments] = {
    name: (*ON_FEATURES[name], "--table", "table.csv")
    for name in ("prototypes", "choose-c", "embed", "predict", "atlas", "attribute")
} | {name: ON_FEATURES[name] for name in ("train", "run")}

Damage = Callable[[Path], None]  # what a hostile generator does to a sound file of the lab
