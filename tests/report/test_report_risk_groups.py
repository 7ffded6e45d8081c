"""The caption of risk groups says which of them fared worse."""

from dataclasses import replace

import numpy as np
import pytest

from panther.evaluation.survival_metrics import log_rank
from panther.report.data import load_run
from panther.report.material import gather
from panther.report.page import render_tab
from panther.report.sections import predictions
from panther.report.sections.predictions import risk_verdict


def log_rank_at(hazard):
    """Log-rank test of as many at low as at high risk, whose hazard is so many times that of the others."""
    group = np.arange(80) % 2
    time = np.random.default_rng(0).exponential(100 / np.where(group == 1, hazard, 1.0))
    return log_rank(time, np.ones(80, bool), group)


def test_events_are_counted_against_those_expected():
    time, event, group = np.array([1.0, 2, 3, 4]), np.array([True, True, False, True]), np.array([1, 0, 1, 0])
    found = log_rank(time, event, group)
    np.testing.assert_array_equal(found.observed, [2, 1])
    np.testing.assert_allclose(found.expected, [2 / 4 + 2 / 3 + 1, 2 / 4 + 1 / 3])


@pytest.mark.parametrize(
    ("hazard", "said"),
    [(4.0, "worse survival, as predicted"), (0.25, "better survival, contrary to the prediction")],
)
def test_the_direction_of_the_test_is_said(hazard, said):
    verdict = risk_verdict(log_rank_at(hazard), once=True)
    assert verdict.startswith(f"The high-risk group had {said} (40 events, ")
    assert verdict.endswith("log-rank p < 0.001.")
    untested = risk_verdict(log_rank_at(hazard), once=False)
    assert said in untested
    assert "p <" not in untested


def test_a_direction_that_chance_would_give_is_told_as_such():
    assert risk_verdict(log_rank_at(1.05), once=True).endswith(", not significant.")


def test_a_run_whose_risks_are_turned_round_is_told_as_such(survival, monkeypatch):
    material = gather(survival)
    assert "The high-risk group had" in render_tab(material, "Curves")
    run = load_run(survival)
    turned = run.predictions.assign(risk=run.predictions["time"], event=True)  # who lives long is called high-risk
    monkeypatch.setattr(predictions, "risk_groups", lambda risk, _: (risk > np.median(risk)).astype(int))
    told = render_tab(replace(material, run=replace(run, predictions=turned)), "Curves")
    assert "contrary to the prediction" in told
    assert "as predicted" not in told
