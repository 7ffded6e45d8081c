"""Bags and prototypes of arrays, as notebooks have them: the same numbers are the same bag, anything else is refused in a sentence."""

import warnings

import h5py
import numpy as np
import pandas as pd
import pytest
import torch

import panther
from panther.errors import InputError
from panther.storage.bags import as_bag, as_bags
from panther.storage.readers import open_bag
from panther.types import Concatenated

X = np.random.default_rng(0).normal(size=(6, 3)).astype("f4")
CORNERS = np.arange(12).reshape(6, 2) * 256
EYE = panther.Prototypes(torch.eye(3))
WAYS = {
    "of torch": torch.from_numpy(X),
    "in a list": X.tolist(),
    "in a data frame": pd.DataFrame(X),
    "in a data frame of pandas' own types": pd.DataFrame(X).astype("Float32"),
    "turned around": X[::-1].copy()[::-1],
    "of another byte order": X.astype(">f4"),
    "as one field of records": np.rec.fromarrays([X, np.zeros((6, 3), "i1")]).f0,
    "by columns": np.asfortranarray(X),
    "with one in front": X[None],
    "masked nowhere": np.ma.masked_array(X),
}


@pytest.mark.parametrize("way", WAYS)
def test_the_same_numbers_are_the_same_bag(way):
    np.testing.assert_array_equal(as_bag(WAYS[way]).features[:].numpy(), X)
    expected = panther.embed(X, EYE).vector
    torch.testing.assert_close(panther.embed(panther.Bag("a", WAYS[way]), EYE).vector.float(), expected)


def test_what_is_mapped_from_a_file_is_neither_copied_nor_warned_of(tmp_path):
    np.save(tmp_path / "x.npy", X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        features = as_bag(mapped).features
    assert features.data_ptr() == mapped.__array_interface__["data"][0]
    del mapped
    np.testing.assert_array_equal(features[:].numpy(), X)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["x"] = X
        np.testing.assert_array_equal(as_bag(file["x"]).features[:].numpy(), X)


@pytest.mark.parametrize(
    "arguments",
    [
        np.ma.masked_array(X, X > 0),
        None,
        3.0,
        X.astype(object),
        X.astype(complex),
        np.array([["x"]]),
        [[1.0, 2.0], [3.0]],
        [None],
        pd.DataFrame({"x": [1.0], "slide": ["a"]}),
        pd.DataFrame(X)[0],
    ],
)
def test_values_other_than_matrices_of_numbers_are_refused(arguments):
    with pytest.raises(InputError, match="Bag a: "):
        as_bags({"a": arguments})


def test_a_series_names_its_slides_and_files_in_a_column_name_themselves(tmp_path):
    assert [ref.sample for ref in as_bags(pd.Series({"s7": X, "s9": X})).refs] == ["s7", "s9"]
    assert panther.Panther(2).fit(pd.Series({"s7": X, "s9": X + 1})).transform({"s7": X}).shape == (1, 14)
    for name in "ab":
        np.save(tmp_path / f"{name}.npy", X)
    column = pd.DataFrame({"file": [tmp_path / "a.npy", tmp_path / "b.npy"]})["file"]
    assert [ref.sample for ref in as_bags(column).refs] == ["a", "b"]
    assert [ref.sample for ref in as_bags(column.set_axis(["one", "two"])).refs] == ["one", "two"]
    with pytest.raises(InputError, match="features"):  # a data frame is one bag
        as_bags(pd.DataFrame(X))


@pytest.mark.parametrize(
    "places", [CORNERS, torch.from_numpy(CORNERS), CORNERS.tolist(), lambda: torch.from_numpy(CORNERS)]
)
def test_coordinates_are_an_array_or_a_function(places):
    np.testing.assert_array_equal(panther.Bag("a", X, places).coords, CORNERS)


@pytest.mark.parametrize("arguments", [(X[0],), (None,), (X, CORNERS[:4]), (X, "somewhere")])
def test_an_invalid_bag_is_refused_when_it_is_made(arguments):
    with pytest.raises(InputError, match=r"[Bb]ag a"):
        panther.Bag("a", *arguments)


def test_what_is_read_lazily_stays_on_disk(tmp_path, monkeypatch):
    np.save(tmp_path / "a.npy", X)
    rows = Concatenated((open_bag(tmp_path / "a.npy").features,))
    monkeypatch.setattr(Concatenated, "__getitem__", lambda *_: pytest.fail("it was read"))
    assert panther.Bag("a", rows).features is rows


def test_prototypes_of_an_array_are_prototypes_and_others_are_refused():
    expected = panther.embed(X, EYE).vector
    for eye in (np.eye(3, dtype="f4"), np.eye(3, dtype="f4")[None], torch.eye(3)[None], np.eye(3).tolist()):
        assert torch.equal(panther.embed(X, panther.Prototypes(eye)).vector.float(), expected)
        assert torch.equal(panther.embed(X, eye).vector.float(), expected)
    prototypes = panther.Prototypes(np.eye(3), np.ones(3), np.arange(3))
    assert torch.equal(prototypes.within_variance, torch.ones(3, dtype=torch.float64))
    panther.embed(X, prototypes, preset="calibrated")
    for wrong in (np.full((2, 3), np.nan), np.zeros((2, 2, 3)), np.zeros((0, 3)), 3):
        for use in (panther.Prototypes, lambda one: panther.embed(X, one)):
            with pytest.raises(InputError, match="prototypes"):
                use(wrong)
