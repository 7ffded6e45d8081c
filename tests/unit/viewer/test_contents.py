"""What is found below a folder: by what files hold, in every layout of the field, without opening all of them."""

import os
from pathlib import Path

import h5py
import numpy as np
import torch

import panther
from panther.viewer.contents import MANY, Contents, Inputs, find_contents, load_set
from panther.viewer.workbench import Workbench
from viewer.feature_files import RNG, coordinates, h5, prototypes


def feature_folders(found: Contents) -> set[Path]:
    return {file.parent for one in found.slides.values() if one.features for file in one.features.files}


def test_trident(tmp_path):
    job = tmp_path / "20x_256px_0px_overlap"
    for name in ("A", "B"):
        h5(job / "features_uni" / f"{name}.h5")
        coordinates(job / "patches" / f"{name}_patches.h5")
    (tmp_path / "contours_geojson").mkdir()
    (tmp_path / "contours_geojson" / "A.geojson").write_text("{}")
    found = find_contents(tmp_path)
    assert list(found.slides) == ["A", "B"]
    assert feature_folders(found) == {job / "features_uni"}
    assert found.slides["A"].contours == tmp_path / "contours_geojson" / "A.geojson"
    assert found.notes == ()


def test_clam_keeps_each_slide_three_times_and_the_one_with_coordinates_is_taken(tmp_path):
    for name in ("A", "B"):
        h5(tmp_path / "feats" / "h5_files" / f"{name}.h5", encoder=None)
        (tmp_path / "feats" / "pt_files").mkdir(parents=True, exist_ok=True)
        torch.save(torch.zeros(20, 8), tmp_path / "feats" / "pt_files" / f"{name}.pt")
        coordinates(tmp_path / "patches" / f"{name}.h5")
    found = find_contents(tmp_path)
    assert list(found.slides) == ["A", "B"]
    assert feature_folders(found) == {tmp_path / "feats" / "h5_files"}


def test_stamp(tmp_path):
    for name in ("A", "B"):
        file = h5(tmp_path / "features" / "ctranspath-7c998680" / f"{name}.h5", encoder=None, features="feats")
        with h5py.File(file, "a") as opened:
            opened.attrs.update(extractor="ctranspath", unit="um", tile_size_um=256.0)
    found = find_contents(tmp_path)
    assert list(found.slides) == ["A", "B"]


def test_a_cohort_with_everything(cohort_folder):
    found = find_contents(cohort_folder)
    assert (len(found.slides), found.title, found.notes) == (6, "cohort", ())
    assert found.table is not None
    assert found.slides["S1"].patient == "P0"
    assert found.names == cohort_folder / "names.yaml"
    assert found.embeddings == cohort_folder / "slides.h5ad"


def test_features_alone_a_folder_or_a_file(tmp_path):
    file = h5(tmp_path / "A.h5")
    for place in (tmp_path, file):
        found = find_contents(place)
        assert list(found.slides) == ["A"]
        assert found.slides["A"].image is None
        assert not found.prototypes
        assert found.names == tmp_path / "names.yaml"


def test_one_slide_alone(cohort_folder):
    found = find_contents(cohort_folder / "slides" / "S0.tif")
    assert list(found.slides) == ["S0"]
    assert found.slides["S0"].features is None
    with Workbench(found).image("S0") as slide:
        assert slide.dimensions == (1500, 1130)


def test_slides_alone(cohort_folder):
    found = find_contents(cohort_folder / "slides")
    assert list(found.slides) == ["S0", "S1", "S2"]


def test_of_several_encoders_the_prototypes_choose_and_a_note_tells_of_the_others(tmp_path):
    for name in ("A", "B", "C"):
        h5(tmp_path / "features_uni" / f"{name}.h5", "uni")
    h5(tmp_path / "features_conch" / "A.h5", "conch", dim=6)
    assert feature_folders(find_contents(tmp_path)) == {tmp_path / "features_uni"}  # most slides
    prototypes(tmp_path / "p.safetensors", "conch", dim=6)
    found = find_contents(tmp_path)
    assert feature_folders(found) == {tmp_path / "features_conch"}
    assert "uni" in found.notes[0]
    assert "--features" in found.notes[0]
    chosen = find_contents(tmp_path, Inputs(features=tmp_path / "features_uni"))
    assert feature_folders(chosen) == {tmp_path / "features_uni"}
    assert chosen.notes == ()


def test_two_resolutions_of_one_encoder_are_not_mixed(tmp_path):
    for name in ("A", "B"):
        h5(tmp_path / "20x" / f"{name}.h5", magnification=20)
    h5(tmp_path / "10x" / "A.h5", magnification=10)
    found = find_contents(tmp_path)
    assert feature_folders(found) == {tmp_path / "20x"}
    assert "1 um/px" in found.notes[0]


def test_parts_of_one_cohort_in_several_folders_belong_together(tmp_path):
    h5(tmp_path / "train" / "A.h5")
    h5(tmp_path / "test" / "B.h5")
    found = find_contents(tmp_path)
    assert list(found.slides) == ["A", "B"]
    assert found.notes == ()


def test_several_sets_of_prototypes_have_names_that_tell_them_apart(tmp_path):
    h5(tmp_path / "A.h5")
    for place in ("p", "runs/one/p", "runs/two/p", "runs/q.v2"):
        prototypes(tmp_path / f"{place}.safetensors")
    found = find_contents(tmp_path)
    assert next(path.relative_to(tmp_path).as_posix() for path in found.prototypes.values()) == "p.safetensors"
    assert set(found.prototypes) == {f"{tmp_path.name}/p", "one/p", "two/p", "q.v2"}
    bench = Workbench(found)
    assert [len(bench.prototypes(name)) for name in found.prototypes] == [3, 3, 3, 3]


def test_prototypes_that_are_given_go_before_those_found_and_are_no_slides(tmp_path):
    h5(tmp_path / "A.h5")
    prototypes(tmp_path / "found.safetensors")
    np.save(tmp_path / "given.npy", RNG.normal(size=(5, 8)).astype(np.float32))
    found = find_contents(tmp_path, Inputs(prototypes=(tmp_path / "given.npy",)))
    assert list(found.prototypes) == ["given"]
    assert list(found.slides) == ["A"]


def test_a_model_brings_its_own_prototypes_unless_they_are_there(cohort_folder, monkeypatch):
    table = cohort_folder / "cohort.csv"
    own, shared = cohort_folder / "own.safetensors", cohort_folder / "shared.safetensors"
    features, usual = cohort_folder / "features", cohort_folder / "prototypes.safetensors"
    panther.train(features, table, label="subtype", prototypes=usual, output=shared)
    panther.train(features, table, label="subtype", n_prototypes=2, output=own)
    found = find_contents(cohort_folder)
    assert set(found.models) == {"own", "shared"}
    assert list(found.prototypes) == ["prototypes", "own (model)"]
    assert len(load_set(own)) == 2
    assert Workbench(found).patches("S0", "own (model)").assignment.shape[1] == 2


def test_pickles_of_the_published_code_are_prototypes(tmp_path):
    import pickle

    h5(tmp_path / "A.h5", encoder=None)
    (tmp_path / "prototypes_c4.pkl").write_bytes(pickle.dumps({"prototypes": np.zeros((1, 4, 8), np.float32)}))
    (tmp_path / "other.pkl").write_bytes(pickle.dumps({"a": 1}))
    assert list(find_contents(tmp_path).prototypes) == ["prototypes_c4"]


def test_thousands_of_slides_are_listed_without_opening_each(tmp_path, monkeypatch):
    first = h5(tmp_path / "features" / "S0000.h5")
    for number in range(1, 3000):
        os.link(first, tmp_path / "features" / f"S{number:04d}.h5")
    opened = []
    original = h5py.File
    monkeypatch.setattr(
        h5py, "File", lambda path, *more, **options: opened.append(path) or original(path, *more, **options)
    )
    found = find_contents(tmp_path)
    assert len(found.slides) == 3000
    assert len(opened) <= 10


def test_many_safetensors_are_features_and_not_all_looked_into(tmp_path, monkeypatch):
    from safetensors.torch import save_file

    from panther.storage.survey import survey
    from panther.viewer import contents as module

    looked = []
    monkeypatch.setattr(module, "survey", lambda file: looked.append(file) or survey(file))
    for number in range(MANY + 50):
        save_file({"features": torch.zeros(4, 8)}, tmp_path / f"S{number:03d}.safetensors")
    assert len(find_contents(tmp_path).slides) == MANY + 50
    assert len(looked) <= MANY + 10


def test_the_first_files_may_be_damaged(tmp_path):
    for name in "ABCDEFGH":
        h5(tmp_path / f"{name}.h5")
    for name in "ABC":
        (tmp_path / f"{name}.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + b"\0" * 100)
    found = find_contents(tmp_path)
    assert len(found.slides) == 8
    for name in "DEFGH":
        (tmp_path / f"{name}.h5").write_bytes(b"")
    assert len(find_contents(tmp_path).slides) == 8  # each says what is wrong with it when it is opened
    assert "A.h5" in Workbench(found).patches("A").notes[0]
