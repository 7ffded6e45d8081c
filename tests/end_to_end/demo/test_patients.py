"""What the synthetic patients' labels and survival depend on, seen through scikit-learn and lifelines on the true shares."""

from collections import Counter

import numpy as np
import pandas as pd
import pytest
from lifelines import CoxPHFitter
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score

from panther_demo.cohort import CohortSettings, make_patients


@pytest.fixture(scope="module")
def patients():
    return make_patients(CohortSettings(patients=1000))


@pytest.fixture(scope="module")
def shares(patients):
    return np.array([np.mean([slide.shares for slide in p.slides], 0) for p in patients])


def test_the_subtype_is_in_the_shares_but_not_trivially(patients, shares):
    label = np.array([p.subtype == "solid" for p in patients])
    accuracy = cross_val_score(LogisticRegression(C=100), shares, label, cv=5).mean()
    assert 0.75 < accuracy < 0.93
    shuffled = np.random.default_rng(0).permutation(label)
    assert abs(cross_val_score(LogisticRegression(C=100), shares, shuffled, cv=5).mean() - 0.5) < 0.06


def test_tumour_shortens_and_lymphocytes_lengthen_survival(patients, shares):
    table = pd.DataFrame(
        {
            "tumour": shares[:, :2].sum(1),
            "lymphocytes": shares[:, 3],
            "days": [p.days for p in patients],
            "event": [not p.censored for p in patients],
        }
    )
    model = CoxPHFitter().fit(table, "days", "event")
    interval = model.confidence_intervals_
    assert interval.loc["tumour"].min() > 0
    assert interval.loc["lymphocytes"].max() < 0
    assert 0.65 < model.concordance_index_ < 0.9
    assert 0.4 < table["event"].mean() < 0.75


def test_every_patient_has_a_tumour_and_at_most_four_tissues(patients):
    for patient in patients:
        assert np.mean([slide.shares for slide in patient.slides], 0)[:2].sum() > 0
        for slide in patient.slides:
            assert sum(slide.shares) == pytest.approx(1)
            assert 1 <= sum(share > 0 for share in slide.shares) <= 4


def test_sites_have_both_subtypes_and_stains_of_their_own(patients):
    assert set(Counter((p.site, p.subtype) for p in patients).values()) == {100}
    first = {p.site: p.slides[0].stain for p in patients}
    vectors = np.array([[*s.haematoxylin, *s.eosin, *s.strength] for s in first.values()])
    gaps = np.linalg.norm(vectors[:, None] - vectors[None], axis=-1) + np.eye(len(vectors))
    assert gaps.min() > 0.05
