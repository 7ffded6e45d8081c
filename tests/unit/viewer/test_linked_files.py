"""Links that lead out of the opened folders: left out, said, and never followed later."""

from pathlib import Path

import pytest

from panther.errors import InputError
from panther.viewer.contents import Inputs, find_contents


def replaced_by_link(file: Path, outside: Path) -> Path:
    """Move a file out of the folder and leave a link to it."""
    target = outside / file.name
    file.rename(target)
    file.symlink_to(target)
    return target


@pytest.mark.parametrize(("file", "kept"), [("features/S5.h5", False), ("slides/S0.tif", True)])
def test_a_file_that_is_a_link_out_of_the_folder_is_left_out_and_said(cohort_folder, outside, file, kept):
    replaced_by_link(cohort_folder / file, outside)
    found = find_contents(cohort_folder)
    name = Path(file).stem
    assert (name in found.slides) == kept
    assert not kept or found.slides[name].image is None
    assert any("links out" in note or "link out" in note for note in found.notes)
    assert f"--allow-folder {outside}" in " ".join(found.notes)


def test_links_into_a_folder_that_the_user_names_are_followed(cohort_folder, outside):
    replaced_by_link(cohort_folder / "slides" / "S0.tif", outside)
    replaced_by_link(cohort_folder / "features" / "S5.h5", outside)
    found = find_contents(cohort_folder, Inputs(allow_folders=(outside,)))
    assert found.slides["S0"].image is not None
    assert "S5" in found.slides
    assert found.notes == ()


def test_a_slide_that_the_user_names_may_be_a_link(cohort_folder, outside):
    link = cohort_folder / "slides" / "S0.tif"
    replaced_by_link(link, outside)
    assert find_contents(link).slides["S0"].image == link


@pytest.mark.parametrize("file", ["prototypes.safetensors", "cohort.csv", "slides.h5ad"])
def test_prototypes_tables_and_embeddings_behind_a_link_are_left_out(cohort_folder, outside, file):
    replaced_by_link(cohort_folder / file, outside)
    found = find_contents(cohort_folder)
    held = {"prototypes.safetensors": found.prototypes, "cohort.csv": found.table, "slides.h5ad": found.embeddings}
    assert not held[file]
    assert found.notes


def test_a_link_onto_itself_hides_no_other_file(cohort_folder):
    slides = set(find_contents(cohort_folder).slides)
    (cohort_folder / "features" / "loop").symlink_to("loop")
    assert set(find_contents(cohort_folder).slides) == slides


def test_contours_behind_a_link_are_left_out(cohort_folder, outside):
    folder = cohort_folder / "contours_geojson"
    folder.mkdir()
    (folder / "S0.geojson").write_text('{"type": "FeatureCollection", "features": []}')
    assert find_contents(cohort_folder).slides["S0"].contours is not None
    replaced_by_link(folder / "S0.geojson", outside)
    assert find_contents(cohort_folder).slides["S0"].contours is None


def test_a_folder_of_results_with_a_link_in_it_is_left_out(cohort_folder, outside):
    atlas = cohort_folder / "atlas"
    atlas.mkdir()
    (atlas / "atlas.json").write_text("{}")
    assert find_contents(cohort_folder).artefacts["atlas"] == (atlas,)
    (atlas / "exemplars.csv").symlink_to(outside / "secret.txt")
    assert "atlas" not in find_contents(cohort_folder).artefacts


def test_names_are_never_written_through_a_link(cohort_folder, outside):
    replaced_by_link(cohort_folder / "names.yaml", outside)
    with pytest.raises(InputError, match="names"):
        find_contents(cohort_folder)
    assert find_contents(cohort_folder, Inputs(names=cohort_folder / "names.yaml")).names.name == "names.yaml"


def test_a_linked_folder_is_not_entered(cohort_folder, outside):
    (outside / "S9.h5").write_bytes((cohort_folder / "features" / "S0.h5").read_bytes())
    (cohort_folder / "more").symlink_to(outside, target_is_directory=True)
    assert "S9" not in find_contents(cohort_folder).slides


@pytest.mark.parametrize("file", ["features/S0.h5", "slides/S0.tif"])
def test_a_file_that_becomes_a_link_after_the_start_is_refused(bench, cohort_folder, outside, file):
    replaced_by_link(cohort_folder / file, outside)
    with pytest.raises(InputError, match="link out of the opened folders"):
        bench.patches("S0")
    if file.startswith("slides"):
        with pytest.raises(InputError, match="link out of the opened folders"), bench.image("S0"):
            pass
