"""Places of patches: on grids, on pixels, in polygons."""

import json

import numpy as np
import pytest
from known_regions import HEIGHT, SIDE, WIDTH, truth
from matplotlib.path import Path as Outline
from scipy import ndimage

from panther.charts.style import save
from panther.errors import InputError
from panther.explain import MapSettings, map_slide
from panther.explain.geometry import View, grid, raster, regions
from panther.explain.maps import write_map
from panther.explain.slide_map import draw_map, map_pixels
from panther.storage.prototypes import load_prototypes
from panther.storage.readers import open_bag
from panther.types import PatchSpec

SPEC = PatchSpec(mpp=0.5, size=10, size_level0=10)


def mapped(slide, max_side):
    prototypes, settings = load_prototypes(slide / "p.safetensors"), MapSettings(max_side=max_side)
    return map_slide(open_bag(slide / "s.h5"), prototypes, settings, slide / "s.tif")


@pytest.mark.parametrize("max_side", [1500, 1499, 640, 333, 97])
def test_the_map_is_registered_to_the_slide_at_every_scale(slide, max_side):
    found = mapped(slide, max_side)
    known = truth(*found.view.size)
    seen = np.where(found.index >= 0, found.labels[found.index] + 1, 0)
    # a patch has one colour: it may be wrong as far as it reaches over a border, and no farther
    scale = found.view.size[0] / WIDTH
    different = np.zeros(known.shape, bool)
    for axis in (0, 1):
        change = np.diff(known, axis=axis) != 0
        different |= np.pad(change, [(0, 1) if a == axis else (0, 0) for a in (0, 1)])
    away = ndimage.distance_transform_cdt(~different, "chessboard") > SIDE * scale + 1
    inside = np.zeros_like(away)
    inside[: int((HEIGHT // SIDE) * SIDE * scale), :] = True  # the last, incomplete row of patches is not cut
    assert away.mean() > 0.2
    assert (seen == known)[away & inside].all()
    assert (seen == known)[inside].mean() > 0.95


def test_the_saved_picture_shows_the_very_pixels(slide, tmp_path):
    from PIL import Image

    found = mapped(slide, 640)
    figure = draw_map(found)
    save(figure, tmp_path / "a.png")
    with Image.open(tmp_path / "a.png") as image:
        picture = np.asarray(image.convert("RGB"))
    box = figure.axes[0].get_window_extent()
    top, left = picture.shape[0] - round(box.y1), round(box.x0)
    width, height = found.view.size
    shown = picture[top : top + height, left : left + width]
    same = (shown == map_pixels(found)).all(-1)
    assert same[: height - 40].all()  # below lies the scale bar
    assert not same.all()


def test_every_pixel_under_a_patch_is_painted_once():
    coords = np.stack(np.meshgrid(np.arange(7), np.arange(5)), -1).reshape(-1, 2) * 10
    for pixels in (70, 61, 33, 7):
        scale = pixels / 70
        view = View(np.zeros((round(50 * scale), pixels, 3), np.uint8), (scale, scale))
        index = raster(grid(coords, SPEC), view)
        assert (index >= 0).all()
        x = (np.arange(pixels) + 0.5) / scale
        assert (coords[index[0], 0] == np.floor(x / 10 + 1e-9) * 10).all()


def test_regions_have_the_area_of_their_patches_and_hold_their_centres(slide, tmp_path):
    found = mapped(slide, 300)
    write_map(found, tmp_path, formats=("geojson",))
    features = json.loads((tmp_path / "s.geojson").read_text())["features"]
    centres = open_bag(slide / "s.h5").coords + SIDE / 2
    holders = np.zeros((len(centres), 3), int)
    for feature in features:
        outer, *holes = (np.array(ring) for ring in feature["geometry"]["coordinates"])
        within = Outline(outer).contains_points(centres)
        for hole in holes:
            within &= ~Outline(hole).contains_points(centres)
        prototype = int(feature["properties"]["name"][1:])
        holders[within, prototype] += 1
        area = shoelace(outer) - sum(map(shoelace, holes))
        assert area == within.sum() * SIDE**2
        assert feature["properties"]["measurements"]["Patches"] == within.sum()
        assert feature["properties"]["measurements"]["Area mm^2"] == pytest.approx(area * 0.25e-6)
    assert (holders == np.eye(3, dtype=int)[found.labels]).all()
    assert any(len(feature["geometry"]["coordinates"]) > 1 for feature in features)  # the nest is a hole of the disc


def shoelace(ring):
    x, y = ring.T
    return abs(float(np.dot(x[:-1], y[1:]) - np.dot(x[1:], y[:-1]))) / 2


def test_pieces_of_tissue_with_grids_of_their_own_keep_their_places():
    coords = np.array([[0, 0], [10, 0], [103, 7], [113, 7], [103, 17]])
    placed = grid(coords, SPEC)
    assert (placed.corners == coords).all()
    assert len(placed.origins) == 2
    assert sorted(region.polygon.area for region in regions(placed, np.zeros(5, int))) == [200, 300]
    corner = regions(grid(np.array([[0, 0], [10, 10], [20, 10]]), SPEC), np.zeros(3, int))
    assert [region.patches for region in corner] == [1, 2]  # which touch only there


def test_overlapping_patches_own_their_middle():
    coords = np.array([[0, 0], [6, 0], [12, 0]])
    placed = grid(coords, PatchSpec(mpp=0.5, size=10, size_level0=10, overlap=4))
    assert placed.pitch == 6
    assert (placed.corners == coords + 2).all()
    (region,) = regions(placed, np.zeros(3, int))
    assert region.polygon.area == 3 * 36


def test_micrometres_become_pixels_of_the_slide():
    spec = PatchSpec(mpp=0.5, size=512, coords_unit="um")
    coords = np.array([[0.0, 0.0], [256.0, 0.0], [0.0, 512.0]])
    placed = grid(coords, spec, mpp=0.25)
    assert placed.pitch == 1024
    assert placed.corners.tolist() == [[0, 0], [1024, 0], [0, 2048]]
    assert grid(coords, spec).pitch == 256


def test_a_step_that_another_tool_rounded_is_corrected():
    placed = grid(np.arange(5)[:, None] * [[189, 0]], PatchSpec(mpp=0.5, size=256, size_level0=253, overlap=64))
    assert placed.pitch == 189  # 253 - 63 = 190 by our rounding
    assert len(placed.origins) == 1
    coords = np.array([[5, 5], [229, 5], [453, 5], [5, 229], [901, 901]])
    placed = grid(coords, PatchSpec())  # a size that the file lacks is the distance of neighbours
    assert (placed.pitch, placed.inferred) == (224, True)
    assert (placed.corners == coords).all()
    with pytest.raises(InputError, match="size"):
        grid(np.array([[5, 5], [300, 700]]), PatchSpec())
