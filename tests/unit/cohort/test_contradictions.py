"""Columns of one endpoint that contradict each other, or the vital status: refused or noted."""

import numpy as np
import pandas as pd
import pytest

from panther.cohort.load import load_cohort
from panther.errors import InputError

DAYS = np.array([15, 100, 400, 1000, 2000, 3500])
EVENT = np.array([1, 0, 1, 1, 0, 1])


def table(**columns):
    return pd.DataFrame({"slide_id": [f"S{i}" for i in range(6)], **columns})


def test_two_status_columns_that_contradict_each_other_are_refused_by_name():
    wrong = table(os_days=DAYS, os_event=EVENT, os_censorship=EVENT)
    message = r"os_censorship \(1 = censored\) and os_event \(1 = event\) contradict each other in 6 of 6 rows, e.g. 1 and 1 of S0"
    with pytest.raises(InputError, match=message):
        load_cohort(wrong, survival="os")
    named = load_cohort(wrong, survival="os", event="os_event")  # an explicit name decides
    assert named.report.columns == "os_days and os_event (1 = event)"
    assert named.target.event.sum() == EVENT.sum()


def test_columns_that_agree_or_are_empty_are_no_contradiction():
    months = [f"{days / 30:.1f}" for days in DAYS]
    censored = ["", *map(str, 1 - EVENT[1:])]
    good = table(os_days=DAYS, os_event=EVENT, os_survival_months=months, os_censorship=censored)
    cohort = load_cohort(good, survival="os")
    assert cohort.report.columns == "os_survival_months and os_censorship (1 = censored)"
    assert cohort.target.unit == "months"


@pytest.mark.parametrize("other", ["os_days", "os_time"])
def test_two_times_that_differ_by_more_than_their_units_are_refused(other):
    times = DAYS.copy()
    times[2] = 700
    inputs = {"os_survival_months": DAYS / 30.4, "os_censorship": 1 - EVENT, "os_event": EVENT}
    assert len(load_cohort(table(**inputs, **{other: DAYS}), survival="os")) == 6
    with pytest.raises(InputError, match=rf"os_survival_months and {other} contradict each other in 1 of 6 rows"):
        load_cohort(table(**inputs, **{other: times}), survival="os")


@pytest.mark.parametrize(
    ("time", "doubted"),
    [("survival_days", True), ("os_days", True), ("pfi_days", False), ("days_to_recurrence", False)],
)
def test_the_vital_status_contradicts_deaths_only(time, doubted):
    vital = np.where(EVENT == 1, "Dead", "Alive")
    inputs = table(**{time: DAYS}, censorship=EVENT, Vital_Status=vital)
    notes = load_cohort(inputs, time=time, censorship="censorship").report.notes
    assert any("alive by Vital_Status: is the polarity of censorship reversed" in note for note in notes) == doubted
    known = load_cohort(inputs, survival="pfi", time=time, censorship="censorship").report.notes
    assert not any("Vital_Status" in note for note in known)
