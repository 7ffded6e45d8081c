"""Encoders of a study are worked on at the same time where there are workers, and nothing of the result shows it."""

import threading

import numpy as np

from panther.engine import open_work
from panther.study import jobs as stages
from panther.study.training import train_all
from study.generated import generate, study_in


def test_two_encoders_fit_their_prototypes_at_the_same_time(tmp_path, monkeypatch):
    generate(tmp_path, patients=12, patches=20)
    (tmp_path / "others").mkdir()
    for path in (tmp_path / "features").iterdir():  # of another encoder
        np.save(tmp_path / "others" / path.name, 2 * np.load(path))
    study = study_in(tmp_path, features={"one": "features", "two": "others"})
    train_all(study, tmp_path / "alone")
    meeting, fit = threading.Barrier(2, timeout=120), stages.fit_many

    def both(*inputs, **more):
        meeting.wait()  # broken, and the test with it, where one comes after the other
        return fit(*inputs, **more)

    monkeypatch.setattr(stages, "fit_many", both)
    with open_work(2) as work:
        train_all(study, tmp_path / "together", work)
    for pattern in ("cache/prototypes-*", "cache/embeddings-*", "models/*"):
        alone = {path.name: path.read_bytes() for path in (tmp_path / "alone").glob(pattern)}
        together = {path.name: path.read_bytes() for path in (tmp_path / "together").glob(pattern)}
        assert alone
        assert alone == together
