"""The command, on real slides where they are there."""

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from phantoms import tissue_slide, write_pyramid

from commands import run
from panther.errors import InputError
from panther.slides import open_slide, read_coords
from panther.slides.polygons import rasterise, read_contours

PATCHES = "20x_256px_0px_overlap/patches"


def invoke(*arguments: object, code: int = 0) -> Any:
    """Run `panther slides`."""
    return run("slides", *arguments, "-j", "1", code=code)


def rows_of(job: Path) -> dict[str, dict[str, str]]:
    with (job / "summary.csv").open(newline="") as handle:
        return {row["slide"]: row for row in csv.DictReader(handle)}


@pytest.fixture
def slide(tmp_path: Path) -> Path:
    image, _ = tissue_slide()
    (tmp_path / "in").mkdir()
    write_pyramid(tmp_path / "in" / "a.tif", image, 0.5, levels=1)
    return tmp_path / "in" / "a.tif"


def test_broken_and_foreign_files_are_listed_and_the_rest_is_done(shared_data: Path, tmp_path: Path) -> None:
    result = invoke(shared_data / "slides", "-o", tmp_path / "job", "--json", code=1)
    shown = json.loads(result.stdout)
    assert set(shown["failures"]) == {
        "CMU-1-wrong-mpp", "TCGA-CR-7395-01A-01-TS1", "broken", "not-a-slide-kidney", "pyramid-bogus-mpp"
    }  # fmt: skip
    rows = rows_of(tmp_path / "job")
    assert {name for name, row in rows.items() if row["status"] == "done"} == {"CMU-1-Small-Region", "CMU-1-dicom"}
    assert "0.00499" in rows["CMU-1-wrong-mpp"]["reason"]
    assert "896" in rows["pyramid-bogus-mpp"]["reason"]
    assert "`slide_mpp=0.25`" in rows["TCGA-CR-7395-01A-01-TS1"]["reason"]


def test_one_slide_in_three_formats_gives_the_same_patches(shared_data: Path, tmp_path: Path) -> None:
    """SVS, DICOM (recompressed) and a TIFF whose wrong resolution is overridden."""
    (tmp_path / "list.csv").write_text("wsi,mpp\nCMU-1-wrong-mpp.tiff,0.499\n")
    names = ("CMU-1-Small-Region.svs", "CMU-1-dicom", "CMU-1-wrong-mpp.tiff")
    places = [shared_data / "slides" / name for name in names]
    invoke(*places, "-o", tmp_path / "job", "--slide-mpp-table", tmp_path / "list.csv")
    first, *others = (read_coords(tmp_path / "job" / PATCHES / f"{p.stem}_patches.h5") for p in places)
    # LazySlide finds 31 with its least fraction of 0.7; ours keep patches of the tissue's edge too
    assert 30 <= len(first.coords) <= 50
    assert first.spec.size_level0 == 257
    for other in others:
        np.testing.assert_array_equal(other.coords, first.coords)


def test_the_grey_frame_of_a_stitched_scan_is_not_tissue(shared_data: Path, tmp_path: Path) -> None:
    path = shared_data / "slides" / "TCGA-CR-7395-01A-01-TS1.svs"
    invoke(path, "-o", tmp_path, "--slide-mpp", 0.5)
    tissue = read_contours(tmp_path / "contours_geojson" / f"{path.stem}.geojson").tissue
    with open_slide(path, 0.5) as slide:
        image = slide.scaled(8)
    mask = rasterise(tissue, (image.shape[1], image.shape[0]), 8)
    spread = image.max(-1).astype(int) - image.min(-1)
    frame = (image.min(-1) > 225) & (image.min(-1) < 252) & (spread < 10)  # light grey, no colour
    pink = spread > 60
    assert frame.mean() > 0.1
    assert mask[frame].mean() < 0.06  # gaps within the tissue have the frame's colour
    assert not mask[:20, :80].any()
    assert mask[pink].mean() > 0.99
    assert 140 <= len(read_coords(tmp_path / PATCHES / f"{path.stem}_patches.h5").coords) <= 180


def test_magnification_says_the_same_as_resolution(slide: Path, tmp_path: Path) -> None:
    invoke(slide.parent, "-o", tmp_path / "job", "--mag", 10, "--patch-size", 64, "--overlap", 16)
    value = read_coords(tmp_path / "job" / "10x_64px_16px_overlap" / "patches" / "a_patches.h5")
    assert (value.spec.mpp, value.spec.size_level0, value.spec.overlap) == (1.0, 128, 16)
    assert len(np.unique(np.diff(np.unique(value.coords[:, 0])))) == 1
    assert np.diff(np.unique(value.coords[:, 0]))[0] == 96


def test_a_dry_run_tells_and_writes_nothing(slide: Path, tmp_path: Path) -> None:
    shown = json.loads(invoke(slide, "-o", tmp_path / "job", "--patch-size", 64, "--dry-run", "--json").stdout)
    assert not (tmp_path / "job").exists()
    invoke(slide, "-o", tmp_path / "job", "--patch-size", 64)
    count = len(read_coords(tmp_path / "job" / "20x_64px_0px_overlap" / "patches" / "a_patches.h5").coords)
    assert shown["patches"] == count > 0
    assert shown["feature_bytes_1024"] == count * (2048 + 16)
    assert shown["decode_seconds"] > 0


def test_settings_of_the_tissue_are_honoured_recorded_and_worked_out_anew(slide: Path, tmp_path: Path) -> None:
    """The drawing at 0.5 um/px: two pieces of 0.0235 and 0.0095 mm2."""
    actual = {}
    for settings in (
        (),
        ("-s", "min_area=5000"),
        ("-s", "min_area=5000.0"),
        ("-s", "min_area=5000", "-s", "max_hole=100", "-s", "close=4"),
    ):
        shown = json.loads(invoke(slide, "-o", tmp_path / "job", "--patch-size", 64, *settings, "--json").stdout)
        contours = read_contours(tmp_path / "job" / "contours_geojson" / "a.geojson")
        actual[settings] = (len(contours.tissue.regions), shown["worked"], rows_of(tmp_path / "job")["a"]["tissue"])
    assert list(actual.values()) == [
        (1, 1, "colour"),
        (2, 1, "colour min_area=5000"),
        (2, 0, "colour min_area=5000"),  # the same number, nothing to do
        (2, 1, "colour close=4 min_area=5000 max_hole=100"),
    ]
    assert contours.about["settings"]["min_area"] == 5000.0
    assert sum(len(region.holes) for region in contours.tissue.regions) == 1
    dry = json.loads(invoke(slide, "-o", tmp_path / "new", "--patch-size", 64, *settings, "--dry-run", "--json").stdout)
    assert dry["patches"] == shown["patches"]


def test_steps_can_be_run_one_after_the_other(slide: Path, tmp_path: Path) -> None:
    result = invoke(slide, "-o", tmp_path / "job", "--steps", "patches", code=1)
    assert "run the step tissue first" in result.output
    invoke(slide, "-o", tmp_path / "job", "--steps", "tissue")
    assert not (tmp_path / "job" / PATCHES).exists()
    invoke(slide, "-o", tmp_path / "job", "--steps", "patches")
    assert (tmp_path / "job" / PATCHES / "a_patches.h5").exists()


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["--mpp", "0.5", "--mag", "20"], "mag"),
        (["--mag", "0"], "mag"),
        (["--overlap", "256"], "overlap"),
        (["--steps", "tissue,colour"], "steps"),
        (["--slide-mpp", "896"], "--slide-mpp"),
        (["--slide-mpp-table", "none.csv"], "none.csv"),
        (["--tissue", "magic"], "magic"),
        (["--steps", "features", "--encoder", "unicorn"], "unicorn"),
        (["-s", "min_size=5"], "min_size"),
        (["-s", "method=colour"], "method"),
        (["-s", "min_area"], "min_area"),
        (["-s", "min_area=-5"], "min_area"),
        (["-s", "min_area=NaN"], "min_area"),
        (["-s", "min_area=large"], "min_area"),
        (["-s", "close=true"], "close"),
        (["-s", "mpp=0.1"], "mpp"),
        (["-s", "pen=0"], "pen"),
        (["-s", "lowest=0.2"], "lowest"),
    ],
)
def test_requests_that_make_no_sense_are_refused(slide: Path, tmp_path: Path, arguments: list[str], name: str) -> None:
    with pytest.raises(InputError, match=name):
        invoke(slide, "-o", tmp_path / "job", *arguments)
    assert not (tmp_path / "job").exists()


def test_two_slides_of_one_name_and_missing_files_are_listed(slide: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "a.tif").write_bytes(slide.read_bytes())
    (tmp_path / "other" / "b.tif").write_bytes(slide.read_bytes())
    with pytest.raises(InputError, match=r"gone\.svs"):
        invoke(tmp_path / "gone.svs", "-o", tmp_path / "job")
    assert not (tmp_path / "job").exists()
    result = invoke(slide.parent, tmp_path / "other", tmp_path / "gone.svs", "-o", tmp_path / "job", code=1)
    assert "two slides have this name" in result.output
    assert "gone.svs" in result.output
    rows = rows_of(tmp_path / "job")
    assert (rows["a"]["status"], rows["b"]["status"]) == ("failed", "done")


def test_a_folder_without_slides_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thumbnail.png").write_bytes(b"x")
    with pytest.raises(InputError, match="no slides found"):
        invoke(tmp_path, "-o", tmp_path / "job")


def test_missing_extras_refuse_the_request_instead_of_every_slide(slide: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("panther.errors.find_spec", lambda name: None if name == "openslide" else object())
    with pytest.raises(InputError, match=r"^openslide: not installed; pip install 'panther-wsi\[slides\]'$"):
        invoke(slide.parent, "-o", tmp_path / "job")
    assert not (tmp_path / "job").exists()


def test_help_is_light() -> None:
    code = "import sys, panther.cli; panther.cli.build_app(); assert not {'numpy', 'torch', 'PIL', 'openslide'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_step_of_its_own_keeps_what_earlier_steps_have_told(slide: Path, tmp_path: Path) -> None:
    job = tmp_path / "job"
    first = rows_of_run(job, slide, "-s", "max_hole=5000")
    for steps in ("patches", "features"):
        result = invoke(slide, "-o", job, "--steps", steps)
        assert f"{first['patches']} patches" in result.output
        row = rows_of(job)["a"]
        assert {name: row[name] for name in first} == first
    assert row["features"] == first["patches"]


def rows_of_run(job: Path, *arguments: object) -> dict[str, str]:
    invoke(*arguments, "-o", job)
    return rows_of(job)["a"]
