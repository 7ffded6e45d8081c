"""The extraction loop: right pixels in the right rows, whatever happens on the way."""

from dataclasses import replace

import h5py
import numpy as np
import pytest
from PIL import Image

from encoders.making import damage, make_pyramid, make_tiles, quarters, tiny
from panther.encoders._base import Preprocess
from panther.encoders.pipeline import ExtractSettings, Pipeline
from panther.encoders.step import encode_tiles, write_features
from panther.errors import InputError
from panther.slides import SlideRef, open_slide, patch_spec
from panther.storage.readers import open_bag
from panther.storage.trident import Coords

HERE = ExtractSettings(batch=8, workers=1, dtype="float32")


def run(folder, target, settings=HERE, encoder=None):
    with Pipeline(encoder or tiny(), settings) as pipeline:
        return encode_tiles(folder, pipeline, target)


def test_rows_are_the_features_of_the_tiles_in_the_order_of_their_names(tmp_path):
    pixels = make_tiles(tmp_path / "tiles", 21)
    made = run(tmp_path / "tiles", tmp_path / "bag.h5")
    bag = open_bag(tmp_path / "bag.h5")
    np.testing.assert_allclose(bag.features[:].numpy(), quarters(pixels), rtol=1e-5)
    assert (bag.encoder, bag.coords, len(bag)) == ("tiny", None, 21)
    with h5py.File(tmp_path / "bag.h5") as file:
        assert [name.decode() for name in file["tiles"]] == [f"{i:03d}.png" for i in range(21)]
        assert file["features"].chunks is None
    assert made.throughput.patches == 21


def test_worker_processes_give_the_bytes_of_this_process(tmp_path):
    make_tiles(tmp_path / "tiles", 100)
    (tmp_path / "tiles" / "050.png").write_bytes(b"no image")
    run(tmp_path / "tiles", tmp_path / "one" / "bag.h5")
    run(tmp_path / "tiles", tmp_path / "two" / "bag.h5", replace(HERE, workers=2))
    one, two = (open_bag(tmp_path / name / "bag.h5").features[:] for name in ("one", "two"))
    assert one.equal(two)
    assert len(one) == 99


def test_features_that_do_not_fit_are_refused(tmp_path):
    make_tiles(tmp_path / "tiles", 3)
    with pytest.raises(InputError, match="`dtype=float32`"):
        run(tmp_path / "tiles", tmp_path / "bag.h5", ExtractSettings(8, 1, "float16"), tiny(scale=1e4))
    with pytest.raises(InputError, match="NaN"):
        run(tmp_path / "tiles", tmp_path / "bag.h5", encoder=tiny(scale=float("nan")))
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no tile images"):
        run(tmp_path / "empty", tmp_path / "bag.h5")


def test_a_patch_of_another_size_is_resized_and_its_centre_cut_out():
    gradient = np.tile(np.linspace(0, 255, 512, dtype=np.uint8)[None, :, None], (512, 1, 3))
    seen = Preprocess(224, 256)(gradient)
    expected = np.asarray(Image.fromarray(gradient).resize((256, 256), Image.Resampling.BICUBIC))[16:240, 16:240]
    assert np.array_equal(seen, expected)
    assert Preprocess(32, 32)(gradient[:32, :32]).base is not None  # no copy where nothing is to be done
    assert Preprocess(32, 32)(gradient[:48, :200]).shape == (32, 32, 3)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_damaged_tile_is_read_from_another_level_or_left_out_of_features_and_coords(workers, tmp_path):
    path = tmp_path / "slide.tif"
    full = make_pyramid(path)
    damage(path, 0, 5)  # x 128, y 128; its pixels are also in level 1
    damage(path, 0, 15)  # x 384, y 384
    damage(path, 1, 3)  # and the same in level 1
    with open_slide(path, 0.5) as slide:
        spec = patch_spec(slide, 128, 0.5)
        coords = np.array([(x, y) for y in range(0, 512, 128) for x in range(0, 512, 128)])
        sizes = {"patch_size": 128, "patch_size_level0": 128}
        attributes = {**sizes, "target_magnification": 20, "overlap": 0, "name": "slide"}
        with Pipeline(tiny(size=128), replace(HERE, workers=workers)) as pipeline:
            arguments = Coords("slide", coords, spec, 0.5, slide.dimensions, attributes=attributes)
            made = write_features(SlideRef(path, "slide", 0.5), arguments, pipeline, tmp_path / "out" / "slide.h5")
    assert list(made.failed) == [15]
    bag = open_bag(tmp_path / "out" / "slide.h5")
    assert np.array_equal(bag.coords, coords[:15])
    assert (bag.spec.size, bag.spec.size_level0, bag.spec.mpp) == (128, 128, 0.5)
    truth = quarters(np.stack([full[y : y + 128, x : x + 128] for x, y in coords[:15]]))
    np.testing.assert_allclose(bag.features[:].numpy(), truth, atol=4)  # of 255: JPEG


def test_a_slide_without_patches_is_an_empty_bag_and_one_without_readable_ones_is_refused(tmp_path):
    path = tmp_path / "slide.tif"
    make_pyramid(path)
    with open_slide(path, 0.5) as slide, Pipeline(tiny(size=128), HERE) as pipeline:
        spec = patch_spec(slide, 128, 0.5)
        none = Coords("slide", np.empty((0, 2), np.int64), spec, 0.5, slide.dimensions)
        made = write_features(SlideRef(path, "slide", 0.5), none, pipeline, tmp_path / "none.h5")
        assert (len(made.rows), tuple(open_bag(tmp_path / "none.h5").features.shape)) == (0, (0, 12))
        for level, tile in ((0, 0), (1, 0)):
            damage(path, level, tile)
    refused = pytest.raises(InputError, match="none of the 1 patches")
    with open_slide(path, 0.5) as slide, Pipeline(tiny(size=128), HERE) as pipeline, refused:
        write_features(
            SlideRef(path, "slide", 0.5), replace(none, coords=np.array([[0, 0]])), pipeline, tmp_path / "bad.h5"
        )
