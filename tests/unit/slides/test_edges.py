"""Strips at the right and bottom edge that are narrower than a patch: told, and with --edge pad given patches."""

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
from phantoms import GLASS, paint, write_pyramid

from panther.slides import Job, PatchReader, PatchStep, Polygon, SlideRef, Tissue, TissueStep, open_slide, patch_spec
from panther.slides.job import run_job
from panther.slides.patches import tile_tissue

SIDE, WIDTH, HEIGHT = 100, 950, 640
EVERYTHING = Tissue((Polygon(np.array([(0, 0), (1e5, 0), (1e5, 1e5), (0, 1e5)])),))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tissue from edge to edge, at 4 um/px so that it is found as such."""
    image = np.full((HEIGHT, WIDTH, 3), GLASS, np.uint8)
    paint(image, np.ones(image.shape[:2], bool), (205, 120, 175), 14, 1)
    image[:200] = GLASS
    path = tmp_path_factory.mktemp("slide") / "a.tif"
    write_pyramid(path, image, 4.0, levels=1)
    return path


@pytest.mark.parametrize("overlap", [0, 30])
def test_padding_covers_every_pixel_and_keeps_the_other_patches(path: Path, overlap: int) -> None:
    with open_slide(path) as slide:
        spec = patch_spec(slide, SIDE, 4.0, overlap)
        plain, padded = (tile_tissue(slide, spec, EVERYTHING, 0.0, edge) for edge in ("drop", "pad"))
    covered = {}
    for name, laid in (("plain", plain), ("padded", padded)):
        covered[name] = np.zeros((HEIGHT, WIDTH), bool)
        for x, y in laid.coords.tolist():
            covered[name][y : y + SIDE, x : x + SIDE] = True
    assert covered["padded"].all()
    assert plain.lost == pytest.approx(1 - covered["plain"].mean(), abs=0.005)
    assert padded.lost == 0
    assert {tuple(c) for c in plain.coords.tolist()} < {tuple(c) for c in padded.coords.tolist()}
    assert (padded.coords < (WIDTH, HEIGHT)).all()
    assert plain.strips == padded.strips == ((50, 40) if overlap == 0 else (10, 50))


def test_a_slide_smaller_than_a_patch_gets_one(path: Path) -> None:
    with open_slide(path) as slide:
        spec = patch_spec(slide, 1000, 4.0)
        assert tile_tissue(slide, spec, EVERYTHING).lost == 1.0
        assert tile_tissue(slide, spec, EVERYTHING, edge="pad").coords.tolist() == [[0, 0]]
        pixels = PatchReader(slide, spec).read(0, 0)
        assert pixels.shape == (1000, 1000, 3)
        assert (pixels[HEIGHT:] == 255).all()
        assert (pixels[:, WIDTH:] == 255).all()
        np.testing.assert_array_equal(pixels[:HEIGHT, :WIDTH], slide.read_region(0, 0, 0, WIDTH, HEIGHT))


def test_a_job_says_what_the_edges_cost_and_padding_gives_it_back(path: Path, tmp_path: Path) -> None:
    job, refs = Job(tmp_path / "job"), [SlideRef(path, "a")]
    steps = {edge: (TissueStep(), PatchStep(SIDE, 4.0, min_tissue=0.15, edge=edge)) for edge in ("drop", "pad")}
    (shown,) = run_job(refs, steps["drop"], job).rows
    assert shown["edge_lost"] == pytest.approx(1 - 900 * 400 / (950 * 440), abs=0.01)
    assert "strips at the right (200 um) and bottom (160 um) edge" in shown["note"]
    assert "`edge=pad`" in shown["note"]
    assert not run_job(refs, steps["drop"], job).ran
    again = run_job(refs, steps["pad"], job)
    assert len(again.ran) == 1
    assert again.rows[0]["edge_lost"] == 0
    assert again.rows[0]["note"] == ""
    assert again.rows[0]["patches"] == shown["patches"] + 10 + 4  # a row below and a column on the right
    with h5py.File(job.coords("a", steps["pad"][1].folder)) as file:
        assert json.loads(file["coords"].attrs["panther"])["edge"] == "pad"
        assert file["coords"].attrs["patch_size_level0"] == SIDE
