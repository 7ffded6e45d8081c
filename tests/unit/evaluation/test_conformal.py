"""Coverage of prediction sets, also for patients with several slides."""

import numpy as np
import pytest

from panther.evaluation.calibration import (
    class_thresholds,
    covers,
    prediction_sets,
    residual_width,
    set_threshold,
)

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
    found = []
    for _ in range(COHORTS):
        labels, p, patients = cohort(rng, 60, slides)
        threshold = set_threshold(labels, p, patients)
        new, q, owners = cohort(rng, 200, slides)
        first = np.unique(owners, return_index=True)[1]  # slides of a patient are exchangeable: one of each will do
        found.append(covers(new[first], prediction_sets(q[first], threshold)).mean())
    assert 0.88 <= np.mean(found) <= 0.92


def test_threshold_is_the_split_conformal_quantile():
    rng = np.random.default_rng(1)
    p = rng.dirichlet(np.ones(4), 99)
    labels = rng.integers(0, 4, 99)
    scores = np.sort(1 - p[np.arange(99), labels])
    assert 1 - set_threshold(labels, p) == pytest.approx(scores[89])  # ceil(0.9 * 100) = 90th of 99


def test_too_few_patients_leave_every_class_possible():
    p = np.tile([0.99, 0.01], (8, 1))
    threshold = set_threshold(np.zeros(8, int), p)
    assert prediction_sets(p, threshold).all()
    assert not prediction_sets(p, set_threshold(np.zeros(9, int), np.tile([0.99, 0.01], (9, 1)))).all()


def test_sets_are_never_empty_and_hold_the_most_probable_class():
    p = np.random.default_rng(2).dirichlet(np.ones(3), 50)
    sets = prediction_sets(p, 1.0)
    assert (sets.sum(1) == 1).all()
    assert (sets.argmax(1) == p.argmax(1)).all()


def test_prediction_intervals_of_values_have_their_coverage():
    rng = np.random.default_rng(3)
    found = []
    for _ in range(COHORTS):
        half = residual_width(rng.standard_t(3, 60), np.zeros(60))
        found.append(np.mean(np.abs(rng.standard_t(3, 200)) <= half))
    assert 0.88 <= np.mean(found) <= 0.92
    assert residual_width(np.zeros(5), np.zeros(5)) == np.inf


def test_thresholds_by_class_hold_a_rare_class_too():
    rng, found = np.random.default_rng(4), []
    for _ in range(COHORTS):
        labels = (rng.random(700) < 0.2).astype(int)
        odds = rng.normal(2 * labels - 2, 1)
        p = 1 / (1 + np.exp(np.column_stack([odds, -odds])))
        rows = []
        for learn in (set_threshold, class_thresholds):
            holds = covers(labels[200:], prediction_sets(p[200:], learn(labels[:200], p[:200])))
            rows.append(holds[labels[200:] == 1].mean())
        found.append(rows)
    overall, by_class = np.mean(found, 0)
    assert overall < 0.85
    assert 0.88 <= by_class <= 0.94


def test_a_class_without_calibration_patients_is_always_in_the_set():
    assert class_thresholds(np.zeros(20, int), np.tile([0.9, 0.1], (20, 1)))[1] == 0.0
