"""Uncertainty of models: calibration, prediction sets and familiarity, in files and predictions."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import panther
from panther.cohort.load import load_cohort
from panther.cohort.targets import Classes
from panther.errors import InputError
from panther.evaluation.calibration import fit_temperature, set_threshold, tempered
from panther.models.blocks import Block
from panther.models.fitting import Embedded, Parts, TrainingRecipe, fit_model, train_model
from panther.models.model import load_model, save_model
from panther.models.predict import predict_slides
from panther.models.settings import Named, TrainSettings
from panther.prototypes import KMeansSettings
from panther.storage.clinical import select_slides
from panther.types import Prototypes
from study.generated import generate

RECIPE = TrainingRecipe(
    Named(name="protocounts"),
    Named(name="probe"),
    Named(name="cross-entropy"),
    KMeansSettings(4, restarts=1, passes=1),
    TrainSettings(epochs=1),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("cohort")
    generate(made, patients=36)
    return made


@pytest.fixture(scope="module")
def model(folder):
    return panther.train(folder / "features", folder / "table.csv", label="subtype", n_prototypes=4)


def predicted(model, bags):
    return predict_slides(model, select_slides(bags, None, None), "slide")


def test_predictions_have_calibrated_probabilities_sets_and_texts(model, folder):
    result = predicted(model, folder / "features").table
    calibrated = result[["calibrated_high", "calibrated_low"]].to_numpy()
    raw = result[["probability_high", "probability_low"]].to_numpy()
    np.testing.assert_allclose(calibrated, tempered(raw, model.uncertainty.calibrator.temperature))
    for p, inside, words in zip(calibrated, result["prediction_set"], result["sureness"], strict=True):
        names = [
            n
            for n, selected in zip(("high", "low"), p, strict=True)
            if selected >= model.uncertainty.calibrator.threshold or selected == p.max()
        ]
        assert inside == "; ".join(names)
        assert words.startswith(" or ".join(names) + " (90 % set")
    assert result["rare_patches"].mean() == pytest.approx(0.01, abs=0.005)  # of the training patches 1 in 100 is rare
    assert (result["familiarity"] > 0.05).mean() > 0.8


def test_a_slide_of_another_kind_is_called_outside(model, folder):
    bag = np.load(next(iter(sorted((folder / "features").glob("*.npy")))))
    result = predicted(model, {"usual": bag, "other": np.random.default_rng(0).normal(8, 1, bag.shape).astype("f4")})
    usual, other = result.table["sureness"]
    assert "like the training samples" in usual
    assert "or beyond: farther out than any of the 36 training samples was from the others" in other
    assert "100 % of the patches lie farther" in other
    assert [note for note in result.notes if note.startswith("other: ")]


def test_the_file_keeps_the_uncertainty(model, folder, tmp_path):
    save_model(model, tmp_path / "m.safetensors")
    back = load_model(tmp_path / "m.safetensors")
    one, two = (predicted(m, folder / "features").table for m in (model, back))
    for name in ("familiarity", "rare_patches", "prediction_set", "sureness"):
        assert one[name].tolist() == two[name].tolist()


@pytest.mark.parametrize(("name", "value"), [("temperature", 0.0), ("threshold", 2.0), ("temperature", float("nan"))])
def test_impossible_calibrations_are_refused(model, tmp_path, name, value):
    sure = replace(model.uncertainty, calibrator=replace(model.uncertainty.calibrator, **{name: value}))
    save_model(replace(model, uncertainty=sure), tmp_path / "m.safetensors")
    with pytest.raises(InputError, match=rf"m\.safetensors: .*{name}.*; train the model again"):
        load_model(tmp_path / "m.safetensors")


def test_a_validation_part_calibrates():
    rng = np.random.default_rng(0)
    labels = np.arange(90) % 2
    x = (labels[:, None] + rng.normal(0, 1.2, (90, 4))).astype("f4")
    x /= x.sum(1, keepdims=True)
    names = [f"S{i:02d}" for i in range(90)]
    target = Classes(("a", "b"), labels)
    rows = {"train": np.arange(60), "val": np.arange(60, 90)}
    parts = Parts(
        {part: tuple(names[i] for i in selected) for part, selected in rows.items()},
        {part: target.take(selected) for part, selected in rows.items()},
        {name: name for name in names},
        dict.fromkeys(names, ""),
    )
    fitted = fit_model(RECIPE, parts, Embedded(x, names, (Block(RECIPE.method, Prototypes(torch.eye(4))),)))
    p = fitted.predict("val")["probabilities"]
    result = fitted.model.uncertainty.calibrator
    assert result.patients == 30
    assert result.source == "validation patients"
    assert result.temperature == fit_temperature(labels[60:], p)
    assert result.threshold == set_threshold(labels[60:], tempered(p, result.temperature))


def test_missing_calibration_has_a_reason(folder):
    cohort = load_cohort(folder / "table.csv", label="subtype", bags=folder / "features")
    bags = cohort.join_bags(panther.list_bags(folder / "features"))
    network = replace(RECIPE, method=Named(name="abmil", options={"hidden": 8, "attention": 4}), head=Named(name="own"))
    model, _ = train_model(bags, cohort.target, network)
    result = predicted(model, folder / "features")
    assert "calibrated_high" not in result.table
    assert "familiarity" in result.table  # of the mean features
    assert any("not calibrated" in note for note in result.notes)
    few, _ = train_model(bags[:8], cohort.target.take(np.arange(8)), RECIPE)
    assert any("at least 10 patients" in why for why in few.uncertainty.reasons)
    high, low = (np.flatnonzero(cohort.target.labels == label) for label in (0, 1))
    rows = np.sort([*high[:14], low[0]])
    rare, _ = train_model([bags[row] for row in rows], cohort.target.take(rows), RECIPE)
    assert any(
        "Class low: too few patients for " in why and why.endswith("(patients: 1)") for why in rare.uncertainty.reasons
    )
