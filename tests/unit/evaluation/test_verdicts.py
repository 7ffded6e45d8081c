"""Groups of patients and the worst of them."""

import numpy as np
import pandas as pd

from panther.evaluation.verdicts import group_names, worst_groups


def test_many_numbers_are_cut_into_thirds_and_texts_stay():
    ages = pd.Series([str(age) for age in range(30, 60)] + [""])
    names = group_names(ages, "age")
    assert names.value_counts().drop("").tolist() == [10, 10, 10]
    assert names.iloc[-1] == ""
    assert names.iloc[0].startswith("up to")
    few = pd.Series(["1", "2", "1"])
    assert group_names(few, "stage").tolist() == ["1", "2", "1"]


def test_the_worst_group_is_named_and_small_ones_are_not_counted():
    def summary(metric):
        rows = [("", "", 0.7, 90), ("sex: f", "sex", 0.6, 40), ("sex: m", "sex", 0.8, 50), ("sex: x", "sex", 0.1, 3)]
        table = pd.DataFrame(rows, columns=["subgroup", "by", "mean", "patients"])
        return table.assign(metric=metric, ci_low=table["mean"] - 0.1, ci_high=np.nan)

    (message,) = worst_groups(summary("c_index"))
    assert message.startswith("Worst of 2 groups by sex: f 0.600 [0.500, nan] (40 patients); best m 0.800")
    assert "1 of fewer than 10 patients not counted" in message
    (message,) = worst_groups(summary("mae"))
    assert message.startswith("Worst of 2 groups by sex: m 0.800")
