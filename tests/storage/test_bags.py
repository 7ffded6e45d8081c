"""Which files of a folder are the slides of a cohort."""

import h5py
import numpy as np
import pytest
import torch

from panther.errors import InputError
from panther.storage.bags import list_bags
from panther.storage.survey import files_of, survey, twice


def clam(root, name, x, *, copy=None):
    """A slide as CLAM keeps it: coordinates, features with coordinates, and the features once more."""
    for folder in ("patches", "h5_files", "pt_files"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    coords = np.arange(2 * len(x)).reshape(-1, 2)
    with h5py.File(root / "patches" / f"{name}.h5", "w") as file:
        file["coords"] = coords
    with h5py.File(root / "h5_files" / f"{name}.h5", "w") as file:
        file["features"], file["coords"] = x, coords
    torch.save(torch.from_numpy(x if copy is None else copy), root / "pt_files" / f"{name}.pt")


@pytest.fixture
def features():
    return np.random.default_rng(0).normal(size=(30, 4)).astype("f4")


def test_clams_root_is_one_bag_a_slide_with_its_coordinates(tmp_path, features):
    for name in ("a", "b"):
        clam(tmp_path, name, features)
    listing = list_bags(tmp_path)
    assert [ref.sample for ref in listing.refs] == ["a", "b"]
    assert listing.problems == {}
    assert all(ref.open().coords is not None for ref in listing.refs)


def test_copies_that_differ_are_refused_by_name_and_the_rest_is_used(tmp_path, features):
    clam(tmp_path, "same", features)
    clam(tmp_path, "other", features, copy=features + 1)
    listing = list_bags(tmp_path)
    assert [ref.sample for ref in listing.refs] == ["same"]
    assert "h5_files" in listing.problems["other"]
    assert "pt_files" in listing.problems["other"]


def test_a_folder_of_nothing_but_differing_copies_is_refused_whole(tmp_path, features):
    clam(tmp_path, "other", features, copy=features[:, :3].copy())
    with pytest.raises(InputError, match=r"no slide can be used\. .* more than once"):
        list_bags(tmp_path)


def test_what_is_listed_as_one_slide_is_surveyed_as_one(tmp_path, features):
    clam(tmp_path, "same", features)
    clam(tmp_path, "other", features, copy=features + 1)
    found = {path: survey(path) for path in files_of(tmp_path)}
    assert list(twice(tmp_path, found)) == ["other"]
