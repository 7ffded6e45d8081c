"""What is found below a folder: by what files hold, in every layout of the field, without opening all of them."""

import os
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

import panther
from cli.running import Runner
from panther.errors import InputError
from panther.storage.files import write_json
from panther.viewer.contents import Contents, Given, find_contents, load_set
from panther.viewer.found import MANY
from panther.viewer.workbench import Workbench

RNG = np.random.default_rng(0)


def h5(
    path: Path, encoder: str | None = "uni", dim: int = 8, magnification: int = 20, features: str = "features"
) -> Path:
    """A file of features with coordinates; TRIDENT's where the encoder is named, CLAM's where not."""
    path.parent.mkdir(parents=True, exist_ok=True)
    corners = np.stack(np.divmod(np.arange(20), 5), 1) * 256
    with h5py.File(path, "w") as file:
        values = file.create_dataset(features, data=RNG.normal(size=(20, dim)).astype(np.float32))
        coords = file.create_dataset("coords", data=corners)
        if encoder is not None:
            values.attrs["encoder"] = encoder
            coords.attrs.update(patch_size=256, patch_size_level0=256, target_magnification=magnification)
    return path


def coordinates(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        file["coords"] = np.zeros((20, 2), int)


def prototypes(path: Path, encoder: str | None = "uni", dim: int = 8, count: int = 3) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    centroids = torch.from_numpy(RNG.normal(size=(count, dim)).astype(np.float32))
    panther.save_prototypes(panther.Prototypes(centroids, encoder=encoder), path)
    return path


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
    chosen = find_contents(tmp_path, Given(features=tmp_path / "features_uni"))
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
    found = find_contents(tmp_path, Given(prototypes=(tmp_path / "given.npy",)))
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

    from panther.viewer import found as module

    looked = []
    original = module._kind
    monkeypatch.setattr(module, "_kind", lambda file: looked.append(file) or original(file))
    for number in range(MANY + 50):
        save_file({"features": torch.zeros(4, 8)}, tmp_path / f"S{number:03d}.safetensors")
    assert len(find_contents(tmp_path).slides) == MANY + 50
    assert len(looked) <= MANY + 1


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


def test_results_are_not_looked_into_for_features(cohort_folder):
    for kind, name in (("atlas", "atlas.json"), ("km", "km.json")):
        (cohort_folder / kind).mkdir()
        write_json(cohort_folder / kind / name, {})
        np.save(cohort_folder / kind / "array.npy", np.zeros((3, 3), np.float32))
    run = cohort_folder / "run"
    (run / "cache").mkdir(parents=True)
    np.save(run / "cache" / "array.npy", np.zeros((3, 3), np.float32))
    write_json(run / "run.json", {})
    write_json(run / "study.json", {})
    found = find_contents(cohort_folder)
    assert "array" not in found.slides
    assert found.studies == {"run": run}
    assert set(found.artefacts) == {"atlas", "km"}


def test_results_in_the_folder_itself_do_not_close_it(cohort_folder):
    write_json(cohort_folder / "km.json", {})
    found = find_contents(cohort_folder)
    assert len(found.slides) == 6
    assert found.artefacts["km"] == (cohort_folder,)


def test_a_study_alone_is_told_what_is_missing(tmp_path):
    write_json(tmp_path / "run.json", {})
    write_json(tmp_path / "study.json", {})
    with pytest.raises(InputError, match="`study=`"):
        find_contents(tmp_path)


def test_two_images_of_one_name_are_both_left_out_and_said(cohort_folder):
    shutil.copytree(cohort_folder / "slides", cohort_folder / "masks")
    found = find_contents(cohort_folder)
    assert found.slides["S0"].image is None
    assert "two slides have this name" in found.notes[0]
    chosen = find_contents(cohort_folder, Given(slides=cohort_folder / "slides"))
    assert chosen.slides["S0"].image == cohort_folder / "slides" / "S0.tif"


def test_a_table_that_knows_none_of_the_slides_is_passed_over(tmp_path):
    h5(tmp_path / "A.h5")
    (tmp_path / "a.csv").write_text("slide_id,case_id\nX,P\n")
    (tmp_path / "b.csv").write_bytes(b"\xff\xfe\x00broken")
    (tmp_path / "c.csv").write_text("slide_id,case_id,grade\nA,P,1\n")
    found = find_contents(tmp_path)
    assert found.table is not None
    assert found.slides["A"].patient == "P"
    assert list(found.table.rows.columns) == ["slide_id", "case_id", "grade"]
    told = find_contents(tmp_path, Given(table=tmp_path / "a.csv"))
    assert told.notes == (f"{tmp_path / 'a.csv'}: 0 of the 1 slides are in the table.",)


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is locked for the superuser")
def test_a_locked_folder_is_said_for_a_person(tmp_path):
    h5(tmp_path / "A.h5")
    (tmp_path / "locked").mkdir()
    (tmp_path / "locked").chmod(0)
    assert "cannot be listed" in find_contents(tmp_path).notes[0]
    (tmp_path / "locked").chmod(0o700)


def test_a_folder_that_cannot_be_listed_is_said(tmp_path, monkeypatch):
    h5(tmp_path / "A.h5")
    (tmp_path / "locked").mkdir()
    original = os.scandir

    def scandir(path):
        if str(path).endswith("locked"):
            raise PermissionError(13, "Permission denied", str(path))
        return original(path)

    monkeypatch.setattr(os, "scandir", scandir)
    found = find_contents(tmp_path)
    assert list(found.slides) == ["A"]
    assert "cannot be listed" in found.notes[0]


def test_hidden_files_and_pictures_of_maps_are_no_slides(cohort_folder):
    shutil.copy(cohort_folder / "slides" / "S0.tif", cohort_folder / "S9.overlay.tif")
    shutil.copy(cohort_folder / "slides" / "S0.tif", cohort_folder / ".S8.tif")
    assert set(find_contents(cohort_folder).slides) == {f"S{i}" for i in range(6)}


@pytest.fixture
def command(monkeypatch, capsys):
    return Runner(monkeypatch, capsys)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["nowhere"], "nowhere: there is no such file or folder"),
        (["empty"], "neither slides nor features"),
        (["cohort", "-p", "none.safetensors"], "none.safetensors: cannot be read"),
        (["cohort", "-p", "cohort/cohort.csv"], "not a prototype file"),
        (["cohort", "--model", "cohort/prototypes.safetensors"], "not of a model"),
        (["cohort", "--features", "none"], "none: there is no such file or folder"),
        (["cohort", "--slides", "none"], "none: there is no such file or folder"),
        (["cohort", "--slides", "empty"], "no slides found"),
        (["cohort", "--study", "cohort"], "not the folder of a run"),
        (["cohort", "--table", "none.csv"], "there is no such table"),
        (["cohort", "--table", "cohort/cohort.csv", "--slide-column", "no"], "no slide column 'no'"),
        (["cohort", "--embeddings", "cohort/cohort.csv"], "these are no embeddings"),
        (["cohort", "--embeddings", "none.h5ad"], "none.h5ad"),
        (["cohort", "--names", "none/names.yaml"], "there is no folder none"),
        (["cohort", "--allow-folder", "none"], "none: there is no such file or folder"),
        (["cohort", "--prefix", "a b"], "not a path of an address"),
        (["cohort", "--host", "http://x"], "not the name of a host"),
        (["cohort", "--allow-host", "a/b"], "not the name of a host"),
        (["cohort", "--slide-mpp-table", "none.csv"], "none.csv"),
    ],
)
def test_a_wrong_option_is_one_sentence_and_exit_code_2(command, cohort_folder, monkeypatch, options, said):
    monkeypatch.chdir(cohort_folder.parent)
    Path("empty").mkdir()
    out, err = command("view", *options, "--no-browser", "-j", 1, code=2)
    assert out == ""
    assert said in err
    assert len([line for line in err.splitlines() if "at work" not in line]) == 1
