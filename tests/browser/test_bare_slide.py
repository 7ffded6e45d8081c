"""Slides with features alone: the borders of their patches are shown."""

import shutil
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def browsed_cohort(written_cohort: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bare")
    shutil.copytree(written_cohort / "features", folder / "features")
    return folder


def test_a_slide_without_image_and_prototypes_shows_its_patches(window):
    window.open("slide=S0")
    window.wait_for_state(layers="grid")
    window.settle()  # the tiles of this layer
    about = window.page.request.get(window.page.url.split("#")[0] + "api/slides/S0").json()
    x = y = about["pitch"] * 10  # a corner of patches: the canvas begins a pitch before the first one
    around = [window.colour(x + step, y + about["pitch"] / 2) for step in range(-4, 5)]
    assert min(sum(one) for one in around) < 600  # a line, on white
