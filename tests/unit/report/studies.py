"""Small real studies and their atlas, made by the product itself."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml

import panther
from panther.explain.atlas_files import write_atlas
from panther.storage.prototypes import load_prototypes
from panther.verbs.study import run_study

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
    run_study(folder / "study.yaml", folder / "run")
    return folder / "run"


def plots(page: str) -> dict[str, dict[str, Any]]:
    """Figures of a page by their keys."""
    return {key: json.loads(text) for key, text in re.findall(r'data-plot="plot-([^"]+)">(.*?)</script>', page)}


def make_atlas(run_folder: Path, folder: Path, name: str = EVIL) -> Path:
    """Atlas of a run's slides as `panther atlas` writes it, C0 named; the slides have no images, so one patch per prototype is noise."""
    study = run_folder.parent
    prototypes = load_prototypes(sorted(run_folder.glob("cache/prototypes-*"))[0])
    cohort = {"table": study / "table.csv", "groups": ["provider"], "names": {0: name}}
    found = panther.make_atlas(study / "features", prototypes, exemplars=2, **cohort)
    rng = np.random.default_rng(0)
    shown = [found.chosen(c, "nearest")[0] for c in range(found.prototypes)]
    pictures = {index: rng.integers(0, 255, (300, 300, 3)).astype(np.uint8) for index in shown}
    write_atlas(replace(found, pictures=pictures), folder)
    return folder


def with_summary(
    material: Any, *, row: str | None = None, head: str | None = None, selected_low: float = np.nan, **values: float
) -> Any:
    """The same run with other ``values`` of its metric in the summary, of all rows, or of one or those of a head."""
    table = material.run.summary.copy()
    chosen = table["metric"] == material.run.metric
    for column, name in (("row", row), ("head", head)):
        chosen &= (table[column] == name) if name is not None else True
    table.loc[chosen, list(values)] = list(values.values())
    return replace(material, run=replace(material.run, summary=table.assign(selected_low=selected_low)))
