"""A study of five methods over five folds on 1,000 generated patients: first run, and again from its cache.

`python benchmarks/study.py` needs no arguments; it runs the product's own command. `--full` compares all ten methods with all their
heads on 200 patients instead, the networks in small widths. `--io` counts what studies of growing grids read of their features, and times
8 methods x 5 folds x 3 seeds; with `--before CHECKOUT` (a `git worktree` of an older commit) both versions run in turn, with `--memory MB` on a
cohort larger than that, in a control group of the system that has no more (as root), with `--disk MB/S` from a disk of that speed.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

import _harness as harness
import _study_io

TISSUES = 6
COMMON = {
    "table": "table.csv",
    "features": {"generated": "features"},
    "task": {"label": "label"},
    "n_prototypes": [16],
}
NETWORKS = {
    "abmil": {"hidden": 64, "attention": 48},
    "transmil": {"hidden": 64, "heads": 4, "landmarks": 32},
    "dsmil": {"hidden": 64, "attention": 32},
    "attnmisl": {"hidden": 64, "attention": 48},
    "ilra": {"hidden": 64, "heads": 4, "latents": 8},
}


@dataclass(frozen=True)
class Size:
    """A cohort and what is compared on it."""

    patients: int
    patches: int
    dim: int
    study: dict[str, Any]
    title: str


THOUSAND = Size(
    1_000,
    200,
    64,
    {
        "name": "thousand",
        "splits": {"scheme": "kfold", "k": 5, "seed": 0},
        "methods": ["panther", "ot", "h2t", "protocounts", "deepsets"],
        "heads": ["linear"],
    },
    "5 methods x 5 folds, linear head, intervals from 1,000 resamples",
)
FULL = Size(
    200,
    100,
    32,
    {
        "name": "full",
        "splits": {"scheme": "kfold", "k": 3, "seed": 0},
        "methods": [
            "panther",
            "ot",
            "h2t",
            "protocounts",
            "deepsets",
            *({"name": name, "label": name, **options} for name, options in NETWORKS.items()),
        ],
        "heads": ["linear", "paper-classification", "probe"],
        "training": {"learning_rate": 1e-3, "epochs": 40},
        "mil_training": {"learning_rate": 1e-3, "epochs": 20, "batch_size": 8, "accumulate": 1},
    },
    "10 methods with all their heads x 3 folds, intervals from 1,000 resamples",
)


def generate(folder: Path, size: Size) -> None:
    """Slides that mix tissues; the share of the first decides the class and raises the hazard."""
    rng = np.random.default_rng(0)
    (folder / "features").mkdir()
    centres = rng.normal(0, 1.5, (TISSUES, size.dim))
    shares = rng.dirichlet(np.ones(TISSUES), size.patients)
    label = shares[:, 0] > np.median(shares[:, 0])
    rows = ["case_id,slide_id,label"]
    for p in range(size.patients):
        tissue = rng.choice(TISSUES, size.patches, p=shares[p])
        x = centres[tissue] + rng.normal(size=(size.patches, size.dim))
        np.save(folder / "features" / f"p{p:04d}.npy", x.astype("f2"))
        rows.append(f"p{p:04d},p{p:04d},{'high' if label[p] else 'low'}")
    (folder / "table.csv").write_text("\n".join(rows) + "\n")
    study = COMMON | size.study
    (folder / "study.yaml").write_text(yaml.safe_dump(study))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="all ten methods and heads on 200 patients")
    parser.add_argument("--io", action="store_true", help="bytes read and files opened against the size of the grid")
    parser.add_argument("--before", type=Path, help="checkout of an older version to compare with, for --io")
    parser.add_argument("--memory", type=int, help="for --io: megabytes given to a study of 2.5 GB of features")
    parser.add_argument("--disk", type=int, help="with --memory: MB/s that the disk gives")
    arguments = parser.parse_args()
    size = FULL if arguments.full else THOUSAND
    print(harness.machine("scikit-learn"))
    if arguments.disk is not None and arguments.memory is None:
        parser.error("--disk goes with --memory")
    if arguments.io:
        _study_io.main(arguments.before, arguments.memory, arguments.disk)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        generate(folder, size)
        rows = []
        for what in ("first run", "from the cache"):
            start = time.perf_counter()
            command = [sys.executable, "-m", "panther", "run", str(folder / "study.yaml"), "-o", str(folder / "out")]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            rows.append([what, f"{time.perf_counter() - start:.0f}"])
        title = f"{size.patients:,} patients of {size.patches} x {size.dim}, {size.title}"
        harness.table(title, ["", "seconds"], rows)
        print((folder / "out/table.md").read_text())


if __name__ == "__main__":
    main()
