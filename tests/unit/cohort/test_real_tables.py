"""The real TCGA-KIRC tables as a study: folds read as they are, CPTAC outside, features generated with a planted signal."""

from pathlib import Path

import numpy as np
import pytest
import yaml

from panther.cohort.split_files import read_splits
from panther.verbs.study import run_study

FOLDS = "tables/survival/TCGA_KIRC_overall_survival"


def plant(shared: Path, folder: Path, strength: float) -> None:
    """Few patches a slide; the share of one of two tissues follows the (known) hazard: short times with an event get more."""
    rng = np.random.default_rng(0)
    rows = read_splits(shared / FOLDS).table().drop_duplicates("slide_id")
    days = rows["dss_survival_days"].replace("", "nan").astype(float).to_numpy()
    rank = np.argsort(np.argsort(np.where(np.isnan(days), np.nanmedian(days), days))) / len(rows)
    folder.mkdir(parents=True)
    for slide, r in zip(rows["slide_id"], rank, strict=True):
        share = np.clip(0.5 + strength * (0.5 - r), 0.02, 0.98)
        tissue = (rng.random(24) < share).astype(float)[:, None]
        np.save(folder / f"{slide}.npy", (4 * tissue + rng.normal(size=(24, 6))).astype("f4"))


@pytest.mark.parametrize(
    "strength", [pytest.param(0.9, id="planted"), pytest.param(0.0, id="nothing", marks=pytest.mark.slow)]
)
def test_the_kirc_folds_find_a_planted_signal_and_only_then(strength, shared_data, tmp_path):
    plant(shared_data, tmp_path / "features", strength)
    spec = {
        "name": "kirc",
        "features": {"generated": "features"},
        "task": {"survival": "dss"},
        "splits": str(shared_data / FOLDS),
        "methods": ["protocounts"],
        "heads": ["probe"],
        "n_prototypes": [2],
        "prototypes": {"sample": 2000, "restarts": 1, "passes": 1},
        "bootstrap": 0,
    }
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(spec))
    results = run_study(tmp_path / "study.yaml", tmp_path / "out")
    outcome = results.run
    told = " ".join(outcome.population.notes)
    assert "9 rows were dropped" in told
    assert "1 = censored" in told
    assert len(outcome.population.splits) == 5
    for split in outcome.population.splits:
        assert not set(split.train) & set(split.test["test"])
        assert "test_cptac" in split.test  # with the models of every fold
    summary = results.summary
    result = summary[summary["metric"] == "c_index"].set_index("part")["mean"]
    if strength:
        assert result["test"] > 0.7
        assert result["test_cptac"] > 0.6
    else:
        assert abs(result["test"] - 0.5) < 0.1
