"""Detection of unfamiliar samples."""

import numpy as np
import pytest

from panther.errors import InputError
from panther.evaluation import outlying
from panther.evaluation.outlying import FOLDS, PER_COMPONENT, familiarity_level, fit_cloud


def embeddings(rng, n, dim=300):
    """Few strong directions and many weak ones, far from the origin."""
    scale = np.concatenate([[10, 5, 3], np.full(dim - 3, 0.5)])
    return (rng.normal(size=(n, dim)) * scale + 50).astype("f4")


@pytest.mark.parametrize("n", [40, 120])
def test_new_samples_of_the_training_distribution_are_rarely_unusual(n):
    rng = np.random.default_rng(0)
    shares = []
    for _ in range(10):
        cloud = fit_cloud(embeddings(rng, n), np.arange(n))
        shares.append((cloud.p_value(embeddings(rng, 100)) <= 0.1).mean())
    assert 0.05 <= np.mean(shares) <= 0.13  # a little less in small cohorts: folds know fewer samples


def test_held_out_distances_are_those_of_a_cloud_without_the_fold():
    rng = np.random.default_rng(1)
    x, patient = embeddings(rng, 50, 20), np.arange(50) // 2
    cloud = fit_cloud(x, np.array([f"P{number:02d}" for number in patient]))
    fold = np.random.default_rng(0).permutation(25)[patient] % FOLDS
    expected = []
    for k in range(FOLDS):
        train, test = x[fold != k].astype(float), x[fold == k].astype(float)
        mean = train.mean(0)
        _, s, v = np.linalg.svd(train - mean, full_matrices=False)
        variance, c = s**2 / len(train), len(train) // PER_COMPONENT
        z = (test - mean) @ v[:c].T
        left = ((test - mean) ** 2).sum(1) - (z**2).sum(1)
        expected.append(np.sqrt((z**2 / variance[:c]).sum(1) + c * left / variance[c:].sum()))
    np.testing.assert_allclose(cloud.distances, np.sort(np.concatenate(expected)), rtol=1e-3)


@pytest.mark.parametrize("change", ["far in a weak direction", "far in a strong direction", "other noise"])
def test_unfamiliar_samples_are_outside(change):
    rng = np.random.default_rng(2)
    cloud = fit_cloud(embeddings(rng, 100), np.arange(100))
    new = embeddings(rng, 20)
    if change == "far in a weak direction":
        new[:, 150] += 30
    elif change == "far in a strong direction":
        new[:, 0] += 80
    else:
        new += rng.normal(0, 3, new.shape)
    assert {familiarity_level(p, 100) for p in cloud.p_value(new)} == {"outside"}


def test_a_constant_embedding_has_a_cloud_too_and_two_patients_have_none():
    cloud = fit_cloud(np.ones((10, 5)), np.arange(10))
    assert cloud.p_value(np.ones((1, 5)))[0] == 1
    assert familiarity_level(cloud.p_value(np.full((1, 5), 2.0))[0], 10) == "outside"
    with pytest.raises(InputError, match="at least 3"):
        fit_cloud(np.zeros((4, 2)), np.array([0, 0, 1, 1]))


def test_a_multiplied_subspace_gives_the_distances_of_eigenvectors(monkeypatch):
    rng = np.random.default_rng(4)
    x = (rng.normal(size=(120, 60)) * 10 / np.arange(1, 61)).astype("f4")
    exact = fit_cloud(x, np.arange(120))
    monkeypatch.setattr(outlying, "EXACT", 10)
    fast = fit_cloud(x, np.arange(120))
    np.testing.assert_allclose(fast.variance, exact.variance, rtol=1e-4)
    np.testing.assert_allclose(fast.distances, exact.distances, rtol=0.02)
    np.testing.assert_allclose(fast.distance(x), exact.distance(x), rtol=0.02)
