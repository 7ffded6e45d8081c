"""Clinical covariates as numbers."""

import json

import numpy as np
import pandas as pd
import pytest

from panther.cohort.covariates import CovariateSpec, fit_covariates, leaks, load_covariates
from panther.errors import InputError

TABLE = pd.DataFrame(
    {
        "age": ["50", "60", "", "70"],
        "sex": ["f", "m", "f", "f"],
        "stage": ["II", "III", "II", "[Not Available]"],
        "grade": ["1", "2", "3", "1"],
        "same": ["x", "x", "x", "x"],
    }
)


def fitted(*columns: str | CovariateSpec):
    specs = [CovariateSpec(column=c) if isinstance(c, str) else c for c in columns]
    return fit_covariates(TABLE, specs)


def test_numbers_are_scaled_by_training_rows_and_missing_ones_indicated() -> None:
    age, _ = fitted("age")
    assert age.names == ("age", "age missing")
    encoded = age.encode(TABLE)
    known = np.array([50, 60, 70.0])
    np.testing.assert_allclose(encoded[[0, 1, 3], 0], (known - 60) / known.std())
    assert encoded[2, 0] == 0.0
    np.testing.assert_allclose(encoded[:, 1].mean(), 0, atol=1e-12)
    np.testing.assert_allclose(encoded[:, 1].std(), 1)


def test_numbers_of_a_large_cohort_are_curved_and_linear_beyond_the_outer_knots() -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"age": rng.normal(60, 10, 120).astype(str), "sex": ["f", "m"] * 60})
    specs = [CovariateSpec(column="age"), CovariateSpec(column="sex")]
    linear, spline = fit_covariates(table, specs, 99)[0], fit_covariates(table, specs, 100)[0]
    assert linear.names == ("age", "sex=f", "sex=m")
    x = spline.encode(table)
    np.testing.assert_array_equal(np.delete(x, 1, 1), linear.encode(table))
    np.testing.assert_allclose(
        [x[:, 1].mean(), x[:, 1].std(), np.corrcoef(x[:, 0], x[:, 1])[0, 1]], [0, 1, 0], atol=1e-9
    )
    far = spline.encode(pd.DataFrame({"age": ["-40", "-20", "0", "150", "170", "190"], "sex": "f"}))[:, 1]
    np.testing.assert_allclose([far[0] + far[2], far[3] + far[5]], [2 * far[1], 2 * far[4]])
    np.testing.assert_array_equal(load_covariates(json.loads(json.dumps(spline.settings()))).encode(table), x)
    two_values = pd.DataFrame({"treated": ["0", "1", "1"] * 50})
    assert fit_covariates(two_values, [CovariateSpec(column="treated")], 150)[0].names == ("treated",)


def test_a_category_has_the_variance_of_a_number() -> None:
    assert fitted("grade")[0].names == ("grade",)  # a column of numbers is a number
    both, _ = fitted("sex", CovariateSpec(column="grade", kind="category"))
    assert both.names == ("sex=f", "sex=m", "grade=1", "grade=2", "grade=3")
    variance = both.encode(TABLE).var(0)
    np.testing.assert_allclose([variance[:2].sum(), variance[2:].sum()], 1)


def test_unknown_levels_and_text_are_encoded_as_missing_values() -> None:
    result, _ = fitted("stage", "age")
    new = pd.DataFrame({"stage": ["IV", "", "III"], "age": ["old", "", "60"]})
    encoded = result.encode(new)
    np.testing.assert_array_equal(encoded[0], encoded[1])


def test_a_constant_covariate_is_left_out_and_constants_alone_are_refused() -> None:
    result, notes = fitted("age", "same")
    assert result.names == ("age", "age missing")
    assert notes == ["The covariate 'same' is the same for all 4 training rows: left out."]
    with pytest.raises(InputError, match="covariates: same"):
        fitted("same")


def test_unusable_columns_are_refused_by_name() -> None:
    with pytest.raises(InputError, match="id: 30"):
        fit_covariates(pd.DataFrame({"id": [f"patient {i}" for i in range(30)]}), [CovariateSpec(column="id")])
    with pytest.raises(InputError, match="weight"):
        fitted("weight")
    with pytest.raises(InputError, match="sex: 'f'"):
        fitted(CovariateSpec(column="sex", kind="number"))
    result, _ = fitted("age")
    with pytest.raises(InputError, match="no covariate 'age'"):
        result.encode(TABLE[["sex"]])


def test_a_covariate_that_is_the_target_is_noted() -> None:
    x = np.random.default_rng(0).normal(size=(50, 2))
    message = leaks(x, ["age", "size"], {"event": 2 * x[:, 1] + 1, "time": x[:, 0] + x[:, 1]})
    assert message == ["The covariate size is the target (event) itself (correlation 1.0000); leave it out."]
