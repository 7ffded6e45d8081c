"""Attention of supervised networks as maps: the network's numbers, in the right place, scaled."""

import json
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from known_regions import SIDE, contents, write_bag
from matplotlib import colormaps
from PIL import Image
from scipy.stats import rankdata

from panther.explain.attention import SCALES, attention, map_attention
from panther.mil import build_model, networks
from panther.models.blocks import Block
from panther.models.heads import build_head
from panther.models.model import Model, save_model
from panther.models.scaling import Scaler
from panther.models.settings import Named
from panther.models.tasks import Classification, DiscreteSurvival
from panther.storage.prototypes import load_prototypes
from panther.storage.readers import open_bag
from panther.types import FeatureSpace

SMALL = {
    "abmil": {"hidden": 8, "attention": 4},
    "attnmisl": {"hidden": 8, "attention": 4},
    "dsmil": {"hidden": 8, "attention": 4},
    "transmil": {"hidden": 8, "heads": 2, "landmarks": 16},
    "ilra": {"hidden": 8, "heads": 2, "latents": 4},
}
TASK = Classification(("a", "b", "c"))


def network(slide, name, task=TASK):
    prototypes = load_prototypes(slide / "p.safetensors") if name == "attnmisl" else None
    module = build_model(name, 3, task.n_outputs, prototypes, SMALL[name], seed=4).eval()
    method = Named(name=name, options=SMALL[name])
    block = Block(method, prototypes or FeatureSpace(3, "mean"))
    return Model(method, Named(name="own"), task, module, (block,), None, {})


def test_every_network_has_a_map(slide):
    assert set(SMALL) == set(networks.names())
    bag = open_bag(slide / "s.h5")
    for name in SMALL:
        received = attention(bag, network(slide, name))
        assert received.weights.shape == (len(bag), 3 if name == "dsmil" else 1)
        np.testing.assert_allclose(received.weights.sum(0), 1, atol=1e-5)
        assert received.prediction["probabilities"].shape == (1, 3)


def test_abmil_s_map_is_the_softmax_of_its_scores_as_ranks_or_proportions(slide):
    bag, model = open_bag(slide / "s.h5"), network(slide, "abmil")
    inner = model.network.network
    with torch.no_grad():
        h = inner.reduce(bag.features[:].float())
        gate = inner.attention.gate(h).sigmoid()
        score = inner.attention.score(inner.attention.content(h).tanh() * gate)[:, 0].double()
    by_hand = (score - score.max()).exp() / (score - score.max()).exp().sum()
    np.testing.assert_allclose(attention(bag, model).weights[:, 0], by_hand, rtol=1e-4)
    weights = np.array([[0.1], [0.4], [0.1], [0.4], [0.0]])
    np.testing.assert_allclose(SCALES["rank"].of(weights)[:, 0], (rankdata(weights[:, 0]) - 0.5) / 5)  # ties share one
    np.testing.assert_allclose(SCALES["linear"].of(weights)[:, 0], [0.25, 1, 0.25, 1, 0])


def test_dsmil_shows_the_predicted_class_and_one_heatmap_a_class(slide):
    bag, model = open_bag(slide / "s.h5"), network(slide, "dsmil")
    found = map_attention(bag, model)
    predicted = int(found.attention.prediction["probabilities"].argmax())
    assert found.main == predicted
    assert found.titles == tuple(f"attention of DSMIL for {name}" for name in "abc")
    np.testing.assert_allclose(found.assignment, SCALES["rank"].of(found.attention.weights), atol=1e-6)
    survival = map_attention(bag, network(slide, "dsmil", DiscreteSurvival((10.0, 20.0))))
    assert survival.titles[1] == "attention of DSMIL for time bin 2"
    assert list(survival.prediction) == ["risk"]


def test_the_overlay_paints_each_patch_in_the_colour_of_its_rank(slide, tmp_path, run):
    model = network(slide, "abmil")
    save_model(model, tmp_path / "m.st")
    for name in "xy":
        out, _ = run("map", slide / "s.h5", "--model", "m.st", "--slides", slide / "s.tif", "-o", name, "--json",
                     "--max-side", 750, "--formats", "png")  # fmt: skip
    files = contents(Path("x"))
    assert list(files) == ["s.attention.png", "s.overlay.png", "s.side_by_side.png"]
    assert files == contents(Path("y"))
    (row,) = json.loads(out)["slides"]
    weights = attention(open_bag(slide / "s.h5"), model).weights[:, 0]
    assert row["effective_patches"] == pytest.approx(1 / (weights**2).sum(), rel=1e-4)
    with Image.open("x/s.overlay.png") as overlay, h5py.File(slide / "s.h5") as file:
        pixels, coords = np.asarray(overlay), file["coords"][:]
    centre = ((coords + SIDE / 2) * pixels.shape[1] / 1500).astype(int)
    wanted = colormaps["viridis"]((rankdata(weights) - 0.5) / len(weights), bytes=True)[:, :3]
    off = np.abs(pixels[centre[:, 1], centre[:, 0], :3].astype(int) - wanted.astype(int))
    assert off.max() <= 4  # a rank in float32 may fall to the next of 256 colours
    assert (pixels[0, 0, 3], pixels[centre[0, 1], centre[0, 0], 3]) == (0, 255)


def test_a_model_with_prototypes_gives_the_map_of_its_prototypes(slide, tmp_path, run):
    prototypes = load_prototypes(slide / "p.safetensors")
    method, head = Named(name="panther", options={"temperature": 3.0}), build_head("linear", (21,), 3, seed=0)
    scaler = Scaler(torch.zeros(21), torch.ones(21))
    model = Model(method, Named(name="linear"), TASK, head, (Block(method, prototypes),), scaler, {}, torch.zeros(21))
    save_model(model, tmp_path / "m.st")
    common = (slide / "s.h5", "--max-side", 100, "--prototype", "C1")
    run("map", *common, "--model", "m.st", "-o", "a")
    run("map", *common, "-p", slide / "p.safetensors", "-s", "temperature=3", "-o", "b")
    assert contents(Path("a")) == contents(Path("b")) != {}


def test_attention_that_is_the_same_everywhere_is_noted(slide, tmp_path, run):
    model = network(slide, "abmil")
    torch.nn.init.zeros_(model.network.network.attention.score.weight)
    save_model(model, tmp_path / "m.st")
    _, err = run("map", slide / "s.h5", "--model", "m.st", "-o", "x", "--max-side", 100, "--attention", "linear")
    assert "nearly the same everywhere" in err


def test_impossible_requests_are_refused(slide, tmp_path, refused):
    model = network(slide, "abmil")
    save_model(model, tmp_path / "m.st")
    uni = replace(model, blocks=(Block(model.method, FeatureSpace(3, "uni")),))
    save_model(uni, tmp_path / "uni.st")
    grid = np.array([[0, 0], [SIDE, 0]])
    write_bag(tmp_path / "nan.h5", np.array([[1, 2, 3], [1, np.nan, 3]]), grid)
    s, prototypes = slide / "s.h5", slide / "p.safetensors"
    for culprit, *arguments in (
        ("prototypes: ", s, "--model", "m.st", "-p", prototypes),
        ("prototypes: ", s),
        ("method: ", s, "--model", "m.st", "--method", "ot"),
        ("prototype: ", s, "--model", "m.st", "--prototype", "C1"),
        ("formats: ", s, "--model", "m.st", "--formats", "png,geojson"),
        ("log", s, "--model", "m.st", "--attention", "log"),
        ("attention: ", s, "-p", prototypes, "--attention", "rank"),
        ("not of a model", s, "--model", prototypes),
        ("'uni'", s, "--model", "uni.st"),
        ("row 1", "nan.h5", "--model", "m.st"),
    ):
        refused(culprit, "map", *arguments)
