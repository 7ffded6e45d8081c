"""Tiles decoded without OpenSlide: its very pixels, or not used."""

from pathlib import Path

import numpy as np
import pytest
from openslide import OpenSlide
from phantoms import tissue_slide, write_pyramid

from encoders.making import damage
from panther.slides.readers.direct import DirectTiles, open_direct
from panther.slides.readers.openslide_file import OpenSlidePixels


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
        direct.append(pixels._alike.get(level, False))
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


def test_other_vendors_and_other_files_are_not_opened(tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    write_pyramid(path, tissue_slide(640, 768)[0], 0.5, levels=1, compression="jpeg")
    assert open_direct(path, "hamamatsu", [(768, 640)], 1) is None
    assert open_direct(path, "aperio", [(768, 641)], 1) is None
    (tmp_path / "b.tif").write_bytes(b"no slide")
    assert open_direct(tmp_path / "b.tif", "aperio", [(768, 640)], 1) is None
