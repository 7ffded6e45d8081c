"""Regions over tissue: the colours of the legend are recognised, also by colour-blind eyes, and values let the tissue through."""

import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from explain.test_map_colours import nearest
from panther.explain.names import Naming, class_colours, colours
from panther.explain.palette import PALETTE, rgb_values
from panther.slides import open_slide
from panther.viewer.patches import Window
from panther.viewer.tiles import render
from panther.viewer.tiles.export import blend

LEGEND = 215  # the grey of slide.css behind a light fill
SIDE = 32  # pixels a patch


@pytest.fixture(scope="module")
def vision():
    """Colours (n, 3) as seen by normal, protanopic and deuteranopic eyes."""
    folder = str(Path(__file__).parents[3] / "docs")
    sys.path.insert(0, folder)
    try:
        import make_palette
    finally:
        sys.path.remove(folder)

    def seen(picture, eyes):
        part = np.asarray(picture, float) / 255
        linear = np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)
        linear = np.clip(linear @ make_palette.VISION[eyes].T, 0, 1)
        return 255 * np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)

    return seen


@pytest.fixture(params=["CMU-1-Small-Region.svs", "TCGA-CR-7395-01A-01-TS1.svs", "lung"])
def picture(request):
    if request.param == "lung":
        tiles = sorted(request.getfixturevalue("shared_tiles").glob("*/00*.jpg"))[:9]
        rows = [np.hstack([np.asarray(Image.open(tile)) for tile in tiles[i : i + 3]]) for i in (0, 3, 6)]
        return np.vstack(rows)[:640, :640]
    data = request.getfixturevalue("shared_data")
    with open_slide(data / "slides" / request.param, 0.5) as slide:
        return slide.thumbnail(800)


@pytest.mark.parametrize("style", ["light", "outline"])
@pytest.mark.parametrize("count", [8, 12])
def test_nine_of_ten_painted_pixels_look_most_like_their_colour_of_the_legend(picture, vision, count, style):
    height, width = picture.shape[:2]
    y, x = np.mgrid[: height + 2 * render.REGION, : width + 2 * render.REGION]
    labels = (x // SIDE + 5 * (y // SIDE)) % count
    palette = rgb_values(PALETTE[:count])
    table = np.vstack([[0, 0, 0, 0], np.column_stack([palette, np.full(count, 255)])]).astype(np.uint8)
    codes, table = render.styled(labels + 1, table, Window(0, 0, width, height, 1.0), style)
    shown = blend(render.grounded(picture, "grey" if style == "light" else "colour"), [(table[codes], 1.0)])
    light = render.LIGHT * palette + (1 - render.LIGHT) * LEGEND
    own = labels[render.REGION : -render.REGION, render.REGION : -render.REGION]
    tissue = picture.mean(-1) < 225
    for eyes in range(3):
        right, painted = 0, 0
        for part, legend in ((codes > count, palette), ((codes <= count) & tissue, light)):
            part = part & (table[codes][..., 3] > 0)
            right += (nearest(vision(shown[part], eyes), vision(legend, eyes)) == own[part]).sum() if part.any() else 0
            painted += part.sum()
        assert right >= 0.9 * painted > 0


def test_an_outline_lies_within_its_region_and_a_hatch_meets_at_the_border_of_tiles():
    codes = np.ones((26, 26), np.uint8)
    codes[:, 13:] = 2
    table = np.array([[0, 0, 0, 0], [9, 9, 9, 255], [7, 7, 7, 255]], np.uint8)
    lines, colours = render.styled(codes, table, Window(0, 0, 20, 20, 1.0), "outline")
    assert (lines[:, 7:10] == 3).all()  # the last pixels of the first region, then the first of the second
    assert (lines[:, 10:13] == 4).all()
    assert (colours[lines[:, :7], 3] == 0).all()
    whole = render.styled(np.ones((26, 46), int), table, Window(0, 0, 40, 20, 1.0), "hatch")[0]
    halves = [render.styled(np.ones((26, 26), int), table, Window(x, 0, 20, 20, 1.0), "hatch")[0] for x in (0, 20)]
    np.testing.assert_array_equal(np.hstack(halves), whole)
    assert 0.3 < (whole > 0).mean() < 0.45


def test_one_tissue_has_one_colour():
    namings = {0: Naming("stroma"), 2: Naming("Stroma"), 3: Naming("tumour", colour="#112233"), 1: Naming("tumour")}
    shades = colours(namings, 5)
    assert shades[0] == shades[2] == PALETTE[0]
    assert shades[1] == shades[3] == "#112233"
    assert shades[4] == PALETTE[4]
    classes = class_colours(["tumour", "fat", "stroma"], namings, 5)
    assert classes[::2] == ["#112233", PALETTE[0]]
    assert classes[1] not in classes[::2]
