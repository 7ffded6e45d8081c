"""The scikit-learn habit on lists of bags."""

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

import panther
from mixture_bags import mixture_bag
from panther import InputError, Panther
from storage.layouts import features, write


@pytest.fixture
def bags():
    return [mixture_bag(60, 6, 3, separation=2.0, seed=0)[0][i * 5 :] for i in range(6)]


def test_fit_transform_gives_one_row_a_bag(bags):
    model = Panther(n_prototypes=3, random_state=0)
    rows = model.fit_transform(bags)
    assert rows.shape == (6, 3 * 13)
    assert rows.dtype == np.float32
    assert model.n_features_in_ == 6
    names = model.get_feature_names_out()
    assert len(names) == rows.shape[1]
    assert list(names[:2]) == ["C0:pi", "C0:mu:0"]
    assert np.array_equal(rows, model.transform(bags))


def test_parameters_are_cloned_and_set_like_any_estimators(bags):
    model = Panther(n_prototypes=5, readout="wa", em_options={"steps": 2}).set_params(n_prototypes=3)
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    assert copy.fit(bags).transform(bags).shape == (6, 12)
    with pytest.raises(NotFittedError):
        Panther().transform(bags)


def test_it_works_in_a_pipeline(bags):
    labels = [0, 1, 0, 1, 0, 1]
    model = make_pipeline(Panther(3, random_state=1), LogisticRegression()).fit(bags, labels)
    assert model.predict(bags).shape == (6,)


def test_workers_give_the_same_bytes(bags):
    one = Panther(3).fit(bags)
    assert np.array_equal(one.set_params(n_jobs=2).transform(bags), one.set_params(n_jobs=1).transform(bags))


def test_the_same_seed_gives_the_same_rows_and_arrays_are_as_good_as_tensors(bags):
    a = Panther(3, random_state=4).fit_transform(bags)
    b = Panther(3, random_state=4).fit_transform([bag.numpy() for bag in bags])
    assert np.array_equal(a, b)


def test_one_bag_is_embedded_by_a_function(bags, tmp_path):
    prototypes = Panther(3).fit(bags).prototypes_
    embedding = panther.embed(bags[0], prototypes, preset="calibrated")
    assert embedding.tokens.shape == (3, 13)
    np.save(tmp_path / "slide.npy", bags[0].numpy())
    from_file = panther.embed(tmp_path / "slide.npy", prototypes, preset="calibrated")
    assert torch.equal(from_file.vector, embedding.vector)


@pytest.mark.parametrize(
    "bad", [torch.zeros(3), torch.zeros(3, 6, dtype=torch.long), torch.full((4, 6), torch.nan), torch.zeros(0, 6)]
)
def test_a_bad_bag_is_refused_in_a_sentence(bags, bad):
    model = Panther(3).fit(bags)
    with pytest.raises(InputError):
        model.transform([bad])
    with pytest.raises(InputError, match="5-dimensional but the prototypes expect 6"):
        model.transform([torch.zeros(3, 5)])


@pytest.mark.parametrize("method", ["panther", "ot", "h2t", "protocounts"])
def test_one_bag_is_embedded_with_its_assignment_where_that_is_asked_for(bags, method):
    prototypes = Panther(n_prototypes=3, random_state=0).fit(bags).prototypes_
    assert panther.embed(bags[0], prototypes, method).assignment is None
    one = panther.embed(bags[0], prototypes, method, with_assignment=True)
    assert one.assignment.shape == (len(bags[0]), 3)


def test_coordinates_of_a_bag_are_an_array_that_is_read_when_asked_for(tmp_path):
    x, coords = features()
    path = write(tmp_path, "TRIDENT h5", x, coords)
    bag = panther.open_bag(path)
    assert isinstance(bag.coords, np.ndarray)
    np.testing.assert_array_equal(bag.coords, coords)
    assert bag.coords is bag.coords  # read once
    lazy = panther.open_bag(path)
    path.unlink()
    with pytest.raises(OSError, match="No such file"):
        _ = lazy.coords
    np.save(tmp_path / "plain.npy", x)
    assert panther.open_bag(tmp_path / "plain.npy").coords is None


def test_the_order_of_the_bags_does_not_matter(bags):
    bags = [bag + 0.1 * index for index, bag in enumerate(bags)]
    usual = Panther(3, random_state=0, sample=100).fit(bags)
    turned = Panther(3, random_state=0, sample=100).fit(bags[::-1])
    assert torch.equal(usual.prototypes_.centroids, turned.prototypes_.centroids)
    assert np.array_equal(usual.transform(bags), turned.transform(bags))
