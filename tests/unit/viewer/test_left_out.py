"""What below a folder is no slide, no features and no table, and what is said of it."""

import os
import shutil

import numpy as np
import pytest

from panther.errors import InputError
from panther.storage.files import write_json
from panther.viewer.contents import Inputs, find_contents
from viewer.feature_files import h5


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
    chosen = find_contents(cohort_folder, Inputs(slides=cohort_folder / "slides"))
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
    told = find_contents(tmp_path, Inputs(table=tmp_path / "a.csv"))
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
