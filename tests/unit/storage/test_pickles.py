"""Pickles: what others published is read, and nothing in a file is ever run."""

import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from panther.errors import InputError
from panther.storage.prototypes import load_prototypes
from panther.storage.readers import open_bag
from panther.storage.survey import survey
from panther.storage.tensors import load_arrays


def refuse(path: Path, *reads) -> None:
    for read in reads:
        with pytest.raises(InputError, match=str(path)):
            read(path)


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
    np.save(tmp_path / "object.npy", np.array([Malice(ran)], dtype=object), allow_pickle=True)
    for name in ("zip.pt", "old.pt", "plain.pt", "object.npy"):
        refuse(tmp_path / name, open_bag)
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        path = tmp_path / f"protocol{protocol}.pkl"
        path.write_bytes(pickle.dumps({"prototypes": np.ones((1, 2, 3)), "x": Malice(ran)}, protocol))
        refuse(path, load_arrays, load_prototypes)
        assert survey(path)["kind"] == "problem"
    refuse(tmp_path / "object.npy", load_prototypes)
    assert not ran.exists()
    pickle.loads(pickle.dumps(Malice(ran)))  # the trap does spring where it is not guarded against
    assert ran.exists()


@pytest.mark.parametrize("reach", ["builtins.eval", "numpy.load", "os.system", "numpy.core.multiarray.os"])
def test_a_pickle_reaches_no_other_function(tmp_path, reach):
    module, name = reach.rsplit(".", 1)
    (tmp_path / "a.pkl").write_bytes(f"c{module}\n{name}\n(S'x'\ntR.".encode())
    refuse(tmp_path / "a.pkl", load_arrays)


def test_published_prototypes_load_and_pickles_of_something_else_are_refused(tmp_path):
    centroids, path = np.random.default_rng(0).normal(size=(1, 4, 3)).astype(np.float32), tmp_path / "a.pkl"
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        path.write_bytes(pickle.dumps({"prototypes": centroids}, protocol))
        np.testing.assert_array_equal(load_prototypes(path).centroids.numpy(), centroids[0])
    assert survey(path)["kind"] == "prototypes"
    for content in ({}, {"a": 1}, [1, 2], {"prototypes": "text"}, {"prototypes": np.full((2, 3), np.nan)}):
        path.write_bytes(pickle.dumps(content))
        refuse(path, load_prototypes)
