"""Clinical covariates (age, sex, stage) as numbers beside an embedding, fitted on the training rows alone.

A number is centred and divided by its deviation, 0 where it is missing; in cohorts of :data:`SPLINE_FROM` or more it has a second, curved term
(restricted cubic spline, Harrell, Regression Modeling Strategies, section 2.4.5). A category is one indicator per level, together of variance 1.
Missing values of the training rows have an indicator, because missingness may be informative.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
from pydantic import BeforeValidator, TypeAdapter

from panther.cohort.load import Cohort
from panther.cohort.spec import Strict
from panther.cohort.targets import Classes
from panther.errors import InputError, listed
from panther.storage.clinical import find_column
from panther.storage.tables import is_missing, plain_labels, source_of, with_points

COVARIATES = "covariates"  # name of their row, and of their block beside an embedding
NUMBER, CATEGORY = "number", "category"
SPLINE_FROM = 100  # samples of a cohort from which on numbers may be curved
KNOTS = (0.1, 0.5, 0.9)  # quantiles
MOST_LEVELS = 20  # of a category; more are names, not groups
LEAKS = 0.999  # correlation with the target from which on a covariate is the target itself


class CovariateSpec(Strict):
    """A column of the table; a column of numbers only is a number unless it is called a category."""

    column: str
    kind: Literal["number", "category"] | None = None


def as_covariate(value: str | CovariateSpec) -> CovariateSpec:
    """A column by its name, or with its kind."""
    return CovariateSpec(column=value) if isinstance(value, str) else value


CovariateEntry = Annotated[CovariateSpec, BeforeValidator(as_covariate)]


@dataclass(frozen=True)
class Covariate:
    """Encoding of one column, fitted on training rows."""

    column: str
    levels: tuple[str, ...] | None  # None: a number
    shift: tuple[float, ...]  # of each indicator, or of the number
    scale: float
    missing: float | None  # share of the training rows without a value; None: all had one
    # knots of the scaled number; intercept, slope and deviation of the cubic on it; none: linear
    spline: tuple[float, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of its numbers."""
        curve = (f"{self.column}, curve",) if self.spline else ()
        names = (
            (self.column, *curve) if self.levels is None else tuple(f"{self.column}={level}" for level in self.levels)
        )
        return (*names, f"{self.column} missing") if self.missing is not None else names

    def encode(self, values: pd.Series) -> np.ndarray:
        """Numbers (n, k) of rows; an unknown level is encoded as a missing value."""
        known = _numbers(values) if self.levels is None else _indicators(values, self.levels)
        absent = np.isnan(known).any(1)
        scaled = (known - np.array(self.shift)) / self.scale
        if self.spline:
            intercept, slope, deviation = self.spline[3:]
            curve = (_restricted_cubic(scaled, self.spline[:3]) - intercept - slope * scaled) / deviation
            scaled = np.column_stack([scaled, curve])
        scaled = np.where(absent[:, None], 0.0, scaled)
        if self.missing is None:
            return scaled
        spread = np.sqrt(self.missing * (1 - self.missing))
        return np.column_stack([scaled, (absent - self.missing) / spread])


@dataclass(frozen=True)
class Covariates:
    """Columns of a table as one block of numbers beside an embedding."""

    columns: tuple[Covariate, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the numbers."""
        return tuple(name for one in self.columns for name in one.names)

    def encode(self, table: pd.DataFrame) -> np.ndarray:
        """Numbers (n, k) of the rows of a table."""
        for one in self.columns:
            if one.column not in table.columns:
                raise InputError(
                    f"{source_of(table)}: no covariate {one.column!r}, which the model reads, among {listed(table.columns)}"
                )
        return np.column_stack([one.encode(_cells(table, one.column, one.levels is None)) for one in self.columns])

    def settings(self) -> list[dict[str, Any]]:
        """Plain values from which :func:`load_covariates` makes them again."""
        return [asdict(one) for one in self.columns]


def load_covariates(settings: Sequence[Mapping[str, Any]]) -> Covariates:
    """Covariates from their `settings()`, also after a trip through JSON."""
    return Covariates(tuple(TypeAdapter(Covariate).validate_python(dict(one)) for one in settings))


def fit_covariates(
    table: pd.DataFrame, specs: Sequence[CovariateSpec], samples: int = 0
) -> tuple[Covariates, list[str]]:
    """Fit the encoding of columns on training rows, in a cohort of ``samples``; and notes on columns that do not vary."""
    fitted, notes = [], []
    for spec in specs:
        find_column(table, spec.column, (), "covariate")
        cells = _cells(table, spec.column, spec.kind != CATEGORY)
        one = _fit_one(cells, spec, source_of(table), samples >= SPLINE_FROM)
        if one is None:
            notes.append(f"The covariate {spec.column!r} is the same for all {len(table)} training rows: left out.")
        else:
            fitted.append(one)
    if not fitted:
        raise InputError(
            f"covariates: {listed([s.column for s in specs])} do not vary among the {len(table)} training rows"
        )
    return Covariates(tuple(fitted)), notes


def leaks(x: np.ndarray, names: Sequence[str], targets: Mapping[str, np.ndarray]) -> list[str]:
    """Notes on columns of covariates (n, k) that determine a target (its name -> (n,))."""
    notes = []
    for (what, y), (name, column) in product(targets.items(), zip(names, x.T, strict=True)):
        known = np.isfinite(y)
        if known.sum() > 2 and np.ptp(column[known]) and np.ptp(y[known]):
            r = float(np.corrcoef(column[known], y[known])[0, 1])
            if abs(r) > LEAKS:
                notes.append(f"The covariate {name} is the target ({what}) itself (correlation {r:.4f}); leave it out.")
    return notes


def _fit_one(values: pd.Series, spec: CovariateSpec, source: str, curved: bool) -> Covariate | None:
    """Encoding of a column; None where it does not vary."""
    gone = is_missing(values).to_numpy()
    share = float(gone.mean()) if gone.any() else None
    if share == 1.0:
        return None
    known = _numbers(values)[:, 0]
    text = np.isnan(known) & ~gone
    is_number = pd.to_numeric(values[~gone], errors="coerce").notna().all()
    if (spec.kind or (NUMBER if is_number else CATEGORY)) == NUMBER:
        if text.any():
            example = repr(values.iloc[int(text.argmax())])
            raise InputError(f"{source}: covariate {spec.column}: {example}, expected a number or a category")
        mean, deviation = float(np.nanmean(known)), float(np.nanstd(known))
        if deviation > 1e-12 * max(abs(mean), 1.0):
            spline = _fit_spline((known[np.isfinite(known)] - mean) / deviation) if curved else ()
            return Covariate(spec.column, None, (mean,), deviation, share, spline)
        return None if share is None else Covariate(spec.column, None, (mean,), 1.0, share)
    levels = tuple(sorted(set(plain_labels(values)[~gone])))
    if len(levels) > MOST_LEVELS:
        raise InputError(
            f"{source}: covariate {spec.column}: {len(levels)} different values, e.g. {levels[0]!r}, expected at most {MOST_LEVELS}"
        )
    shares = np.nanmean(_indicators(values, levels), 0)
    spread = float(np.sqrt((shares * (1 - shares)).sum()))
    if spread < 1e-12 and share is None:
        return None
    return Covariate(spec.column, levels, tuple(map(float, shares)), spread if spread > 1e-12 else 1.0, share)


def _restricted_cubic(z: np.ndarray, knots: Sequence[float]) -> np.ndarray:
    r"""Curved term of a cubic spline with three knots that is linear beyond the outer ones.

    .. math:: \Big[(z-t_1)_+^3 - \tfrac{t_3-t_1}{t_3-t_2} (z-t_2)_+^3 + \tfrac{t_2-t_1}{t_3-t_2} (z-t_3)_+^3\Big] / (t_3-t_1)^2
    """
    a, b, c = knots
    first, second, third = (np.maximum(z - knot, 0) ** 3 for knot in knots)
    return np.asarray((first - (c - a) / (c - b) * second + (b - a) / (c - b) * third) / (c - a) ** 2)


def _fit_spline(z: np.ndarray) -> tuple[float, ...]:
    """Knots, and the intercept, slope and deviation that make the curved term uncorrelated with z and of variance 1; () for too few values."""
    knots = np.quantile(z, KNOTS)
    if np.diff(knots).min() < 1e-6:
        return ()
    cubic = _restricted_cubic(z, knots)
    slope, intercept = np.polyfit(z, cubic, 1)
    deviation = float((cubic - intercept - slope * z).std())
    return (*map(float, knots), float(intercept), float(slope), deviation) if deviation > 1e-6 else ()


def _cells(table: pd.DataFrame, column: str, numbers: bool) -> pd.Series:
    """Cells of a column; where they may be numbers, with decimal points."""
    cells = table[column].astype(str)
    return with_points(cells, column, source_of(table)) if numbers else cells


def _numbers(values: pd.Series) -> np.ndarray:
    """Numbers (n, 1), NaN where there is none."""
    numbers = pd.to_numeric(values.mask(is_missing(values)), errors="coerce").to_numpy(np.float64)
    return np.where(np.isfinite(numbers), numbers, np.nan)[:, None]


def _indicators(values: pd.Series, levels: Sequence[str]) -> np.ndarray:
    """One column for each level (n, L), NaN where the value is missing or another."""
    cells = plain_labels(values).to_numpy()
    is_level = (cells[:, None] == np.array(levels, dtype=object)[None]).astype(np.float64)
    is_level[~is_level.any(1) | is_missing(values).to_numpy()] = np.nan
    return is_level


def check_columns(cohort: Cohort, specs: Sequence[CovariateSpec]) -> None:
    """Refuse covariates that do not exist, or that differ within a sample."""
    for spec in specs:
        cohort.column(spec.column, "covariate")


def check_covariates(cohort: Cohort, specs: Sequence[CovariateSpec]) -> list[str]:
    """The same, and notes on covariates that do not vary, or that are the target."""
    check_columns(cohort, specs)
    if not specs:
        return []
    fitted, notes = fit_covariates(cohort.table, specs)
    curved = [one.column for one in fit_covariates(cohort.table, specs, len(cohort.ids))[0].columns if one.spline]
    linear = [one.column for one in fitted.columns if one.levels is None and one.column not in curved]
    terms = {f"a restricted cubic spline ({len(KNOTS)} knots)": curved, "a linear term": linear}
    notes += [f"Covariates: {listed(names)} as {term}." for term, names in terms.items() if names]
    target = cohort.target
    if isinstance(target, Classes):
        outcome = {f"class {name}": (target.labels == k).astype(float) for k, name in enumerate(target.names)}
    else:
        outcome = {name: np.asarray(values, np.float64) for name, values in target.columns().items()}
    return [*notes, *leaks(fitted.encode(cohort.table), fitted.names, outcome)]
