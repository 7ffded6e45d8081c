"""Distances between slides, against torch's divergences and all pairs in float64."""

import numpy as np
import pytest
import torch
from torch.distributions import Independent, Normal, kl_divergence

from panther.search.distances import (
    Hellinger,
    MixtureDistance,
    as_mixture,
    hellinger_parts,
    parts_of_distance,
    symmetric_kl,
    variance_floor,
)
from panther.statistics import Apart, Cosine, nearest_rows

C, D, N = 5, 12, 300


def slides(seed: int = 0, count: int = N, far: float = 0.0) -> torch.Tensor:
    """Rows [pi_c, mu_c, Sigma_c]; components are often absent."""
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.full(C, 0.4), count)
    weights[weights < 0.02] = 0
    weights /= weights.sum(1, keepdims=True)
    means = far + rng.normal(size=(C, D)) + 0.4 * rng.normal(size=(count, C, D))
    variances = rng.gamma(2, 0.2, (count, C, D))
    variances[rng.random((count, C)) < 0.2] = 0  # one patch has none
    return torch.from_numpy(np.concatenate([weights[..., None], means, variances], -1).reshape(count, -1))


def mixture(rows: torch.Tensor):
    return as_mixture(rows.double().numpy(), C, variance_floor(rows, C))


def test_symmetric_divergence_is_that_of_both_directions():
    both = mixture(slides(count=2))
    sides = [
        Independent(Normal(torch.from_numpy(both.means[i]), torch.from_numpy(both.variances[i]).sqrt()), 1)
        for i in (0, 1)
    ]
    expected = kl_divergence(*sides) + kl_divergence(*sides[::-1])
    one, other = (type(both)(*(part[i] for part in both)) for i in (0, 1))
    np.testing.assert_allclose(symmetric_kl(one, other), expected.numpy(), rtol=1e-10)


def test_distance_is_0_for_the_same_slide_1_where_nothing_is_shared_and_symmetric():
    both = mixture(slides(count=2))
    one, other = (type(both)(*(part[i] for part in both)) for i in (0, 1))
    assert sum(part.sum() for part in parts_of_distance(one, one)) == 0
    weights, looks = parts_of_distance(one, one._replace(weights=other.weights))
    assert (looks == 0).all()  # they differ by their proportions only
    assert weights.sum() == pytest.approx(1 - np.sqrt(one.weights * other.weights).sum())
    np.testing.assert_allclose(weights, hellinger_parts(one.weights, other.weights))
    there, back = (sum(part.sum() for part in parts_of_distance(*pair)) for pair in ((one, other), (other, one)))
    assert there == pytest.approx(back)
    only_first, only_last = (one._replace(weights=np.eye(C)[i]) for i in (0, C - 1))
    weights, looks = parts_of_distance(only_first, only_last._replace(means=one.means + 100))
    assert weights.sum() == pytest.approx(1)
    assert (looks == 0).all()  # a component that one of them lacks counts through its proportion only


def test_a_slide_that_shares_no_tissue_is_not_nearer_than_one_that_looks_different():
    rows = slides(count=3)
    tokens = rows.view(3, C, -1)
    tokens[:, :, 0] = torch.tensor([[1.0, 0, 0, 0, 0], [1, 0, 0, 0, 0], [0, 1, 0, 0, 0]])
    tokens[1, 0, 1 : 1 + D] += 3  # the same prototype, far off
    (found,) = nearest_rows(rows, measures(rows, rows[:1])["mixture"], 3)
    assert found.rows.tolist() == [0, 1, 2]
    assert found.nearness[2] == pytest.approx(-1)


def measures(rows: torch.Tensor, queries: torch.Tensor):
    floor = variance_floor(rows, C)
    vectors = queries.double().numpy()
    return {
        "mixture": MixtureDistance(as_mixture(vectors, C, floor), floor),
        "cosine": Cosine(vectors / np.linalg.norm(vectors, axis=1, keepdims=True)),
    }


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("far", [0.0, 300.0], ids=["near", "far"])
@pytest.mark.parametrize("name", ["mixture", "cosine"])
def test_search_finds_what_all_pairs_in_float64_say(name, far, dtype):
    rows = slides(far=far).to(dtype)
    patients = np.arange(N) // 3
    asked = np.arange(0, N, 17)
    measure = measures(rows, rows[asked])[name]
    found = nearest_rows(rows, measure, 7, [Apart(patients[asked], patients)])
    for query, own in enumerate(patients[asked]):
        every = measure.exact(query, rows.double().numpy())
        others = np.flatnonzero(patients != own)
        expected = others[np.lexsort((others, -every[others]))][:7]
        assert found[query].rows.tolist() == expected.tolist()
        np.testing.assert_allclose(found[query].nearness, every[expected], rtol=1e-12, atol=1e-12)


def test_quick_numbers_are_as_near_as_they_say():
    rows = slides(far=50.0).float()
    measure = measures(rows, rows[:20])["mixture"]
    rough, slack = measure.quick(rows)
    for query in range(20):
        off = np.abs(rough[query].double().numpy() - measure.exact(query, rows.double().numpy()))
        assert (off <= slack[query].numpy()).all()
    assert float(slack.max() / rough.abs().max()) < 0.1  # or the search would compare everything twice
    alone = measures(rows, rows[5:6])["mixture"]  # another way to the same numbers
    rough, slack = alone.quick(rows)
    off = np.abs(rough[0].double().numpy() - alone.exact(0, rows.double().numpy()))
    assert (off <= slack[0].numpy()).all()


def test_slides_with_nan_are_never_neighbours():
    rows = slides(count=40)
    rows[3, 2], rows[4, 0], rows[5] = float("nan"), -0.5, float("inf")
    for name, measure in measures(rows, rows[:1]).items():
        (found,) = nearest_rows(rows, measure, 40)
        assert not {3, 5} & set(found.rows.tolist()), name
    pi = torch.tensor([[0.5, 0.5], [float("nan"), 1], [-0.1, 1.1], [0, 0], [0.2, 0.8]])
    (found,) = nearest_rows(pi, Hellinger(pi[:1].double().numpy()), 5)
    assert found.rows.tolist() == [0, 4]
