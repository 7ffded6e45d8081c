"""Job folders: resumed, edited, locked, killed."""

import json
from pathlib import Path

import numpy as np
import pytest
from phantoms import GLASS, glass, tissue_slide, write_pyramid
from PIL import Image

from panther.slides import Job, PatchStep, TissueSettings, TissueStep, list_slides, read_coords, run_job
from panther.slides.job import JobReport
from panther.storage.names import read_summary

STEPS = (TissueStep(), PatchStep(64))


@pytest.fixture(scope="module")
def slides(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three slides with tissue and one of glass only."""
    folder = tmp_path_factory.mktemp("slides")
    image, _ = tissue_slide()
    for index in range(3):
        part = image[100 + 50 * index : 600, 100:500]
        write_pyramid(folder / f"s{index}.tif", part, 0.5)
    write_pyramid(folder / "empty.tif", glass(300, 400), 0.5)
    return folder


def run(slides: Path, folder: Path, steps: tuple = STEPS) -> JobReport:
    return run_job(list_slides([slides]).refs, steps, Job(folder))


def content(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_a_job_has_tridents_layout_and_keeps_slides_without_tissue(slides: Path, tmp_path: Path) -> None:
    import h5py

    report = run(slides, tmp_path)
    assert not report.failures
    patches = tmp_path / "20x_64px_0px_overlap" / "patches"
    for name in ("s0", "s1", "s2", "empty"):
        for path in (f"thumbnails/{name}.png", f"contours/{name}.png", f"contours_geojson/{name}.geojson"):
            assert (tmp_path / path).is_file()
        with h5py.File(patches / f"{name}_patches.h5") as file:
            attrs = dict(file["coords"].attrs)
            assert file["coords"].dtype == np.int64
            assert (len(file["coords"]) == 0) == (name == "empty")
            assert file["coords"].shape[1] == 2
        assert attrs.pop("panther")
        height = {"empty": 300, "s0": 500, "s1": 450, "s2": 400}[name]
        expected = {
            "patch_size": 64, "patch_size_level0": 64, "level0_magnification": 20, "target_magnification": 20, "overlap": 0,
            "name": name, "savetodir": "20x_64px_0px_overlap/patches", "level0_width": 400, "level0_height": height,
        }  # fmt: skip
        assert attrs == expected
    rows = {row["slide"]: row for row in read_summary(Job(tmp_path))}
    assert rows["empty"]["status"] == "done"
    assert rows["empty"]["patches"] == "0"
    assert "tissue" in rows["empty"]["note"]
    assert float(rows["s0"]["tissue_mm2"]) > 0.01


def test_a_second_run_does_nothing_and_a_missing_or_damaged_file_is_made_again(slides: Path, tmp_path: Path) -> None:
    run(slides, tmp_path)
    before, times = content(tmp_path), {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*.*") if p.suffix != ".csv"}
    assert not run(slides, tmp_path).ran
    assert content(tmp_path) == before
    assert all(path.stat().st_mtime_ns == time for path, time in times.items())
    (tmp_path / "contours" / "s0.png").unlink()
    (tmp_path / "20x_64px_0px_overlap" / "patches" / "s1_patches.h5").write_bytes(b"half a file")
    assert run(slides, tmp_path).ran == {"s0", "s1"}
    assert content(tmp_path) == before
    report = run(slides, tmp_path, (TissueStep(TissueSettings(min_area=1e9)), PatchStep(64)))  # other settings
    assert len(report.ran) == 4
    assert report.patches == 0


@pytest.mark.parametrize("name", ["s0.geojson", "s0.tif.geojson"])
def test_an_edited_or_added_annotation_is_honoured_and_never_overwritten(
    slides: Path, tmp_path: Path, name: str
) -> None:
    run(slides, tmp_path)
    square = [[64, 64], [256, 64], [256, 128], [64, 128], [64, 64]]
    edited = {"type": "FeatureCollection", "features": [
        {"type": "Feature", "geometry": {"type": "Polygon", "coordinates": [square]}, "properties": {"classification": {"name": "Tumor"}}}
    ]}  # fmt: skip
    path = tmp_path / "contours_geojson" / name
    path.write_text(json.dumps(edited))
    picture = (tmp_path / "contours" / "s0.png").read_bytes()
    report = run(slides, tmp_path, (TissueStep(TissueSettings(min_area=20_000.0)), PatchStep(64)))
    coords = read_coords(tmp_path / "20x_64px_0px_overlap" / "patches" / "s0_patches.h5").coords
    assert coords.tolist() == [[64, 64], [128, 64], [192, 64]]
    assert json.loads(path.read_text()) == edited
    assert (tmp_path / "contours" / "s0.png").read_bytes() != picture
    assert next(row for row in report.rows if row["slide"] == "s0")["tissue"] == "edited"
    assert not run(slides, tmp_path, (TissueStep(TissueSettings(min_area=20_000.0)), PatchStep(64))).ran


def test_tissue_edited_in_the_viewer_moves_the_patches_and_back(slides: Path, tmp_path: Path) -> None:
    run(slides, tmp_path)
    path = tmp_path / "20x_64px_0px_overlap" / "patches" / "s0_patches.h5"
    whole = np.asarray(read_coords(path).coords)
    x, y = whole.min(0).tolist()
    ring = [[x - 1, y - 1], [x + 1e6, y - 1], [x + 1e6, y + 300], [x - 1, y + 300], [x - 1, y - 1]]
    area = {"type": "Feature", "geometry": {"type": "Polygon", "coordinates": [ring]}}
    edits = tmp_path / "annotations" / "s0.geojson"
    edits.parent.mkdir()
    features = [area | {"properties": {"classification": {"name": name}}} for name in ("Ignore*", "Tumour")]
    edits.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    run(slides, tmp_path)
    cut = np.asarray(read_coords(path).coords)
    assert 0 < len(cut) < len(whole)
    assert (cut[:, 1] > y).all()
    edits.unlink()
    run(slides, tmp_path)
    np.testing.assert_array_equal(np.asarray(read_coords(path).coords), whole)


def test_the_picture_shows_the_contours(slides: Path, tmp_path: Path) -> None:
    run(slides, tmp_path)
    plain, drawn = (np.asarray(Image.open(tmp_path / d / "s0.png")).astype(int) for d in ("thumbnails", "contours"))
    assert plain.shape == drawn.shape == (500, 400, 3)
    changed = np.abs(plain - drawn).max(-1) > 0
    assert 0.002 < changed.mean() < 0.1
    assert np.abs(plain[0, 0] - GLASS).max() < 10


def test_later_steps_go_on_from_the_report_of_the_earlier_ones(slides: Path, tmp_path: Path) -> None:
    refs = list_slides([slides]).refs
    tissue, patches = STEPS
    first = run_job(refs, [tissue], Job(tmp_path), problems={"gone": "gone: there is no such file."})
    second = run_job(refs, [patches], Job(tmp_path), before=first)
    whole = run(slides, tmp_path / "whole")
    by_name = {row["slide"]: row for row in second.rows}
    assert by_name.pop("gone")["status"] == "failed"
    assert by_name == {row["slide"]: row for row in whole.rows}
    assert second.ran == whole.ran
    assert second.remaining(refs) == list(refs)
