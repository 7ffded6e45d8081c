"""Tissue on drawn slides whose truth is known, with the artefacts of real ones."""

from pathlib import Path

import numpy as np
import pytest
from phantoms import disc, glass, iou, paint, tissue_slide, write_pyramid
from scipy import ndimage

from panther.slides import TissueSettings, find_tissue, open_slide, segmenters
from panther.slides.polygons import rasterise

MPP = 4.0
SHAPE = (700, 900)


def actual(image: np.ndarray, **settings: object) -> np.ndarray:
    return segmenters["colour"](image, MPP, TissueSettings(**settings))


def stroke(width: int) -> np.ndarray:
    """A pen's arc around the tissue, not over it."""
    return disc(SHAPE, (300, 330), 260) & ~disc(SHAPE, (300, 330), 260 - width) & (np.arange(900) < 420)


def test_tissue_is_found_with_its_hole() -> None:
    image, truth = tissue_slide()
    mask = actual(image)
    assert iou(mask, truth) > 0.96
    assert not mask[disc(SHAPE, (330, 300), 42)].any()


INKS = {
    "green": (30, 130, 70),
    "pale green": (120, 190, 140),
    "blue": (40, 60, 170),
    "turquoise": (40, 150, 180),
    "red": (215, 35, 40),
    "black": (25, 24, 28),
}


@pytest.mark.parametrize("ink", INKS)
def test_pen_marks_are_not_tissue(ink: str) -> None:
    image, truth = tissue_slide()
    mark = stroke(30)
    soft = ndimage.gaussian_filter(mark.astype(float), 1.5)[..., None]  # a pen's edge is soft
    image = (image * (1 - soft) + np.array(INKS[ink]) * soft).astype(np.uint8)
    mask = actual(image)
    assert mask[mark].mean() < 0.02
    assert iou(mask, truth) > 0.95


def test_ink_over_tissue_is_cut_out_and_the_tissue_beside_it_stays() -> None:
    image, truth = tissue_slide()
    line = np.zeros(SHAPE, bool)
    line[:, 240:265] = True
    image[line] = INKS["green"]
    mask = actual(image)
    assert not mask[line].any()
    far = ~ndimage.binary_dilation(line, iterations=5)
    assert iou(mask & far, truth & far) > 0.95


@pytest.mark.parametrize("grey", [(232, 230, 233), (205, 203, 207), (150, 149, 152)])
def test_grey_frames_and_white_filling_are_not_tissue(grey: tuple[int, int, int]) -> None:
    """A stitched scan: grey bands around, pure white where nothing was scanned."""
    image, truth = tissue_slide()
    frame = np.ones(SHAPE, bool)
    frame[60:-60, 70:-70] = False
    image[frame] = grey
    image[:30, :400] = 255
    mask = actual(image)
    assert not mask[frame].any()
    assert iou(mask, truth) > 0.95


def test_a_black_border_is_not_tissue_and_pigment_is() -> None:
    image, truth = tissue_slide()
    image[:40], image[:, -50:] = (12, 10, 11), (8, 8, 9)
    pigment = disc(SHAPE, (230, 380), 14)  # 0.01 mm2, inside the tissue
    image[pigment] = (30, 26, 30)
    mask = actual(image)
    assert not mask[:40].any()
    assert not mask[:, -50:].any()
    assert mask[pigment].all()
    assert iou(mask, truth) > 0.95


def test_fat_is_tissue_although_it_is_mostly_empty() -> None:
    """A net of faint walls, 12 um thick, around cells of 100 um, in a capsule."""
    image = glass(*SHAPE)
    y, x = np.mgrid[: SHAPE[0], : SHAPE[1]]
    fat = disc(SHAPE, (450, 350), 220)
    walls = fat & ((x % 25 < 3) | (y % 25 < 3) | ~disc(SHAPE, (450, 350), 217))
    paint(image, walls, (222, 180, 208), 6, 3)
    image[walls] = ndimage.gaussian_filter(image, (0.7, 0.7, 0))[walls]
    assert iou(actual(image), fat) > 0.9


def test_blur_and_a_yellowish_lamp_do_not_matter() -> None:
    image, truth = tissue_slide()
    assert iou(actual(ndimage.gaussian_filter(image, (4, 4, 0))), truth) > 0.93
    assert iou(actual((image * np.array([1.0, 0.985, 0.93])).astype(np.uint8)), truth) > 0.95


def test_a_slide_that_is_all_tissue_stays_whole() -> None:
    image = np.empty((*SHAPE, 3), np.uint8)
    everywhere = np.ones(SHAPE, bool)
    paint(image, everywhere, (205, 120, 175), 25, 1)
    right = np.arange(900)[None, :] > 450
    paint(image, everywhere & right, (130, 80, 150), 25, 2)  # two stains: Otsu alone would part them
    assert actual(image).mean() > 0.99


@pytest.mark.parametrize("level", [255, 245, 200, 10])
def test_an_empty_slide_has_no_tissue(level: int) -> None:
    assert not actual(np.full((*SHAPE, 3), level, np.uint8)).any()
    noise = np.random.default_rng(0).normal(level, 3, (*SHAPE, 3))
    assert not actual(np.clip(noise, 0, 255).astype(np.uint8)).any()


def test_small_regions_and_holes_follow_their_settings_in_micrometres() -> None:
    image = glass(*SHAPE)
    for centre, radius in (((150, 150), 10), ((450, 350), 150)):  # 5,000 and 1.1 million um2
        paint(image, disc(SHAPE, centre, radius), (190, 100, 160), 8, 1)
    hole = disc(SHAPE, (450, 350), 25)  # 31,000 um2
    image[hole] = (244, 243, 246)
    assert not actual(image)[disc(SHAPE, (150, 150), 10)].any()
    assert actual(image, min_area=3000.0)[disc(SHAPE, (150, 150), 8)].all()
    assert not actual(image)[disc(SHAPE, (450, 350), 15)].any()
    assert actual(image, max_hole=40_000.0)[hole].all()


@pytest.mark.parametrize("mpp", [0.25, 0.5, 1.1])
def test_contours_lie_where_the_tissue_is_at_level_0(tmp_path: Path, mpp: float) -> None:
    """The same slide at any resolution: polygons drawn at level 0 against the truth there."""
    image, truth = tissue_slide(350, 450) if mpp == 0.25 else tissue_slide()
    factor = round(4.0 / mpp) // 2  # pixels of this slide per pixel of the drawing, at 8, 4 and 2 um
    pixels = image[::2, ::2].repeat(factor, 0).repeat(factor, 1)
    write_pyramid(tmp_path / "a.tif", pixels, mpp)
    with open_slide(tmp_path / "a.tif") as slide:
        tissue = find_tissue(slide, TissueSettings(close=8.0, open=2.0, max_hole=2000.0))
        mask = rasterise(tissue, slide.dimensions, 1.0)
    expected = truth[::2, ::2].repeat(factor, 0).repeat(factor, 1)
    assert iou(mask, expected) > 0.93
