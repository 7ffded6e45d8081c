"""The step of a job folder and the commands, on real slides and tiles."""

import json
from contextlib import closing

import h5py
import numpy as np
import pytest
import tifffile
import torch
from PIL import Image

import panther
from commands import invoke
from encoders.making import make_tiles
from panther.encoders.pipeline import ExtractSettings
from panther.encoders.sources import holds_tiles
from panther.encoders.step import EncoderChoice, FeatureStep
from panther.engine import Work
from panther.errors import InputError
from panther.slides import Job, PatchStep, Polygon, SlideFiles, SlideRef, Tissue, TissueStep, list_slides, run_job
from panther.storage.readers import open_bag


def test_the_same_slide_as_svs_and_dicom_gives_the_same_coordinates_and_alike_features(shared_data, tmp_path):
    slides = shared_data / "slides"
    refs = list_slides([slides / "CMU-1-Small-Region.svs", slides / "CMU-1-dicom"]).refs
    job, patches = Job(tmp_path / "job"), PatchStep()
    choice = EncoderChoice("lite0", devices=("cpu", "cpu"))  # two slides side by side, as on two GPUs
    with closing(FeatureStep(patches.folder, choice, ExtractSettings(workers=1))) as step:
        steps = [TissueStep(), patches, step]
        with step.executor() as executor:
            report = run_job(refs, steps, job, work=Work(executor))
        assert not report.failures
        assert step.throughput.patches == report.patches > 60
        assert not run_job(refs, steps, job).ran  # nothing to do the second time
        folder = tmp_path / "job" / "20x_256px_0px_overlap" / "features_lite0"
        svs, dicom = (open_bag(folder / f"{ref.name}.h5") for ref in refs)
        assert np.array_equal(svs.coords, dicom.coords)
        similarity = torch.cosine_similarity(svs.features[:].float(), dicom.features[:].float())
        assert similarity.min() > 0.9
        assert similarity.median() > 0.97
        with h5py.File(svs.path) as bag, h5py.File(job.coords(refs[0].name, patches.folder)) as coords:
            assert dict(bag["coords"].attrs) == dict(coords["coords"].attrs)
            assert set(bag["features"].attrs) >= {"name", "savetodir", "encoder"}
            assert bag["features"].dtype == np.float16
        # other coordinates: the features are not those any more; a leftover of a killed run goes
        assert step.done(SlideFiles(refs[0], job))
        with h5py.File(job.coords(refs[0].name, patches.folder), "r+") as coords:
            coords["coords"][0] = (0, 0)
        assert not step.done(SlideFiles(refs[0], job))
        assert step.done(SlideFiles(refs[1], job))


def test_a_slide_without_patches_step_fails_alone_and_an_unknown_encoder_refuses_all(tmp_path):
    with (
        closing(FeatureStep("20x_256px_0px_overlap")) as step,
        pytest.raises(InputError, match="run the step patches first"),
    ):
        step.run(SlideFiles(SlideRef(tmp_path / "a.svs", "a"), Job(tmp_path)))
    with pytest.raises(InputError, match="no encoder"):
        FeatureStep("x", EncoderChoice("unicorn"))
    assert EncoderChoice("timm:vit_tiny/x").folder == "features_timm-vit_tiny-x"


def test_each_folder_of_tiles_becomes_a_bag_and_a_broken_tile_is_noted(tmp_path):
    tiles, job = tmp_path / "tiles", tmp_path / "job"
    make_tiles(tiles / "kind" / "slide", 5, size=224)
    make_tiles(tiles / "other", 3, size=224, seed=1)
    (tiles / "kind" / "slide" / "002.png").write_bytes(b"broken")
    words = ("slides", tiles, "-o", job, "--encoder", "lite0", "--device", "cpu", "-j", 1, "--json")
    shown = json.loads(invoke(*words).stdout)
    assert shown["worked"] == 2
    assert list(shown["failures"]) == ["kind"]  # a fifth of it is lost
    rows = {row["slide"]: row for row in shown["slides"]}
    assert (rows["other"]["status"], rows["other"]["features"], rows["kind"]["masked"]) == ("done", 3, 1)
    assert "slide/002.png" in rows["kind"]["note"]
    bag = open_bag(job / "tiles" / "features_lite0" / "kind.h5")
    assert (len(bag), bag.dim, bag.encoder, bag.coords) == (4, 1280, "lite0", None)
    assert json.loads(invoke(*words).stdout)["worked"] == 0
    make_tiles(tiles / "other", 4, size=224, seed=1)
    assert json.loads(invoke(*words).stdout)["worked"] == 1


def test_a_folder_without_folders_is_one_bag_and_options_of_slides_are_refused(tmp_path):
    make_tiles(tmp_path / "crops", 3, size=224)
    words = ("slides", tmp_path / "crops", "-o", tmp_path / "job")
    assert invoke(*words).exit_code != 0  # an encoder is needed
    assert invoke(*words, "--encoder", "lite0", "--stain", "macenko").exit_code != 0
    assert not (tmp_path / "job").exists()
    assert invoke(*words, "--encoder", "lite0", "--device", "cpu", "-j", 1).exit_code == 0
    assert len(open_bag(tmp_path / "job" / "tiles" / "features_lite0" / "crops.h5")) == 3
    make_tiles(tmp_path / "crops" / "more", 2, size=224)
    assert invoke(*words, "--encoder", "lite0").exit_code == 2


def test_a_small_plain_tif_is_a_tile_and_a_large_or_tiled_one_a_slide(tmp_path):
    make_tiles(tmp_path, 1, size=64)
    (tmp_path / "a").mkdir()
    with Image.open(tmp_path / "000.png") as tile:
        tile.save(tmp_path / "a" / "tile.tif")
        assert holds_tiles(tmp_path / "a")
        tile.resize((3000, 3000)).save(tmp_path / "a" / "tile.tif")
        tile.save(tmp_path / "a" / "first.png")  # a thumbnail
        assert not holds_tiles(tmp_path / "a")
    tifffile.imwrite(tmp_path / "a" / "tile.tif", np.zeros((64, 64, 3), np.uint8), tile=(32, 32), photometric="rgb")
    assert not holds_tiles(tmp_path / "a")


def test_a_folder_of_tiles_is_extracted_in_memory_as_the_job_writes_it(tmp_path):
    make_tiles(tmp_path / "crops", 3, size=224)
    words = ("slides", tmp_path / "crops", "-o", tmp_path / "job", "--encoder", "lite0", "--device", "cpu", "-j", 1)
    assert invoke(*words).exit_code == 0
    written = open_bag(tmp_path / "job" / "tiles" / "features_lite0" / "crops.h5")
    bag = panther.extract(tmp_path / "crops", "lite0")["crops"]
    assert (bag.slide_id, bag.encoder, bag.coords) == ("crops", "lite0", None)
    torch.testing.assert_close(bag.features, written.features[:], atol=0.02, rtol=0.02)


def test_a_slide_is_extracted_in_memory_as_the_job_writes_it(shared_data, tmp_path):
    path = shared_data / "slides" / "CMU-1-Small-Region.svs"
    (ref,) = list_slides([path]).refs
    patches = PatchStep()
    with closing(FeatureStep(patches.folder, EncoderChoice("lite0"), ExtractSettings(workers=1))) as step:
        run_job([ref], [TissueStep(), patches, step], Job(tmp_path))
        written = panther.open_bag(step.path(SlideFiles(ref, Job(tmp_path))))
    bag = panther.extract(path, "lite0")[ref.name]
    assert (bag.slide_id, bag.encoder, bag.spec) == (written.slide_id, written.encoder, written.spec)
    assert np.array_equal(bag.coords, written.coords)
    # float16, other numbers of threads
    torch.testing.assert_close(bag.features, written.features[:], atol=0.02, rtol=0.02)
    square = Tissue((Polygon(np.array([[0, 0], [600, 0], [600, 600], [0, 600]])),))
    few = panther.extract(path, "lite0", tissue=square)[ref.name]
    assert 0 < len(few) < len(bag)
    assert few.coords.max() < 600
