"""Calibration and coverage of prediction sets, against scikit-learn and simulations."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from sklearn.calibration import calibration_curve
from sklearn.metrics import brier_score_loss
from sklearn.metrics import log_loss as sklearn_log_loss

from panther.evaluation.calibration import (
    brier,
    calibration_metrics,
    class_thresholds,
    covers,
    error_by_chance,
    fit_temperature,
    log_loss,
    prediction_sets,
    reliability,
    residual_width,
    set_threshold,
    tempered,
)


def drawn(n, n_classes=3, temperature=1.0, seed=0):
    """Labels drawn from probabilities, and the probabilities of a model that is off by a temperature."""
    rng = np.random.default_rng(seed)
    truth = rng.dirichlet(np.ones(n_classes), n)
    labels = (rng.random((n, 1)) > truth.cumsum(1)).sum(1)
    return labels, tempered(truth, temperature)


def test_curve_is_scikit_learns():
    labels, p = drawn(500, 2)
    curve = reliability(p[:, 1], labels == 1)
    observed, predicted = calibration_curve(labels, p[:, 1], n_bins=10)
    there = curve.weight > 0
    np.testing.assert_allclose(curve.predicted[there], predicted)
    np.testing.assert_allclose(curve.observed[there], observed)
    assert curve.weight.sum() == 500


@pytest.mark.parametrize("n_classes", [2, 4])
def test_scores_are_scikit_learns(n_classes):
    labels, p = drawn(200, n_classes)
    assert brier(labels, p) == pytest.approx(brier_score_loss(labels, p, scale_by_half=True, labels=range(n_classes)))
    assert log_loss(labels, p) == pytest.approx(sklearn_log_loss(labels, p, labels=range(n_classes)))


def test_counts_are_repetitions():
    labels, p = drawn(60)
    counts = np.random.default_rng(1).integers(0, 4, (5, 60)).astype(float)
    result = calibration_metrics(labels, p, counts)
    for row, times in enumerate(counts.astype(int)):
        alone = calibration_metrics(np.repeat(labels, times), np.repeat(p, times, axis=0))
        assert {name: values[row] for name, values in result.items()} == pytest.approx(alone)


def test_error_by_chance_is_that_of_a_calibrated_model():
    result = [calibration_metrics(*drawn(80, seed=seed))["ece"] for seed in range(100)]
    expected = [error_by_chance(drawn(80, seed=seed)[1], draws=20, seed=seed).mean() for seed in range(100)]
    assert np.mean(result) == pytest.approx(np.mean(expected), abs=0.01)
    off = calibration_metrics(*drawn(2000, temperature=0.3))["ece"]
    assert off > error_by_chance(drawn(2000, temperature=0.3)[1]).max()


def test_temperature_minimises_the_log_loss():
    labels, p = drawn(150, temperature=0.5)
    best = minimize_scalar(lambda t: log_loss(labels, tempered(p, t)), bounds=(0.1, 10), method="bounded")
    assert fit_temperature(labels, p, smoothed=False) == pytest.approx(best.x, rel=1e-3)


def test_temperature_counts_patients_not_slides():
    labels, p = drawn(300, temperature=0.5)
    slides = np.repeat(np.arange(300), np.random.default_rng(2).integers(1, 9, 300))
    alone, repeated = fit_temperature(labels, p), fit_temperature(labels[slides], p[slides], slides)
    assert repeated == pytest.approx(alone, rel=1e-6)


def test_a_perfect_validation_does_not_make_a_model_certain():
    labels = np.arange(20) % 2
    p = np.where(np.eye(2)[labels] == 1, 0.8, 0.2)
    sure = tempered(p, fit_temperature(labels, p)).max()
    assert sure == pytest.approx(21 / 22)
    assert tempered(p, fit_temperature(labels, p, smoothed=False)).max() > 0.999


COHORTS = 200


def cohort(rng, patients, slides):
    """Labels, probabilities and patients: slides of a patient are alike, and so are their errors."""
    number = rng.integers(1, slides + 1, patients)
    member = np.repeat(np.arange(patients), number)
    truth = rng.integers(0, 3, patients)
    # patients of many slides are harder: who counted slides would learn from the wrong ones
    seen = 1.5 * np.eye(3)[truth] + rng.normal(0, 0.5 + 0.25 * number[:, None], (patients, 3))
    logits = seen[member] + rng.normal(0, 0.3, (len(member), 3))
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    return truth[member], p, member


@pytest.mark.parametrize("slides", [1, 6])
def test_coverage_over_simulated_cohorts_is_the_level(slides):
    rng = np.random.default_rng(0)
    result = []
    for _ in range(COHORTS):
        labels, p, patients = cohort(rng, 60, slides)
        threshold = set_threshold(labels, p, patients)
        new, q, owners = cohort(rng, 200, slides)
        first = np.unique(owners, return_index=True)[1]  # slides of a patient are exchangeable: one of each will do
        result.append(covers(new[first], prediction_sets(q[first], threshold)).mean())
    assert 0.88 <= np.mean(result) <= 0.92


def test_threshold_is_the_split_conformal_quantile():
    rng = np.random.default_rng(1)
    p = rng.dirichlet(np.ones(4), 99)
    labels = rng.integers(0, 4, 99)
    scores = np.sort(1 - p[np.arange(99), labels])
    assert 1 - set_threshold(labels, p) == pytest.approx(scores[89])  # ceil(0.9 * 100) = 90th of 99


def test_prediction_intervals_of_values_have_their_coverage():
    rng = np.random.default_rng(3)
    result = []
    for _ in range(COHORTS):
        half = residual_width(rng.standard_t(3, 60), np.zeros(60))
        result.append(np.mean(np.abs(rng.standard_t(3, 200)) <= half))
    assert 0.88 <= np.mean(result) <= 0.92
    assert residual_width(np.zeros(5), np.zeros(5)) == np.inf


def test_thresholds_by_class_hold_a_rare_class_too():
    rng, result = np.random.default_rng(4), []
    for _ in range(COHORTS):
        labels = (rng.random(700) < 0.2).astype(int)
        odds = rng.normal(2 * labels - 2, 1)
        p = 1 / (1 + np.exp(np.column_stack([odds, -odds])))
        rows = []
        for learn in (set_threshold, class_thresholds):
            holds = covers(labels[200:], prediction_sets(p[200:], learn(labels[:200], p[:200])))
            rows.append(holds[labels[200:] == 1].mean())
        result.append(rows)
    overall, by_class = np.mean(result, 0)
    assert overall < 0.85
    assert 0.88 <= by_class <= 0.94


def test_sets_are_never_empty_and_full_with_too_few_patients():
    p = np.random.default_rng(2).dirichlet(np.ones(3), 50)
    sets = prediction_sets(p, 1.0)
    assert (sets.sum(1) == 1).all()
    assert (sets.argmax(1) == p.argmax(1)).all()
    for patients, is_full in ((8, True), (9, False)):
        p = np.tile([0.99, 0.01], (patients, 1))
        assert prediction_sets(p, set_threshold(np.zeros(patients, int), p)).all() == is_full
    assert class_thresholds(np.zeros(20, int), np.tile([0.9, 0.1], (20, 1)))[1] == 0.0  # no patients of the class
