"""Files that change, disappear or are cut while a viewer shows them: one clear sentence each, and they come back."""

import os
from dataclasses import replace

import h5py
import pytest

from panther.errors import InputError
from viewer.asking import entered, sentence


def test_features_that_are_replaced_are_read_again(bench, cohort_folder):
    whole = len(bench.patches("S0").corners)
    (cohort_folder / "features" / "S3.h5").replace(cohort_folder / "features" / "S0.h5")
    assert len(bench.patches("S0").corners) == whole - 60


@pytest.mark.parametrize("length", [0, 8, 600, 2000])
def test_features_cut_short_while_open_are_one_sentence_until_they_are_whole_again(bench, cohort_folder, length):
    path = cohort_folder / "features" / "S0.h5"
    content = path.read_bytes()
    assert sentence(bench, "S0") == ""
    path.write_bytes(content[:length])
    assert str(path) in sentence(bench, "S0")
    path.write_bytes(content)
    os.utime(path, ns=(1, 1))  # a copy may have the old time, or any other
    assert sentence(bench, "S0") == ""


def test_features_that_disappear_are_one_sentence(bench, cohort_folder):
    (cohort_folder / "features" / "S4.h5").unlink()
    assert "S4.h5" in sentence(bench, "S4")


def test_features_that_another_process_writes_are_told_from_damaged_ones(bench, cohort_folder):
    path = cohort_folder / "features" / "S4.h5"
    path.unlink()
    with h5py.File(path, "w", libver="latest") as file:
        file.create_dataset("features", data=[[0.0]])
        file.flush()
        said = sentence(bench, "S4")
    assert "S4.h5" in said


def test_prototypes_that_are_fitted_again_are_read_again(bench, cohort_folder):
    import panther

    assert bench.patches("S0").assignment.shape[1] == 3
    fewer = replace(bench.prototypes(), centroids=bench.prototypes().centroids[:2], occupancy=None)
    panther.save_prototypes(fewer, cohort_folder / "prototypes.safetensors")
    assert bench.patches("S0").assignment.shape[1] == 2


def test_a_slide_that_disappears_while_open_is_one_sentence_and_comes_back(bench, cohort_folder):
    path = cohort_folder / "slides" / "S0.tif"
    with bench.image("S0") as slide:
        assert slide.dimensions == (1500, 1130)
    path.rename(path.with_suffix(".away"))
    with pytest.raises(InputError, match=r"S0\.tif: the slide is not there any more"), bench.image("S0"):
        pass
    assert len(bench._images) == 0
    path.with_suffix(".away").rename(path)
    with bench.image("S0") as slide:
        assert slide.dimensions == (1500, 1130)


@pytest.mark.parametrize("damage", [b"", b"II*\0", b"garbage" * 1000])
def test_a_slide_that_is_damaged_while_open_is_one_sentence_and_comes_back(bench, cohort_folder, damage):
    path = cohort_folder / "slides" / "S0.tif"
    content = path.read_bytes()
    with bench.image("S0"):
        pass
    path.write_bytes(damage)
    with pytest.raises(InputError, match=r"S0\.tif"), bench.image("S0"):
        pass
    path.write_bytes(content)
    with bench.image("S0") as slide:
        assert slide.read_region(0, 0, 0, 8, 8).shape == (8, 8, 3)


def test_a_read_that_fails_opens_the_slide_anew_the_next_time(bench):
    with bench.image("S0") as before:
        pass
    with pytest.raises(InputError), bench.image("S0"):
        raise InputError("a tile is damaged")
    with bench.image("S0") as after:
        assert after is not before


def test_damaged_features_do_not_hide_the_image(bench, cohort_folder):
    (cohort_folder / "features" / "S0.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(200))
    with bench.image("S0") as slide:
        assert slide.dimensions == (1500, 1130)
    assert bench.patches("S0").canvas.width == 1500
    assert "S0.h5" in sentence(bench, "S0")


def test_every_page_of_a_slide_whose_files_are_gone_answers_with_a_sentence(bench, cohort_folder):
    client = entered(bench)
    assert client.get("/tiles/S0/0/0/0.jpg").status_code == 200
    for folder, ending in (("slides", "tif"), ("features", "h5")):
        (cohort_folder / folder / f"S0.{ending}").unlink()
    about = client.get("/api/slides/S0").get_json()  # the page itself, with nothing on it and the reasons
    assert about["zooms"] == 0
    assert any("S0.tif" in note for note in about["notes"])
    assert any("S0.h5" in note for note in about["notes"])
    for path in ("/tiles/S0/0/0/0.jpg", "/layers/S0/prototypes/0/0/0.png"):
        response = client.get(path)
        assert response.status_code in (404, 422), path
        assert response.get_json()["error"].endswith(".")
    assert client.get("/api/slides/S1").status_code == 200
