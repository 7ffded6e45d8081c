"""Units of survival times: read from the column's name, reported, converted between cohorts."""

import numpy as np
import pandas as pd
import pytest

from panther.cohort.outcomes import about_times, unit_of
from panther.cohort.targets import Survival
from panther.study.population import gather
from study.generated import generate, study_in

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


def test_an_external_cohort_in_months_has_the_times_of_the_same_one_in_days(tmp_path):
    generate(tmp_path, patients=12, patches=4)
    table = pd.read_csv(tmp_path / "table.csv").assign(case_id=lambda rows: "X" + rows["case_id"])
    table.to_csv(tmp_path / "days.csv", index=False)
    months = table["dss_survival_days"] / MONTH
    table.drop(columns="dss_survival_days").assign(dss_survival_months=months).to_csv(
        tmp_path / "months.csv", index=False
    )
    result = {}
    for name in ("days", "months"):
        external = {"lab": {"table": f"{name}.csv", "features": {"npy": "features"}}}
        result[name] = gather(study_in(tmp_path, task={"survival": "dss"}, external=external))
    np.testing.assert_allclose(result["months"].target.time, result["days"].target.time)
    assert result["months"].target.unit == "days"
    assert any("were converted" in note for note in result["months"].notes)
    assert not any("converted" in note for note in result["days"].notes)


@pytest.mark.parametrize("unit", [None, "days"])
def test_times_of_another_magnitude_are_noted_where_nothing_can_be_converted(unit):
    notes = about_times(survival([300, 600], "days"), survival([12.0, 24.0], unit), "ext.csv")
    assert notes[0].startswith("ext.csv: the median time is 18, in the study 450: are the units the same?")
