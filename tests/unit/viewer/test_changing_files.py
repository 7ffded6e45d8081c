"""Files that change, disappear or are cut while a viewer shows them: each is an error that names the file, until it is whole again."""

import os
from dataclasses import replace

import h5py
import pytest

import panther
from panther.errors import InputError
from viewer.asking import entered, notes_of


def dimensions(bench, name="S0"):
    with bench.image(name) as slide:
        return slide.dimensions


def test_features_and_prototypes_that_are_replaced_are_read_again(bench, cohort_folder):
    count = len(bench.patches("S0").corners)
    (cohort_folder / "features" / "S3.h5").replace(cohort_folder / "features" / "S0.h5")
    assert len(bench.patches("S0").corners) == count - 60
    fewer = replace(bench.prototypes(), centroids=bench.prototypes().centroids[:2], occupancy=None)
    panther.save_prototypes(fewer, cohort_folder / "prototypes.safetensors")
    assert bench.patches("S0").assignment.shape[1] == 2


@pytest.mark.parametrize("length", [0, 8, 600, 2000])
def test_features_cut_short_are_an_error_until_they_are_whole_again(bench, cohort_folder, length):
    path = cohort_folder / "features" / "S0.h5"
    content = path.read_bytes()
    assert notes_of(bench, "S0") == ""
    path.write_bytes(content[:length])
    assert str(path) in notes_of(bench, "S0")
    assert bench.patches("S0").canvas.width == 1500 == dimensions(bench)[0]  # the image is shown nevertheless
    path.write_bytes(content)
    os.utime(path, ns=(1, 1))  # a copy may have the old time, or any other
    assert notes_of(bench, "S0") == ""


def test_features_that_disappear_or_are_being_written_are_an_error(bench, cohort_folder):
    path = cohort_folder / "features" / "S4.h5"
    path.unlink()
    assert "S4.h5" in notes_of(bench, "S4")
    with h5py.File(path, "w", libver="latest") as file:
        file.create_dataset("features", data=[[0.0]])
        file.flush()
        assert "S4.h5" in notes_of(bench, "S4")


@pytest.mark.parametrize("damage", [None, b"", b"II*\0", b"garbage" * 1000], ids=["gone", "empty", "cut", "garbage"])
def test_a_slide_that_is_damaged_while_open_is_an_error_until_it_is_whole_again(bench, cohort_folder, damage):
    path = cohort_folder / "slides" / "S0.tif"
    assert dimensions(bench) == (1500, 1130)
    path.rename(path.with_suffix(".away"))
    if damage is not None:
        path.write_bytes(damage)
    with pytest.raises(InputError, match=r"S0\.tif"):
        dimensions(bench)
    assert len(bench._images) == 0
    path.with_suffix(".away").replace(path)
    with bench.image("S0") as slide:
        assert slide.read_region(0, 0, 0, 8, 8).shape == (8, 8, 3)


def test_the_page_of_a_slide_without_its_files_has_the_reasons(bench, cohort_folder):
    client = entered(bench)
    assert client.get("/tiles/S0/0/0/0.jpg").status_code == 200
    for file in ("slides/S0.tif", "features/S0.h5"):
        (cohort_folder / file).unlink()
    page = client.get("/api/slides/S0").get_json()
    assert page["zooms"] == 0
    assert {"S0.tif", "S0.h5"} <= {note.partition(":")[0] for note in page["notes"]}
    for path in ("/tiles/S0/0/0/0.jpg", "/layers/S0/prototypes/0/0/0.png"):
        response = client.get(path)
        assert response.status_code in (404, 422), path
        assert response.get_json()["error"]
    assert client.get("/api/slides/S1").status_code == 200
