"""Probes against scikit-learn and scikit-survival, in the original coordinates."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sksurv.linear_model import CoxPHSurvivalAnalysis
from sksurv.util import Surv

from panther.cohort.targets import Classes, Survival, Values
from panther.errors import InputError
from panther.evaluation.survival_metrics import concordance
from panther.models.losses import cox
from panther.models.probe_solvers import cox_loss, logistic, ridge_cox
from panther.models.probes import fit_cox, fit_logistic, fit_suitable, inner_folds, rotate
from panther.models.tasks import fit_task


def survival_data(n: int, d: int, seed: int = 0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d)) + 3.0
    risk = (x[:, :3] - 3) @ [1.0, -1.0, 0.5]
    dies, leaves = rng.exponential(20 * np.exp(-risk)), rng.exponential(40, n)
    return x, np.ceil(np.minimum(dies, leaves)), dies <= leaves  # ties


@pytest.mark.parametrize("d", [5, 120])  # fewer and more numbers than patients
@pytest.mark.parametrize("alpha", [0.5, 20.0])
def test_ridge_cox_is_scikit_survivals(d, alpha):
    x, time, event = survival_data(80, d)
    expected = (
        CoxPHSurvivalAnalysis(alpha=alpha, ties="breslow", n_iter=200, tol=1e-12)
        .fit(x, Surv.from_arrays(event, time))
        .coef_
    )
    rotation = rotate(x - x.mean(0))
    result = rotation.back(ridge_cox(rotation.z[None], time, event, alpha)[0, :, None])[:, 0]
    np.testing.assert_allclose(result, expected, atol=1e-7)


def test_numbers_with_squares_out_of_float32_give_the_same_model():
    x, time, event = survival_data(60, 5)
    z, large = (x - x.mean(0))[None], 1e22
    cox_found, cox_large = ridge_cox(z, time, event, 2.0), ridge_cox(z * large, time, event, 2.0 * large**2)
    np.testing.assert_allclose(cox_large * large, cox_found, rtol=1e-6)
    labels = (x[:, 0] > 3).astype(int)
    result, other = logistic(z, labels, 2, 2.0), logistic(z * large, labels, 2, 2.0 * large**2)
    np.testing.assert_allclose(other.beta * large, result.beta, rtol=1e-6, atol=1e-12)


def test_the_cox_loss_of_the_probe_is_that_of_networks():
    _, time, event = survival_data(60, 3)
    eta = np.random.default_rng(1).normal(size=60)
    loss = cox(torch.tensor(eta), torch.tensor(time), torch.tensor(event), "breslow") * event.sum()
    assert cox_loss(eta[None], time, event) == pytest.approx(loss.item(), abs=1e-9)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_logistic_probe_is_scikit_learns_in_the_original_coordinates(n_classes):
    rng = np.random.default_rng(0)
    labels = np.arange(60) % n_classes
    x = rng.normal(size=(60, 150)) + 2.0
    x[:, :n_classes] += np.eye(n_classes)[labels]
    probe = fit_logistic(x, labels, n_classes, strengths=[0.3])
    c = 1 / (0.3 * ((x - x.mean(0)) ** 2).sum(1).mean())
    model = LogisticRegression(C=c, max_iter=5000, tol=1e-10).fit(x - x.mean(0), labels)
    task = fit_task("cross-entropy", Classes(tuple("abc"[:n_classes]), labels))
    result = task.predict(torch.tensor(probe.logits(x)))["probabilities"]
    np.testing.assert_allclose(result, model.predict_proba(x - x.mean(0)), atol=1e-4)


@pytest.mark.parametrize(("d", "strength"), [(8, 1e-3), (60, 1.0), (200, 1e-3), (200, 1e3)])
def test_two_classes_reach_the_minimum_that_scikit_learns_newton_method_finds(d, strength):
    rng = np.random.default_rng(0)
    z = rng.normal(size=(3, 60, d)) / np.sqrt(d)
    labels = (z[0, :, 0] + z[1, :, 0] > 0).astype(int)
    result = logistic(z, labels, 2, strength)
    for rows, logits in zip(z, result.logits(z), strict=True):
        model = LogisticRegression(C=1 / strength, solver="newton-cholesky", max_iter=1000, tol=1e-12).fit(rows, labels)
        np.testing.assert_allclose(logits[:, 1] - logits[:, 0], model.decision_function(rows), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_weightings_that_are_fitted_together_are_those_fitted_alone(n_classes):
    z = np.random.default_rng(0).normal(size=(4, 30, 50))
    labels = np.arange(30) % n_classes
    together = logistic(z, labels, n_classes, 0.1)
    for number in range(4):
        alone = logistic(z[number : number + 1], labels, n_classes, 0.1)
        np.testing.assert_array_equal(alone.beta[0], together.beta[number])


def test_inner_cross_validation_finds_the_signal_and_shuffled_labels_fall_to_chance():
    real, chance = [], []
    for seed in range(6):
        x, time, event = survival_data(200, 300, seed)
        x[:, :3] *= 3
        train, test = np.arange(130), np.arange(130, 200)
        probe = fit_cox(x[train], time[train], event[train], seed=seed)
        real.append(concordance(time[test], event[test], probe.logits(x[test])[:, 0]))
        mixed = np.random.default_rng(seed).permutation(train)
        probe = fit_cox(x[train], time[mixed], event[mixed], seed=seed)
        chance.append(concordance(time[test], event[test], probe.logits(x[test])[:, 0]))
    assert np.mean(real) > 0.65
    assert abs(np.mean(chance) - 0.5) < 0.07


def test_inner_folds_keep_patients_together_and_strata_even():
    rng = np.random.default_rng(0)
    patients = np.repeat(np.arange(50), 2)
    strata = np.repeat(rng.integers(0, 2, 50), 2)
    folds = inner_folds(strata, 5, patients, seed=1)
    assert sorted(np.concatenate(folds)) == list(range(100))
    owners = [set(patients[f]) for f in folds]
    assert not any(a & b for i, a in enumerate(owners) for b in owners[:i])
    shares = [strata[f].sum() for f in folds]
    assert max(shares) - min(shares) <= 2


def test_the_probe_suits_the_target_and_bad_input_is_refused():
    x, time, event = survival_data(30, 4)
    survival, classes = Survival(time, event), Classes(("a", "b"), np.arange(30) % 2)
    assert fit_suitable(x, survival).weight.shape == (4, 1)
    assert fit_suitable(x, classes, folds=3).weight.shape == (4, 2)
    for target, options, sentence in [
        (Classes(("a", "b"), np.zeros(30, int)), {}, "one class"),
        (Survival(time, np.zeros(30, bool)), {}, "None of the 30"),
    ]:
        with pytest.raises(InputError, match=sentence):
            fit_suitable(x, target, **options)
    with pytest.raises(InputError, match="All training embeddings are equal"):
        fit_suitable(np.ones((30, 40)), survival)
    with pytest.raises(InputError, match="same value"):
        fit_suitable(x, Values(np.full(30, 3.0)))
    once = np.append(np.arange(29) % 2, 2)  # a class with one sample does not break the inner folds
    assert np.isfinite(fit_logistic(x, once, 3, strengths=[0.1, 1.0]).logits(x)).all()
    logits = fit_logistic(np.full((20, 3), 0.3), np.arange(20) % 4 // 3, 2).logits(np.full((1, 3), 0.3))[0]
    assert logits[1] - logits[0] == pytest.approx(np.log(1 / 3), abs=1e-6)  # rows that say nothing: the classes' shares
