"""Resolution: tags in their order, the gate, the override; never a silent guess."""

from pathlib import Path

import numpy as np
import pytest
from phantoms import write_pyramid

from panther.errors import InputError
from panther.slides import open_slide, read_mpp_table, resolve_mpp

KNOWN = [
    ({"openslide.mpp-x": "0.25", "openslide.mpp-y": "0.2502"}, 0.2501, "openslide.mpp"),
    ({"aperio.MPP": "0.4990"}, 0.499, "aperio.MPP"),
    ({"aperio.MPP": "0,2527"}, 0.2527, "aperio.MPP"),
    ({"ome.PhysicalSizeX": "250", "ome.PhysicalSizeY": "250", "ome.PhysicalSizeXUnit": "nm"}, 0.25, "OME PhysicalSize"),
    (
        {"tiff.XResolution": "20000", "tiff.YResolution": "20000", "tiff.ResolutionUnit": "centimeter"},
        0.5,
        "TIFF resolution",
    ),
    ({"tiff.XResolution": "50800", "tiff.YResolution": "50800", "tiff.ResolutionUnit": "inch"}, 0.5, "TIFF resolution"),
    ({"openslide.mpp-x": "0", "openslide.mpp-y": "0", "aperio.MPP": "0.25"}, 0.25, "aperio.MPP"),
]


@pytest.mark.parametrize(("properties", "mpp", "source"), KNOWN)
def test_tags_are_understood(properties: dict[str, str], mpp: float, source: str) -> None:
    actual = resolve_mpp(properties)
    assert actual.mpp == pytest.approx(mpp)
    assert actual.source == source
    assert not actual.note


@pytest.mark.parametrize("value", ["0.00499", "896.05", "5.01", "1e9"])
def test_a_tag_that_cannot_be_true_is_refused_even_if_another_could(value: str) -> None:
    properties = {"openslide.mpp-x": value, "openslide.mpp-y": value, "openslide.objective-power": "20"}
    with pytest.raises(InputError, match=r"`slide_mpp=.*`slide_mpp_table="):
        resolve_mpp(properties)
    assert resolve_mpp(properties, 0.5).mpp == 0.5


@pytest.mark.parametrize("properties", [{}, {"tiff.ResolutionUnit": "inch"}, {"aperio.MPP": "unknown"},
                                        {"tiff.XResolution": "1", "tiff.YResolution": "1", "tiff.ResolutionUnit": "none"}])  # fmt: skip
def test_a_slide_that_says_nothing_is_refused(properties: dict[str, str]) -> None:
    with pytest.raises(InputError, match="`slide_mpp="):
        resolve_mpp(properties)


def test_the_objectives_power_is_used_with_a_note_and_its_contradiction_is_noted() -> None:
    actual = resolve_mpp({"openslide.objective-power": "40"})
    assert actual.mpp == 0.25
    assert "objective" in actual.note
    assert "40x" in resolve_mpp({"aperio.MPP": "1.0", "aperio.AppMag": "40"}).note


def test_pixels_that_are_not_square_are_refused(tmp_path: Path) -> None:
    write_pyramid(tmp_path / "a.tif", np.zeros((200, 200, 3), np.uint8), (0.5, 0.52), levels=1)
    with pytest.raises(InputError, match=r"a\.tif.*not square"):
        open_slide(tmp_path / "a.tif")
    write_pyramid(tmp_path / "b.tif", np.zeros((200, 200, 3), np.uint8), (0.5, 0.505), levels=1)
    assert open_slide(tmp_path / "b.tif").mpp == pytest.approx(0.5025)


@pytest.mark.parametrize("override", [0.0, -1.0, 0.04, 6.0, float("nan"), float("inf")])
def test_an_override_must_be_plausible_too(override: float) -> None:
    with pytest.raises(InputError, match="not plausible"):
        resolve_mpp({"aperio.MPP": "0.5"}, override)


def test_an_override_of_another_plausible_value_is_noted() -> None:
    assert "0.499 um/px (aperio.MPP)" in resolve_mpp({"aperio.MPP": "0.499"}, 0.25).note
    assert not resolve_mpp({"aperio.MPP": "0.499"}, 0.5).note  # the same, rounded
    assert not resolve_mpp({"aperio.MPP": "0.00499"}, 0.5).note  # what an override is for
    assert not resolve_mpp({}, 0.5).note


def test_the_table_of_overrides_is_read(tmp_path: Path) -> None:
    path = tmp_path / "list.csv"
    path.write_text("\ufeffwsi,mpp,site\na.svs,0.25,x\n b.svs , 0.5 ,y\nc.svs,,z\n", encoding="utf-8")
    assert read_mpp_table(path) == {"a.svs": 0.25, "b.svs": 0.5}
    path.write_text("wsi;mpp\na.svs;0,25\nb.svs;\n")
    assert read_mpp_table(path) == {"a.svs": 0.25}


@pytest.mark.parametrize(
    ("text", "words"),
    [("slide,mpp\na,1\n", "expected wsi and mpp"), ("wsi,mpp\na,fine\n", "'fine'"), ("wsi,mpp\na,896\n", "'896'"),
     ("wsi,mpp\na,0.5\na,0.25\n", "twice"), ("", "not a readable table")],
)  # fmt: skip
def test_a_wrong_table_is_refused(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "list.csv").write_text(text)
    with pytest.raises(InputError, match=words):
        read_mpp_table(tmp_path / "list.csv")
