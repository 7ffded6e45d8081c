"""Tiles decoded without OpenSlide: its very pixels and its verdict on damage, or not used."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tifffile
from openslide import OpenSlide, OpenSlideError
from phantoms import tissue_slide, write_pyramid

from encoders.making import damage
from panther.slides.readers.openslide_file import OpenSlidePixels
from panther.slides.readers.tiff import TiffPixels
from panther.slides.readers.tiles import DirectTiles, open_direct
from panther.slides.slide import open_slide


def by_openslide(path: Path, level: int, x: int, y: int, size: int) -> np.ndarray:
    with OpenSlide(path) as slide:
        factor = round(slide.level_downsamples[level])
        return np.asarray(slide.read_region((x * factor, y * factor), level, (size, size)).convert("RGB"))


def agrees(path: Path) -> bool:
    """Whether random boxes of the levels that are read directly are OpenSlide's; at least one level must be."""
    rng = np.random.default_rng(0)
    pixels = OpenSlidePixels(path)
    direct = []
    for level, (width, height) in enumerate(pixels.level_dimensions):
        for _ in range(8):
            size = int(rng.integers(1, min(width, height, 300)))
            x, y = int(rng.integers(0, width - size + 1)), int(rng.integers(0, height - size + 1))
            np.testing.assert_array_equal(pixels.read(x, y, level, size, size), by_openslide(path, level, x, y, size))
        direct.append(pixels._agrees.get(level, False))
    pixels.close()
    return any(direct)


@pytest.mark.parametrize("compression", ["jpeg", "zlib"])
def test_pixels_are_those_of_openslide(tmp_path: Path, compression: str) -> None:
    write_pyramid(tmp_path / "a.tif", tissue_slide(640, 768)[0], 0.5, compression=compression)
    assert agrees(tmp_path / "a.tif") == (compression == "jpeg")


@pytest.mark.parametrize("name", ["CMU-1-Small-Region.svs", "CMU-1-wrong-mpp.tiff"])
def test_pixels_of_real_scanners_are_those_of_openslide(shared_data: Path, name: str) -> None:
    assert agrees(shared_data / "slides" / name)


def test_a_file_that_decodes_differently_is_left_to_openslide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.tif"
    write_pyramid(path, tissue_slide(640, 768)[0], 0.5, compression="jpeg")
    read = DirectTiles.read
    monkeypatch.setattr(DirectTiles, "read", lambda self, *box: read(self, *box)[..., ::-1])  # colours in another order
    assert not agrees(path)


def test_a_damaged_tile_fails_as_in_openslide_and_its_neighbours_do_not(tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    write_pyramid(path, tissue_slide(640, 768)[0], 0.5, levels=1, compression="jpeg")
    damage(path, 0, 7)  # x 128, y 128
    pixels = OpenSlidePixels(path)
    with pytest.raises(Exception, match="JPEG"):
        pixels.read(140, 140, 0, 32, 32)
    assert pixels.read(300, 300, 0, 32, 32).shape == (32, 32, 3)
    pixels.close()


def scratched(path: Path, data: bytes, tile: int, rng: np.random.Generator) -> None:
    """Write a slide in which 1 to 40 bytes of one tile's entropy-coded data are others; headers and end stay."""
    with tifffile.TiffFile(path) as file:
        start, length = file.pages[0].dataoffsets[tile], file.pages[0].databytecounts[tile]
    scan = data.index(b"\xff\xda", start)
    first = scan + 2 + int.from_bytes(data[scan + 2 : scan + 4], "big")
    spoilt = np.frombuffer(data, np.uint8).copy()
    where = rng.integers(first, start + length - 2, int(rng.integers(1, 41)))
    spoilt[where] = rng.integers(0, 256, len(where))
    path.write_bytes(spoilt.tobytes())


def pixels_or_none(read: Callable[[], np.ndarray]) -> np.ndarray | None:
    try:
        return read()
    except Exception:
        return None


def verdicts_agree(path: Path, tiles: int) -> set[bool]:
    """Scratch tiles one at a time; refused by both or the same pixels. Returns which of the two happened."""
    data, rng = path.read_bytes(), np.random.default_rng(0)
    with tifffile.TiffFile(path) as file:
        page = file.pages[0]
        count, side, across = len(page.databytecounts), page.tilewidth, -(-page.imagewidth // page.tilewidth)
    seen = set()
    for tile in rng.integers(0, count, tiles):
        scratched(path, data, tile, rng)
        row, column = divmod(int(tile), across)
        box = (column * side, row * side, 24)
        truth = pixels_or_none(lambda box=box: by_openslide(path, 0, *box))
        for reader in (OpenSlidePixels, TiffPixels):
            pixels = reader(path)
            actual = pixels_or_none(lambda pixels=pixels, box=box: pixels.read(*box[:2], 0, box[2], box[2]))
            pixels.close()
            # imagecodecs refuses a rare tile that OpenSlide takes; the other way round would be wrong pixels
            if reader is OpenSlidePixels or actual is not None:
                np.testing.assert_array_equal(actual, truth)
        seen.add(truth is None)
    return seen


def test_a_scratched_tile_is_refused_where_openslide_refuses_it(tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    write_pyramid(path, tissue_slide(640, 768)[0], 0.5, levels=1, compression="jpeg")
    assert verdicts_agree(path, 40) == {True, False}  # some scratches are legal JPEG: nobody can notice


@pytest.mark.parametrize("photometric", ["rgb", "ycbcr"])
def test_jpeg_strips_that_openslide_does_not_open_are_checked_too(tmp_path: Path, photometric: str) -> None:
    path, image = tmp_path / "a.tif", tissue_slide(200, 333)[0]
    tifffile.imwrite(path, image, photometric=photometric, compression="jpeg", rowsperstrip=48)
    with pytest.raises(OpenSlideError):
        OpenSlide(path)
    with open_slide(path, mpp=4.0) as slide:
        np.testing.assert_array_equal(slide.read_level(0, 0, 0, 333, 200), tifffile.imread(path))
    with tifffile.TiffFile(path) as file, path.open("r+b") as handle:
        handle.seek(file.pages[0].dataoffsets[2] + file.pages[0].databytecounts[2] // 2)
        handle.write(b"\xff\xd9")  # the end, in the middle of rows 96 to 143
    with open_slide(path, mpp=4.0) as slide:
        with pytest.raises(Exception, match="JPEG"):
            slide.read_level(0, 100, 0, 32, 32)
        assert slide.read_level(0, 0, 0, 333, 96).shape == (96, 333, 3)


def unused(*_: int) -> np.ndarray:
    raise AssertionError("no tile is read")


def test_other_vendors_and_other_files_are_not_opened(tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    write_pyramid(path, tissue_slide(640, 768)[0], 0.5, levels=1, compression="jpeg")
    assert open_direct(path, "hamamatsu", [(768, 640)], 1, unused) is None
    assert open_direct(path, "aperio", [(768, 641)], 1, unused) is None
    (tmp_path / "b.tif").write_bytes(b"no slide")
    assert open_direct(tmp_path / "b.tif", "aperio", [(768, 640)], 1, unused) is None
