"""A disk that is full at any moment of a write: one line, no crash of HDF5 at the end of the process, nothing left behind."""

import os
import subprocess
import sys

import h5py
import numpy as np
import pytest
import torch

from panther import Bag, save_bag
from panther.store import h5_writer

WRITE = """
import resource, signal, sys
from pathlib import Path
import numpy as np, torch
import panther
from panther.storage.embeddings import write_embeddings
from panther.storage.isolated import call_isolated
from panther.storage.trident import Coords, write_coords

rng = np.random.default_rng(0)
folder = Path(sys.argv[1])
bags = {f"s{n}": rng.normal(size=(20, 64)).astype(np.float32) for n in range(40)}
table = panther.embed_cohort(bags, panther.fit_prototypes(bags, 8))
spec = panther.PatchSpec(0.5, 256, 256, 256, 0, 0)
coords = Coords("s", np.zeros((5000, 2), np.int64), spec, 0.5, (9, 9))
write = {
    "s.h5ad": lambda path: write_embeddings(table, path),
    "s.h5": lambda path: panther.save_bag(np.zeros((500, 64), np.float32), path),
    "c.h5": lambda path: write_coords(path, coords, "x"),
}
for size in range(500, 80_000, 5_000):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    for name, function in write.items():
        try:
            function(folder / name)
        except panther.InputError as error:
            assert "cannot be written" in str(error) and name in str(error), error
        else:
            raise AssertionError(name)
print("done")
"""


def test_hdf5_never_sees_a_full_disk(tmp_path):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", WRITE, tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    assert not list(tmp_path.iterdir())


def test_an_error_of_the_caller_is_raised_as_it_is(tmp_path):
    with pytest.raises(TypeError), h5_writer(tmp_path / "x.h5") as file:
        file.create_dataset("a", data=object())


def test_rows_can_still_be_mapped(tmp_path):
    rows = np.random.default_rng(0).normal(size=(50, 8)).astype(np.float32)
    save_bag(Bag("s", torch.from_numpy(rows)), tmp_path / "s.h5")
    with h5py.File(tmp_path / "s.h5") as file:
        offset = file["features"].id.get_offset()
    np.testing.assert_array_equal(np.memmap(tmp_path / "s.h5", np.float32, "r", offset, (50, 8)), rows)
