"""Net benefit, counted by hand."""

import numpy as np
import pytest

from panther.evaluation.decision_curves import THRESHOLDS, benefit_of_all, net_benefit, useful_range

POSITIVE = np.array([True, True, False, False, False])
PROBABILITY = np.array([0.9, 0.4, 0.6, 0.2, 0.1])


def test_net_benefit_counts_cases_minus_needless_actions_at_their_price():
    found = net_benefit(POSITIVE, PROBABILITY, np.array([0.5, 0.3]))
    assert found == pytest.approx([1 / 5 - 1 / 5, 2 / 5 - 1 / 5 * 3 / 7])


def test_acting_on_everybody_is_worth_nothing_at_the_prevalence():
    assert benefit_of_all(POSITIVE, np.array([0.4])) == pytest.approx([0.0])


def test_a_perfect_model_is_worth_the_prevalence_everywhere():
    found = net_benefit(POSITIVE, POSITIVE.astype(float))
    assert found == pytest.approx(np.full(len(THRESHOLDS), 0.4))
    assert useful_range(found, benefit_of_all(POSITIVE)) == THRESHOLDS.tolist()


def test_a_model_that_knows_nothing_is_useful_nowhere():
    found = net_benefit(POSITIVE, np.full(5, 0.4))
    assert useful_range(found, benefit_of_all(POSITIVE)) == []


def test_counts_are_repetitions():
    counts = np.array([[1.0, 0, 2, 1, 1], [3, 1, 0, 0, 1]])
    found = net_benefit(POSITIVE, PROBABILITY, counts=counts)
    for row, own in zip(found, counts.astype(int), strict=True):
        assert row == pytest.approx(net_benefit(np.repeat(POSITIVE, own), np.repeat(PROBABILITY, own)))
