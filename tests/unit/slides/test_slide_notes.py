"""What `panther slides` notes of slides: the same in a dry run as in the run, and what is no slide said once."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from phantoms import tissue_slide, write_pyramid
from test_slides_command import invoke

from panther.encoders.loading import find_recipe
from panther.encoders.step import FeatureStep


@pytest.fixture
def slides(tmp_path: Path) -> Path:
    """One whose resolution is doubtful where another is given, one of glass, one that says no resolution, one that is none."""
    folder = tmp_path / "in"
    folder.mkdir()
    image, _ = tissue_slide()
    write_pyramid(folder / "tissue.tif", image, 0.5, levels=1)
    write_pyramid(folder / "glass.tif", np.full_like(image, 244), 0.25, levels=1)
    write_pyramid(folder / "silent.tif", image, None, levels=1)
    (folder / "text.svs").write_text("this is no slide")
    return folder


OPTIONS = {
    "no patch has enough tissue": (),
    "0.25 was requested and used": ("--slide-mpp", "0.25"),
    "lite0 was made for 0.5 um/px and the patches have 2": ("--encoder", "lite0", "--mpp", "2"),
    "stain: belongs to the step features": ("--stain", "macenko"),
}


@pytest.mark.parametrize("words", OPTIONS)
def test_a_dry_run_notes_what_the_run_will_note(
    slides: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    made_for = replace(find_recipe("lite0").about, mpp=0.5)  # it says of itself that any will do
    monkeypatch.setattr(FeatureStep, "_facts", property(lambda step: made_for, lambda step, facts: None), raising=False)
    request = (slides, "-o", tmp_path / "job", "--patch-size", 64, *OPTIONS[words], "--json")
    dry = json.loads(invoke(*request, "--dry-run", code=1).stdout)
    real = json.loads(invoke(*request, code=1).stdout)
    assert any(words in note for note in dry["notes"])
    assert set(dry["notes"]) == set(real["notes"])
    assert dry["failures"] == real["failures"]
