"""The step of a job folder and the commands, on real slides and tiles."""

import json

import h5py
import numpy as np
import pytest
import torch
import typer
from typer.testing import CliRunner

from encoders.making import make_tiles
from panther.cli import encoders as commands
from panther.encoders.pipeline import ExtractSettings
from panther.encoders.step import EncoderChoice, FeatureStep
from panther.engine import Work
from panther.errors import InputError
from panther.slides import Job, PatchStep, Polygon, SlideFiles, SlideRef, Tissue, TissueStep, list_slides, run_job
from panther.storage.readers import open_bag


@pytest.fixture
def panther():
    app = typer.Typer()
    app.command("encoders")(commands.list_encoders)
    app.command("encode-tiles")(commands.encode_tiles)
    return lambda *arguments: CliRunner().invoke(app, list(map(str, arguments)))


def test_the_same_slide_as_svs_and_dicom_gives_the_same_coordinates_and_alike_features(shared_data, tmp_path):
    slides = shared_data / "slides"
    refs = list_slides([slides / "CMU-1-Small-Region.svs", slides / "CMU-1-dicom"]).refs
    job, patches = Job(tmp_path / "job"), PatchStep()
    choice = EncoderChoice("lite0", devices=("cpu", "cpu"))  # two slides side by side, as on two GPUs
    with FeatureStep(patches.folder, choice, ExtractSettings(workers=1)) as step:
        steps = [TissueStep(), patches, step]
        with step.executor() as executor:
            report = run_job(refs, steps, job, work=Work(executor))
        assert not report.failures
        assert step.balance.patches == report.patches > 60
        assert run_job(refs, steps, job).worked == 0  # nothing to do the second time
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
    with FeatureStep("20x_256px_0px_overlap") as step, pytest.raises(InputError, match="run the step patches first"):
        step.run(SlideFiles(SlideRef(tmp_path / "a.svs", "a"), Job(tmp_path)))
    with pytest.raises(InputError, match="no encoder"):
        FeatureStep("x", EncoderChoice("unicorn"))
    assert EncoderChoice("timm:vit_tiny/x").folder == "features_timm-vit_tiny-x"


def test_the_list_of_encoders_says_where_access_is_granted(panther):
    text = panther("encoders").stdout
    assert "https://huggingface.co/MahmoodLab/UNI2-h" in text
    listed = {row["name"]: row for row in json.loads(panther("encoders", "--json").stdout)["encoders"]}
    assert listed["virchow2"]["dim"] == 2560
    assert listed["lite0"]["gated"] is None


def test_tiles_become_a_bag_and_a_broken_one_is_listed(panther, tmp_path):
    make_tiles(tmp_path / "tiles" / "kind", 5, size=224)
    (tmp_path / "tiles" / "kind" / "002.png").write_bytes(b"broken")
    result = panther("encode-tiles", tmp_path / "tiles", "-o", tmp_path / "bag.h5", "-j", 1, "--json")
    assert result.exit_code == 1
    told = json.loads(result.stdout)
    assert (told["tiles"], list(told["failures"])) == (4, ["kind/002.png"])
    bag = open_bag(tmp_path / "bag.h5")
    assert (len(bag), bag.dim, bag.encoder) == (4, 1280, "lite0")


def test_a_slide_is_extracted_in_memory_as_the_job_writes_it(shared_data, tmp_path):
    import panther

    path = shared_data / "slides" / "CMU-1-Small-Region.svs"
    (ref,) = list_slides([path]).refs
    patches = PatchStep()
    with FeatureStep(patches.folder, EncoderChoice("lite0"), ExtractSettings(workers=1)) as step:
        run_job([ref], [TissueStep(), patches, step], Job(tmp_path))
        written = panther.open_bag(step.path(SlideFiles(ref, Job(tmp_path))))
    bag = panther.extract(path, "lite0")
    assert (bag.slide_id, bag.encoder, bag.spec) == (written.slide_id, written.encoder, written.spec)
    assert np.array_equal(bag.coords, written.coords)
    torch.testing.assert_close(
        bag.features, written.features[:], atol=0.02, rtol=0.02
    )  # float16, other numbers of threads
    with panther.open_slide(path) as slide:
        square = Tissue((Polygon(np.array([[0, 0], [600, 0], [600, 600], [0, 600]])),))
        few = panther.extract(slide, "lite0", tissue=square)
    assert 0 < len(few) < len(bag)
    assert few.coords.max() < 600
