"""Colours over tissue: each looks most like its colour in the legend, and the tissue remains visible."""

from dataclasses import replace

import numpy as np
import pytest

from panther.explain import map_pixels
from panther.explain.concordance.agreement import UNKNOWN
from panther.explain.concordance.draw import class_maps
from panther.explain.geometry import View, grid
from panther.explain.names import Naming
from panther.explain.palette import PALETTE, RELIEF, Paint, relief, rgb_values
from panther.explain.slide_map import SlideMap, heat_colours, heat_pixels
from panther.types import PatchSpec
from panther_demo.slide import DrawnSlide, draw
from panther_demo.stain import site_stain

SIDE = 12  # pixels a patch
TO_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)


def cielab(colours):
    """CIELAB (..., 3) of sRGB, white D65."""
    part = np.asarray(colours, float) / 255
    linear = np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)
    x, y, z = np.moveaxis(np.cbrt(linear @ TO_XYZ.T / (0.95047, 1.0, 1.08883)), -1, 0)
    return np.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], -1)


def nearest(shown, known):
    """Index of the known colour (k, 3) that each shown one (n, 3) looks most like."""
    seen, inverse = np.unique(shown.reshape(-1, 3), axis=0, return_inverse=True)
    distance = np.linalg.norm(cielab(seen)[:, None] - cielab(known)[None], axis=-1)
    return distance.argmin(1)[inverse.reshape(-1)]


@pytest.fixture(scope="module")
def picture():
    """H&E of the demo."""
    stain = site_stain(np.random.default_rng(3))
    return draw(DrawnSlide("s", (0.2, 0.2, 0.2, 0.1, 0.1, 0.1, 0.1), (1024, 1024), stain, (0,)))[0][::3, ::3]


def mapped(picture, count, paint):
    """Every prototype in turn, all over the picture."""
    rows, columns = (length // SIDE for length in picture.shape[:2])
    cells = np.stack(np.meshgrid(np.arange(columns), np.arange(rows)), -1).reshape(-1, 2)
    shares = np.eye(count, dtype=np.float32)[np.random.default_rng(0).permutation(len(cells)) % count]
    placed = grid(cells * SIDE, PatchSpec(size=SIDE, size_level0=SIDE))
    return SlideMap("s", placed, shares, shares.mean(0), View(picture, (1.0, 1.0)), paint=paint)


@pytest.mark.parametrize("count", [8, 16, 32])
def test_every_pixel_looks_most_like_its_own_colour_of_the_legend(picture, count):
    found = mapped(picture, count, Paint())
    covered = found.index >= 0
    shown, own = map_pixels(found)[covered], found.labels[found.index[covered]]
    assert (nearest(shown, rgb_values(PALETTE[:count])) == own).all()
    means = np.stack([shown[own == c].mean(0) for c in range(count)])
    assert (nearest(rgb_values(PALETTE[:count]), means) == np.arange(count)).all()  # and from the legend's side


@pytest.mark.parametrize("count", [16, 32, 64])
def test_no_slide_can_take_a_colour_to_another(count):
    """Whatever the tissue: all that a pixel can become."""
    colours = rgb_values(PALETTE[:count]).astype(int)
    for shift in range(-relief(count), relief(count) + 1):
        assert (nearest(np.clip(colours + shift, 0, 255), colours) == np.arange(count)).all()
    assert relief(200) == min(RELIEF.values())


def test_values_are_read_off_the_colour_bar(picture):
    found = mapped(picture, 2, Paint())
    values = np.random.default_rng(0).random(len(found.grid.cells)).astype(np.float32)
    found.assignment[:] = np.stack([values, 1 - values], 1)
    covered = found.index >= 0
    scale = np.linspace(0, 1, 101)
    read = scale[nearest(heat_pixels(found, 0)[covered], heat_colours(scale))]
    assert np.abs(read - values[found.index[covered]]).max() < 0.05


def test_opacity_and_background_do_what_they_say():
    rng = np.random.default_rng(0)
    picture = rng.integers(40, 240, (60, 60, 3), dtype=np.uint8)
    flat = [mapped(picture, 4, Paint(background, 1.0)) for background in ("grey", "colour", "none")]
    for found in flat:
        covered = found.index >= 0
        np.testing.assert_array_equal(map_pixels(found)[covered], found.patch_colours[found.index[covered]])
    np.testing.assert_array_equal(map_pixels(mapped(picture, 4, Paint("colour", 0.0))), picture)
    spread = [map_pixels(mapped(picture, 1, Paint("grey", opacity))).std() for opacity in (0.9, 0.6, 0.3)]
    assert spread == sorted(spread)
    view = View(np.pad(picture, ((0, 40), (0, 0), (0, 0)), constant_values=200), (1.0, 1.0))
    for background, around in (("grey", 222), ("colour", 200), ("none", 255)):
        found = SlideMap("s", flat[0].grid, flat[0].assignment, flat[0].weights, view, paint=Paint(background))
        assert (map_pixels(found)[60:] == around).all()


def test_a_tissue_class_has_the_colour_of_the_prototypes_of_its_name():
    found = mapped(np.full((96, 96, 3), 255, np.uint8), 3, Paint())
    found = replace(found, namings={0: Naming("stroma"), 1: Naming("tumour", colour="#AABBCC"), 2: Naming("fat")})
    tissue = np.arange(len(found.labels)) % 2
    by_prototype, by_patch = class_maps(found, np.array([1, 0, UNKNOWN]), tissue, ["Tumour", "stroma"])
    assert by_prototype.prototype_colours == by_patch.prototype_colours == ["#AABBCC", found.prototype_colours[0]]
