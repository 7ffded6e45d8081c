"""Bags and prototypes made by hand, of arrays."""

import numpy as np
import pytest
import torch

import panther
from panther.errors import InputError
from panther.storage.readers import open_bag
from panther.types import Concatenated

X = np.random.default_rng(0).normal(size=(6, 3)).astype("f4")
CORNERS = np.arange(12).reshape(6, 2) * 256
EYE = panther.Prototypes(torch.eye(3))


@pytest.mark.parametrize("given", [X, X[None], X[::-1].copy()[::-1], torch.from_numpy(X), torch.from_numpy(X)[None]])
def test_a_bag_of_an_array_is_embedded_as_the_array(given):
    bag = panther.Bag("a", given)
    assert (len(bag), bag.dim) == (6, 3)
    assert torch.equal(panther.embed(bag, EYE).vector, panther.embed(X, EYE).vector)


@pytest.mark.parametrize(
    "places", [CORNERS, torch.from_numpy(CORNERS), CORNERS.tolist(), lambda: torch.from_numpy(CORNERS)]
)
def test_places_are_an_array_or_a_function(places):
    np.testing.assert_array_equal(panther.Bag("a", X, places).coords, CORNERS)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ((X[0],), "Bag a: "),
        ((None,), "Bag a: "),
        ((X, CORNERS[:4]), r"places of bag a.*\(6, 2\)"),
        ((X, "somewhere"), "places of bag a"),
    ],
)
def test_what_is_no_bag_is_refused_when_it_is_made(given, sentence):
    with pytest.raises(InputError, match=sentence):
        panther.Bag("a", *given)


def test_what_is_read_lazily_stays_on_disk(tmp_path, monkeypatch):
    np.save(tmp_path / "a.npy", X)
    rows = Concatenated((open_bag(tmp_path / "a.npy").features,))
    monkeypatch.setattr(Concatenated, "__getitem__", lambda *_: pytest.fail("it was read"))
    assert panther.Bag("a", rows).features is rows


@pytest.mark.parametrize(
    "given", [np.eye(3, dtype="f4"), np.eye(3, dtype="f4")[None], torch.eye(3)[None], np.eye(3).tolist()]
)
def test_prototypes_of_an_array_are_prototypes(given):
    expected = panther.embed(X, EYE).vector
    assert torch.equal(panther.embed(X, panther.Prototypes(given)).vector.float(), expected)
    assert torch.equal(panther.embed(X, given).vector.float(), expected)


def test_what_belongs_to_prototypes_may_be_arrays_too():
    made = panther.Prototypes(np.eye(3), np.ones(3), np.arange(3))
    assert torch.equal(made.within_variance, torch.ones(3, dtype=torch.float64))
    panther.embed(X, made, preset="calibrated")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (np.full((2, 3), np.nan), "prototypes: "),
        (np.zeros((2, 2, 3)), "prototypes: "),
        (np.zeros((0, 3)), "prototypes: "),
        (3, "prototypes: "),
    ],
)
def test_what_is_no_set_of_prototypes_is_refused_as_such(given, sentence):
    for use in (panther.Prototypes, lambda one: panther.embed(X, one)):
        with pytest.raises(InputError, match=sentence):
            use(given)
