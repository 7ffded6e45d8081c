"""Whether covariates are in a table, and what is odd about them."""

from collections.abc import Sequence

import numpy as np

from panther.cohort.covariates import KNOTS, CovariateSpec, fit_covariates, leaks
from panther.cohort.load import Cohort
from panther.cohort.targets import Classes, Target
from panther.errors import InputError, listed
from panther.storage.clinical import find_column


def check_columns(cohort: Cohort, specs: Sequence[CovariateSpec]) -> None:
    """Refuse covariates that are not there, or that differ within a sample."""
    for spec in specs:
        if spec.column in cohort.table.columns:
            continue
        find_column(cohort.rows, spec.column, (), "covariate")
        raise InputError(
            f"{cohort.report.source}: the covariate {spec.column} differs between slides of one patient; leave it out, or predict slides, "
            "`level=slide`."
        )


def check_covariates(cohort: Cohort, specs: Sequence[CovariateSpec]) -> list[str]:
    """The same, and notes about covariates that say nothing, or the target itself."""
    check_columns(cohort, specs)
    if not specs:
        return []
    fitted, notes = fit_covariates(cohort.table, specs)
    curved = [one.column for one in fit_covariates(cohort.table, specs, len(cohort.ids))[0].columns if one.spline]
    linear = [one.column for one in fitted.columns if one.levels is None and one.column not in curved]
    terms = {f"a restricted cubic spline ({len(KNOTS)} knots)": curved, "a linear term": linear}
    notes += [f"Covariates: {listed(names)} as {term}." for term, names in terms.items() if names]
    return [*notes, *leaks(fitted.encode(cohort.table), fitted.names, _numbers_of(cohort.target))]


def _numbers_of(target: Target) -> dict[str, np.ndarray]:
    """The target as numbers, by what they are called."""
    if isinstance(target, Classes):
        return {f"class {name}": (target.labels == k).astype(float) for k, name in enumerate(target.names)}
    return {name: np.asarray(values, np.float64) for name, values in target.columns().items()}
