"""A study of five methods over five folds on 1,000 generated patients: first run, and again from its cache.

`python benchmarks/study.py` needs no arguments; it runs the product's own command.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import yaml

import _harness as harness

PATIENTS, PATCHES, DIM, TISSUES = 1_000, 200, 64, 6


def generate(folder: Path) -> None:
    """Slides that mix tissues; the share of the first decides the class and raises the hazard."""
    rng = np.random.default_rng(0)
    (folder / "features").mkdir()
    centres = rng.normal(0, 1.5, (TISSUES, DIM))
    shares = rng.dirichlet(np.ones(TISSUES), PATIENTS)
    label = shares[:, 0] > np.median(shares[:, 0])
    rows = ["case_id,slide_id,label"]
    for p in range(PATIENTS):
        tissue = rng.choice(TISSUES, PATCHES, p=shares[p])
        x = centres[tissue] + rng.normal(size=(PATCHES, DIM))
        np.save(folder / "features" / f"p{p:04d}.npy", x.astype("f2"))
        rows.append(f"p{p:04d},p{p:04d},{'high' if label[p] else 'low'}")
    (folder / "table.csv").write_text("\n".join(rows) + "\n")
    study = {
        "name": "thousand",
        "table": "table.csv",
        "features": {"generated": "features"},
        "task": {"label": "label"},
        "splits": {"scheme": "kfold", "k": 5, "seed": 0},
        "methods": ["panther", "ot", "h2t", "protocounts", "deepsets"],
        "heads": ["linear"],
        "n_prototypes": [16],
    }
    (folder / "study.yaml").write_text(yaml.safe_dump(study))


def main() -> None:
    print(harness.machine("scikit-learn"))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        generate(folder)
        rows = []
        for what in ("first run", "from the cache"):
            start = time.perf_counter()
            command = [sys.executable, "-m", "panther", "run", str(folder / "study.yaml"), "-o", str(folder / "out")]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            rows.append([what, f"{time.perf_counter() - start:.0f}"])
        title = f"{PATIENTS:,} patients of {PATCHES} x {DIM}, 5 methods x 5 folds, linear head, intervals from 1,000 resamples"
        harness.table(title, ["", "seconds"], rows)
        print((folder / "out/table.md").read_text())


if __name__ == "__main__":
    main()
