"""Units of survival times: read from the column's name, reported, converted between cohorts."""

import numpy as np
import pytest

from panther.cohort.outcomes import about_times, unit_of
from panther.cohort.targets import Survival

MONTH = 365.25 / 12


@pytest.mark.parametrize(
    ("column", "unit"),
    [
        ("os_days", "days"),
        ("OS_MONTHS", "months"),
        ("daysToDeath", "days"),
        ("followup.years", "years"),
        ("OS.time", None),
        ("birthdays", None),
        ("days_or_months", None),
    ],
)
def test_the_unit_is_read_from_the_name_of_the_column(column, unit):
    assert unit_of(column) == unit


def survival(time, unit):
    return Survival(np.array(time, float), np.ones(len(time), bool), unit)


def test_times_are_converted_where_both_units_are_known():
    study, other = survival([300, 600], "days"), survival([12.0, 24.0], "months")
    joined = study.followed_by(other)
    np.testing.assert_allclose(joined.time, [300, 600, 12 * MONTH, 24 * MONTH])
    assert joined.unit == "days"
    assert about_times(study, other, "ext.csv") == ["ext.csv: times in months were converted (1 month = 30.4375 days)."]
    assert about_times(study, survival([200.0], "days"), "ext.csv") == []
    for unit in (None, "days"):
        notes = about_times(study, survival([12.0, 24.0], unit), "ext.csv")
        assert notes[0].startswith("ext.csv: the median time is 18, in the study 450: are the units the same?")
