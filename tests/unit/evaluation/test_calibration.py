"""Calibration, against scikit-learn and simulations."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from sklearn.calibration import calibration_curve
from sklearn.metrics import brier_score_loss
from sklearn.metrics import log_loss as sklearn_log_loss

from panther.evaluation.calibration import (
    brier,
    calibration_error,
    calibration_metrics,
    confidence,
    error_by_chance,
    fit_temperature,
    log_loss,
    reliability,
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
    found = calibration_metrics(labels, p, counts)
    for row, own in enumerate(counts.astype(int)):
        alone = calibration_metrics(np.repeat(labels, own), np.repeat(p, own, axis=0))
        assert {name: values[row] for name, values in found.items()} == pytest.approx(alone)


def test_the_calibration_error_is_the_gap_to_the_frequency():
    p = np.tile([0.1, 0.9], (1000, 1))
    labels = np.repeat([0, 1], [400, 600])
    assert calibration_error(reliability(*confidence(labels, p))) == pytest.approx(0.3)


def test_error_by_chance_is_that_of_a_calibrated_model():
    found = [calibration_metrics(*drawn(80, seed=seed))["ece"] for seed in range(100)]
    expected = [error_by_chance(drawn(80, seed=seed)[1], draws=20, seed=seed).mean() for seed in range(100)]
    assert np.mean(found) == pytest.approx(np.mean(expected), abs=0.01)
    off = calibration_metrics(*drawn(2000, temperature=0.3))["ece"]
    assert off > error_by_chance(drawn(2000, temperature=0.3)[1]).max()


@pytest.mark.parametrize("temperature", [0.4, 1.0, 2.5])
def test_temperature_is_found_again(temperature):
    labels, p = drawn(20_000, temperature=temperature)
    assert fit_temperature(labels, p) == pytest.approx(1 / temperature, rel=0.05)


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


def test_a_model_that_is_always_wrong_becomes_uninformative():
    labels, p = np.zeros(30, int), np.tile([0.1, 0.9], (30, 1))
    assert tempered(p, fit_temperature(labels, p)).max() == pytest.approx(0.5, abs=0.01)
