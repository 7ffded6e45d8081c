"""Layers that models and classifiers give: their own numbers, on the right patches."""

import shutil

import numpy as np
import pytest

import panther
from explain.known_regions import COLOURS, SIDE
from panther import attribute
from panther.cohort.load import load_cohort
from panther.explain.attention import SCALES, attention
from panther.explain.attribution.draw import patch_values
from panther.explain.concordance.tissue_classifier import LabelledTiles, fit_classifier, save_classifier
from panther.explain.palette import PALETTE, rgb_values
from panther.explain.slide_map import DIVERGING, heat_colours
from panther.mil import build_model
from panther.models.blocks import Block
from panther.models.fitting import TrainingRecipe, train_model
from panther.models.model import Model, load_model, save_model
from panther.models.settings import Named, TrainSettings
from panther.models.tasks import Classification
from panther.prototypes import KMeansSettings
from panther.slides.polygons import Polygon, Tissue, write_contours
from panther.storage.bags import list_bags
from panther.types import FeatureSpace
from panther.viewer.contents import find_contents
from panther.viewer.workbench import Workbench
from viewer.asking import entered, picture

RGB = rgb_values(PALETTE).tolist()

RECIPE = TrainingRecipe(
    Named(name="panther", options={"preset": "calibrated"}),
    Named(name="probe"),
    Named(name="cross-entropy"),
    KMeansSettings(3, restarts=2, passes=1),
    TrainSettings(epochs=3),
)
SMALL = {"hidden": 8, "attention": 4}


@pytest.fixture(scope="module")
def with_models(written_cohort, tmp_path_factory):
    """The cohort with a head on prototypes, two networks, an agreement with tissue classes and an outline."""
    folder = shutil.copytree(written_cohort, tmp_path_factory.mktemp("models") / "cohort")
    listing = list_bags(folder / "features")
    cohort = load_cohort(folder / "cohort.csv", label="subtype", bags=listing, level="slide")
    save_model(train_model(listing.refs, cohort.target, RECIPE)[0], folder / "head.safetensors")
    task = Classification(("a", "b"))
    for name in ("abmil", "dsmil"):
        module = build_model(name, 3, 2, None, SMALL, seed=4).eval()
        method = Named(name=name, options=SMALL)
        block = Block(method, FeatureSpace(3, "mean"))
        model = Model(method, Named(name="own"), task, module, (block,), None, {})
        save_model(model, folder / f"{name}.safetensors")
    places = {ref.sample: ref.open().places().numpy() for ref in listing.refs}
    lines = ["slide_id,x,y,label"]
    for ref in listing.refs:
        nearest = np.abs(ref.open().features.numpy()[:, None] * 10 - COLOURS[1:]).sum(2).argmin(1)
        corners = places[ref.sample].astype(int).tolist()
        lines += [f"{ref.sample},{x},{y},{'abc'[k]}" for (x, y), k in zip(corners, nearest, strict=True)]
    (folder / "labels.csv").write_text("\n".join(lines))
    labels, output = folder / "labels.csv", folder / "agreement"
    panther.concordance(
        folder / "features", folder / "prototypes.safetensors", patch_labels=labels, output=output, maps=False
    )
    (folder / "labels.csv").unlink()
    outlines = folder / "contours_geojson"
    outlines.mkdir()
    square = np.array([[100.0, 200], [700, 200], [700, 900], [100, 900]])
    write_contours(outlines / "S0.geojson", Tissue((Polygon(square, ()),), ()), {})
    return folder


@pytest.fixture
def models(with_models):
    return Workbench(find_contents(with_models))


@pytest.fixture
def page(models):
    return entered(models)


def layers(page, name="S0", **query):
    found = page.get(f"/api/slides/{name}", query_string=query).get_json()
    return {layer["id"]: layer for layer in found["layers"]}, found["notes"]


def patch_colours(page, models, address, name="S0"):
    """Colour (N, 4) of every patch, read from the middle of its tile pixels at the finest zoom."""
    found = models.patches(name)
    tiles, colours = {}, []
    for x, y in (found.corners + SIDE // 2).astype(int).tolist():
        tile = x // 256, y // 256
        if tile not in tiles:
            tiles[tile] = picture(page, address.format(*tile))
        colours.append(tiles[tile][y % 256, x % 256])
    return np.array(colours)


def on_scale(parts, scale):
    return heat_colours(np.round(np.asarray(parts) * 254) / 254, scale).astype(int)


def test_layers_of_models_are_listed_and_computed_on_request(page):
    found, notes = layers(page)
    assert list(found) == [
        "prototypes",
        "posterior",
        "attribution",
        "attention",
        "classes",
        "grid",
        "outline",
        "missing",
    ]
    assert notes == []
    assert found["attribution"]["high"] is None
    found, _ = layers(page, model="head")
    assert found["attribution"]["outputs"] == ["a", "b"]
    assert found["attribution"]["low"] == -found["attribution"]["high"] < 0
    assert "attention" not in found
    found, _ = layers(page, model="dsmil")
    assert "attribution" not in found
    assert len(found["attention"]["outputs"]) == 2
    assert "outline" not in layers(page, "S1")[0]


def test_attribution_shows_what_each_patchs_prototype_adds(page, models, with_models):
    model = load_model(with_models / "head.safetensors")
    bags = list_bags(with_models / "features").refs
    expected = attribute(model, bags[:1])
    for k, output in enumerate(expected.outputs):
        added = expected.by_prototype()[0, k]
        own = panther.make_map(bags[0].open(), model=model)["S0"].assignment
        parts = (patch_values(own, added) / np.abs(added).max() + 1) / 2
        address = f"/layers/S0/attribution/3/{{}}/{{}}.png?model=head&output={output}"
        seen = patch_colours(page, models, address)
        assert np.abs(seen[:, :3].astype(int) - on_scale(parts, DIVERGING)).max() <= 6
        assert np.abs(seen[:, 3] - 255 * np.abs(2 * parts - 1)).max() <= 2  # as strong as the value
    refused = page.get("/layers/S0/attribution/0/0/0.png?model=head&output=z")
    assert refused.status_code == 404
    assert "'z'" in refused.get_json()["error"]


def test_attention_is_that_of_the_network_by_rank_or_in_proportion(page, models, with_models):
    bag = list_bags(with_models / "features").refs[0].open()
    weights = attention(bag, load_model(with_models / "abmil.safetensors")).weights[:, 0]
    seen = patch_colours(page, models, "/layers/S0/attention/3/{}/{}.png?model=abmil&scale=linear")
    assert np.abs(seen[:, :3].astype(int) - on_scale(weights / weights.max(), "")).max() <= 6
    ranked = patch_colours(page, models, "/layers/S0/attention/3/{}/{}.png?model=abmil")
    expected = SCALES["rank"].of(weights[:, None])[:, 0]
    assert np.abs(ranked[:, :3].astype(int) - on_scale(expected, "")).max() <= 6
    assert page.get("/layers/S0/attention/0/0/0.png?scale=log").status_code == 422
    assert page.get("/layers/S0/attention/0/0/0.png?model=head").status_code == 404
    assert page.get("/layers/S0/attention/0/0/0.png?model=../head").status_code == 404


def test_classes_are_those_of_the_agreement(page, models):
    found, _ = layers(page)
    assert [one["name"] for one in found["classes"]["classes"]] == ["a", "b", "c"]
    labels = models.patches("S0").labels  # C0 to C2 are tissues 1 to 3, labelled a to c
    seen = patch_colours(page, models, "/layers/S0/classes/3/{}/{}.png")
    assert (seen == np.array([(*RGB[k], 255) for k in labels])).all()
    some = patch_colours(page, models, "/layers/S0/classes/3/{}/{}.png?shown=2")
    assert ((some[:, 3] == 255) == (labels == 2)).all()


def test_an_agreement_with_other_prototypes_gives_no_classes(with_models, tmp_path):
    folder = shutil.copytree(with_models, tmp_path / "other")
    file = folder / "agreement" / "concordance.json"
    file.write_text(file.read_text().replace('"prototypes_hash": "', '"prototypes_hash": "0'))
    client = entered(folder)
    assert "classes" not in layers(client)[0]
    file.write_text("{")
    found, notes = layers(client)
    assert "classes" not in found
    assert "panther concordance" in notes[0]


def test_a_tissue_classifier_labels_every_patch_itself(with_models, tmp_path):
    folder = shutil.copytree(with_models, tmp_path / "classified")
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(3), 20)
    features = (COLOURS[1:][labels] / 10 + rng.normal(scale=0.3, size=(60, 3))).astype(np.float32)
    save_classifier(
        fit_classifier(LabelledTiles(features, labels, ("x", "y", "z"), encoder="mean")), folder / "tissue.safetensors"
    )
    bench = Workbench(find_contents(folder))
    client = entered(bench)
    found, notes = layers(client)
    assert [one["name"] for one in found["classes"]["classes"]] == ["x", "y", "z"]
    assert notes == []
    pure = bench.patches("S0").assignment.max(1) > 0.999
    seen = patch_colours(client, bench, "/layers/S0/classes/3/{}/{}.png")
    expected = np.array([(*RGB[k], 255) for k in bench.patches("S0").labels])
    assert (seen[pure] == expected[pure]).all(1).mean() > 0.95


def test_borders_and_outline_lie_where_the_patches_and_the_tissue_end(page, models):
    corners = models.patches("S0").corners.astype(int)
    lines = picture(page, "/layers/S0/grid/3/1/1.png")[..., 3] > 0
    known = {tuple(corner) for corner in corners.tolist()}
    for x in range(256, 512):
        for y in range(256, 512, 7):
            here = (x // SIDE * SIDE, y // SIDE * SIDE) in known
            edge = x % SIDE == 0 or y % SIDE == 0
            last = (x % SIDE == SIDE - 1 and (x // SIDE * SIDE + SIDE, y // SIDE * SIDE) not in known) or (
                y % SIDE == SIDE - 1 and (x // SIDE * SIDE, y // SIDE * SIDE + SIDE) not in known
            )
            assert lines[y - 256, x - 256] == (here and (edge or last)), (x, y)
    assert picture(page, "/layers/S0/grid/0/0/0.png")[..., 3].any()  # patches of 7 pixels
    alpha = picture(page, "/layers/S0/outline/3/0/0.png")[..., 3]
    assert alpha[210, 99:101].min() > 100  # the left side, at x = 100
    assert alpha[199:201, 150].min() > 100  # the upper one, at y = 200
    assert alpha[:190].max() == 0
    assert alpha[210:, 110:].max() == 0


def test_tissue_without_a_patch_is_hatched_with_its_share(page, models):
    found, _ = layers(page)
    corners, covered = models.patches("S0").corners, np.zeros((1130, 1500), bool)
    for x, y in corners.astype(int):
        covered[y : y + SIDE, x : x + SIDE] = True
    inside = np.zeros_like(covered)
    inside[200:900, 100:700] = True  # the outline
    missing = inside & ~covered
    share = float(found["missing"]["title"].split(":")[1].split("%")[0])
    assert share == pytest.approx(100 * missing.sum() / inside.sum(), abs=0.5)
    alpha = picture(page, "/layers/S0/missing/3/0/0.png")[..., 3] > 0
    part = missing[:256, :256]
    assert not alpha[~part].any()
    assert 0.1 < alpha[part].mean() < 0.4


def test_features_that_changed_while_open_are_shown_anew(with_models, tmp_path):
    folder = shutil.copytree(with_models, tmp_path / "changing")
    client = entered(folder)
    before = client.get("/layers/S3/prototypes/0/0/0.png").data
    shutil.copy(folder / "features" / "S5.h5", folder / "features" / "S3.h5")
    assert client.get("/layers/S3/prototypes/0/0/0.png").data != before
    assert client.get("/layers/S3/attribution/0/0/0.png?model=head").status_code == 200
