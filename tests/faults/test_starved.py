"""Memory that is short for one slide, a file that crashes its library: named, and the rest goes on."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from faults.dask_processes import DaskProcesses
from faults.lab import SOURCE, Lab
from panther.storage.readers import h5_storage
from panther.storage.readers.h5_storage import StoredBytes

pytestmark = pytest.mark.slow

BAD = "S03"
EMBED = ("embed", "features", "-p", "p.npy", "--set", "steps=20")
# in every process of the command: reading one slide takes all the memory there is
GREEDY = """
import h5py
_init = h5py.File.__init__
def greedy(self, name, *args, **options):
    eaten = []
    while "S03" in str(name):
        eaten.append(bytearray(1 << 25))
        eaten[-1][:: 1 << 12] = bytes(1 << 13)
    _init(self, name, *args, **options)
h5py.File.__init__ = greedy
"""


@pytest.fixture
def lab(tmp_path) -> Lab:
    rng = np.random.default_rng(0)
    (tmp_path / "lab" / "features").mkdir(parents=True)
    for number in range(8):
        with h5py.File(tmp_path / "lab" / "features" / f"S{number:02d}.h5", "w") as file:
            data = file.create_dataset("features", (600, 8), "f4", chunks=(1, 8), maxshape=(None, 8))
            data[:] = rng.normal((number % 2) * 2, 1, (600, 8))
            file["coords"] = np.stack([np.arange(600), np.arange(600)], 1) * 256
    np.save(tmp_path / "lab" / "p.npy", rng.normal(size=(3, 8)).astype("f4") * 2)
    return Lab(tmp_path / "lab")


@pytest.fixture
def without(lab):
    """Names and vectors of all slides but the one that will be bad."""
    aside = (lab.folder / "features" / f"{BAD}.h5").rename(lab.folder / "aside")
    lab.run(*EMBED, "-j", 1, "-o", "without.npz")
    aside.rename(lab.folder / "features" / f"{BAD}.h5")
    return vectors(lab, "without.npz")


def vectors(lab, name):
    """Content of an embedding file, without the list of failures."""
    with np.load(lab.folder / name, allow_pickle=False) as file:
        about = json.loads(str(file["panther"]))
        del about["failures"]
        return {"about": about, **{key: file[key].tobytes() for key in file.files if key != "panther"}}


def crash_hdf5(path: Path) -> None:
    """Make the index of the chunks a tall tree that leads back to itself; HDF5 follows it until the stack ends."""
    with h5py.File(path, "r") as file:
        header = h5py.h5o.get_info(file["features"].id).addr
    content = bytearray(path.read_bytes())
    _, root = h5_storage._layout_message(StoredBytes(path), header)
    content[root + 5] = 200
    content[root + 24 + 32 : root + 24 + 40] = root.to_bytes(8, "little")
    path.write_bytes(content)


@pytest.fixture(params=["pool", "dask"])
def embed(request, lab, tmp_path) -> Iterator[Any]:
    """Embed everything in worker processes or on a cluster, with some environment; one slide fails."""
    clusters: list[DaskProcesses] = []

    def run(env: dict[str, str], **options: Any) -> str:
        if request.param == "dask":
            clusters.append(DaskProcesses(tmp_path / "dask", 2, env))
        workers = clusters[0].address if clusters else 2
        return lab.run(*EMBED, "-o", "out.npz", "-j", workers, code=1, env=env, **options).text

    run.name = request.param
    yield run
    for dask in clusters:
        dask.end()


def test_a_file_that_crashes_hdf5_is_named(lab, without, embed):
    crash_hdf5(lab.folder / "features" / f"{BAD}.h5")
    text = embed({})
    assert f"{BAD}: crashed" in text or f"{BAD}: each of its workers died" in text, text
    assert vectors(lab, "out.npz") == without
    lab.assert_clean()


def test_a_slide_that_takes_all_memory_fails_alone(lab, without, embed):
    """With a limit of the process's own: Python says so."""
    (lab.folder / "sitecustomize.py").write_text(GREEDY + LIMITED)
    text = embed({"PYTHONPATH": f"{SOURCE}{os.pathsep}{lab.folder}"})
    assert f"{BAD}: out of memory" in text, text
    assert vectors(lab, "out.npz") == without
    lab.assert_clean()


LIMITED = """
import resource
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
"""
