"""What `panther slides` notes of slides: what is no slide is said once."""

from pathlib import Path

import pytest

from panther.errors import InputError
from panther.slides import open_slide
from panther.slides.slide import slide_name


def test_what_is_no_slide_is_said_once(tmp_path: Path) -> None:
    (tmp_path / "text.svs").write_text("this is no slide")
    with pytest.raises(InputError) as error:
        open_slide(tmp_path / "text.svs", 0.5)
    said = "no reader opens this file, it is damaged or not a slide; copy it again, or convert it to a pyramidal TIFF."
    assert str(error.value) == f"text.svs: {said}"


def test_the_folder_where_one_is_has_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "scan" / "deeper").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "scan")
    assert slide_name(Path()) == "scan"
    monkeypatch.chdir("deeper")
    assert slide_name(Path("..")) == "scan"
