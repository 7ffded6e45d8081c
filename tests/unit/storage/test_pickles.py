"""Pickles: what others published is read, and nothing in a file is ever run."""

import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from panther.errors import InputError
from panther.storage.embeddings import load_published_embeddings
from panther.storage.prototypes import load_prototypes
from panther.storage.readers import open_bag
from panther.storage.survey import survey
from panther.storage.tensors import load_arrays


def refusal(path: Path, read) -> str:
    with pytest.raises(InputError) as caught:
        read(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


class Malice:
    """Creates a file when it is unpickled."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self):
        return os.system, (f"touch {self.target}",)


def test_malicious_files_are_refused_and_do_not_run(tmp_path):
    ran = tmp_path / "ran"
    torch.save({"features": torch.ones(3, 2), "x": Malice(ran)}, tmp_path / "zip.pt")
    torch.save(Malice(ran), tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    (tmp_path / "plain.pt").write_bytes(pickle.dumps(Malice(ran)))
    array = np.array([Malice(ran)], dtype=object)
    np.save(tmp_path / "object.npy", array, allow_pickle=True)
    for name in ("zip.pt", "old.pt", "plain.pt", "object.npy"):
        refusal(tmp_path / name, open_bag)
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        path = tmp_path / f"protocol{protocol}.pkl"
        path.write_bytes(pickle.dumps({"prototypes": np.ones((1, 2, 3)), "x": Malice(ran)}, protocol))
        for read in (load_arrays, load_prototypes, load_published_embeddings):
            assert "never run" in refusal(path, read)
        assert survey(path)["kind"] == "problem"
    refusal(tmp_path / "object.npy", load_prototypes)
    assert not ran.exists()
    pickle.loads(pickle.dumps(Malice(ran)))  # the trap does spring where it is not guarded against
    assert ran.exists()


@pytest.mark.parametrize("reach", ["builtins.eval", "numpy.load", "os.system", "numpy.core.multiarray.os"])
def test_a_pickle_reaches_no_other_function(tmp_path, reach):
    module, name = reach.rsplit(".", 1)
    (tmp_path / "a.pkl").write_bytes(f"c{module}\n{name}\n(S'x'\ntR.".encode())
    refusal(tmp_path / "a.pkl", load_arrays)


def test_published_pickles_load(tmp_path):
    centroids = np.random.default_rng(0).normal(size=(1, 4, 3)).astype(np.float32)
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        path = tmp_path / "prototypes.pkl"
        path.write_bytes(pickle.dumps({"prototypes": centroids}, protocol))
        np.testing.assert_array_equal(load_prototypes(path).centroids.numpy(), centroids[0])
    assert survey(path)["kind"] == "prototypes"
    path = tmp_path / "embeddings.pkl"
    path.write_bytes(
        pickle.dumps({"train": {"X": np.ones((5, 7)), "y": np.arange(5)}, "test": {"X": np.ones((2, 7)), "y": [0, 1]}})
    )
    assert {split: x.shape for split, x in load_published_embeddings(path).items()} == {"train": (5, 7), "test": (2, 7)}
    assert survey(path)["kind"] == "published embeddings"


@pytest.mark.parametrize(
    "content", [{}, {"a": 1}, [1, 2], {"prototypes": "text"}, {"prototypes": np.full((2, 3), np.nan)}]
)
def test_pickles_of_something_else_are_refused(tmp_path, content):
    (tmp_path / "a.pkl").write_bytes(pickle.dumps(content))
    refusal(tmp_path / "a.pkl", load_prototypes)
    refusal(tmp_path / "a.pkl", load_published_embeddings)
