"""Bad files: each is refused with a sentence that names it, and none of them is ever run."""

import pickle
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from layouts import LAYOUTS, features, write
from safetensors.torch import save_file

from panther.errors import InputError, NotABagError
from panther.statistics import first_bad_row
from panther.storage.readers import open_bag
from panther.storage.survey import survey


def refusal(path: Path, read=open_bag) -> str:
    """The sentence with which a file is refused."""
    with pytest.raises(InputError) as caught:
        read(path)
    sentence = str(caught.value)
    assert str(path) in sentence
    assert "\n" not in sentence
    return sentence


def h5(path: Path, **datasets) -> Path:
    with h5py.File(path, "w") as file:
        for name, data in datasets.items():
            file[name] = data
    return path


X = np.ones((5, 3), np.float32)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_the_first_row_with_nan_or_infinity_is_named(tmp_path, layout, value):
    x, coords = features(200, 3)
    x[[123, 150], 1] = value
    path = write(tmp_path, layout, x, coords)
    assert first_bad_row(open_bag(path).features) == 123
    problem = survey(path, deep=True)["problem"]
    assert "row 123" in problem
    assert str(path) in problem


@pytest.mark.parametrize("shape", [(5,), (2, 5, 3), (1, 1, 5, 3), (), (5, 0), (0, 0)])
def test_features_of_another_rank_or_without_columns_are_refused(tmp_path, shape):
    x = np.zeros(shape, np.float32)
    np.save(tmp_path / "a.npy", x)
    torch.save(torch.from_numpy(x), tmp_path / "a.pt")
    for path in (
        tmp_path / "a.npy",
        tmp_path / "a.pt",
        h5(tmp_path / "a.h5", features=x),
        h5(tmp_path / "b.h5", feats=x),
    ):
        refusal(path)


@pytest.mark.parametrize("dtype", ["int32", "uint8", "bool", "complex64", "longdouble"])
def test_numbers_that_are_not_floating_point_are_refused(tmp_path, dtype):
    x = np.zeros((5, 3), dtype)
    np.save(tmp_path / "a.npy", x)
    paths = [tmp_path / "a.npy", h5(tmp_path / "a.h5", features=x)]
    if dtype != "longdouble":
        torch.save(torch.from_numpy(x), tmp_path / "a.pt")
        save_file({"features": torch.from_numpy(x)}, tmp_path / "a.safetensors")
        paths += [tmp_path / "a.pt", tmp_path / "a.safetensors"]
    assert all("floating-point" in refusal(path) for path in paths)


@pytest.mark.parametrize("shape", [(4, 2), (5, 3), (5,), (2, 5), (5, 5, 2)])
def test_coordinates_that_do_not_match_the_features_are_refused(tmp_path, shape):
    coords = np.zeros(shape, np.int64)
    save_file({"features": torch.from_numpy(X), "coords": torch.from_numpy(coords)}, tmp_path / "a.safetensors")
    torch.save({"features": torch.from_numpy(X), "coords": torch.from_numpy(coords)}, tmp_path / "a.pt")
    paths = [tmp_path / "a.safetensors", tmp_path / "a.pt"]
    paths += [h5(tmp_path / f"{name}.h5", **{name: X, "coords": coords}) for name in ("features", "feats")]
    for path in paths:
        assert str(shape) in refusal(path)


@pytest.mark.parametrize("encoder", [None, "uni"])
def test_coordinates_behind_a_broken_link_are_not_passed_over_and_a_group_has_the_geometry(tmp_path, encoder):
    path = h5(tmp_path / "a.h5", features=X)
    with h5py.File(path, "r+") as file:
        file["coords"] = h5py.SoftLink("/nowhere")
        if encoder:
            file["features"].attrs["encoder"] = encoder
    refusal(path)
    with h5py.File(path, "r+") as file:
        del file["coords"]
        file.create_group("coords").attrs.update(patch_size=256, patch_size_level0=512, target_magnification=20)
    bag = open_bag(path)
    assert (bag.format, bag.spec.size, bag.spec.size_level0, bag.spec.mpp) == ("trident", 256, 512, 0.5)


def test_other_files_are_refused_as_bags(tmp_path):
    contents = {"a.h5": b"hello, I am text", "a.pt": pickle.dumps({"features": X}), "a.npy": b"\x93NUM"}
    contents |= {f"empty{suffix}": b"" for suffix in (".h5", ".pt", ".npy", ".safetensors")}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
        refusal(tmp_path / name)
    np.savez(tmp_path / "a.npz", x=np.zeros((3, 2), "f4"))
    refusal(tmp_path / "a.npz")
    refusal(tmp_path)  # a folder
    refusal(tmp_path / "missing.h5")
    with h5py.File(tmp_path / "group.h5", "w") as file:
        file.create_group("features")
    refusal(tmp_path / "group.h5")
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (20, 4), }" + b" " * 20_000  # too long
    (tmp_path / "b.npy").write_bytes(b"\x93NUMPY\x02\x00" + len(header).to_bytes(4, "little") + header + bytes(320))
    assert "pickle" not in refusal(tmp_path / "b.npy")  # numpy advises to load pickles


def test_a_file_of_coordinates_is_no_damaged_bag(tmp_path):
    path = h5(tmp_path / "slide_patches.h5", coords=np.zeros((5, 2), np.int64))
    with pytest.raises(NotABagError):
        open_bag(path)
    assert survey(path)["kind"] == "coordinates"
    assert survey(h5(tmp_path / "other.h5", counts=np.zeros(3)))["kind"] == "problem"


def test_a_damaged_compressed_chunk_is_named_when_it_is_read(tmp_path):
    x, coords = features(100, 64)
    path = write(tmp_path, "h5, gzip", x, coords)
    with h5py.File(path) as file:
        where = file["features"].id.get_chunk_info(3).byte_offset
    content = bytearray(path.read_bytes())
    content[where : where + 20] = bytes(20)
    path.write_bytes(content)
    bag = open_bag(path)
    refusal(path, lambda _: bag.features[0:100])


def test_a_file_that_is_still_being_written_is_not_called_damaged(tmp_path):
    path = tmp_path / "a.h5"
    script = "import h5py, sys; f = h5py.File(sys.argv[1], 'w'); f['features'] = [[1.0]]; f.flush(); print('ready', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", script, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout.readline() == "ready\n"
        sentence = refusal(path)
        writer.communicate("\n")
    assert "another process is writing" in sentence
    assert len(open_bag(path)) == 1
