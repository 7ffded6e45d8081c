"""Assignments, colours, names and drawings."""

import numpy as np
import pytest
import torch

from mixture_bags import mixture_bag
from panther.aggregators import build
from panther.errors import InputError
from panther.explain.geometry import blank_view, grid
from panther.explain.names import Naming
from panther.explain.palette import PALETTE, rgb_values
from panther.explain.scene import assign
from panther.explain.slide_map import SlideMap, bar_length, draw_heatmaps, draw_map, draw_side_by_side, overlay_pixels
from panther.types import Bag, PatchSpec, Prototypes


def bag_and_prototypes():
    x, centres = mixture_bag(n=200, separation=1.0)
    return Bag("s", x), Prototypes(centres, torch.ones(12))


def test_the_posterior_is_bayes_rule_about_the_prototypes():
    bag, prototypes = bag_and_prototypes()
    found = assign(bag, build("panther", prototypes, {"preset": "paper", "steps": 1}))
    logits = -0.5 * torch.cdist(bag.features.double(), prototypes.centroids.double()).square()
    assert torch.allclose(found.assignment.double(), logits.softmax(1), atol=1e-4)
    assert torch.allclose(found.weights, found.assignment.double().mean(0), atol=1e-5)


@pytest.mark.parametrize("method", ["h2t", "protocounts"])
def test_hard_methods_take_the_nearest_prototype_and_refuse_nan(method):
    bag, prototypes = bag_and_prototypes()
    options = {"normalise": False} if method == "h2t" else {}
    module = build(method, prototypes, options)
    assert (assign(bag, module).assignment.argmax(1) == torch.cdist(bag.features, prototypes.centroids).argmin(1)).all()
    bag.features[17, 3] = float("nan")
    with pytest.raises(InputError, match="row 17"):
        assign(bag, module)


def test_scale_bars_are_round_and_at_most_a_quarter():
    assert [bar_length(width) for width in (1000, 799, 100_000, 4.0, 3.9)] == [200, 100, 20_000, 1, 0.5]


def small_map(prototypes=5, mpp=0.5):
    rng = np.random.default_rng(0)
    cells = np.stack(np.meshgrid(np.arange(12), np.arange(8)), -1).reshape(-1, 2)
    shares = rng.dirichlet(np.ones(prototypes), len(cells)).astype(np.float32)
    spec = PatchSpec(mpp=mpp, size=256, size_level0=512)
    placed = grid(cells * 512, spec)
    names = {0: "tumour, solid & $x_1$", 1: "a very long name that goes on and on without an end in sight"}
    namings = {c: Naming(name) for c, name in names.items()}
    return SlideMap("s", placed, shares, shares.mean(0), blank_view(placed, 600, spec), namings)


@pytest.mark.parametrize("prototypes", [1, 5, 64, 70])
def test_every_prototype_is_in_the_legend_inside_the_figure(prototypes):
    figure = draw_map(small_map(prototypes))
    words = [text.get_text() for text in figure.texts]
    assert sum(word.startswith("C") for word in words) == prototypes
    assert any(word.startswith("C0 tumour, solid & $x_1$") for word in words)
    box = figure.bbox
    for text in figure.texts:
        place = text.get_window_extent()
        assert place.x0 >= 0
        assert place.x1 <= box.x1 + 1
        assert place.y0 >= 0


def test_without_a_resolution_there_is_no_scale_bar():
    assert len(draw_map(small_map()).axes[0].lines) == 1
    assert len(draw_map(small_map(mpp=None)).axes[0].lines) == 0


def test_there_is_a_heatmap_for_each_prototype_and_no_original_without_an_image():
    assert len(draw_heatmaps(small_map(5)).axes) == 5 + 1  # and the colour bar
    assert len(draw_heatmaps(small_map(5), [1, 3]).axes) == 2 + 1
    assert len(draw_side_by_side(small_map(5), 0).axes) == 2


def test_the_overlay_is_transparent_where_no_patch_lies():
    found = small_map()
    pixels = overlay_pixels(found)
    assert ((pixels[..., 3] == 255) == (found.index >= 0)).all()
    assert set(np.unique(pixels[..., 3])) == {0, 255}
    row, column = np.argwhere(found.index == 17)[0]
    assert pixels[row, column, :3].tolist() == rgb_values(PALETTE[:5])[found.labels[17]].tolist()
