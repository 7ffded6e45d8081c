"""Probes of numbers, ordered grades and several labels, against scikit-learn and plain float64 optimisation."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from sklearn.linear_model import Ridge

from panther.cohort.targets import Labels, Values
from panther.models.losses import grade_log_probabilities
from panther.models.probe_solvers import cumulative, grade_likelihood
from panther.models.probes import fit_cumulative, fit_labels, fit_logistic, fit_ridge, fit_suitable, inner_folds
from panther.models.tasks import fit_task


def rows(n: int, dim: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng([n, dim])
    x = rng.normal(size=(n, dim))
    return x, x @ rng.normal(size=dim) + rng.normal(size=n)


@pytest.mark.parametrize(("n", "dim"), [(40, 5), (20, 60)])
def test_a_ridge_of_one_penalty_is_scikit_learns(n, dim):
    x, y = rows(n, dim)
    result = fit_ridge(x, y, strengths=(0.3,))
    scale = np.sqrt(((x - x.mean(0)) ** 2).sum(1).mean())  # penalties count relative to the rows' variance
    oracle = Ridge(alpha=0.3, tol=1e-12).fit(x / scale, y)
    np.testing.assert_allclose(result.logits(x)[:, 0], oracle.predict(x / scale), atol=1e-9)


def test_the_penalty_is_the_one_of_the_least_squared_error_on_left_out_samples():
    x, y = rows(60, 30)
    strengths = (0.01, 0.1, 1.0, 10.0, 100.0)
    result = fit_ridge(x, y, strengths=strengths, seed=3)
    z = (x - x.mean(0)) / np.sqrt(((x - x.mean(0)) ** 2).sum(1).mean())
    folds = inner_folds(Values(y).strata(), 5, None, 3)
    errors = {
        s: sum(
            ((Ridge(alpha=s).fit(np.delete(z, f, 0), np.delete(y, f)).predict(z[f]) - y[f]) ** 2).sum() for f in folds
        )
        for s in strengths
    }
    assert result.strength == min(errors, key=errors.__getitem__)
    for s, score in result.scores.items():
        assert score == pytest.approx(30 * np.log(errors[s] / 60), rel=1e-9)


def test_predicted_values_are_in_the_units_of_the_task():
    x, y = rows(80, 4)
    target = Values(1e6 + 250 * y)
    task = fit_task("mse", target)
    probe = fit_suitable(x, target, strengths=(1e-9,))
    predicted = task.predict(torch.from_numpy(probe.logits(x)))["value"]
    exact = np.linalg.lstsq(np.c_[x, np.ones(80)], target.values, rcond=None)[0]
    np.testing.assert_allclose(predicted, np.c_[x, np.ones(80)] @ exact, rtol=1e-9)


def graded(n: int = 150, dim: int = 4) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    x = rng.normal(size=(n, dim))
    return x, np.digitize(x @ np.array([1.5, -1, 0.5, 0]) + rng.logistic(size=n), [-1.5, 0.0, 2.0])


def plain_likelihood(parameters: np.ndarray, x: np.ndarray, grade: np.ndarray, count: int) -> float:
    """Proportional odds as the textbook writes them."""
    dim = x.shape[1]
    thresholds = np.cumsum(np.r_[parameters[dim], np.exp(parameters[dim + 1 :])])
    below = 1 / (1 + np.exp(-(thresholds - (x @ parameters[:dim])[:, None])))
    below = np.c_[np.zeros(len(x)), below, np.ones(len(x))]
    i = np.arange(len(x))
    return float(np.log(below[i, grade + 1] - below[i, grade]).sum())


@pytest.mark.parametrize("strength", [1e-6, 2.0])
def test_proportional_odds_are_those_of_a_plain_optimiser(strength):
    x, grade = graded()
    result = cumulative(x[None], grade, 4, strength)
    beta = result.beta[0, :, 0]
    assert not result.beta[0, :, 1:].any()  # the steps do not depend on the input

    def loss(p):
        return -plain_likelihood(p, x, grade, 4) + strength / 2 * (p[:4] ** 2).sum()

    best = minimize(loss, np.r_[np.zeros(4), -1, 0, 0], method="BFGS", options={"gtol": 1e-9})
    np.testing.assert_allclose(beta, best.x[:4], atol=2e-6)
    likelihood = grade_likelihood(result.logits(x[None]), grade).sum()
    assert likelihood == pytest.approx(plain_likelihood(best.x, x, grade, 4), abs=1e-6)


def test_probe_and_loss_have_the_same_likelihood_of_grades():
    x, grade = graded()
    logits = fit_cumulative(x, grade, 4).logits(x)
    by_loss = grade_log_probabilities(torch.from_numpy(logits))
    np.testing.assert_allclose(by_loss.exp().sum(1), 1, atol=1e-12)
    extreme = torch.tensor([[500.0, -200.0, 3.0], [-500.0, 80.0, -80.0]], dtype=torch.float64, requires_grad=True)
    p = grade_log_probabilities(extreme)
    p.clamp_min(-1e3).sum().backward()
    assert torch.isfinite(extreme.grad).all()
    np.testing.assert_allclose(by_loss[np.arange(150), grade], grade_likelihood(logits[None], grade)[0], atol=1e-12)


@pytest.mark.parametrize("absent", [0, 1, 3])
def test_a_grade_that_was_not_seen_is_never_predicted_and_others_are_as_without_it(absent):
    x, grade = graded()
    kept = np.flatnonzero(grade != absent)
    result = cumulative(x[None, kept], grade[kept], 4, 1.0)
    p = grade_log_probabilities(torch.from_numpy(result.logits(x[None])[0])).exp().numpy()
    assert p[:, absent].max() < 1e-9
    alone = cumulative(x[None, kept], np.searchsorted([g for g in range(4) if g != absent], grade[kept]), 3, 1.0)
    q = grade_log_probabilities(torch.from_numpy(alone.logits(x[None])[0])).exp().numpy()
    np.testing.assert_allclose(np.delete(p, absent, 1), q, atol=1e-6)


def test_each_label_is_a_logistic_regression_on_its_known_samples():
    rng = np.random.default_rng(2)
    x = rng.normal(size=(60, 8))
    labels = (x[:, :3] + rng.normal(size=(60, 3)) > 0).astype(float)
    labels[rng.random((60, 3)) < 0.2] = np.nan
    groups = np.repeat(np.arange(30), 2)
    result = fit_labels(x, labels, groups=groups, seed=1)
    for k in range(3):
        known = np.flatnonzero(~np.isnan(labels[:, k]))
        alone = fit_logistic(x[known], labels[known, k].astype(int), 2, groups=groups[known], seed=1)
        odds = alone.logits(x) @ np.array([-1.0, 1.0])
        np.testing.assert_allclose(result.logits(x)[:, k], odds, atol=1e-10)
    assert fit_suitable(x, Labels(("a", "b", "c"), labels)).weight.shape == (8, 3)
