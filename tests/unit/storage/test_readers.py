"""Whatever layout people have: the same numbers come back, lazily, with what the file says about them."""

import tempfile
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from layouts import LAYOUTS, clam_h5, clam_pt, features, npy, safetensors, stamp, trident, write

from panther.errors import InputError
from panther.storage.readers import open_bag
from panther.types import PatchSpec


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(  # CLAM appends batches of 7
    ("dtype", "n"), [("float16", 23), ("float32", 1), ("float32", 7), ("float32", 8), ("float64", 23)]
)
def test_features_and_coordinates_come_back_as_they_were_stored(tmp_path, layout, dtype, n):
    x, coords = features(n, dtype=dtype)
    bag = open_bag(write(tmp_path, layout, x, coords))
    assert (bag.slide_id, len(bag), bag.dim, bag.format) == ("slide", n, 6, LAYOUTS[layout][2])
    assert bag.features.dtype == getattr(torch, dtype)
    read = bag.features[0 : len(bag)]
    assert read.dtype == bag.features.dtype
    np.testing.assert_array_equal(read.numpy(), x)
    if LAYOUTS[layout][3]:
        assert bag.coords is not None
        np.testing.assert_array_equal(bag.coords, coords)
    else:
        assert bag.coords is None


@pytest.fixture(scope="module")
def opened():
    """Every layout opened once, beside the array it was written from."""
    x, coords = features(41, 5)
    with tempfile.TemporaryDirectory() as folder:
        yield x, [open_bag(write(Path(folder), layout, x, coords, layout)) for layout in LAYOUTS if "/" not in layout]


bounds = st.one_of(st.none(), st.integers(-50, 60))


@settings(deadline=None, max_examples=60)
@given(start=bounds, stop=bounds, rows=st.integers(1, 50))
def test_any_slice_and_all_blocks_equal_those_of_the_array(opened, start, stop, rows):
    x, bags = opened
    for bag in bags:
        np.testing.assert_array_equal(bag.features[start:stop].numpy(), x[start:stop], err_msg=bag.slide_id)
        blocks = list(bag.blocks(rows))
        assert max(map(len, blocks)) <= rows
        np.testing.assert_array_equal(torch.cat(blocks).numpy(), x, err_msg=bag.slide_id)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_slide_without_patches_is_a_bag_of_length_zero(tmp_path, layout):
    x, coords = features(0)
    if layout == "(1, N, d) h5, chunked":
        pytest.skip("HDF5 cannot guess chunks for nothing")
    bag = open_bag(write(tmp_path, layout, x, coords))
    assert (len(bag), bag.dim) == (0, 6)
    assert bag.features[0:10].shape == (0, 6)
    assert list(bag.blocks(4)) == []


@pytest.mark.parametrize(
    ("layout", "encoder", "spec"),
    [
        ("TRIDENT h5", "uni_v1", PatchSpec(mpp=0.5, size=256, size_level0=512, overlap=16)),
        ("STAMP h5", "ctranspath", PatchSpec(mpp=256 / 224, size=224, coords_unit="um")),
        ("STAMP h5, old", None, PatchSpec(coords_unit="um")),
        ("CLAM h5", None, PatchSpec()),
    ],
)
def test_encoder_and_geometry_are_those_of_the_file_and_never_invented(tmp_path, layout, encoder, spec):
    bag = open_bag(write(tmp_path, layout, *features()))
    assert (bag.encoder, bag.spec) == (encoder, spec)
    assert bag.coords.dtype == (np.int64 if spec.coords_unit == "px" else np.float64)


def test_content_and_not_the_ending_chooses_the_reader(tmp_path):
    x, coords = features()
    for index, (writer, name) in enumerate(
        [(trident, "trident"), (clam_h5, "clam"), (stamp, "stamp"), (clam_pt, "pt"), (safetensors, "safetensors")]
    ):
        for suffix in (".h5", ".pt", ".npy", ".bin", ""):
            path = tmp_path / f"slide{index}{suffix}"
            writer(path, x, coords)
            bag = open_bag(path)
            assert bag.format == name
            np.testing.assert_array_equal(bag.features[0:23].numpy(), x)
    npy(tmp_path / "array.npy", x, coords)
    (tmp_path / "array.npy").rename(tmp_path / "array.h5")
    assert open_bag(tmp_path / "array.h5").format == "npy"


def test_dots_inside_a_name_belong_to_the_slide_and_bfloat16_stays(tmp_path):
    x = torch.randn(5, 3).bfloat16()
    torch.save(x, tmp_path / "TCGA-AS-3777-01Z-00-DX1.3c2ee8f6-91f4.pt")
    bag = open_bag(tmp_path / "TCGA-AS-3777-01Z-00-DX1.3c2ee8f6-91f4.pt")
    assert (bag.slide_id, bag.features.dtype) == ("TCGA-AS-3777-01Z-00-DX1.3c2ee8f6-91f4", torch.bfloat16)
    assert torch.equal(bag.features[0:5], x)
    assert bag.fingerprint()


@pytest.mark.parametrize("chunks", [(1, 3), (2, 2)])
def test_chunks_that_were_never_written_are_counted(tmp_path, chunks):
    with h5py.File(tmp_path / "holes.h5", "w") as file:
        dataset = file.create_dataset("features", (6, 3), "f4", chunks=chunks, fillvalue=2.0)
        dataset[0:2], dataset[4:6] = 1.0, 1.0
    with pytest.raises(InputError, match="chunks of features"):
        open_bag(tmp_path / "holes.h5")


def test_real_bags_read_as_h5py_reads_them(shared_data):
    for name, key in (("TCGA-AD-6964.stamp.h5", "feats"), ("TCGA-3X-AAVA.no-coords.h5", None)):
        path = shared_data / "bags" / name
        bag = open_bag(path)
        with h5py.File(path) as file:
            stored = file[key or ("features" if "features" in file else "feats")][...]
        np.testing.assert_array_equal(bag.features[0 : len(bag)].numpy(), stored.reshape(-1, stored.shape[-1]))


@pytest.mark.parametrize("chunks", [None, (1, 4)])
def test_a_user_block_before_the_numbers_changes_nothing(tmp_path, chunks):
    x = np.random.default_rng(0).normal(size=(30, 4)).astype("f4")
    with h5py.File(tmp_path / "a.h5", "w", userblock_size=1024) as file:
        file.create_dataset("features", data=x, chunks=chunks)
        file["coords"] = np.zeros((30, 2), np.int64)
    np.testing.assert_array_equal(open_bag(tmp_path / "a.h5").features[3:20].numpy(), x[3:20])
