"""Which files of a folder are the slides of a cohort."""

import pickle

import h5py
import numpy as np
import pytest
import torch

from panther.errors import InputError
from panther.storage.bags import BagRef, Reading, as_bags, group_by_patient, list_bags
from panther.storage.survey import files_of, survey, twice
from panther.types import Bag


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


def test_clams_root_is_one_bag_a_slide_with_its_coordinates_and_a_note(tmp_path, features):
    for name in ("a", "b"):
        clam(tmp_path, name, features)
    with pytest.warns(UserWarning, match="2 slides"):
        listing = list_bags(tmp_path)
    assert [ref.sample for ref in listing.refs] == ["a", "b"]
    assert listing.problems == {}
    assert all(ref.open().coords is not None for ref in listing.refs)


@pytest.mark.filterwarnings("ignore:.*several files of the same features")
def test_copies_that_differ_are_refused_by_name_and_the_other_slides_are_used(tmp_path, features):
    clam(tmp_path, "other", features, copy=features + 1)
    with pytest.raises(InputError, match=r"other.*h5_files.*pt_files"):
        list_bags(tmp_path)
    clam(tmp_path, "same", features)
    for listing in (list_bags(tmp_path), as_bags([tmp_path])):
        assert [ref.sample for ref in listing.refs] == ["same"]
        assert list(listing.problems) == ["other"]
    assert list(twice(tmp_path, {path: survey(path) for path in files_of(tmp_path)})) == ["other"]


def numbers(names, rows=4):
    return {name: np.full((rows, 3), index, "f4") for index, name in enumerate(names)}


# the same bags in every way in which a function takes them: of a folder and arrays by name
WAYS = {
    "folder": lambda folder, arrays: folder,
    "folder as text": lambda folder, arrays: str(folder),
    "list of files": lambda folder, arrays: [folder / f"{name}.npy" for name in arrays],
    "list of bags": lambda folder, arrays: [Bag(name, torch.from_numpy(x)) for name, x in arrays.items()],
    "list of references": lambda folder, arrays: [BagRef(name, (folder / f"{name}.npy",)) for name in arrays],
    "mapping of arrays": lambda folder, arrays: arrays,
    "mapping of tensors": lambda folder, arrays: {name: torch.from_numpy(x) for name, x in arrays.items()},
    "mapping of files": lambda folder, arrays: {name: folder / f"{name}.npy" for name in arrays},
    "listing": lambda folder, arrays: list_bags(folder),
    "generator": lambda folder, arrays: (folder / f"{name}.npy" for name in arrays),
}


def bags_in(way, folder, arrays):
    for name, x in arrays.items():
        np.save(folder / f"{name}.npy", x)
    return WAYS[way](folder, arrays)


@pytest.mark.parametrize("way", WAYS)
def test_bags_of_files_arrays_and_references_are_equal(tmp_path, way):
    arrays = numbers("ab")
    listing = as_bags(bags_in(way, tmp_path, arrays), Reading("uni", allow_mixed_resolution=True))
    assert [ref.sample for ref in listing] == ["a", "b"]
    assert (len(listing), listing.problems) == (2, {})
    for ref, x in zip(listing.refs, arrays.values(), strict=True):
        bag = pickle.loads(pickle.dumps(ref)).open()
        assert (bag.encoder, bag.allow_mixed_resolution) == ("uni", True)
        np.testing.assert_array_equal(bag.features[:].numpy(), x)


@pytest.mark.parametrize(
    ("bags", "culprit"),
    [
        (np.zeros((3, 2), "f4"), "features"),
        (Bag("a", torch.zeros(3, 2)), "features"),
        (3, "features"),
        ([np.zeros((2, 3, 2), "f4")], r"\(2, 3, 2\)"),
        ([np.zeros((3, 2), int)], "int64"),
        ([Bag("a", torch.zeros(3, 2)), Bag("a", torch.zeros(3, 2))], "'a'"),
        (["nowhere.h5"], r"nowhere\.h5"),
    ],
)
def test_other_values_are_refused_as_lists_of_bags(bags, culprit):
    with pytest.raises(InputError, match=culprit):
        as_bags(bags)


@pytest.mark.parametrize("way", ["folder", "mapping of arrays"])
def test_slides_of_a_patient_are_one_bag_from_files_or_memory(tmp_path, way):
    arrays = numbers("abc")
    grouped, unknown = group_by_patient(as_bags(bags_in(way, tmp_path, arrays)), {"a": "P1", "c": "P1"})
    assert unknown == ["b"]
    (patient,) = grouped.refs
    assert patient.sample == "P1"
    np.testing.assert_array_equal(patient.open().features[:].numpy(), np.concatenate([arrays["a"], arrays["c"]]))
    assert patient.open().lengths == (len(arrays["a"]), len(arrays["c"]))


def test_an_output_folder_that_links_onto_itself_hides_no_bag(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    np.save(tmp_path / "a.npy", np.ones((2, 3), np.float32))
    (tmp_path / "inside").mkdir()
    np.save(tmp_path / "inside" / "b.npy", np.ones((2, 3), np.float32))
    assert [ref.sample for ref in list_bags(tmp_path, leave_out=tmp_path / "loop").refs] == ["a", "b"]
    assert [ref.sample for ref in list_bags(tmp_path, leave_out=tmp_path / "inside").refs] == ["a"]
