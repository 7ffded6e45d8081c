"""Contents of a folder: recognised by what files hold, in every layout of the field, without opening all of them or following links."""

import os
import pickle
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import panther
from panther.errors import InputError
from panther.storage.files import write_json
from panther.storage.survey import survey
from panther.viewer import contents as contents_module
from panther.viewer.contents import MANY, Contents, Inputs, find_contents, load_set
from panther.viewer.workbench import Workbench
from slides.test_ome_zarr import write_image
from storage.test_wsidata import make_store
from viewer.asking import entered, picture

RNG = np.random.default_rng(0)


def h5(path: Path, encoder: str | None = "uni", dim: int = 8, magnification: int = 20, name: str = "features") -> Path:
    """A file of features with coordinates; TRIDENT's where the encoder is named, CLAM's where not."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        features = file.create_dataset(name, data=RNG.normal(size=(20, dim)).astype(np.float32))
        coords = file.create_dataset("coords", data=np.stack(np.divmod(np.arange(20), 5), 1) * 256)
        if encoder is not None:
            features.attrs["encoder"] = encoder
            coords.attrs.update(patch_size=256, patch_size_level0=256, target_magnification=magnification)
    return path


def coordinates(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        file["coords"] = np.zeros((20, 2), int)


def prototypes(path: Path, encoder: str = "uni", dim: int = 8) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    centroids = torch.from_numpy(RNG.normal(size=(3, dim)).astype(np.float32))
    panther.save_prototypes(panther.Prototypes(centroids, encoder=encoder), path)
    return path


def feature_folders(contents: Contents) -> set[Path]:
    return {file.parent for slide in contents.slides.values() if slide.features for file in slide.features.files}


# --- layouts ---------------------------------------------------------------------------------------------------------


def test_trident(tmp_path):
    job = tmp_path / "20x_256px_0px_overlap"
    for name in "AB":
        h5(job / "features_uni" / f"{name}.h5")
        coordinates(job / "patches" / f"{name}_patches.h5")
    (tmp_path / "contours_geojson").mkdir()
    (tmp_path / "contours_geojson" / "A.geojson").write_text("{}")
    contents = find_contents(tmp_path)
    assert (list(contents.slides), contents.notes) == (["A", "B"], ())
    assert feature_folders(contents) == {job / "features_uni"}
    assert contents.slides["A"].contours == tmp_path / "contours_geojson" / "A.geojson"


def test_clam_keeps_each_slide_three_times_and_the_one_with_coordinates_is_taken(tmp_path):
    (tmp_path / "feats" / "pt_files").mkdir(parents=True)
    for name in "AB":
        h5(tmp_path / "feats" / "h5_files" / f"{name}.h5", encoder=None)
        torch.save(torch.zeros(20, 8), tmp_path / "feats" / "pt_files" / f"{name}.pt")
        coordinates(tmp_path / "patches" / f"{name}.h5")
    contents = find_contents(tmp_path)
    assert list(contents.slides) == ["A", "B"]
    assert feature_folders(contents) == {tmp_path / "feats" / "h5_files"}


def test_a_cohort_with_everything(cohort_folder, client):
    contents = find_contents(cohort_folder)
    assert (len(contents.slides), contents.title, contents.notes) == (6, "cohort", ())
    assert contents.table is not None
    assert contents.names == cohort_folder / "names.yaml"
    assert contents.embeddings == cohort_folder / "slides.h5ad"
    page = client.get("/api/contents").get_json()
    assert [slide["name"] for slide in page["slides"]] == [f"S{i}" for i in range(6)]
    assert [slide["image"] for slide in page["slides"]] == [True] * 3 + [False] * 3
    assert page["prototypes"] == [{"name": "prototypes", "count": 3}]
    assert page["slides"][1]["patient"] == "P0"


def test_features_or_slides_alone_a_folder_or_a_file(tmp_path, written_cohort):
    file = h5(tmp_path / "A.h5")
    for place in (tmp_path, file):
        contents = find_contents(place)
        assert (list(contents.slides), contents.slides["A"].image) == (["A"], None)
        assert (contents.prototypes, contents.names) == ({}, tmp_path / "names.yaml")
    slides = written_cohort / "slides"
    assert list(find_contents(slides).slides) == ["S0", "S1", "S2"]
    contents = find_contents(slides / "S0.tif")
    assert (list(contents.slides), contents.slides["S0"].features) == (["S0"], None)
    with Workbench(contents).image("S0") as slide:
        assert slide.dimensions == (1500, 1130)


# --- choices ---------------------------------------------------------------------------------------------------------


def test_of_several_encoders_the_prototypes_choose_and_a_note_lists_the_others(tmp_path):
    for name in "ABC":
        h5(tmp_path / "features_uni" / f"{name}.h5", "uni")
    h5(tmp_path / "features_conch" / "A.h5", "conch", dim=6)
    assert feature_folders(find_contents(tmp_path)) == {tmp_path / "features_uni"}  # most slides
    prototypes(tmp_path / "p.safetensors", "conch", dim=6)
    contents = find_contents(tmp_path)
    assert feature_folders(contents) == {tmp_path / "features_conch"}
    assert "uni" in contents.notes[0]
    assert "--features" in contents.notes[0]
    chosen = find_contents(tmp_path, Inputs(features=tmp_path / "features_uni"))
    assert feature_folders(chosen) == {tmp_path / "features_uni"}
    assert chosen.notes == ()


def test_two_resolutions_of_one_encoder_are_not_mixed(tmp_path):
    for name in "AB":
        h5(tmp_path / "20x" / f"{name}.h5", magnification=20)
    h5(tmp_path / "10x" / "A.h5", magnification=10)
    contents = find_contents(tmp_path)
    assert feature_folders(contents) == {tmp_path / "20x"}
    assert "1 um/px" in contents.notes[0]


def test_parts_of_one_cohort_in_several_folders_belong_together(tmp_path):
    h5(tmp_path / "train" / "A.h5")
    h5(tmp_path / "test" / "B.h5")
    contents = find_contents(tmp_path)
    assert (list(contents.slides), contents.notes) == (["A", "B"], ())


def test_sets_of_prototypes_of_one_name_are_distinguished_by_their_folders(tmp_path):
    h5(tmp_path / "A.h5")
    for place in ("p", "runs/one/p", "runs/two/p", "runs/q.v2"):
        prototypes(tmp_path / f"{place}.safetensors")
    contents = find_contents(tmp_path)
    assert next(iter(contents.prototypes.values())) == tmp_path / "p.safetensors"
    assert set(contents.prototypes) == {f"{tmp_path.name}/p", "one/p", "two/p", "q.v2"}
    bench = Workbench(contents)
    assert [len(bench.prototypes(name)) for name in contents.prototypes] == [3, 3, 3, 3]


def test_explicit_prototypes_take_precedence_and_are_no_slides(tmp_path):
    h5(tmp_path / "A.h5")
    prototypes(tmp_path / "other.safetensors")
    np.save(tmp_path / "explicit.npy", RNG.normal(size=(5, 8)).astype(np.float32))
    contents = find_contents(tmp_path, Inputs(prototypes=(tmp_path / "explicit.npy",)))
    assert (list(contents.prototypes), list(contents.slides)) == (["explicit"], ["A"])


def test_a_model_brings_its_prototypes_unless_they_are_there(cohort_folder):
    table, features = cohort_folder / "cohort.csv", cohort_folder / "features"
    two, shared = cohort_folder / "two.safetensors", cohort_folder / "shared.safetensors"
    usual = cohort_folder / "prototypes.safetensors"
    panther.train(features, table, label="subtype", prototypes=usual, output=shared)
    panther.train(features, table, label="subtype", n_prototypes=2, output=two)
    contents = find_contents(cohort_folder)
    assert set(contents.models) == {"two", "shared"}
    assert list(contents.prototypes) == ["prototypes", "two (model)"]
    assert len(load_set(two)) == 2
    assert Workbench(contents).patches("S0", "two (model)").assignment.shape[1] == 2


def test_pickles_of_the_published_code_are_prototypes(tmp_path):
    h5(tmp_path / "A.h5", encoder=None)
    (tmp_path / "prototypes_c4.pkl").write_bytes(pickle.dumps({"prototypes": np.zeros((1, 4, 8), np.float32)}))
    (tmp_path / "other.pkl").write_bytes(pickle.dumps({"a": 1}))
    assert list(find_contents(tmp_path).prototypes) == ["prototypes_c4"]


def test_a_table_without_any_of_the_slides_is_passed_over(tmp_path):
    h5(tmp_path / "A.h5")
    (tmp_path / "a.csv").write_text("slide_id,case_id\nX,P\n")
    (tmp_path / "b.csv").write_bytes(b"\xff\xfe\x00broken")
    (tmp_path / "c.csv").write_text("slide_id,case_id,grade\nA,P,1\n")
    contents = find_contents(tmp_path)
    assert contents.slides["A"].patient == "P"
    assert list(contents.table.rows.columns) == ["slide_id", "case_id", "grade"]
    explicit = find_contents(tmp_path, Inputs(table=tmp_path / "a.csv"))
    assert explicit.notes == (f"{tmp_path / 'a.csv'}: 0 of the 1 slides are in the table.",)


# --- files that are not opened ---------------------------------------------------------------------------------------


def test_thousands_of_slides_are_listed_without_opening_each(tmp_path, monkeypatch):
    first = h5(tmp_path / "features" / "S0000.h5")
    for number in range(1, 3000):
        os.link(first, tmp_path / "features" / f"S{number:04d}.h5")
    opened, original = [], h5py.File
    monkeypatch.setattr(h5py, "File", lambda path, *more, **options: opened.append(path) or original(path, *more, **options))  # fmt: skip
    assert len(find_contents(tmp_path).slides) == 3000
    assert len(opened) <= 10


def test_many_safetensors_are_features_and_few_are_opened(tmp_path, monkeypatch):
    opened = []
    monkeypatch.setattr(contents_module, "survey", lambda file: opened.append(file) or survey(file))
    for number in range(MANY + 50):
        save_file({"features": torch.zeros(4, 8)}, tmp_path / f"S{number:03d}.safetensors")
    assert len(find_contents(tmp_path).slides) == MANY + 50
    assert len(opened) <= MANY + 10


def test_the_first_files_may_be_damaged(tmp_path):
    for name in "ABCDEFGH":
        h5(tmp_path / f"{name}.h5")
    for name in "ABC":
        (tmp_path / f"{name}.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + b"\0" * 100)
    assert len(find_contents(tmp_path).slides) == 8
    for name in "DEFGH":
        (tmp_path / f"{name}.h5").write_bytes(b"")
    contents = find_contents(tmp_path)
    assert len(contents.slides) == 8  # the page of each says what is wrong with it
    assert "A.h5" in Workbench(contents).patches("A").notes[0]


def test_results_are_not_searched_for_features(cohort_folder):
    run = cohort_folder / "run"
    for folder in (cohort_folder / "atlas", cohort_folder / "km", run / "cache"):
        folder.mkdir(parents=True)
        np.save(folder / "array.npy", np.zeros((3, 3), np.float32))
    for file in ("atlas/atlas.json", "km/km.json", "run/run.json", "run/study.json"):
        write_json(cohort_folder / file, {})
    contents = find_contents(cohort_folder)
    assert "array" not in contents.slides
    assert contents.studies == {"run": run}
    assert set(contents.artefacts) == {"atlas", "km"}


def test_results_in_the_folder_itself_do_not_hide_its_slides(cohort_folder):
    write_json(cohort_folder / "km.json", {})
    contents = find_contents(cohort_folder)
    assert (len(contents.slides), contents.artefacts["km"]) == (6, (cohort_folder,))


def test_a_study_without_slides_is_refused(tmp_path):
    write_json(tmp_path / "run.json", {})
    write_json(tmp_path / "study.json", {})
    with pytest.raises(InputError, match="`study=`"):
        find_contents(tmp_path)


def test_two_images_of_one_name_are_both_left_out_and_hidden_ones_are_none(cohort_folder):
    shutil.copytree(cohort_folder / "slides", cohort_folder / "masks")
    shutil.copy(cohort_folder / "slides" / "S0.tif", cohort_folder / ".S8.tif")
    contents = find_contents(cohort_folder)
    assert set(contents.slides) == {f"S{i}" for i in range(6)}
    assert contents.slides["S0"].image is None
    assert "S0" in contents.notes[0]
    chosen = find_contents(cohort_folder, Inputs(slides=cohort_folder / "slides"))
    assert chosen.slides["S0"].image == cohort_folder / "slides" / "S0.tif"


def test_a_folder_that_cannot_be_listed_is_noted(tmp_path, monkeypatch):
    h5(tmp_path / "A.h5")
    (tmp_path / "locked").mkdir()
    original = os.scandir

    def scandir(path):
        if str(path).endswith("locked"):
            raise PermissionError(13, "Permission denied", str(path))
        return original(path)

    monkeypatch.setattr(os, "scandir", scandir)
    contents = find_contents(tmp_path)
    assert list(contents.slides) == ["A"]
    assert str(tmp_path / "locked") in contents.notes[0]


# --- links out of the opened folders ---------------------------------------------------------------------------------


def replace_by_link(file: Path, outside: Path) -> None:
    """Move a file out of the folder and leave a link to it."""
    file.symlink_to(file.rename(outside / file.name))


OUTSIDE = {  # file that is a link out of the folder -> what is left of it
    "features/S5.h5": lambda contents: contents.slides.get("S5"),
    "slides/S0.tif": lambda contents: contents.slides["S0"].image,
    "contours_geojson/S0.geojson": lambda contents: contents.slides["S0"].contours,
    "atlas/atlas.json": lambda contents: contents.artefacts.get("atlas"),
    "prototypes.safetensors": lambda contents: contents.prototypes,
    "cohort.csv": lambda contents: contents.table,
    "slides.h5ad": lambda contents: contents.embeddings,
}


@pytest.mark.parametrize("file", OUTSIDE)
def test_a_link_out_of_the_folder_is_left_out_and_noted_unless_it_is_allowed(cohort_folder, outside, file):
    if not (cohort_folder / file).exists():
        (cohort_folder / file).parent.mkdir()
        (cohort_folder / file).write_text("{}")
    assert OUTSIDE[file](find_contents(cohort_folder))
    replace_by_link(cohort_folder / file, outside)
    contents = find_contents(cohort_folder)
    assert not OUTSIDE[file](contents)
    assert f"--allow-folder {outside}" in " ".join(contents.notes)
    allowed = find_contents(cohort_folder, Inputs(allow_folders=(outside,)))
    assert OUTSIDE[file](allowed)
    assert allowed.notes == ()


def test_folders_and_names_behind_links_are_not_used_and_a_link_onto_itself_hides_nothing(cohort_folder, outside):
    (cohort_folder / "features" / "loop").symlink_to("loop")
    shutil.copy(cohort_folder / "features" / "S0.h5", outside / "S9.h5")
    (cohort_folder / "more").symlink_to(outside, target_is_directory=True)
    link = cohort_folder / "slides" / "S0.tif"
    replace_by_link(link, outside)
    assert len(find_contents(cohort_folder).slides) == 6
    assert find_contents(link).slides["S0"].image == link  # an explicit one may be a link
    replace_by_link(cohort_folder / "names.yaml", outside)  # it would be written
    with pytest.raises(InputError, match="names"):
        find_contents(cohort_folder)
    assert find_contents(cohort_folder, Inputs(names=cohort_folder / "names.yaml")).names.name == "names.yaml"


@pytest.mark.parametrize("file", ["features/S0.h5", "slides/S0.tif"])
def test_a_file_that_becomes_a_link_after_the_start_is_refused(bench, cohort_folder, outside, file):
    replace_by_link(cohort_folder / file, outside)
    with pytest.raises(InputError, match="link out of the opened folders"):
        bench.patches("S0")
    if file.startswith("slides"):
        with pytest.raises(InputError, match="link out of the opened folders"), bench.image("S0"):
            pass


@pytest.mark.filterwarnings("ignore:zarr v3 autosharding")
def test_a_store_of_wsidata_is_shown_over_an_ome_zarr_slide(tmp_path):
    make_store(tmp_path / "s.zarr")
    write_image(tmp_path / "s.ome.zarr", "0.5", pixels=np.full((1400, 1600, 3), 180, np.uint8))
    prototypes(tmp_path / "p.safetensors")
    contents = find_contents(tmp_path)
    assert list(contents.slides) == ["s"]  # the image is no features of another slide
    client = entered(contents)
    shown = client.get("/api/slides/s").get_json()
    assert (shown["width"], shown["height"], shown["image"], shown["patches"]) == (1600, 1400, True, 30)
    assert abs(picture(client, "/tiles/s/patch/3.jpg", "RGB").astype(int) - 180).max() < 3
    assert client.get("/layers/s/prototypes/3/1/1.png").status_code == 200
