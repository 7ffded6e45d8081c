"""Calibration and prediction sets of a study: the calibrating patients, and coverage."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from panther.cohort.targets import Classes, Values
from panther.engine import LOCAL
from panther.evaluation.calibration import brier, fit_temperature, tempered
from panther.evaluation.intervals import exact_lower
from panther.models.settings import Named
from panther.models.tasks import Classification, SquaredError
from panther.study.evaluations import Evaluation
from panther.study.file import Cell
from panther.study.sureness import _calibrator, judge_sureness
from panther.study.training import Trained
from panther.verbs.study import run_study
from study.generated import generate, study_in

NAMES = {key: Named(name=name) for key, name in {"method": "panther", "head": "probe", "loss": "cross-entropy"}.items()}
CELL = Cell(encoder="uni", **NAMES, n_prototypes=4, train_size=1.0, seed=1)


class Population:
    """Samples and sites of a population."""

    def __init__(self, result):
        self.ids = list(dict.fromkeys(name for one in result for name in one.ids))
        self.sites = [("A", "B", None)[i % 3] for i in range(len(self.ids))]


def evaluation(target, prediction, task, fold, part="test"):
    ids = tuple(f"{part}{fold}-{i}" for i in range(len(target)))
    trained = Trained(CELL, fold, Path("p.npz"), Path("m.safetensors"))
    return Evaluation(trained, part, "", "", task, prediction, target, ids, ids, None)


def classes(rng, n, fold, part="test", temperature=0.4):
    """Three classes and a model that is too sure."""
    truth = rng.dirichlet(np.ones(3), n)
    labels = (rng.random((n, 1)) > truth.cumsum(1)).sum(1)
    names = ("a", "b", "c")
    inputs = {"probabilities": tempered(truth, temperature)}
    return evaluation(Classes(names, labels), inputs, Classification(names), fold, part)


def values(rng, n, fold):
    truth = rng.normal(0, 3, n)
    inputs = {"value": truth + rng.standard_t(4, n)}
    return evaluation(Values(truth), inputs, SquaredError(0.0, 3.0), fold)


def test_a_fold_is_calibrated_by_the_others():
    rng = np.random.default_rng(0)
    folds = [classes(rng, 40, fold) for fold in range(3)]
    result = _calibrator(folds[0], folds)
    labels = np.concatenate([folds[k].target.labels for k in (1, 2)])
    p = np.concatenate([folds[k].prediction["probabilities"] for k in (1, 2)])
    assert result.temperature == fit_temperature(labels, p)
    assert (result.patients, result.source) == (80, "test patients of the other folds")


def test_patients_who_are_tested_twice_do_not_calibrate_themselves():
    rng = np.random.default_rng(1)
    first, second = classes(rng, 40, 0), classes(rng, 40, 1)
    second = replace(second, patients=(*first.patients[:25], *second.patients[25:]))
    assert _calibrator(first, [first, second]).patients == 15
    assert _calibrator(first, [first, replace(second, patients=first.patients)]) is None


def test_a_validation_part_comes_first_and_the_test_part_calibrates_external_cohorts():
    rng = np.random.default_rng(2)
    test, val, other = classes(rng, 20, 0), classes(rng, 30, 0, "val"), classes(rng, 40, 1)
    external = classes(rng, 50, 0, "test_elsewhere")
    for one, cells, expected in (
        (test, [test, val, other, external], (30, "validation patients")),
        (external, [test, other, external], (20, "test patients of the same fold")),
    ):
        calibrator = _calibrator(one, cells)
        assert (calibrator.patients, calibrator.source) == expected


@pytest.mark.parametrize("make", [classes, values])
def test_prediction_sets_have_their_coverage_in_simulated_studies(make):
    rng = np.random.default_rng(3)
    covered = []
    for _ in range(30):
        folds = [make(rng, 30, fold) for fold in range(5)]
        table = judge_sureness(folds, Population(folds), 0, LOCAL)["prediction_sets"]
        covered.append(table.query("by == 'all'")["coverage"].item())
    assert 0.88 <= np.mean(covered) <= 0.92


def test_calibration_corrects_an_overconfident_model():
    rng = np.random.default_rng(4)
    folds = [classes(rng, 100, fold) for fold in range(3)]
    tables = judge_sureness(folds, Population(folds), 50, LOCAL)
    result = tables["calibration"].set_index(["probabilities", "metric"])
    labels = np.concatenate([one.target.labels for one in folds])
    raw = np.concatenate([one.prediction["probabilities"] for one in folds])
    assert result.loc[("raw", "brier"), "value"] == pytest.approx(brier(labels, raw))
    assert result.loc[("raw", "ece"), "value"] > result.loc[("raw", "ece"), "by_chance_high"]
    assert result.loc[("calibrated", "ece"), "value"] < result.loc[("calibrated", "ece"), "by_chance_high"]
    assert result.loc[("calibrated", "log_loss"), "ci_high"] < result.loc[("raw", "log_loss"), "value"]
    curve = tables["reliability"].query("probabilities == 'raw' and `class` == 'predicted class'")
    assert curve["samples"].sum() == 300
    assert set(tables["reliability"]["class"]) == {"predicted class", "a", "b", "c"}
    sets = tables["prediction_sets"].set_index(["by", "value"])
    assert sets.loc[("class", "a"), "samples"] == (labels == 0).sum()
    assert sets.loc[("site", "A"), "patients"] == 100  # those without a site are in no group of theirs


def test_a_study_writes_its_tables_and_its_models_know_them(tmp_path):
    generate(tmp_path, patients=45)
    values = {"splits": {"k": 3, "val": True}, "methods": ["protocounts"], "n_prototypes": [3], "bootstrap": 10}
    study = study_in(tmp_path, **values)
    results = run_study(study, tmp_path / "run")
    names = {"calibration", "reliability", "prediction_sets"}
    assert set(results.sureness) == names
    assert {path.stem for path in (tmp_path / "run").glob("*.parquet")} >= names
    assert set(results.sureness["prediction_sets"]["calibrated_on"]) == {"validation patients"}
    assert results.model(fold=0).uncertainty.calibrator.patients == 15
    survival = run_study(study_in(tmp_path, **values, task={"survival": "dss"}), tmp_path / "survival")
    assert survival.sureness == {}
    again = run_study(study_in(tmp_path, **values, prediction_sets="by-class"))
    assert len(again.model(fold=0).uncertainty.calibrator.threshold) == 2
    assert set(again.sureness["prediction_sets"]["by"]) >= {"all", "class"}


def test_full_coverage_of_few_has_the_exact_bound():
    rng = np.random.default_rng(5)
    folds = [classes(rng, 12, fold) for fold in range(2)]
    sure = [replace(one, prediction={"probabilities": np.full((12, 3), 1 / 3)}) for one in folds]
    sets = judge_sureness(sure, Population(sure), 20, LOCAL)["prediction_sets"].query("by == 'all'").iloc[0]
    assert (sets["coverage"], sets["size"]) == (1, 3)
    assert sets["ci_low"] == exact_lower(24)
