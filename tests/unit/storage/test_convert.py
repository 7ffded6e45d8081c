"""Converting: any readable layout to any written one, whole files, and a second run does only what is missing."""

import os

import h5py
import numpy as np
import pytest
import torch
from layouts import GEOMETRY, LAYOUTS, features, write

import panther
from panther.errors import InputError
from panther.storage.bags import BagRef
from panther.storage.readers import open_bag
from panther.storage.writers import LAYOUTS as WRITTEN
from panther.storage.writers import convert_bag


def converted(source, folder, to, **options):
    """Outcome of the conversion, and the path it writes."""
    outcome = convert_bag(BagRef(source.stem, (source,)), folder=folder, to=to, **options)
    return outcome, folder / f"{source.stem}{WRITTEN[to].suffix}"


@pytest.mark.parametrize("to", WRITTEN)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_any_layout_becomes_any_other_and_keeps_its_numbers(tmp_path, layout, to, dtype):
    x, coords = features(dtype=dtype)
    source = write(tmp_path, layout, x, coords)
    outcome, target = converted(source, tmp_path / "out", to, slide_mpp=1.0)
    assert outcome == "written"
    before, after = open_bag(source), open_bag(target)
    assert after.features.dtype == before.features.dtype
    assert isinstance(after.features, torch.Tensor)  # contiguous: memory-mapped when read back
    np.testing.assert_array_equal(after.features[0:99].numpy(), x)
    assert after.slide_id == before.slide_id
    if to != "npy":
        assert after.encoder == (None if to == "clam" else before.encoder)
        assert (after.coords is None) == (before.coords is None)
        if after.coords is not None:
            np.testing.assert_array_equal(after.coords, coords)


@pytest.mark.parametrize("to", WRITTEN)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_second_run_writes_nothing_and_a_changed_source_is_written_again(tmp_path, layout, to):
    x, coords = features(200)
    source = write(tmp_path, layout, x, coords)
    _, target = converted(source, tmp_path / "out", to, slide_mpp=1.0)
    inode = target.stat().st_ino
    assert converted(source, tmp_path / "out", to, slide_mpp=1.0)[0] == "kept"
    assert target.stat().st_ino == inode
    x[113, 2] += 1
    write(tmp_path, layout, x, coords)
    os.utime(source, (0, 0))  # an old date hides nothing
    assert converted(source, tmp_path / "out", to, slide_mpp=1.0)[0] == "written"
    np.testing.assert_array_equal(open_bag(target).features[0:200].numpy(), x)


@pytest.mark.parametrize("to", WRITTEN)
def test_slides_without_patches_are_kept(tmp_path, to):
    source = write(tmp_path, "TRIDENT h5", *features(0))
    _, target = converted(source, tmp_path / "out", to)
    assert (len(open_bag(target)), open_bag(target).dim) == (0, 6)
    assert converted(source, tmp_path / "out", to)[0] == "kept"


def test_attributes_and_the_patch_spec_are_kept(tmp_path):
    source = write(tmp_path, "TRIDENT h5", *features())
    _, target = converted(source, tmp_path / "out", "trident")
    with h5py.File(target) as file:
        for name in ("patch_size", "patch_size_level0", "level0_magnification", "target_magnification", "overlap"):
            assert file["coords"].attrs[name] == GEOMETRY[name]
        assert file["features"].attrs["encoder"] == "uni_v1"
        assert file["features"].chunks is None
    assert open_bag(target).spec == open_bag(source).spec
    for layout in ("TRIDENT h5", "STAMP h5"):
        source = write(tmp_path, layout, *features())
        assert open_bag(converted(source, tmp_path / "out", "safetensors")[1]).spec == open_bag(source).spec


def test_micrometres_become_level_0_pixels_only_when_the_resolution_is_given(tmp_path):
    x, coords = features()
    source = write(tmp_path, "STAMP h5", x, coords)
    with pytest.raises(InputError, match="slide_mpp"):
        converted(source, tmp_path / "out", "trident")
    assert list((tmp_path / "out").iterdir()) == []
    _, target = converted(source, tmp_path / "out", "trident", slide_mpp=0.25)
    bag = open_bag(target)
    np.testing.assert_array_equal(bag.coords, coords * 4)
    assert bag.spec.size_level0 == 1024  # 256 um
    assert bag.spec.coords_unit == "px"
    assert bag.spec.mpp == pytest.approx(256 / 224, rel=1e-3)


def test_float16_rounds_and_refuses_what_does_not_fit(tmp_path):
    x, coords = features()
    source = write(tmp_path, "npy", x, coords)
    _, target = converted(source, tmp_path / "out", "npy", dtype="float16")
    np.testing.assert_array_equal(open_bag(target).features[0:99].numpy(), x.astype(np.float16))
    x[20, 3] = 1e6
    write(tmp_path, "npy", x, coords)
    with pytest.raises(InputError, match=r"slide\.npy: .* do not fit float16"):
        converted(source, tmp_path / "half", "trident", dtype="float16")
    assert list((tmp_path / "half").iterdir()) == []


@pytest.mark.parametrize("to", WRITTEN)
def test_a_bag_with_nan_is_refused_and_its_row_named(tmp_path, to):
    x, coords = features(5000)
    for number in (np.nan, np.inf, -np.inf):
        x[4321, 1] = number
        source = write(tmp_path, "npy", x, coords)
        with pytest.raises(InputError, match=rf"{source.name}.*row 4321"):
            converted(source, tmp_path / "out", to, dtype="float16")
    assert not any((tmp_path / "out").glob("*"))


def test_bfloat16_is_written_as_safetensors_and_refused_elsewhere(tmp_path):
    x = torch.randn(5, 3).bfloat16()
    source = tmp_path / "slide.pt"
    torch.save(x, source)
    for to in ("npy", "trident"):
        with pytest.raises(InputError, match="dtype=float32"):
            converted(source, tmp_path / "out", to)
        _, target = converted(source, tmp_path / "out", to, dtype="float32")
        assert torch.equal(open_bag(target).features[0:5], x.float())
    _, target = converted(source, tmp_path / "out", "safetensors")
    assert torch.equal(open_bag(target).features[0:5], x)
    assert converted(source, tmp_path / "out", "safetensors")[0] == "kept"


@pytest.mark.parametrize("wrong", [{"to": "zarr"}, {"dtype": "int8"}, {"slide_mpp": 0.005}, {"slide_mpp": 896.0}])
def test_invalid_options_of_convert_are_refused(tmp_path, wrong):
    source = write(tmp_path, "npy", *features())
    with pytest.raises(InputError, match=f"^{next(iter(wrong))}: "):
        panther.convert(source, tmp_path / "out", **wrong)


def test_neither_a_file_nor_the_folder_of_the_features_is_an_output(tmp_path):
    source = write(tmp_path, "npy", *features(dtype="float32"))
    before = source.read_bytes()
    with pytest.raises(InputError, match=source.name):
        converted(source, tmp_path, "npy", dtype="float16")
    with pytest.raises(InputError, match="output"):
        panther.convert(tmp_path, tmp_path, to="safetensors")
    assert [(path, path.read_bytes()) for path in tmp_path.iterdir()] == [(source, before)]
