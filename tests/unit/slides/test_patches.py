"""Patches: pixels and coordinates against slides whose truth is known."""

from pathlib import Path

import numpy as np
import pytest
from phantoms import wave, wave_image, write_pyramid

from panther.errors import InputError
from panther.slides import PatchReader, Polygon, Tissue, open_slide, patch_spec, tile_tissue
from panther.slides.patches import box_fraction
from panther.slides.polygons import rasterise


def rectangle(left: float, top: float, right: float, bottom: float) -> Polygon:
    return Polygon(np.array([(left, top), (right, top), (right, bottom), (left, bottom)], float))


EVERYTHING = Tissue((rectangle(0, 0, 1e6, 1e6),))


def bicubic(row: np.ndarray, start: float, length: float, size: int) -> np.ndarray:
    """Float64 cubic convolution (Keys, a = -1/2) along the first axis, written from its definition: the oracle."""
    scale = length / size
    support = 2 * max(scale, 1.0)
    out = np.empty((size, *row.shape[1:]))
    for i in range(size):
        centre = start + (i + 0.5) * scale
        taps = np.arange(max(int(np.floor(centre - support)), 0), min(int(np.ceil(centre + support)), len(row)))
        t = np.abs(taps + 0.5 - centre) / max(scale, 1.0)
        weight = np.where(t < 1, 1.5 * t**3 - 2.5 * t**2 + 1, np.where(t < 2, -0.5 * t**3 + 2.5 * t**2 - 4 * t + 2, 0))
        out[i] = np.tensordot(weight / weight.sum(), row[taps], 1)
    return out


@pytest.mark.parametrize(("mpp", "level"), [(0.5, 0), (0.25, 1), (0.125, 2)])
def test_a_patch_at_a_resolution_of_the_pyramid_is_the_files_own_pixels(tmp_path: Path, mpp: float, level: int) -> None:
    image = np.random.default_rng(0).integers(0, 256, (1200, 1500, 3), np.uint8)
    levels = write_pyramid(tmp_path / "a.tif", image, mpp)
    with open_slide(tmp_path / "a.tif") as slide:
        spec = patch_spec(slide, 128, 0.5)
        assert (spec.level, spec.size_level0, spec.size_read) == (level, 128 * 2**level, 128)
        reader = PatchReader(slide, spec)
        for x, y in [(0, 0), (128, 64), (500, 388)]:
            truth = levels[level][y >> level : (y >> level) + 128, x >> level : (x >> level) + 128]
            np.testing.assert_array_equal(reader.read(x, y), truth)


@pytest.mark.parametrize("mpp", [0.25, 0.2527, 0.499, 0.5, 0.1213])
def test_a_patch_shows_the_place_that_its_coordinates_name(tmp_path: Path, mpp: float) -> None:
    """Waves evaluated at the centre of every pixel. They change by up to 5.7 of 255 a pixel; tolerance 3: half a pixel.

    Rounding takes 1; OpenSlide, which takes whole level-0 positions and divides by 2.001 on a slide of odd width, a quarter of a pixel.
    """
    write_pyramid(tmp_path / "a.tif", wave_image(1501, 1203, mpp), mpp)
    with open_slide(tmp_path / "a.tif") as slide:
        assert slide.mpp == pytest.approx(mpp, rel=1e-6)
        spec = patch_spec(slide, 96, 0.5)
        side = spec.size_level0
        assert side == round(96 * 0.5 / mpp)
        for x0, y0 in [(0, 0), (211, 97), (1501 - side, 1203 - side)]:
            x, y = ((start + (np.arange(96) + 0.5) * side / 96) * mpp for start in (x0, y0))
            truth = wave(*np.meshgrid(x, y))
            difference = np.abs(PatchReader(slide, spec).read(x0, y0) - truth)
            inner = difference[4:-4, 4:-4]  # the filter is cut at the patch's border
            assert inner.max() <= 3
            assert difference.max() <= 8


def test_resizing_is_antialiased_cubic_convolution(tmp_path: Path) -> None:
    """Noise, the worst case, against a float64 oracle: 1.5 grey levels, two roundings (Pillow resizes rows, then columns)."""
    image = np.random.default_rng(1).integers(80, 176, (700, 700, 3), np.uint8)
    write_pyramid(tmp_path / "a.tif", image, 0.3, levels=1)
    with open_slide(tmp_path / "a.tif") as slide:
        spec = patch_spec(slide, 100, 0.5)
        assert spec.size_level0 == 167
        part = image[30 : 30 + 167, 50 : 50 + 167].astype(float)
        truth = bicubic(bicubic(part, 0, 167, 100).swapaxes(0, 1), 0, 167, 100).swapaxes(0, 1)
        assert np.abs(PatchReader(slide, spec).read(50, 30) - truth).max() <= 1.5


def test_pixels_outside_the_slide_are_white_and_the_rest_is_there(tmp_path: Path) -> None:
    image = np.zeros((300, 300, 3), np.uint8)
    write_pyramid(tmp_path / "a.tif", image, 0.5, levels=1)
    with open_slide(tmp_path / "a.tif") as slide:
        part = slide.read_region(-10, 290, 0, 30, 20)
        assert (part[:10, 10:] == 0).all()
        assert (part[10:] == 255).all()
        assert (part[:, :10] == 255).all()
        assert (slide.read_region(5000, 5000, 0, 4, 4) == 255).all()


def test_the_pixel_that_halving_dropped_does_not_become_a_white_line(tmp_path: Path) -> None:
    write_pyramid(tmp_path / "a.tif", np.full((513, 513, 3), 90, np.uint8), 0.25, levels=2)
    with open_slide(tmp_path / "a.tif") as slide:
        assert slide.level_downsamples == (1.0, 2.0)
        spec = patch_spec(slide, 64, 0.5)
        last = PatchReader(slide, spec).read(513 - 128, 513 - 128)
        assert np.abs(last.astype(int) - 90).max() <= 1


@pytest.mark.parametrize(("mpp", "overlap"), [(0.25, 0), (0.2527, 0), (0.499, 32), (0.5, 50)])
def test_the_grid_is_exact_sorted_and_inside_the_slide(tmp_path: Path, mpp: float, overlap: int) -> None:
    write_pyramid(tmp_path / "a.tif", np.zeros((1000, 1400, 3), np.uint8), mpp)
    with open_slide(tmp_path / "a.tif") as slide:
        spec = patch_spec(slide, 100, 0.5, overlap)
        side = spec.size_level0
        step = side - int(overlap * side / 100 + 0.5)
        expected = [(x, y) for y in range(0, 1000 - side + 1, step) for x in range(0, 1400 - side + 1, step)]
        coords = tile_tissue(slide, spec, EVERYTHING).coords
        assert coords.tolist() == [list(pair) for pair in expected]
        assert coords.dtype == np.int64


@pytest.mark.parametrize("least", [0.0, 0.25, 0.5, 1.0])
def test_a_patch_needs_its_fraction_of_tissue(tmp_path: Path, least: float) -> None:
    """Rectangles that do not fit the grid; the fraction is known in closed form."""
    write_pyramid(tmp_path / "a.tif", np.zeros((960, 960, 3), np.uint8), 0.5, levels=1)
    left, top, right, bottom = 150, 200, 650, 777
    with open_slide(tmp_path / "a.tif") as slide:
        spec = patch_spec(slide, 96, 0.5)
        patches = tile_tissue(slide, spec, Tissue((rectangle(left, top, right, bottom),)), least)
    coords = set(map(tuple, patches.coords.tolist()))
    for x in range(0, 960 - 95, 96):
        for y in range(0, 960 - 95, 96):
            covered = max(0, min(x + 96, right) - max(x, left)) * max(0, min(y + 96, bottom) - max(y, top)) / 96**2
            if least == 0:
                assert ((x, y) in coords) == (covered > 0.02) or covered < 0.05  # thinner than the raster
            elif abs(covered - least) > 0.03 or covered in (0, 1):
                assert ((x, y) in coords) == (covered >= least)


def test_fractions_are_exact_between_pixels() -> None:
    mask = np.random.default_rng(0).random((30, 40)) < 0.4
    fine = mask.repeat(10, 0).repeat(10, 1)
    xs, ys = np.array([0.0, 1.3, 7.7, 32.1]), np.array([0.0, 4.4, 22.2])
    got = box_fraction(mask, xs, ys, 7.5)
    for i, y in enumerate((ys * 10).round().astype(int)):
        for j, x in enumerate((xs * 10).round().astype(int)):
            assert got[i, j] == pytest.approx(fine[y : y + 75, x : x + 75].mean(), abs=1e-9)


def test_what_was_drawn_as_ignored_is_cut_out() -> None:
    tissue = Tissue((rectangle(0, 0, 100, 100),), (rectangle(50, 0, 100, 100),))
    mask = rasterise(tissue, (10, 10), 10.0)
    assert mask[:, :5].all()
    assert not mask[:, 5:].any()


def test_a_slide_coarser_than_the_patches_is_refused_and_a_smaller_one_has_none(tmp_path: Path) -> None:
    write_pyramid(tmp_path / "a.tif", np.zeros((90, 300, 3), np.uint8), 1.0, levels=1)
    with open_slide(tmp_path / "a.tif") as slide:
        with pytest.raises(InputError, match=r"`mpp=1`"):
            patch_spec(slide, 64, 0.5)
        assert tile_tissue(slide, patch_spec(slide, 100, 1.0), EVERYTHING).coords.shape == (0, 2)
