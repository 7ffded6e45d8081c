"""A budget of patches, from the command line to embeddings and maps of a real slide."""

import json
import shutil

import anndata
import h5py
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.cluster import KMeans

import panther
from commands import run
from encoders.making import tiny
from panther.encoders.budget import Budget
from panther.encoders.pipeline import ExtractSettings, Pipeline
from panther.encoders.sources import SlidePatches
from panther.errors import InputError
from panther.explain.maps import map_slide
from panther.statistics.even_sample import draw_even, order_along_curve
from panther.storage.trident import read_coords
from panther.types import Bag, PatchSpec, Population


@pytest.fixture(scope="module")
def slide(shared_data):
    return shared_data / "slides" / "CMU-1-Small-Region.svs"


def words(slide, job, budget, *more):
    sizes = ("--patch-size", 128, "--encoder", "lite0", "--device", "cpu", "-j", 1)
    return ("slides", slide, "-o", job, *sizes, "--budget", budget, *more)


@pytest.fixture(scope="module")
def job(slide, tmp_path_factory):
    """Job with a sixth of the patches, prototypes of them, and their embedding."""
    folder = tmp_path_factory.mktemp("budget") / "job"
    run(*words(slide, folder, 25))
    prototypes, table = folder / "p.safetensors", folder / "e.h5ad"
    run("prototypes", features_of(folder), "-o", prototypes, "-C", 3, "-j", 1, "--device", "cpu")
    run("embed", features_of(folder), "-p", prototypes, "-o", table, "-j", 1, "--device", "cpu")
    return folder


def features_of(job):
    return next(job.glob("20x_*/features_lite0"))


def bag_of(job):
    return panther.open_bag(next(features_of(job).glob("*.h5")))


@pytest.mark.parametrize(
    "text", ["0", "2", "-5", "10.5", "200%", "0%", "nan%", "se=", "se=0", "se=nan", "nan", "inf", ""]
)
def test_a_broken_budget_names_the_parameter(text):
    with pytest.raises(InputError, match=r"^budget: found"):
        Budget(text)


def test_a_standard_error_requires_prototypes_and_nothing_else_uses_them(slide, tmp_path):
    with pytest.raises(InputError, match="requires `prototypes=`"):
        Budget("se=0.01")
    with pytest.raises(InputError, match="does not use"):
        Budget("10%", 0, panther.Prototypes(torch.eye(3)))
    with pytest.raises(InputError, match=r"^prototypes"):
        Budget.of(None, 0, panther.Prototypes(torch.eye(3)))
    with pytest.raises(InputError, match=r"budget: se=0\.01 requires"):
        run(*words(slide, tmp_path / "job", "se=0.01"))
    assert not (tmp_path / "job").exists()


def test_a_file_holds_the_sample_and_the_coordinates_of_all_patches(job):
    bag, path = bag_of(job), next(features_of(job).glob("*.h5"))
    every = read_coords(next(job.glob("20x_*/patches/*.h5")))
    assert bag.population.total == len(every.coords) > 100
    along = every.coords[order_along_curve(every.coords, every.spec.size_level0)]
    assert np.array_equal(bag.coords, along[draw_even(len(along), 25, 0)])
    assert np.array_equal(bag.population.places().numpy(), along)
    with h5py.File(path) as file:  # as TRIDENT's readers do
        assert file["features"][:].shape == (25, 1280)
        assert file["coords"][:].shape == (25, 2)
        assert file["coords"].attrs["patch_size_level0"] == every.spec.size_level0
        assert dict(file["features"].attrs)["budget"] == "25"
    with (job / "summary.csv").open() as table:
        assert "budget" in table.readline()


def test_features_of_the_sample_are_those_of_all_patches(job, slide, tmp_path):
    shutil.copytree(job, tmp_path / "job")
    run(*words(slide, tmp_path / "job", 100_000))  # more than there are: all are encoded
    everything, sample = bag_of(tmp_path / "job"), bag_of(job)
    assert everything.population is None
    place = {tuple(corner): row for row, corner in enumerate(everything.coords.tolist())}
    rows = [place[tuple(corner)] for corner in sample.coords.tolist()]
    assert torch.allclose(everything.features[:][rows].float(), sample.features[:].float(), atol=0.02)


def test_a_second_run_does_nothing_and_another_seed_or_budget_encodes_again(job, slide, tmp_path):
    shutil.copytree(job, tmp_path / "job")
    assert "(1 were done already)" in run(*words(slide, tmp_path / "job", 25)).output
    for changed in (("25", "--seed", 1), ("8%",)):
        assert "(0 were done already)" in run(*words(slide, tmp_path / "job", *changed)).output
    assert len(bag_of(tmp_path / "job")) < 25


def test_the_proportions_have_standard_errors(job, slide):
    table = anndata.read_h5ad(job / "e.h5ad")
    pi, error = table.obsm["pi"][0], table.obsm["pi_se"][0]
    assert ((error > 0) == ((pi > 0) & (pi < 1))).all()
    assert error.max() < 0.5 / np.sqrt(25)
    # a patient's bag of two slides of which one is encoded whole
    bag = bag_of(job)
    whole = panther.Bag("whole", bag.features[:], bag.coords, bag.spec, bag.encoder)
    embedded = panther.embed_cohort({"a": bag, "b": whole}, job / "p.safetensors", workers=1)
    assert np.allclose(embedded.weights_se[0], error, atol=1e-6)
    assert (embedded.weights_se[1] == 0).all()
    assert panther.embed_cohort({"b": whole}, job / "p.safetensors", workers=1).weights_se is None


def test_a_prior_shrinks_the_standard_errors_and_hard_methods_have_them_too(job):
    bag, file = bag_of(job), job / "p.safetensors"
    for method in ("protocounts", "h2t"):
        table = panther.embed_cohort({"a": bag}, file, method, workers=1)
        assert (table.weights_se is not None) == (table.weights is not None)
    paper, prior = (panther.embed_cohort({"a": bag}, file, workers=1, tau=tau) for tau in (0.0, 25 / 3))
    assert np.allclose(prior.weights_se, paper.weights_se / 2)  # 3 prototypes that count together as 25 patches
    assert panther.embed_cohort({"a": bag}, file, workers=1, weights="uniform").weights_se is None


def test_a_sample_grows_until_the_standard_error_is_reached(slide):
    corners = np.stack(np.meshgrid(np.arange(68), np.arange(90)), -1).reshape(-1, 2) * 32
    along = corners[order_along_curve(corners, 32)]
    source = SlidePatches(slide, 0.5, PatchSpec(0.5, 32, 32, 32, 0))
    with Pipeline(tiny(), ExtractSettings(64, 0, "float32")) as pipeline:
        everything = torch.from_numpy(pipeline.run(source, along).rows)
        prototypes = panther.Prototypes(KMeans(3, n_init=1, random_state=0).fit(everything).cluster_centers_)
        bag = panther.Bag("a", everything[:0])
        sizes = {}
        for error in (0.1, 0.012, 0.0005):
            budget = Budget(f"se={error}", 3, prototypes)
            encoded, drawn = budget.encode(pipeline, source, along, bag)
            assert torch.equal(torch.from_numpy(encoded.rows), everything[drawn])  # in the order of the curve
            sample = Bag("a", encoded.rows, population=Population(len(along), lambda: torch.from_numpy(along)))
            table = panther.embed_cohort({"a": sample}, prototypes, workers=1)
            assert len(drawn) == len(along) or table.weights_se.max() <= error
            sizes[error] = len(drawn)
    assert sizes[0.1] == 256
    assert sizes[0.012] % 256 == 0
    assert 256 < sizes[0.012] < sizes[0.0005] == len(along)


def test_neighbours_require_all_patches(job):
    with pytest.raises(InputError, match="neighbours require all"):
        panther.embed(bag_of(job), job / "p.safetensors", blocks=["space"])


def test_a_map_fills_the_gaps_from_the_nearest_patch_and_shows_them_lighter(job, tmp_path):
    bag = bag_of(job)
    slide_map = map_slide(bag, panther.load_prototypes(job / "p.safetensors"))
    assert len(slide_map.labels) == bag.population.total
    assert (~slide_map.filled).sum() == len(bag)
    light, full = slide_map.patch_colours[slide_map.filled], slide_map.patch_colours[~slide_map.filled]
    assert light.mean() > full.mean() + 30
    assert "neighbours" not in slide_map.figures()
    assert any("25 of" in note for note in slide_map.notes())
    run("map", features_of(job), "-p", job / "p.safetensors", "-o", tmp_path / "maps", "-j", 1)
    assert list((tmp_path / "maps").glob("*.map.png"))
    assert not list((tmp_path / "maps").glob("*.neighbours.csv"))


@pytest.mark.parametrize("value", [np.zeros((5, 3), int), np.zeros((5, 2), int), np.zeros(3, int)])
def test_damaged_coordinates_of_all_patches_are_refused(job, tmp_path, value):
    path = shutil.copy(next(features_of(job).glob("*.h5")), tmp_path / "a.h5")
    with h5py.File(path, "r+") as file:
        del file["all_coords"]
        file["all_coords"] = value
    with pytest.raises(InputError, match="all_coords"):
        panther.open_bag(path)


def test_extracted_bags_in_memory_know_their_population(slide):
    bags = panther.extract(slide, "lite0", patch_size=128, budget=20, device="cpu", workers=1)
    (bag,) = bags.values()
    assert len(bag) == 20
    assert isinstance(bag.population, Population)
    assert len(bag.population.places()) == bag.population.total > 100


def test_the_size_of_a_sample():
    assert [Budget("10%").size(n) for n in (5000, 41, 4, 2)] == [500, 5, 3, 2]
    assert [Budget("1500").size(n) for n in (15_000, 900, 0)] == [1500, 900, 0]


def test_conversion_keeps_the_population(job, tmp_path):
    panther.save_bag(bag_of(job), tmp_path / "copy.h5")
    copy = panther.open_bag(tmp_path / "copy.h5")
    assert copy.population.total == bag_of(job).population.total


def test_the_atlas_of_a_sample_has_the_standard_errors_of_the_embedding_and_no_neighbours(job, tmp_path):
    run("atlas", features_of(job), "-p", job / "p.safetensors", "-o", tmp_path / "atlas", "-j", 1, "--device", "cpu")
    row = pd.read_csv(tmp_path / "atlas" / "pi.csv").iloc[0]
    embedded = anndata.read_h5ad(job / "e.h5ad").obsm["pi_se"][0]
    np.testing.assert_allclose(row[["se_C0", "se_C1", "se_C2"]].to_numpy(float), embedded, rtol=1e-4)
    notes = json.loads((tmp_path / "atlas" / "atlas.json").read_text())["notes"]
    assert any("left out of the neighbours" in note for note in notes)
