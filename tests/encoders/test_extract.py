"""The extraction loop: right pixels in the right rows, whatever happens on the way."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import psutil
import pytest
from PIL import Image

from encoders.making import damage, make_pyramid, make_tiles, quarters, tiny
from panther.encoders.extract import ExtractSettings, encode_tiles, write_features
from panther.encoders.images import Preprocess
from panther.encoders.pipeline import Pipeline
from panther.errors import InputError
from panther.slides import open_slide, patch_spec
from panther.storage.readers import open_bag
from panther.storage.row_log import RowLog
from panther.storage.trident import Coords
from panther.storage.working import partial_folder

HERE = ExtractSettings(batch=8, workers=1, dtype="float32")


def run(folder, target, settings=HERE, encoder=None):
    with Pipeline(encoder or tiny(), settings) as pipeline:
        return encode_tiles(folder, pipeline, target)


def test_rows_are_the_features_of_the_tiles_in_the_order_of_their_names(tmp_path):
    pixels = make_tiles(tmp_path / "tiles", 21)
    made, names = run(tmp_path / "tiles", tmp_path / "bag.h5")
    bag = open_bag(tmp_path / "bag.h5")
    np.testing.assert_allclose(bag.features[:].numpy(), quarters(pixels), rtol=1e-5)
    assert (bag.encoder, bag.coords, len(bag)) == ("tiny", None, 21)
    with h5py.File(tmp_path / "bag.h5") as file:
        assert [name.decode() for name in file["tiles"]] == names == [f"{i:03d}.png" for i in range(21)]
        assert file["features"].chunks is None
    assert made.balance.patches == 21
    assert not partial_folder(tmp_path / "bag.h5").exists()


def test_worker_processes_give_the_bytes_of_this_process(tmp_path):
    make_tiles(tmp_path / "tiles", 100)
    (tmp_path / "tiles" / "050.png").write_bytes(b"no image")
    run(tmp_path / "tiles", tmp_path / "one" / "bag.h5")
    run(tmp_path / "tiles", tmp_path / "two" / "bag.h5", replace(HERE, workers=2))
    one, two = (open_bag(tmp_path / name / "bag.h5").features[:] for name in ("one", "two"))
    assert one.equal(two)
    assert len(one) == 99


class StopError(Exception):
    """A kill, as far as files are concerned."""


def stopping_after(batches, encoder):
    """The encoder, which dies at that batch."""
    left = [batches]

    def start(self, pixels):
        if left[0] == 0:
            raise StopError
        left[0] -= 1
        return type(encoder).start(encoder, pixels)

    dying = type("Dying", (type(encoder),), {"start": start})
    return dying(encoder.about, encoder.model, encoder.weights, encoder.device, encoder.precision)


TEARS = {
    "nothing": lambda folder: None,
    "half a line": lambda folder: cut(folder / "done.jsonl", 5),
    "half a batch": lambda folder: cut(folder / "rows", 30),
    "garbage": lambda folder: append(folder / "done.jsonl", '[8, 1, 0, {}]\n"'),
    "lost rows": lambda folder: (folder / "rows").write_bytes(b""),
}


def append(path: Path, text: str) -> None:
    path.write_text(path.read_text() + text)


def cut(path: Path, count: int) -> None:
    os.truncate(path, max(0, path.stat().st_size - count))


@pytest.mark.parametrize("tear", TEARS)
def test_a_run_that_was_stopped_goes_on_and_gives_the_same_bytes(tear, tmp_path):
    make_tiles(tmp_path / "tiles", 45)
    (tmp_path / "tiles" / "003.png").write_bytes(b"")
    run(tmp_path / "tiles", tmp_path / "bag.h5")
    expected = (tmp_path / "bag.h5").read_bytes()
    (tmp_path / "bag.h5").unlink()
    with pytest.raises(StopError):
        run(tmp_path / "tiles", tmp_path / "bag.h5", encoder=stopping_after(4, tiny()))
    assert not (tmp_path / "bag.h5").exists()
    TEARS[tear](partial_folder(tmp_path / "bag.h5"))
    made, _ = run(tmp_path / "tiles", tmp_path / "bag.h5")
    assert (tmp_path / "bag.h5").read_bytes() == expected
    assert made.resumed == {"nothing": 24, "garbage": 24, "half a line": 16, "half a batch": 16, "lost rows": 0}[tear]
    assert list(made.failed) == [3]


@pytest.mark.parametrize("change", ["weights", "batch", "tiles"])
def test_rows_of_other_weights_settings_or_tiles_are_not_gone_on_with(change, tmp_path):
    make_tiles(tmp_path / "tiles", 30)
    with pytest.raises(StopError):
        run(tmp_path / "tiles", tmp_path / "bag.h5", encoder=stopping_after(2, tiny()))
    if change == "tiles":
        make_tiles(tmp_path / "tiles", 1, seed=9)
        os.utime(tmp_path / "tiles" / "000.png", (1, 1))
    settings = replace(HERE, batch=4) if change == "batch" else HERE
    made, _ = run(tmp_path / "tiles", tmp_path / "bag.h5", settings, tiny(scale=2.0 if change == "weights" else 1.0))
    assert made.resumed == 0
    assert made.patches == 30


KILLED = """
import sys, time
from pathlib import Path
import torch
from encoders.making import tiny
from panther.encoders.extract import ExtractSettings, encode_tiles
from panther.encoders.pipeline import Pipeline
encoder = tiny()
forward = encoder.model.forward
encoder.model.forward = lambda x: (time.sleep(0.02), forward(x))[1]
if __name__ == "__main__":
    torch.set_num_threads(1)
    with Pipeline(encoder, ExtractSettings(batch=4, workers=2)) as pipeline:
        encode_tiles(Path(sys.argv[1]), pipeline, Path(sys.argv[2]))
"""


def test_a_killed_process_leaves_what_the_next_one_needs(tmp_path):
    make_tiles(tmp_path / "tiles", 200)
    script = tmp_path / "killed.py"
    script.write_text(KILLED)
    target = tmp_path / "bag.h5"
    paths = [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    child = subprocess.Popen([sys.executable, script, tmp_path / "tiles", target], env=environment)
    lines = partial_folder(target) / "done.jsonl"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and (not lines.exists() or lines.read_bytes().count(b"]\n") < 6):
        time.sleep(0.01)
    family = psutil.Process(child.pid).children(recursive=True)
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert not target.exists()
    assert len(family) >= 2  # at least the two that decode
    assert not psutil.wait_procs(family, timeout=30)[1]  # nobody waits for work for ever
    settings = ExtractSettings(batch=4, workers=1)
    made, _ = run(tmp_path / "tiles", target, settings)
    assert 20 <= made.resumed < 200
    run(tmp_path / "tiles", tmp_path / "whole" / "bag.h5", settings)
    assert open_bag(target).features[:].equal(open_bag(tmp_path / "whole" / "bag.h5").features[:])


def test_two_runs_do_not_write_the_same_bag_at_once(tmp_path):
    make_tiles(tmp_path / "tiles", 3)
    other = RowLog(partial_folder(tmp_path / "bag.h5"), "key", 12)
    with pytest.raises(InputError, match="another run"):
        run(tmp_path / "tiles", tmp_path / "bag.h5")
    other.close()


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
        attributes = {
            "patch_size": 128,
            "patch_size_level0": 128,
            "target_magnification": 20,
            "overlap": 0,
            "name": "slide",
        }
        with Pipeline(tiny(size=128), replace(HERE, workers=workers)) as pipeline:
            given = Coords("slide", coords, spec, 0.5, slide.dimensions, attributes=attributes)
            made = write_features(slide, given, pipeline, tmp_path / "out" / "slide.h5")
    assert list(made.failed) == [15]
    bag = open_bag(made.path)
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
        made = write_features(slide, none, pipeline, tmp_path / "none.h5")
        assert (made.patches, tuple(open_bag(made.path).features.shape)) == (0, (0, 12))
        for level, tile in ((0, 0), (1, 0)):
            damage(path, level, tile)
    refused = pytest.raises(InputError, match="none of the 1 patches")
    with open_slide(path, 0.5) as slide, Pipeline(tiny(size=128), HERE) as pipeline, refused:
        write_features(slide, replace(none, coords=np.array([[0, 0]])), pipeline, tmp_path / "bad.h5")
