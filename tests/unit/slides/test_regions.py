"""Regions of one class of annotations instead of the tissue."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import panther
from panther.errors import InputError
from panther.slides import Tissue, read_coords
from panther.slides.polygons import Polygon

SQUARES = {"Tumor": (256, 256), "Stroma": (1024, 256), "Ignore*": (256, 256)}


def write_annotations(path: Path, classes: tuple[str, ...]) -> None:
    """Squares of 512 px (Ignore*: 256 px), one per class, as QuPath exports them."""
    features = []
    for name in classes:
        (x, y), side = SQUARES[name], 256 if name == "Ignore*" else 512
        ring = [[x, y], [x + side, y], [x + side, y + side], [x, y + side], [x, y]]
        about = {"objectType": "annotation", "classification": {"name": name, "color": [200, 0, 0]}}
        features.append(
            {"type": "Feature", "geometry": {"type": "Polygon", "coordinates": [ring]}, "properties": about}
        )
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))


@pytest.fixture
def slides(tmp_path: Path) -> Path:
    (tmp_path / "slides").mkdir()
    for name in "ab":
        Image.fromarray(np.full((1024, 2048, 3), 200, np.uint8)).save(tmp_path / "slides" / f"{name}.tif")
    return tmp_path / "slides"


def corners(job: Path, slide: str) -> set[tuple[int, int]]:
    coords = read_coords(job / "20x_256px_0px_overlap" / "patches" / f"{slide}_patches.h5")
    return set(map(tuple, coords.coords.tolist()))


def square(x: int, y: int) -> set[tuple[int, int]]:
    return {(x + i, y + j) for i in (0, 256) for j in (0, 256)}


def test_patches_lie_in_the_annotations_of_the_class(slides, tmp_path):
    write_annotations(tmp_path / "drawn" / "a.tif.geojson", ("Tumor", "Stroma"))
    write_annotations(tmp_path / "drawn" / "b.geojson", ("Tumor", "Ignore*"))
    run = {
        "slides": [slides / "a.tif", slides / "b.tif"],
        "output": tmp_path / "job",
        "slide_mpp": 0.5,
        "regions": tmp_path / "drawn",
    }
    panther.extract(**run, region_class="tumor")
    assert corners(tmp_path / "job", "a") == square(256, 256)
    assert corners(tmp_path / "job", "b") == square(256, 256) - {(256, 256)}
    with pytest.warns(match="Stroma"):  # b has no such class, and fails alone
        panther.extract(**run, region_class="Stroma")
    assert corners(tmp_path / "job", "a") == square(1024, 256)
    panther.extract(
        [slides / "a.tif"], output=tmp_path / "one", slide_mpp=0.5, regions=tmp_path / "drawn/a.tif.geojson"
    )
    assert corners(tmp_path / "one", "a") == square(256, 256) | square(1024, 256)


def test_what_cannot_be_meant_is_refused(slides, tmp_path):
    write_annotations(tmp_path / "drawn" / "a.geojson", ("Tumor",))
    run = {"slides": [slides / "a.tif", slides / "b.tif"], "output": tmp_path / "job", "slide_mpp": 0.5}
    for more, culprit in (
        ({"region_class": "Tumor"}, "region_class"),
        ({"regions": tmp_path / "nowhere"}, "regions"),
        ({"regions": tmp_path / "drawn/a.geojson"}, "2 slides"),
        ({"regions": tmp_path / "drawn", "region_class": "Necrosis"}, "Tumor"),
        ({"regions": tmp_path / "drawn", "dry_run": True}, "dry_run"),
    ):
        with pytest.raises(InputError, match=culprit):
            panther.extract(**run, **more)


def test_an_edited_outline_is_never_replaced(slides, tmp_path):
    edited = tmp_path / "job" / "contours_geojson" / "a.geojson"
    write_annotations(tmp_path / "drawn" / "a.geojson", ("Tumor", "Stroma"))
    run = {"slides": [slides / "a.tif"], "output": tmp_path / "job", "slide_mpp": 0.5}
    panther.extract(**run)
    panther.extract(**run, regions=tmp_path / "drawn", region_class="Tumor")  # not edited: replaced
    assert "regions: Tumor" in (tmp_path / "job" / "summary.csv").read_text()
    panther.extract(**run, regions=tmp_path / "drawn", region_class="Stroma")
    assert corners(tmp_path / "job", "a") == square(1024, 256)
    write_annotations(edited, ("Tumor", "Stroma"))
    before = edited.read_bytes()
    for folder in (edited.parent, tmp_path / "drawn"):
        with pytest.raises(InputError, match="was edited"):
            panther.extract(**run, regions=folder, region_class="Tumor")
    with pytest.raises(InputError, match="was edited"):
        panther.extract(**run, tissue=Tissue((Polygon(np.array([[0, 0], [512, 0], [512, 512], [0, 512]])),)))
    assert edited.read_bytes() == before
