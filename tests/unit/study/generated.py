"""A generated cohort whose labels and survival depend on tissue proportions in a known way."""

from pathlib import Path
from typing import Any

import numpy as np
import yaml

from panther.study.file import Study, load_study

TISSUES = 4
# a study of a generated folder
SMALL = {"name": "small", "table": "table.csv", "features": {"npy": "features"}, "task": {"label": "subtype"}}
SMALL |= {"splits": {"k": 2}, "heads": ["probe"], "n_prototypes": [2], "bootstrap": 50}
SMALL |= {"prototypes": {"restarts": 1, "passes": 1, "sample": 100}}


def study_in(folder: Path, **changes: Any) -> Study:
    """Write a study file into a generated folder and read it."""
    (folder / "study.yaml").write_text(yaml.safe_dump({**SMALL, **changes}))
    return load_study(folder / "study.yaml")


def generate(
    folder: Path, patients: int = 60, dim: int = 12, patches: int = 60, seed: int = 0, shuffled: bool = False
) -> None:
    """Write features (one .npy a slide, every third patient has two slides) and `table.csv`.

    Tissue 0 is "tumour": its share decides the class and raises the hazard. With ``shuffled`` the outcomes are permuted.
    """
    rng = np.random.default_rng(seed)
    (folder / "features").mkdir(parents=True, exist_ok=True)
    centres = rng.normal(0, 2.0, (TISSUES, dim))
    shares = rng.dirichlet(np.ones(TISSUES), patients)
    tumour = shares[:, 0]
    label = np.where(tumour > np.median(tumour), "high", "low")
    death = rng.exponential(1000 * np.exp(-4.0 * (tumour - tumour.mean())))
    censoring = rng.exponential(2500, patients)
    time, event = np.minimum(death, censoring) + 1, death <= censoring
    order = rng.permutation(patients) if shuffled else np.arange(patients)
    rows = ["case_id,slide_id,subtype,dss_survival_days,dss_censorship,tissue_source_site,provider"]
    for p in range(patients):
        for s in range(2 if p % 3 == 0 else 1):
            name = f"P{p:03d}-{s}"
            tissue = rng.choice(TISSUES, patches, p=shares[p])
            np.save(
                folder / "features" / f"{name}.npy", (centres[tissue] + rng.normal(size=(patches, dim))).astype("f4")
            )
            q = order[p]
            rows.append(
                f"P{p:03d},{name},{label[q]},{time[q]:.1f},{0 if event[q] else 1},S{p % 6},{'east' if p % 2 else 'west'}"
            )
    (folder / "table.csv").write_text("\n".join(rows) + "\n")
