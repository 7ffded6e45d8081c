"""The likelihood-ratio test of an added score: against lifelines, and where it adds nothing."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from panther.cohort.targets import Survival
from panther.study.evaluations import Stratum, added_by_second


def _fold(rng: np.random.Generator, n: int, slide: float) -> Stratum:
    clinic, added = rng.normal(size=(2, n))
    hazard = np.exp(0.8 * clinic + slide * added)
    time, lost = rng.exponential(1 / hazard), rng.exponential(2.0, n)
    return Stratum(np.column_stack([clinic, added]), Survival(np.minimum(time, lost), time <= lost))


@pytest.mark.parametrize("slide", [0.2, 0.5])
def test_it_is_half_of_lifelines_stratified_test(slide: float) -> None:
    lifelines = pytest.importorskip("lifelines")
    rng = np.random.default_rng(3)
    folds = [_fold(rng, n, slide) for n in (60, 80, 50)]
    table = pd.concat(
        pd.DataFrame(
            {"a": f.scores[:, 0], "b": f.scores[:, 1], "time": f.target.time, "event": f.target.event, "fold": k}
        )
        for k, f in enumerate(folds)
    )
    fits = [
        lifelines.CoxPHFitter().fit(table[[*columns, "time", "event", "fold"]], "time", "event", strata=["fold"])
        for columns in (["a"], ["a", "b"])
    ]
    expected = 2 * (fits[1].log_likelihood_ - fits[0].log_likelihood_)
    result = added_by_second(folds)
    assert result.statistic == pytest.approx(expected, rel=1e-5, abs=1e-6)
    assert result.p_value == pytest.approx(stats.chi2.sf(expected, 1) / 2, rel=1e-4)


def test_a_score_with_a_negative_coefficient_adds_nothing() -> None:
    rng = np.random.default_rng(3)
    folds = [_fold(rng, 80, 0.5) for _ in range(3)]
    turned = [Stratum(f.scores * [1, -1], f.target) for f in folds]
    assert added_by_second(folds).p_value < 1e-4
    assert added_by_second(turned) == (0.0, 1.0)


def test_without_events_there_is_no_test() -> None:
    fold = _fold(np.random.default_rng(1), 20, 0.5)
    none = fold._replace(target=Survival(fold.target.time, np.zeros(20, bool)))
    assert all(np.isnan(added_by_second([none])))


def test_it_keeps_its_level_where_nothing_is_added() -> None:
    rng = np.random.default_rng(7)
    p = [added_by_second([_fold(rng, 40, 0.0) for _ in range(3)]).p_value for _ in range(200)]
    assert 0.02 <= np.mean(np.array(p) < 0.05) <= 0.09
