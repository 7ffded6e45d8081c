"""Wrong pairs of each patient, against a loop over all pairs."""

import numpy as np
import pytest

from panther.evaluation.survival_metrics import concordance, wrong_pairs


@pytest.fixture
def patients():
    rng = np.random.default_rng(0)
    time = rng.integers(1, 30, 80).astype(float)  # many are equal
    event = rng.random(80) < 0.6
    risk = np.round(rng.normal(size=80) - time / 15, 1)
    return time, event, risk


def test_every_pair_is_counted_with_both_of_its_patients(patients):
    time, event, risk = patients
    wrong, number = np.zeros(80), np.zeros(80)
    for i in range(80):
        for j in range(80):
            if event[i] and (time[i] < time[j] or (time[i] == time[j] and not event[j])):
                off = 0.5 if risk[i] == risk[j] else float(risk[i] < risk[j])
                for who in (i, j):
                    wrong[who] += off
                    number[who] += 1
    found = wrong_pairs(time, event, risk)
    np.testing.assert_array_equal(found[0], wrong)
    np.testing.assert_array_equal(found[1], number)


def test_wrong_pairs_add_up_to_one_minus_the_c_index(patients):
    wrong, number = wrong_pairs(*patients)
    assert wrong.sum() / number.sum() == pytest.approx(1 - concordance(*patients))
