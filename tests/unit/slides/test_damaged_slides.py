"""Slides with tiles that cannot be decoded: read from another level, else masked, counted and reported."""

import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tifffile
from phantoms import disc, iou, tissue_slide, write_pyramid

from encoders.making import damage
from panther.errors import InputError
from panther.slides import (
    Job,
    PatchStep,
    Slide,
    TissueStep,
    find_tissue,
    list_slides,
    open_slide,
    run_job,
    slide_readers,
)
from panther.slides.polygons import rasterise
from panther.slides.slide import overview
from panther.slides.steps import plan_slide

MPP = 4.0  # of the drawing; tissue is looked for at 8, which is level 1
# the square 256 <= x, y < 512 of level 0 lies in these tiles of 128 pixels
TILES = {0: (18, 19, 26, 27), 1: (5,), 2: (0,)}
HIT = np.s_[256:512, 256:512]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    write_pyramid(tmp_path / "in" / "a.tif", tissue_slide()[0], MPP, compression="jpeg")
    return tmp_path / "in" / "a.tif"


def spoil(path: Path, *levels: int) -> None:
    for level in levels:
        for tile in TILES[level]:
            damage(path, level, tile)


def cut_short(path: Path) -> None:
    """End the same tiles' JPEG data in the middle: libjpeg only warns, and paints the rest grey.

    Noise in another corner: the tile with the most bytes, which is looked at before all others, is a sound one.
    """
    image = tissue_slide()[0]
    image[:256, 512:] = np.random.default_rng(0).integers(0, 256, (256, image.shape[1] - 512, 3))
    write_pyramid(path, image, MPP, compression="jpeg")
    with tifffile.TiffFile(path) as file:
        middles = [
            file.pages[level].dataoffsets[tile] + file.pages[level].databytecounts[tile] // 2
            for level, tiles in TILES.items()
            for tile in tiles
        ]
    with path.open("r+b") as handle:
        for middle in middles:
            handle.seek(middle)
            handle.write(b"\xff\xd9")


def tissue_mask(slide: Slide) -> np.ndarray:
    return rasterise(find_tissue(slide), slide.dimensions, 1.0)


@pytest.mark.parametrize("reader", ["openslide", "tifffile"])
@pytest.mark.parametrize("levels", [(1,), (1, 0)], ids=["a finer level is left", "only a coarser level is left"])
def test_a_damaged_tile_is_looked_at_on_another_level(path: Path, reader: str, levels: tuple[int, ...]) -> None:
    with open_slide(path) as slide:
        whole = tissue_mask(slide)
    spoil(path, *levels)
    with Slide(path, slide_readers[reader](path), MPP) as slide:
        assert not overview(slide, 2.0).unread.any()
        assert iou(tissue_mask(slide), whole) > 0.98


@pytest.mark.parametrize("reader", ["openslide", "tifffile"])
def test_what_no_level_can_give_is_masked_and_the_rest_is_found(path: Path, reader: str) -> None:
    with open_slide(path) as slide:
        whole = tissue_mask(slide)
    spoil(path, 0, 1, 2)
    with Slide(path, slide_readers[reader](path), MPP) as slide:
        seen = overview(slide, 2.0)
        mask = tissue_mask(slide)
    lost = seen.unread.repeat(2, 0).repeat(2, 1)
    assert lost[HIT].all()
    assert lost.mean() < 2 * 256 * 256 / lost.size  # not much more than what is damaged
    assert (seen.image[seen.unread] == 255).all()
    assert not mask[lost].any()
    # a scar's rim is closed and opened a little differently
    assert iou(mask & ~lost, whole & ~lost) > 0.97
    assert mask[disc(whole.shape, (680, 380), 90)].all()


def test_a_job_goes_on_over_damage_and_says_how_much_is_lost(path: Path, tmp_path: Path) -> None:
    spoil(path, 0, 1, 2)
    refs = list_slides([path]).refs
    report = run_job(refs, [TissueStep(), PatchStep(32, MPP)], Job(tmp_path / "job"))
    (row,) = report.rows
    assert row["status"] == "partly read"
    assert "could not be decoded" in report.failures["a"]  # told as a failure: exit code 1
    assert 0.10 < row["unread"] < 0.21  # 65,536 of 630,000 pixels, and the rim of their tiles
    assert "could not be decoded and counts as glass" in row["note"]
    assert report.patches > 50
    assert not run_job(refs, [TissueStep(), PatchStep(32, MPP)], Job(tmp_path / "job")).ran
    plan = plan_slide(refs[0], Job(tmp_path / "other"), TissueStep(), PatchStep(32, MPP))
    assert plan.patches == report.patches


@pytest.mark.parametrize("reader", ["openslide", "tifffile"])
def test_tiles_with_a_few_wrong_bytes_are_masked_and_reported_as_well(path: Path, tmp_path: Path, reader: str) -> None:
    (sound,) = run_job(list_slides([path]).refs, [TissueStep()], Job(tmp_path / "sound")).rows
    assert (sound["unread"], sound["note"]) == (0.0, "")
    cut_short(path)
    (row,) = run_job(list_slides([path]).refs, [TissueStep()], Job(tmp_path / "job")).rows
    assert 0.10 < row["unread"] < 0.21
    assert "could not be decoded" in row["note"]
    with Slide(path, slide_readers[reader](path), MPP) as slide:
        seen = overview(slide, 2.0)
        assert seen.unread.repeat(2, 0).repeat(2, 1)[HIT].all()
        with pytest.raises(Exception, match="JPEG"):
            slide.read_level(300, 300, 0, 32, 32)


def test_a_slide_of_which_nothing_can_be_read_is_refused(path: Path) -> None:
    with tifffile.TiffFile(path) as file:
        counts = [len(page.databytecounts) for page in file.pages]
    for level, count in enumerate(counts):
        for tile in range(count):
            damage(path, level, tile)
    with open_slide(path) as slide, pytest.raises(InputError, match=r"a\.tif: the pixels .* cannot be decoded"):
        find_tissue(slide)


def test_a_slide_that_aborts_the_library_is_named_and_the_others_are_encoded(tmp_path):
    """A kilobyte of TIFF that declares tiles of a billion pixels: GLib ends whatever process reads it."""
    (tmp_path / "slides").mkdir()
    for name in ("bomb", "good"):
        options = {"tile": (256, 256), "photometric": "rgb", "compression": "jpeg"}
        resolution = {"resolution": (20_000, 20_000), "resolutionunit": "CENTIMETER"}  # 0.5 um/px
        tifffile.imwrite(tmp_path / "slides" / f"{name}.tif", tissue_slide()[0], **options, **resolution)
    path = tmp_path / "slides" / "bomb.tif"
    content = bytearray(path.read_bytes())
    first = struct.unpack("<I", content[4:8])[0]
    for number in range(struct.unpack("<H", content[first : first + 2])[0]):
        entry = first + 2 + 12 * number
        if struct.unpack("<H", content[entry : entry + 2])[0] in (322, 323):  # width and length of a tile
            content[entry + 2 : entry + 4] = struct.pack("<H", 4)
            content[entry + 8 : entry + 12] = struct.pack("<I", 1 << 30)
    path.write_bytes(content)
    arguments = ("slides", "slides", "-o", "job", "--encoder", "lite0", "-s", "min_area=100")
    command = [sys.executable, "-m", "panther", *arguments]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 1, done.stderr
    assert "Failed: bomb: " in done.stderr
    assert "SIGABRT" in done.stderr
    assert [file.stem for file in tmp_path.glob("job/*/features_lite0/*.h5")] == ["good"]
