"""Overlays lie on the slide to the pixel, at every zoom: against patches compared one by one with every pixel's centre."""

import numpy as np
import pytest
import tifffile
import torch
from PIL import Image

from explain.known_regions import write_bag
from panther.explain.geometry import grid
from panther.explain.palette import PALETTE, rgb_values
from panther.storage.prototypes import save_prototypes
from panther.types import PatchSpec, Prototypes
from panther.viewer.contents import find_contents
from panther.viewer.patches import Cells, Pyramid, Window
from panther.viewer.workbench import Workbench
from viewer.asking import entered, picture

RGB = rgb_values(PALETTE).tolist()

BOARD = np.array([(30, 60, 90), (220, 200, 120)], np.uint8)  # the two colours of the board


def under(corners, side, window):
    """Patch under each pixel's centre, the last of several: no index, no rounding, one patch after the other."""
    x = window.left + (np.arange(window.width) + 0.5) * window.scale
    y = window.top + (np.arange(window.height) + 0.5) * window.scale
    out = np.full((window.height, window.width), -1)
    for number, (left, top) in enumerate(np.asarray(corners, float)):
        out[np.ix_((top <= y) & (y < top + side), (left <= x) & (x < left + side))] = number
    return out


def windows(width, height):
    """Every tile of every zoom."""
    found = Pyramid(width, height)
    for zoom in range(found.zooms):
        across, down = found.counts(zoom)
        for x in range(across):
            for y in range(down):
                yield found.window(zoom, x, y)


def lattice(side, columns, rows, origin=(0, 0)):
    x, y = np.meshgrid(np.arange(columns) * side + origin[0], np.arange(rows) * side + origin[1])
    return np.stack([x.ravel(), y.ravel()], 1)


rng = np.random.default_rng(5)
PLACES = {
    "odd": (lattice(223, 6, 5), 223),
    "missing": (rng.permutation(lattice(97, 12, 9))[:60], 97),
    "one": (np.array([[401, 77]]), 333),
    "shifted": (lattice(131, 7, 6, (11, 29)), 131),
    "two grids": (np.concatenate([lattice(64, 5, 5), lattice(64, 6, 4, (345, 201))]), 64),
    "grids that overlap": (np.concatenate([lattice(101, 6, 6), lattice(101, 5, 5, (37, 59))]), 101),
    "twice": (np.concatenate([lattice(150, 4, 4), lattice(150, 4, 4)[::2]]), 150),
    "smaller than a pixel": (lattice(3, 50, 40, (1, 2)), 3),
    "nowhere near a grid": (rng.integers(0, 900, (80, 2)), 57),
    "far apart": (np.array([[0, 0], [1400, 1]]), 1),
}


@pytest.mark.parametrize("name", PLACES)
def test_every_pixel_of_every_zoom_finds_its_patch(name):
    corners, side = PLACES[name]
    spec = PatchSpec(size_level0=side)
    found = Cells(grid(corners, spec))
    width, height = (corners.max(0) + side).tolist()
    for window in windows(width, height):
        assert (found.under(window) == under(corners, side, window)).all(), window


def test_cells_of_overlapping_patches_share_the_slide_without_gaps():
    spec = PatchSpec(size=224, size_level0=223, overlap=56)
    corners = lattice(167, 6, 5)  # 223 - 56
    found = Cells(grid(corners, spec))
    inner = Window(28, 28, 6 * 167, 5 * 167, 1)  # from the middle of the shared margin
    expected = np.arange(30).reshape(5, 6).repeat(167, 0).repeat(167, 1)
    assert (found.under(inner) == expected).all()


def test_coordinates_that_are_no_whole_numbers_leave_no_gap():
    side = 256 * 0.4991
    corners = lattice(1, 9, 7) * side
    found = Cells(grid(corners, PatchSpec(coords_unit="um", mpp=0.4991, size=256)))
    index = found.under(Window(0.0, 0.0, 500, 380, 2.1))
    assert (index >= 0).all()
    assert (index == under(corners, side, Window(0.0, 0.0, 500, 380, 2.1))).all()


def write_board(folder, side, downsample, keep):
    """A slide painted as a chequerboard, one patch a square, features and prototypes that tell the two colours apart."""
    columns, rows = 6, 5
    width, height = columns * side + 41, rows * side + 13
    square = np.add.outer(np.arange(height) // side, np.arange(width) // side) % 2
    image = BOARD[square]
    levels = [image]
    for factor in (downsample, downsample**2):
        size = round(width / factor), round(height / factor)
        levels.append(np.asarray(Image.fromarray(image).resize(size, Image.Resampling.BOX)))
    (folder / "slides").mkdir(parents=True)
    (folder / "features").mkdir()
    with tifffile.TiffWriter(folder / "slides" / "board.tif", bigtiff=True) as file:
        for number, level in enumerate(levels):
            resolution = {"resolution": (2e4, 2e4), "resolutionunit": "CENTIMETER"}
            layout = {"tile": (128, 128), "photometric": "rgb", "compression": "zlib", "metadata": None}
            file.write(level, subfiletype=int(number > 0), **layout, **resolution)
    corners = lattice(side, columns, rows)[keep(columns * rows)]
    labels = corners.sum(1) // side % 2
    write_bag(folder / "features" / "board.h5", np.eye(2)[labels], corners, patch_size=side, patch_size_level0=side)
    save_prototypes(Prototypes(torch.eye(2), encoder="mean"), folder / "prototypes.safetensors")
    return corners, labels, (width, height)


KEEP = {"all": lambda n: np.arange(n), "some": lambda n: np.sort(np.random.default_rng(1).permutation(n)[: n // 2])}


@pytest.mark.parametrize(
    ("side", "downsample", "keep"), [(223, 3.3, "all"), (223, 3.3, "some"), (97, 2.5, "all"), (256, 4, "some")]
)
def test_a_chequerboard_matches_its_overlay_at_every_zoom(tmp_path, side, downsample, keep):
    corners, labels, size = write_board(tmp_path, side, downsample, KEEP[keep])
    client = entered(tmp_path)
    about = client.get("/api/slides/board").get_json()
    assert (about["width"], about["height"]) == size
    found = Pyramid(*size)
    assert about["zooms"] == found.zooms
    colours = np.array([(*RGB[0], 255), (*RGB[1], 255)])
    for zoom in range(found.zooms):
        across, down = found.counts(zoom)
        for x in range(across):
            for y in range(down):
                window = found.window(zoom, x, y)
                around = under(corners, side, window.wider(3))
                index = around[3:-3, 3:-3]
                seen = picture(client, f"/layers/board/prototypes/{zoom}/{x}/{y}.png", "RGBA")
                assert (seen[index >= 0] == colours[labels[index[index >= 0]]]).all()
                assert (seen[index < 0] == 0).all()
                image = picture(client, f"/tiles/board/{zoom}/{x}/{y}.jpg", "RGB").astype(int)
                inside = surrounded(around, 3) & (index >= 0)  # JPEG and averaging blur the borders, by less than this
                wrong = np.abs(image[inside] - BOARD[labels[index[inside]]]).max(-1, initial=0) > 60
                assert not wrong.any()


def surrounded(index, margin):
    """Pixels whose surroundings, so many pixels wide, are of the same patch; ``index`` is that much wider on every side."""
    from scipy import ndimage

    size = 2 * margin + 1
    same = ndimage.maximum_filter(index, size) == ndimage.minimum_filter(index, size)
    return same[margin:-margin, margin:-margin]


def test_patches_without_an_image_lie_on_a_blank_canvas(tmp_path):
    (tmp_path / "features").mkdir()
    corners = lattice(223, 5, 4, (100_001, 50_003))
    write_bag(tmp_path / "features" / "a.h5", np.eye(2)[corners.sum(1) % 2], corners, patch_size_level0=223)
    save_prototypes(Prototypes(torch.eye(2), encoder="mean"), tmp_path / "prototypes.safetensors")
    found = Workbench(find_contents(tmp_path)).patches("a")
    assert (found.canvas.width, found.canvas.height) == (7 * 223, 6 * 223)
    for window in windows(found.canvas.width, found.canvas.height):
        expected = under(corners - corners.min(0) + 223, 223, window)
        assert (found.cells.under(window) == expected).all()
