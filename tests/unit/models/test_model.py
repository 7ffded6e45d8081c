"""Training, saving and loading of models; samples that are left out; centred prototypes."""

from dataclasses import replace

import h5py
import numpy as np
import pandas as pd
import pytest

import panther
from hostile.test_tampered_files import rewrite, setting
from panther.cohort.load import load_cohort
from panther.errors import InputError, LeftOutWarning
from panther.models.fitting import TrainingRecipe, train_model
from panther.models.model import load_model, save_model
from panther.models.predict import predict_bags
from panther.models.settings import Named, TrainSettings
from panther.prototypes import KMeansSettings
from panther.storage.bags import BagRef, list_bags
from study.generated import generate

RECIPE = TrainingRecipe(
    Named(name="panther", options={"preset": "calibrated"}),
    Named(name="linear"),
    Named(name="cross-entropy"),
    KMeansSettings(4, restarts=2, passes=1),
    TrainSettings(epochs=2),
)


@pytest.fixture(scope="module")
def cohort(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cohort")
    generate(folder, patients=30)
    listing = list_bags(folder / "features")
    loaded = load_cohort(folder / "table.csv", label="subtype", bags=listing)
    paths = {ref.sample: ref.files for ref in listing.refs}
    return [BagRef(s.id, tuple(p for slide in s.slides for p in paths[slide])) for s in loaded.samples], loaded, folder


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"head": Named(name="probe")},
        {"head": Named(name="paper-classification", options={"after_dim": 8})},
        {"method": Named(name="deepsets")},
        {"method": Named(name="abmil", options={"hidden": 16, "attention": 8}), "head": Named(name="own")},
        {"method": Named(name="attnmisl"), "head": Named(name="own")},
        {"prototypes": KMeansSettings(4, normalise=True, pca=5, restarts=2, passes=1)},
    ],
    ids=["linear", "probe", "structured", "deepsets", "abmil", "attnmisl", "pca"],
)
def test_a_loaded_model_has_the_predictions_of_the_trained_one(changes, cohort, tmp_path):
    bags, loaded, _ = cohort
    model, failures = train_model(bags, loaded.target, replace(RECIPE, **changes))
    assert failures == {}
    save_model(model, tmp_path / "m.safetensors")
    back = load_model(tmp_path / "m.safetensors")
    (names, one, _), (others, two, _) = (predict_bags(m, bags[:7]) for m in (model, back))
    assert names == others == [bag.sample for bag in bags[:7]]
    np.testing.assert_allclose(one["probabilities"], two["probabilities"], atol=1e-6)
    assert back.about["samples"] == sorted(bag.sample for bag in bags)
    assert back.about["fingerprint"]


def test_features_of_another_encoder_or_dimension_are_refused(cohort, tmp_path):
    bags, loaded, _ = cohort
    for recipe in (RECIPE, replace(RECIPE, method=Named(name="abmil"), head=Named(name="own"))):
        model, _ = train_model(bags[:12], loaded.target.take(np.arange(12)), recipe)
        np.save(tmp_path / "odd.npy", np.ones((5, 7), "f4"))
        _, _, failures = predict_bags(model, [bags[0], BagRef("odd", (tmp_path / "odd.npy",))])
        assert list(failures) == ["odd"]
        with h5py.File(tmp_path / "uni.h5", "w") as file:
            file.create_dataset("features", data=np.ones((5, 12), "f4")).attrs["encoder"] = "uni"
        (block,) = model.blocks
        known = replace(model, blocks=(replace(block, basis=replace(block.basis, encoder="conch")),))
        with pytest.raises(InputError, match="conch"):
            predict_bags(known, [BagRef("uni", (tmp_path / "uni.h5",))])


NAMES = [f"s{i}" for i in range(12)]
TABLE = pd.DataFrame({"slide_id": NAMES, "case_id": NAMES, "subtype": list("ab") * 6})


def bags() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    result = {name: (rng.normal(size=(20, 4)) + i % 2).astype("f4") for i, name in enumerate(NAMES)}
    return {**result, "s3": np.full((5, 4), np.nan, "f4"), "s4": np.empty((0, 4), "f4")}


@pytest.mark.parametrize("method", ["panther", "mean", "abmil"])
def test_samples_with_nan_without_patches_or_features_are_left_out_with_a_warning(method):
    inputs = {name: bag for name, bag in bags().items() if name != "s5"}
    count = 2 if method == "panther" else None
    with pytest.warns(LeftOutWarning, match="Left out of the training: 3, e.g. s5: the table names it") as caught:
        model = panther.train(inputs, TABLE, label="subtype", method=method, n_prototypes=count, epochs=1)
    assert [one.filename for one in caught if one.category is LeftOutWarning] == [__file__]
    assert set(model.failures) == {"s3", "s4", "s5"}
    assert set(model.about["samples"]) == set(NAMES) - set(model.failures)
    with pytest.warns(LeftOutWarning, match="Left out of the predictions: 2, e.g. "):
        assert len(panther.predict(model, inputs).table) == 9
    with pytest.raises(panther.InputError, match=r"None of the 12 samples can be trained on\. .*NaN"):
        panther.train(dict.fromkeys(NAMES, inputs["s3"]), TABLE, label="subtype", method="abmil", epochs=1)


RNG = np.random.default_rng(0)


def slides(site, shift, count):
    """Half of the patients of a site have more of one tissue than of the other."""
    tissue = np.array([[0.0, 0, 0, 0], [6, 6, 0, 0]])
    return {
        f"{site}{i}": (tissue[(RNG.random(60) < (0.2, 0.8)[i % 2]).astype(int)] + RNG.normal(size=(60, 4)) + shift)
        for i in range(count)
    }


def test_a_new_site_of_the_table_is_centred_for_predictions(tmp_path):
    train, new = {**slides("A", 0, 10), **slides("B", 9, 10)}, slides("C", -12, 10)
    table = pd.DataFrame({"slide_id": [*train, *new]})
    table = table.assign(case_id=table.slide_id, site_id=table.slide_id.str[0], kind=["x", "y"] * 15)
    known = table[table.site_id != "C"]
    prototypes = panther.fit_prototypes(train, 2, table=known, centre="site", passes=1)
    model = panther.train(
        train, known, label="kind", prototypes=prototypes, calibrate=0, output=tmp_path / "m.safetensors"
    )
    for one in (model, tmp_path / "m.safetensors"):
        result = panther.predict(one, new, table[table.site_id == "C"][["slide_id", "case_id", "site_id"]]).table
        assert (result["predicted"].to_numpy() == np.array(["x", "y"] * 5)).mean() >= 0.9
    with pytest.raises(InputError, match="the site of C0 is unknown"):
        panther.predict(tmp_path / "m.safetensors", new)
    with pytest.raises(InputError, match="attnmisl"):
        panther.train(train, known, label="kind", method="attnmisl", prototypes=prototypes)


def test_a_network_of_another_form_is_refused_by_name(cohort, tmp_path):
    bags, loaded, _ = cohort
    recipe = replace(RECIPE, method=Named(name="ilra", options={"hidden": 8, "heads": 2, "latents": 2}))
    model, _ = train_model(bags, loaded.target, replace(recipe, head=Named(name="own")))
    save_model(model, tmp_path / "m.safetensors")
    rewrite(tmp_path / "m.safetensors", setting("revision", 1))
    with pytest.raises(InputError, match=r"m.safetensors: trained with another form of ilra"):
        load_model(tmp_path / "m.safetensors")
