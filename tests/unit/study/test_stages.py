"""A study reads each bag a constant number of times, whatever its grid, and a killed walk goes on where it was."""

import numpy as np
import pytest

from panther import store
from panther.aggregators import embed_bags
from panther.storage.bags import BagRef
from panther.storage.prototypes import load_prototypes
from panther.study.jobs import load_embeddings
from panther.study.training import train_all
from reading import Counts, counted
from study.generated import generate, study_in

GRID = {"methods": ["panther", "ot", "h2t", "protocounts"], "n_prototypes": [2, 3], "seeds": [1, 2]}


@pytest.fixture
def counts(tmp_path, monkeypatch):
    """What a study in `tmp_path` reads, in files that are old enough to be known by their times."""
    monkeypatch.setattr(store, "UNSETTLED_SECONDS", 0.0)
    generate(tmp_path, patients=12, patches=20)
    counts, opened = Counts(), BagRef.open
    monkeypatch.setattr(BagRef, "open", lambda ref: counted(opened(ref), counts))
    return counts


def test_a_grid_of_32_embeddings_opens_and_reads_no_more_than_one_of_two(counts, tmp_path):
    train_all(study_in(tmp_path, methods=["deepsets"]), tmp_path / "small")
    opened, read = len(counts.opened), counts.bytes
    counts.opened.clear()
    counts.bytes = 0
    run = train_all(study_in(tmp_path, **GRID), tmp_path / "grid")
    assert len({trained.embeddings for trained in run.trained}) == 32
    assert len(counts.opened) == opened
    samples = 16 * 100 * 12 * 4  # what the two seeds sample for K-means in two folds is read for each of them
    assert counts.bytes <= read + samples


def test_the_files_are_those_of_one_walk_for_each(counts, tmp_path):
    np.save(tmp_path / "features/P001-0.npy", np.full((5, 12), 1e30, "f4"))  # some methods cannot embed it
    run = train_all(study_in(tmp_path, **GRID), tmp_path / "out")
    failed = set()
    for trained in {t.embeddings: t for t in run.trained}.values():
        method = trained.cell.method
        bags = [run.population.bags["npy"][name] for name in run.population.ids]
        alone = embed_bags(bags, load_prototypes(trained.prototypes), method.name, method.options)
        vectors, samples = load_embeddings(trained.embeddings)
        assert samples == alone.samples
        np.testing.assert_array_equal(vectors, alone.vectors)
        failed.add(len(alone.failures))
    assert failed == {0, 1}
    assert not list((tmp_path / "out/cache").glob("unfinished*"))
