"""Features that changed by a single row, in a file of the same size: nothing that was computed from the old ones is used again."""

import numpy as np
import pytest
import yaml

from hostile.judging import run_here
from hostile.lab import SLIDES, STUDY
from panther import store

ROWS, DIM = 6000, 8


@pytest.fixture(params=[10.0, 0.0], ids=["just written", "settled"])
def settled(request, monkeypatch):
    """Files that are read again because they are young, and files that are known by their times."""
    monkeypatch.setattr(store, "UNSETTLED_SECONDS", request.param)


def test_a_study_of_changed_features_is_the_study_of_a_fresh_folder(lab, settled):
    """64 rows spread over 6,000 said that nothing had changed."""
    rng = np.random.default_rng(0)
    for number, slide in enumerate(SLIDES):
        (lab / "feats" / f"{slide}.h5").unlink()
        np.save(lab / "feats" / f"{slide}.npy", rng.normal(3 * (number % 2), 1, (600, 6)).astype(np.float32))
    (lab / "study.yaml").write_text(yaml.safe_dump({**STUDY, "methods": ["protocounts", "deepsets"]}))
    assert run_here(("run", "study.yaml", "-o", "old", "-j", 1), lab).code == 0
    files = set((lab / "old" / "cache").iterdir())
    for slide in SLIDES[:6]:
        x = np.load(lab / "feats" / f"{slide}.npy")
        sampled = sorted({600 * i // 64 for i in range(64)})
        changed = np.setdiff1d(np.arange(600), sampled)
        x[changed] = rng.normal(3, 1, (len(changed), 6))
        np.save(lab / "feats" / f"{slide}.npy", x)
    for folder in ("old", "fresh"):
        done = run_here(("run", "study.yaml", "-o", folder, "-j", 1), lab)
        assert done.code == 0, done.text
    assert (lab / "old" / "predictions.csv").read_bytes() == (lab / "fresh" / "predictions.csv").read_bytes()
    assert len(set((lab / "old" / "cache").iterdir()) - files) == len(
        files - {lab / "old/cache/fingerprints.json", lab / "old/cache/plan.json"}
    )
