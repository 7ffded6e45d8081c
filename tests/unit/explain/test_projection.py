"""Principal components against numpy's singular value decomposition."""

import numpy as np
import pytest

from panther.explain import projection
from panther.explain.projection import principal_components


@pytest.fixture
def cloud():
    rng = np.random.default_rng(3)
    return rng.normal(size=(30, 12)) * np.array([9, 5, *[1] * 10]) + 100


def by_svd(x):
    u, s, _ = np.linalg.svd(x - x.mean(0), full_matrices=False)
    return (u * s)[:, :2], s**2 / (s**2).sum()


@pytest.mark.parametrize("turned", [False, True], ids=["more points than numbers", "more numbers than points"])
@pytest.mark.parametrize("small", [2000, 2], ids=["all eigenvectors", "two by Lanczos"])
def test_components_are_those_of_the_singular_value_decomposition(cloud, monkeypatch, turned, small):
    monkeypatch.setattr(projection, "SMALL", small)
    x = cloud.T.copy() if turned else cloud
    position, axes = principal_components(x)
    expected, shares = by_svd(x)
    np.testing.assert_allclose(np.abs(position), np.abs(expected), rtol=1e-6, atol=1e-6)
    assert axes == (f"PC 1 ({shares[0]:.0%})", f"PC 2 ({shares[1]:.0%})")


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_few_points_have_finite_positions(cloud, count):
    position, axes = principal_components(cloud[:count])
    assert position.shape == (count, 2)
    assert np.isfinite(position).all()
    assert axes[0].startswith("PC 1")


@pytest.mark.parametrize(
    ("x", "expected"), [([[1.0], [3.0], [5.0]], [[-2, 0], [0, 0], [2, 0]]), (np.ones((5, 4)), np.zeros((5, 2)))]
)
def test_points_on_a_line_or_at_one_place_are_projected(x, expected):
    np.testing.assert_allclose(principal_components(np.array(x))[0], expected)
