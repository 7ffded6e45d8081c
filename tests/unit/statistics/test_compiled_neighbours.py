"""Neighbouring places in C against torch and scipy, which say what is right."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from panther.patches import Places
from panther.statistics import neighbours
from panther.statistics.compiled import load_library, regions_compiled, suits_tensor, touch_compiled
from panther.statistics.neighbours import _regions, _touch, side_by_side

library = load_library()
pytestmark = pytest.mark.skipif(isinstance(library, str), reason=f"there is no compiled kernel: {library}")


@given(
    side=st.integers(1, 40),
    full=st.sampled_from([0.3, 0.7, 1.0]),
    count=st.integers(1, 40),
    crisp=st.sampled_from([0.02, 0.3, 5.0]),
    corners=st.booleans(),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    seed=st.integers(0, 99),
)
@settings(max_examples=60, deadline=None)
def test_any_slide_gives_what_torch_gives(side, full, count, crisp, corners, dtype, seed):
    rng = np.random.default_rng(seed)
    coords = np.argwhere(rng.random((side, side)) < full)
    ahead = side_by_side(coords, 1.0, corners=corners).ahead
    q = torch.tensor(rng.dirichlet(np.full(count, crisp), len(coords)), dtype=dtype)
    q[q < 1e-3] = 0  # zeros are skipped
    assert suits_tensor(q)
    near = 1e-5 if dtype == torch.float32 else 1e-12
    for found, expected in zip(touch_compiled(library, q, ahead), _touch(q, ahead), strict=True):
        torch.testing.assert_close(found, expected, rtol=near, atol=near)
    for found, expected in zip(regions_compiled(library, q, ahead), _regions(q, ahead), strict=True):
        assert torch.equal(found, expected)


def test_sums_of_many_places_are_those_of_float64():
    side, rng = 150, np.random.default_rng(0)
    ahead = side_by_side(np.stack(np.divmod(np.arange(side * side), side), 1), 1.0, corners=True).ahead
    q = torch.tensor(rng.dirichlet(np.full(6, 0.3), side * side), dtype=torch.float32)
    for found, expected in zip(touch_compiled(library, q, ahead), _touch(q.double(), ahead), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=0)


def test_one_region_that_winds_through_the_whole_slide_is_one():
    side = 41
    snake = np.zeros((side, side), int)
    snake[::2] = 1  # rows, joined at alternate ends
    snake[1::4, -1] = snake[3::4, 0] = 1
    coords = np.stack(np.divmod(np.arange(side * side), side), 1)[:, ::-1]
    ahead = side_by_side(coords, 1.0).ahead
    likeliest, regions = regions_compiled(library, torch.eye(3)[snake.ravel()], ahead)
    assert regions.tolist() == [side // 2, 1, 0]
    assert likeliest.tolist() == [side * side - snake.sum(), snake.sum(), 0]


def test_many_prototypes_that_share_every_patch_are_multiplied_as_matrices(monkeypatch):
    called = []
    monkeypatch.setenv("PANTHER_KERNEL", "auto")
    monkeypatch.setattr(neighbours, "touch_compiled", lambda *a: called.append(1) or touch_compiled(*a))
    where = Places(np.stack(np.divmod(np.arange(400.0), 20), 1), 1.0, (400,))
    for q, wanted in ((torch.eye(40).repeat(10, 1), 1), (torch.full((400, 40), 1 / 40), 0), (torch.ones(400, 1), 1)):
        called.clear()
        neighbours.neighbourhood(q, where)
        assert len(called) == wanted


def test_where_a_gradient_is_wanted_or_numbers_are_elsewhere_torch_computes():
    q = torch.eye(3)
    assert not suits_tensor(q.clone().requires_grad_())
    assert not suits_tensor(q.half())
    with torch.no_grad():
        assert suits_tensor(q.clone().requires_grad_())
