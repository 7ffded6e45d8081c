"""Slides with features alone: their patches are shown, with a note on what is missing."""

import shutil
from pathlib import Path

import pytest

MISSING = "S0: neither an image nor prototypes"


@pytest.fixture(scope="module")
def browsed_cohort(written_cohort: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bare")
    shutil.copytree(written_cohort / "features", folder / "features")
    return folder


def test_a_slide_without_image_and_prototypes_shows_its_patches_with_a_note(window):
    window.open("slide=S0")
    (note,) = window.page.locator(".side .note").all_inner_texts()
    assert note.startswith(MISSING)
    assert "panther view FOLDER --slides IMAGES" in note
    assert "--prototypes FILE" in note
    window.wait_for_state(layers="grid")
    about = window.page.request.get(window.page.url.split("#")[0] + "api/slides/S0").json()
    x = y = about["pitch"] * 10  # a corner of patches: the canvas begins a pitch before the first one
    around = [window.colour(x + step, y + about["pitch"] / 2) for step in range(-4, 5)]
    assert min(sum(one) for one in around) < 600  # a line, on white


def test_two_such_slides_side_by_side_have_the_note_too(window):
    window.open("page=compare&slide=S0&slide2=S1", sides=2)
    text = window.page.locator(".key").all_inner_texts()
    assert text[0].startswith(MISSING)
    assert text[1].startswith(MISSING.replace("S0", "S1"))
