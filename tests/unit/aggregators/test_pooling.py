"""Plain pooling against numpy, also far from the origin, and PCA of the mean against scikit-learn."""

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA

import panther
from panther.aggregators import build
from panther.errors import InputError
from panther.models.blocks import principal_components
from panther.types import FeatureSpace

X = np.random.default_rng(0).normal(size=(40, 5))
ORACLES = {
    "mean": lambda x: x.mean(0),
    "mean-std": lambda x: np.concatenate([x.mean(0), x.std(0)]),
    "max": lambda x: x.max(0),
    "top-k": lambda x: np.sort(x, 0)[-10:].mean(0),
}


@pytest.mark.parametrize("offset", [0.0, 1e4])
@pytest.mark.parametrize("method", ORACLES)
def test_pooling_is_what_numpy_says(method, offset):
    x = (X + offset).astype(np.float32)
    found = build(method, FeatureSpace(5))(torch.from_numpy(x)).vector.numpy()
    np.testing.assert_allclose(found, ORACLES[method](x.astype(np.float64)), rtol=1e-6, atol=1e-4 if offset else 1e-6)


def test_of_fewer_than_k_patches_all_are_taken():
    found = panther.embed(torch.from_numpy(X[:3]), method="top-k", k=50).vector.numpy()
    np.testing.assert_allclose(found, X[:3].mean(0))


def test_infinite_numbers_are_refused_by_max_pooling():
    bad = torch.from_numpy(X.copy())
    bad[7, 2] = -torch.inf
    with pytest.raises(InputError, match="row 7"):
        panther.embed(bad, method="max")


def test_methods_on_prototypes_need_them():
    with pytest.raises(InputError, match="'panther' needs prototypes"):
        panther.embed(torch.from_numpy(X))


def test_k_is_a_number_of_patches():
    for k in (0, -1, 2.5, True):
        with pytest.raises(InputError, match="number of patches"):
            build("top-k", FeatureSpace(5), {"k": k})


def test_pca_is_scikit_learns():
    found = principal_components(X, 3)
    theirs = PCA(3, svd_solver="full").fit(X)
    ours, expected = found(torch.from_numpy(X)).numpy(), theirs.transform(X)
    np.testing.assert_allclose(np.abs(ours), np.abs(expected), rtol=1e-4, atol=1e-5)
    assert principal_components(X[:3], 64).basis.shape == (5, 2)  # no more than there is
