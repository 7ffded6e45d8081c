"""Survival metrics against lifelines and scikit-survival, with ties."""

import lifelines
import numpy as np
import pytest
from lifelines.statistics import multivariate_logrank_test
from sksurv import metrics as oracle
from sksurv.linear_model import CoxPHSurvivalAnalysis
from sksurv.util import Surv

from panther.errors import InputError
from panther.evaluation import survival_metrics as sm
from panther.evaluation.survival_metrics import concordance, wrong_pairs


def concordance_uno(outcome, risk, reference):
    """Uno's c-index, as the survival tasks compute it from the pairs that Harrell's needs too."""
    pairs = sm.comparable_pairs(*outcome, risk)
    return pairs.concordance(sm.uno_weights(outcome[0][pairs.index], reference))


def cohort(n: int = 150, seed: int = 0, *, tied: bool = True) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Time, event, and a risk that means something; times and risks with ties."""
    rng = np.random.default_rng(seed)
    risk = rng.normal(size=n)
    dies, leaves = rng.exponential(30 * np.exp(-risk)), rng.exponential(50, n)
    time, event = np.minimum(dies, leaves) + 0.5, dies <= leaves
    return (np.ceil(time), event, np.round(risk, 1)) if tied else (time, event, risk)


def surv(time, event):
    return Surv.from_arrays(event, time)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_both_c_indices_are_those_of_the_libraries(seed, tied):
    time, event, risk = cohort(seed=seed, tied=tied)
    result = sm.concordance(time, event, risk)
    assert result == pytest.approx(oracle.concordance_index_censored(event, time, risk)[0], abs=1e-12)
    assert result == pytest.approx(lifelines.utils.concordance_index(time, -risk, event), abs=1e-12)
    train = cohort(200, seed=seed + 10, tied=tied)
    tau = train[0][train[1]].max()
    expected = oracle.concordance_index_ipcw(surv(*train[:2]), surv(time, event), risk, tau=tau)[0]
    assert concordance_uno((time, event), risk, train[:2]) == pytest.approx(expected, abs=1e-9)


def near_ties(seed: int, n: int = 80) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Risks in chains whose steps lie around the tolerance: neighbours are tied, next but one not."""
    rng = np.random.default_rng(seed)
    time, event, _ = cohort(n, seed)
    steps = rng.choice([0.3e-8, 0.9e-8, 1e-8, np.nextafter(1e-8, 1), 1.1e-8, 2e-8], n)
    return time, event, rng.permutation(np.cumsum(steps)) + rng.choice([0.0, 1.0], n)


@pytest.mark.parametrize("seed", range(6))
def test_risks_closer_than_the_tolerance_are_ties_as_in_scikit_survival(seed):
    time, event, risk = near_ties(seed)
    expected = oracle.concordance_index_censored(event, time, risk, tied_tol=1e-8)[0]
    assert sm.concordance(time, event, risk) == pytest.approx(expected, abs=1e-14)
    train = cohort(200, seed + 20)
    last = train[0][train[1]].max()
    expected = oracle.concordance_index_ipcw(surv(*train[:2]), surv(time, event), risk, tau=last)[0]
    assert concordance_uno((time, event), risk, train[:2]) == pytest.approx(expected, abs=1e-12)


def test_unos_c_index_ignores_events_after_the_last_event_of_training():
    time, event, risk = cohort(seed=5)
    train = cohort(200, seed=15)
    tau = train[0][train[1]].max()
    late = np.array([tau, tau + 1, tau + 100, 10 * tau])  # far beyond the follow-up of training
    longer = (np.concatenate([time, late]), np.concatenate([event, np.ones(4, bool)]))
    more = np.concatenate([risk, [9.0, -9.0, 3.0, -3.0]])
    result = concordance_uno(longer, more, train[:2])
    wrong = concordance_uno((longer[0], np.concatenate([event, np.zeros(4, bool)])), more, train[:2])
    assert result == pytest.approx(wrong)
    only_late = (late, np.ones(4, bool))
    assert np.isnan(concordance_uno(only_late, risk[:4], train[:2]))
    assert np.isnan(concordance_uno((time, event), risk, (train[0], np.zeros(200, bool))))


@pytest.mark.parametrize("seed", range(3))
def test_time_dependent_auc_is_scikit_survivals(seed):
    time, event, risk = cohort(seed=seed)
    train = cohort(200, seed=seed + 10)
    times = np.quantile(time[event], [0.1, 0.3, 0.5, 0.7])
    expected, mean = oracle.cumulative_dynamic_auc(surv(*train[:2]), surv(time, event), risk, times)
    auc, ours = sm.time_dependent_auc((time, event), risk, times, train[:2])
    np.testing.assert_allclose(auc, expected, atol=1e-9)
    assert ours == pytest.approx(mean, abs=1e-9)


def test_brier_scores_are_scikit_survivals():
    time, event, risk = cohort(seed=2)
    train = cohort(200, seed=12)
    times = np.quantile(time[event], [0.1, 0.3, 0.5, 0.7])
    survival = np.exp(-times[None, :] / 30 * np.exp(risk)[:, None])
    _, expected = oracle.brier_score(surv(*train[:2]), surv(time, event), survival, times)
    np.testing.assert_allclose(sm.brier((time, event), survival, times, train[:2]), expected, atol=1e-12)
    integral = oracle.integrated_brier_score(surv(*train[:2]), surv(time, event), survival, times)
    assert sm.integrated_brier((time, event), survival, times, train[:2]) == pytest.approx(integral, abs=1e-12)


def test_kaplan_meier_and_its_limits_are_lifelines():
    time, event, _ = cohort(seed=3)
    ours = sm.kaplan_meier(time, event)
    theirs = lifelines.KaplanMeierFitter().fit(time, event)
    np.testing.assert_allclose(ours.at(theirs.timeline), theirs.survival_function_["KM_estimate"], atol=1e-12)
    limits = theirs.confidence_interval_
    inside = ((ours.survival > 0) & (ours.survival < 1)).nonzero()[0]
    np.testing.assert_allclose(ours.low[inside], limits.iloc[:, 0].loc[ours.time[inside]], atol=1e-9)
    np.testing.assert_allclose(ours.high[inside], limits.iloc[:, 1].loc[ours.time[inside]], atol=1e-9)
    assert ours.median == theirs.median_survival_time_


@pytest.mark.parametrize("groups", [2, 3, 4])
def test_log_rank_is_lifelines(groups):
    time, event, risk = cohort(seed=5)
    group = sm.risk_groups(risk, risk, groups)
    expected = multivariate_logrank_test(time, group, event)
    result = sm.log_rank(time, event, group)
    assert result.statistic == pytest.approx(expected.test_statistic, rel=1e-9)
    assert result.p_value == pytest.approx(expected.p_value, rel=1e-6)
    assert result.degrees == groups - 1


def test_one_group_and_no_patients_are_refused():
    time, event, _ = cohort(20)
    with pytest.raises(InputError, match="group"):
        sm.log_rank(time, event, np.zeros(20))
    with pytest.raises(InputError, match="no patients"):
        sm.kaplan_meier(np.empty(0), np.empty(0, bool))


def test_breslows_baseline_is_scikit_survivals():
    time, event, risk = cohort(seed=6)
    model = CoxPHSurvivalAnalysis(alpha=1e-8).fit(risk[:, None], surv(time, event))
    log_risk = risk * model.coef_[0]
    knots, hazard = sm.breslow_baseline(time, event, log_risk)
    expected = model.cum_baseline_hazard_
    # theirs belongs to the mean patient
    scale = np.exp((model.predict(risk[:1, None]) - log_risk[:1])[0])
    np.testing.assert_allclose(sm.step(knots, hazard, expected.x, before=0.0), expected.y * scale, rtol=1e-6)


def test_evaluation_times_lie_where_weights_exist():
    time, event, _ = cohort(seed=7)
    reference = (np.array([1.0, 2.0, 10.0]), np.array([True, True, False]))  # nobody is observed after 10
    times = sm.evaluation_times((time, event), reference)
    assert len(times)
    assert times.max() < 10
    assert len(sm.evaluation_times((time, np.zeros_like(event)), reference)) == 0


@pytest.fixture
def patients():
    rng = np.random.default_rng(0)
    time = rng.integers(1, 30, 80).astype(float)  # many are equal
    event = rng.random(80) < 0.6
    risk = np.round(rng.normal(size=80) - time / 15, 1)
    return time, event, risk


def test_wrong_pairs_add_up_to_one_minus_the_c_index(patients):
    wrong, number = wrong_pairs(*patients)
    assert wrong.sum() / number.sum() == pytest.approx(1 - concordance(*patients))


def test_risk_groups_are_cut_where_the_training_risks_say():
    groups = sm.risk_groups(np.array([-5.0, 0.4, 0.6, 9.0]), reference=np.linspace(0, 1, 101))
    np.testing.assert_array_equal(groups, [0, 0, 1, 1])
