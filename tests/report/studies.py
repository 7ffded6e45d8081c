"""Small real studies, run by the product itself, and an atlas-like folder."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from PIL import Image

from panther.learning.experiment import run_study
from panther.learning.record import write_record
from panther.learning.results import collect
from panther.learning.study import load_study
from panther.learning.tables import write_results

EVIL = "<script>alert('x')</script>"
BASE = {
    "name": "small",
    "table": "table.csv",
    "features": {"npy": "features"},
    "splits": {"scheme": "kfold", "k": 3, "seed": 0},
    "methods": ["panther", "deepsets"],
    "heads": ["probe", "linear"],
    "n_prototypes": [4],
    "prototypes": {"restarts": 1, "passes": 1},
    "training": {"epochs": 2},
    "bootstrap": 20,
}


def run(folder: Path, **changes: Any) -> Path:
    """Folder of a finished run."""
    (folder / "study.yaml").write_text(yaml.safe_dump({**BASE, **changes}))
    study = load_study(folder / "study.yaml")
    outcome = run_study(study, folder / "run")
    write_results(collect(study, outcome), folder / "run", study.shown)
    write_record(study, outcome, folder / "run")
    return folder / "run"


def make_atlas(folder: Path, slides: list[str], count: int = 4, name: str = EVIL) -> Path:
    """What `panther atlas` writes, as far as the report reads it."""
    (folder / "exemplars").mkdir(parents=True)
    rng = np.random.default_rng(0)
    exemplars = []
    for c in range(count):
        picture = f"exemplars/C{c}-nearest-0.png"
        Image.fromarray(rng.integers(0, 255, (300, 300, 3)).astype(np.uint8)).save(folder / picture)
        exemplars.append(
            {"prototype": c, "kind": "nearest", "slide": slides[0], "x": 0, "y": 0, "distance": 1.0, "picture": picture}
        )
    weights = rng.dirichlet(np.ones(count), len(slides))
    rows = [f"{s},{s[:4]},{','.join(f'{w:.6f}' for w in row)}" for s, row in zip(slides, weights, strict=True)]
    header = "slide,patient," + ",".join(f"C{c}" for c in range(count))
    (folder / "pi.csv").write_text("\n".join([header, *rows]) + "\n")
    prototypes = [
        {"prototype": c, "name": name if c == 0 else None, "colour": "#0072B2", "share": 0.25, "low": 0.2, "high": 0.3,
         "patches": 10 + c, "slides": 5}
        for c in range(count)
    ]  # fmt: skip
    groups = [
        {"column": "subtype", "value": value, "prototype": c, "n": 9, "mean": 0.2, "low": 0.1, "high": 0.3}
        for value in ("high", EVIL)
        for c in range(count)
    ]
    square = [[None if i == j else 0.5 for j in range(count)] for i in range(count)]
    tests = [
        {"column": "subtype", "prototype": 0, "test": "Mann-Whitney", "statistic": 3.0, "p": 0.01, "p_corrected": 0.04}
    ]
    content = {"format": 1, "version": "0", "prototypes": prototypes, "groups": groups, "tests": tests, "notes": ["A note."],
               "cooccurrence": square, "neighbours": square, "exemplars": exemplars}  # fmt: skip
    (folder / "atlas.json").write_text(json.dumps(content))
    return folder
