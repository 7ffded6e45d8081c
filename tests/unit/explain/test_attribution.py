"""Attributions share out f(x) - f(mean): checked against brute force, closed forms and what must hold for any Shapley value."""

from itertools import permutations

import numpy as np
import pytest
import torch

from panther.explain.attribution.mathematics import (
    antithetic_orders,
    linear_shares,
    shapley_by_enumeration,
    shapley_by_permutation,
)

MEMBER = torch.tensor([0, 1, 1, 2, 3, 3])  # four players


def curved(x):
    """Two outputs in which players interact; the last player does nothing."""
    return torch.stack([x[:, 0] * x[:, 1] * x[:, 3] + torch.relu(x[:, 2] + x[:, 3]), torch.sin(x[:, 0] + x[:, 3])], 1)


@pytest.fixture
def points():
    generator = torch.Generator().manual_seed(3)
    x, mean = torch.randn(2, 6, generator=generator, dtype=torch.float64)
    return x, mean


def brute_force(x, mean):
    """Mean gain of each player over all orders in which players can enter, written as plainly as can be."""
    gains = np.zeros((2, 4))
    orders = list(permutations(range(4)))
    for order in orders:
        now = mean.clone()
        for player in order:
            before = curved(now[None])[0].numpy()
            now = torch.where(player == MEMBER, x, now)
            gains[:, player] += curved(now[None])[0].numpy() - before
    return gains / len(orders)


def test_enumeration_is_the_mean_over_all_orders(points):
    found = shapley_by_enumeration(curved, *points, MEMBER)
    np.testing.assert_allclose(found, brute_force(*points), atol=1e-12)
    assert found[:, 3].abs().max() < 1e-12  # who changes nothing gets nothing


def test_few_orders_add_up_exactly_and_the_error_tells_how_far_off_they_are(points):
    x, mean = points
    change = (curved(x[None]) - curved(mean[None]))[0]
    exact = brute_force(x, mean)
    scores = []
    for seed in range(150):
        found, error = shapley_by_permutation(curved, x, mean, MEMBER, antithetic_orders(4, 40, seed))
        torch.testing.assert_close(found.sum(1), change, atol=1e-12, rtol=0)
        scores.append(float((found[0, 0] - exact[0, 0]) / error[0, 0]))  # the players' errors are tied: one
    # a right error gives scores of deviation 1, known from 150 of them to 0.06; three times that and a little is allowed
    assert 0.8 < np.std(scores) < 1.2
    assert abs(np.mean(scores)) < 0.25


def test_all_ways_agree_on_a_linear_function(points):
    x, mean = points
    slope = torch.randn(2, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    by_hand = [[float((slope[k] * (x - mean))[p == MEMBER].sum()) for p in range(4)] for k in range(2)]
    f = lambda rows: rows @ slope.T + 7.0  # noqa: E731
    for found in (
        linear_shares(slope, x, mean, MEMBER),
        shapley_by_enumeration(f, x, mean, MEMBER),
        shapley_by_permutation(f, x, mean, MEMBER, antithetic_orders(4, 2, 0))[0],
    ):
        np.testing.assert_allclose(found, by_hand, atol=1e-12)
