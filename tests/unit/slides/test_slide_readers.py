"""Readers: each gives the same pixels for the same image, and none believes a wrong resolution."""

import pickle
import struct
from pathlib import Path

import numpy as np
import pytest
import tifffile
from phantoms import wave_image, write_pyramid
from PIL import Image

from panther.errors import InputError
from panther.slides import open_slide, slide_readers


@pytest.fixture
def image() -> np.ndarray:
    return wave_image(601, 433, 0.5)


def test_openslide_reads_a_tiled_pyramid(tmp_path: Path, image: np.ndarray) -> None:
    levels = write_pyramid(tmp_path / "a.tif", image, 0.5)
    with open_slide(tmp_path / "a.tif") as slide:
        assert slide.vendor == "generic-tiff"
        assert slide.dimensions == (601, 433)
        assert slide.level_dimensions == ((601, 433), (300, 216), (150, 108))
        assert slide.level_downsamples == (1.0, 2.0, 4.0)
        for level, pixels in enumerate(levels):
            got = slide.read_region(0, 0, level, pixels.shape[1], pixels.shape[0])
            np.testing.assert_array_equal(got, pixels)


LAYOUTS = {
    "webp": {"tile": (64, 64), "compression": "webp", "compressionargs": {"level": 101}},
    "jpeg2000": {"tile": (64, 64), "compression": "jpeg2000"},
    "strips": {"rowsperstrip": 50, "compression": "zlib"},
    "one strip": {},
    "lzma": {"tile": (112, 64), "compression": "lzma"},
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_tifffile_reads_what_openslide_refuses(tmp_path: Path, image: np.ndarray, layout: str) -> None:
    path = tmp_path / "a.tif"
    scale = {"resolution": (1e4 / 0.5, 1e4 / 0.5), "resolutionunit": "CENTIMETER", "metadata": None}
    with tifffile.TiffWriter(path) as file:
        file.write(image, photometric="rgb", subifds=1, **scale, **LAYOUTS[layout])
        file.write(image[::2, ::2][:216, :300], photometric="rgb", subfiletype=1, metadata=None, **LAYOUTS[layout])
    with open_slide(path) as slide:
        assert slide.vendor == "tiff"
        assert slide.mpp == pytest.approx(0.5)
        assert slide.level_downsamples == (1.0, 2.0)
        for x, y, w, h in [(0, 0, 601, 433), (60, 70, 13, 200), (590, 400, 11, 33), (63, 127, 2, 2)]:
            np.testing.assert_array_equal(slide.read_region(x, y, 0, w, h), image[y : y + h, x : x + w])
        np.testing.assert_array_equal(slide.read_region(100, 60, 1, 50, 40), image[60:140:2, 100:200:2])


def test_a_plain_image_needs_a_resolution_and_lies_on_white(tmp_path: Path, image: np.ndarray) -> None:
    alpha = np.full((*image.shape[:2], 1), 255, np.uint8)
    alpha[:100] = 0
    Image.fromarray(np.concatenate([image, alpha], -1)).save(tmp_path / "a.png")
    with pytest.raises(InputError, match=r"a\.png.*`slide_mpp="):
        open_slide(tmp_path / "a.png")
    with open_slide(tmp_path / "a.png", 0.5) as slide:
        assert (slide.read_region(0, 0, 0, 601, 100) == 255).all()
        np.testing.assert_array_equal(slide.read_region(0, 100, 0, 601, 333), image[100:])


def test_the_origin_is_that_of_the_scanned_bounds(tmp_path: Path, image: np.ndarray) -> None:
    """A Leica file whose image lies off the corner of its collection, as MRXS files do: (0, 0) is where the scan begins."""
    nm = 500  # a pixel
    h, w = image.shape[:2]
    xml = f"""<?xml version="1.0"?><scn xmlns="http://www.leica-microsystems.com/scn/2010/10/01">
    <collection name="c" sizeX="{1000 * nm}" sizeY="{900 * nm}"><image name="i"><creationDate>2020</creationDate><device model="m"/>
    <pixels sizeX="{w}" sizeY="{h}"><dimension sizeX="{w}" sizeY="{h}" r="0" ifd="0"/></pixels>
    <view sizeX="{w * nm}" sizeY="{h * nm}" offsetX="{300 * nm}" offsetY="{200 * nm}" spacingZ="0"/>
    <scanSettings><objectiveSettings><objective>20</objective></objectiveSettings><illuminationSettings>
    <numericalAperture>0.4</numericalAperture><illuminationSource>brightfield</illuminationSource></illuminationSettings></scanSettings>
    </image></collection></scn>"""
    tifffile.imwrite(
        tmp_path / "a.scn", image, photometric="rgb", tile=(64, 64), bigtiff=True, description=xml, metadata=None,
        resolution=(2e4, 2e4), resolutionunit="CENTIMETER",
    )  # fmt: skip
    with open_slide(tmp_path / "a.scn") as slide:
        assert slide.vendor == "leica"
        assert slide.properties["openslide.bounds-x"] == "300"
        assert slide.dimensions == (601, 433)
        np.testing.assert_array_equal(slide.read_region(0, 0, 0, 601, 433), image)


def test_a_slide_travels_to_another_process_as_its_path(tmp_path: Path, image: np.ndarray) -> None:
    write_pyramid(tmp_path / "a.tif", image, None)
    with open_slide(tmp_path / "a.tif", 0.31) as slide:
        data = pickle.dumps(slide)
        assert len(data) < 500
        with pickle.loads(data) as again:
            assert again.mpp == 0.31
            np.testing.assert_array_equal(again.read_region(9, 9, 1, 30, 30), slide.read_region(9, 9, 1, 30, 30))


def test_a_thumbnail_is_the_mean_of_areas_whatever_it_is_read_from(tmp_path: Path) -> None:
    """Also where the slide is larger than the blocks that are read at a time."""
    image = np.random.default_rng(0).integers(0, 256, (2400, 4800, 3), np.uint8)
    write_pyramid(tmp_path / "a.tif", image, 0.5, levels=1)
    with open_slide(tmp_path / "a.tif") as slide:
        got = slide.thumbnail(480)
    truth = image.reshape(240, 10, 480, 10, 3).mean((1, 3))
    assert got.shape == (240, 480, 3)
    assert np.abs(got - truth).max() <= 1.01  # rounded twice: rows, then columns
    write_pyramid(tmp_path / "b.tif", np.full((37, 1111, 3), 7, np.uint8), 0.5, levels=1)
    with open_slide(tmp_path / "b.tif") as slide:
        assert slide.thumbnail(2000).shape == (37, 1111, 3)
        np.testing.assert_array_equal(slide.thumbnail(100), np.full((4, 100, 3), 7))


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.svs", b""), ("a.svs", b"II*\0garbage"), ("a.tif", b"no image at all"), ("a.png", b"\x89PNG\r\n\x1a\nbroken")],
)
def test_other_files_and_pixels_of_16_bits_are_refused_with_their_name(
    tmp_path: Path, name: str, content: bytes
) -> None:
    (tmp_path / name).write_bytes(content)
    tifffile.imwrite(tmp_path / "deep.tif", np.zeros((60, 60, 3), np.uint16), photometric="rgb")
    for file in (name, "deep.tif"):
        with pytest.raises(InputError, match=file):
            open_slide(tmp_path / file, 0.5)


@pytest.mark.parametrize("compression", ["zlib", "webp"])
def test_a_damaged_tile_says_where_it_is_and_the_others_can_be_read(
    tmp_path: Path, image: np.ndarray, compression: str
) -> None:
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, image, photometric="rgb", tile=(64, 64), compression=compression, metadata=None)
    with tifffile.TiffFile(path) as file:
        offset, count = file.pages.first.dataoffsets[5], file.pages.first.databytecounts[5]
    data = bytearray(path.read_bytes())
    data[offset : offset + count] = b"\0" * count
    path.write_bytes(data)
    with open_slide(path, 0.5) as slide:
        for _ in range(2):
            with pytest.raises(InputError, match=r"a\.tif.*\(320, 0\) of level 0.*damaged"):
                slide.read_region(320, 0, 0, 64, 64)
            assert slide.read_region(0, 64, 0, 64, 64).std() > 10


@pytest.mark.parametrize("compression", ["jpeg", None])
@pytest.mark.parametrize("reader", ["openslide", "tifffile"])
def test_a_header_of_more_tiles_than_the_file_lists_is_refused(
    tmp_path: Path, image: np.ndarray, reader: str, compression: str | None
) -> None:
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, image, tile=(64, 64), compression=compression, photometric="rgb")
    with tifffile.TiffFile(path) as file:
        place = file.pages.first.tags["ImageWidth"].offset
    content = bytearray(path.read_bytes())
    content[place : place + 12] = struct.pack("<HHII", 256, 4, 1, 4_000_000)
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"a\.tif"):
        slide_readers[reader](path)
