"""Interpretation of results: the level of chance, the best rows and their ties, the worst group of patients, limits of a perfect score."""

from collections.abc import Collection, Iterator, Sequence

import numpy as np
import pandas as pd

from panther.errors import InputError
from panther.evaluation.intervals import is_perfect
from panther.evaluation.metrics import LOWER_IS_BETTER, METRICS, OF_LABEL, Metric
from panther.storage.tables import with_points

BALANCED = "balanced_accuracy"
FEW = 10  # patients of a group, below which it is not called the worst
MOST_VALUES = 10  # different numbers, above which they are cut into thirds
MOST_GROUPS = 60
DIGITS = 3  # printed; results that are equal after rounding tie
UNSEEN = "resampling cannot see the error of a perfect score"


def patients_of_classes(predictions: pd.DataFrame) -> pd.DataFrame:
    """Test patients of each fold (rows) and class (columns)."""
    samples = predictions.drop_duplicates(["fold", "sample"])
    patients = samples.drop_duplicates(["fold", "label", "patient"])
    return patients.groupby(["fold", "label"]).size().unstack(fill_value=0)


def chance(metric: str, predictions: pd.DataFrame) -> float | None:
    r"""Score of a guess on one test set; None where it depends on the guess.

    Balanced accuracy is the mean recall of the :math:`K_f` classes of a fold, so a constant prediction has :math:`1 / K_f`, the best of
    all guesses.
    """
    if metric == BALANCED:
        return float((1 / (patients_of_classes(predictions) > 0).sum(axis=1)).mean())
    return METRICS.get("auroc" if metric.startswith(OF_LABEL) else metric, Metric("")).chance


def chance_in_resamples(metric: str, predictions: pd.DataFrame) -> float | None:
    r"""Mean score of a guess on resamples of the patients, the reference for intervals.

    A resample of N patients lacks all m of a class with probability :math:`(1 - m / N)^N` and is then scored on fewer classes, which raises
    the balanced accuracy of a guess and, equally, the interval.
    """
    if metric != BALANCED:
        return chance(metric, predictions)
    patients = predictions["patient"].nunique()
    levels = []
    for counts in patients_of_classes(predictions).to_numpy():
        number = np.ones(1)  # probability of 0, 1, 2 ... remaining classes
        for lost in (1 - counts[counts > 0] / patients) ** patients:
            number = np.append(number * lost, 0) + np.append(0, number * (1 - lost))
        levels.append(float(number[1:] @ (1 / np.arange(1, len(number)))) / number[1:].sum())
    return float(np.mean(levels))


def group_names(values: pd.Series, column: str, within: Collection[str] | None = None) -> pd.Series:
    """Group of each sample by a column: its text, or the third of its number where there are many numbers; empty: unknown.

    Thirds are computed from the samples ``within`` (all by default), independent of external cohorts.
    """
    known = values[values != ""]
    numbers = pd.to_numeric(with_points(known, column, "evaluate_by"), errors="coerce")
    numbers = numbers[np.isfinite(numbers)]
    reference = known if within is None else known[known.index.isin(list(within))]
    if reference.nunique() > MOST_VALUES and reference.index.isin(numbers.index).all():
        low, high = np.quantile(numbers.loc[reference.index], [1 / 3, 2 / 3])
        titles = np.array([f"up to {low:.4g}", f"{low:.4g} to {high:.4g}", f"above {high:.4g}"])
        third = np.searchsorted([low, high], numbers, side="left")
        return pd.Series(titles[third], index=numbers.index).reindex(values.index, fill_value="")
    if known.nunique() > MOST_GROUPS:
        raise InputError(
            f"evaluate_by: {column!r} has {known.nunique()} different values, expected at most {MOST_GROUPS}, or numbers"
        )
    return values


def worst_groups(summary: pd.DataFrame) -> Iterator[str]:
    """Worst group of each column among the rows of one method, test and metric."""
    grouped = summary[summary["subgroup"] != ""].dropna(subset="mean")
    for column, rows in grouped.groupby("by", sort=False):
        large = rows[rows["patients"] >= FEW].sort_values("mean", kind="stable")
        small = len(rows) - len(large)
        left_out = f"; {small} of fewer than {FEW} patients not counted" if small else ""
        if len(large) < 2:
            yield f"By {column} there are no two groups of at least {FEW} patients to compare{left_out}."
            continue
        if large["metric"].iloc[0] in LOWER_IS_BETTER:
            large = large[::-1]
        worst, best = large.iloc[0], large.iloc[-1]
        name = _group(worst, f" ({int(worst['patients'])} patients)")
        yield f"Worst of {len(large)} groups by {column}: {name}; best {_group(best)}{left_out}."


def _group(row: pd.Series, patients: str = "") -> str:
    limits = "" if pd.isna(row["ci_low"]) else f" [{row['ci_low']:.3f}, {row['ci_high']:.3f}]"
    name = str(row["subgroup"]).removeprefix(f"{row['by']}: ")
    return f"{name} {row['mean']:.3f}{limits}{patients}"


def best_rows(table: pd.DataFrame) -> pd.DataFrame:
    """Rows of one metric with the best mean after rounding; several tie."""
    known = table.dropna(subset="mean")
    printed = known["mean"].round(DIGITS)
    lower = not known.empty and known["metric"].iloc[0] in LOWER_IS_BETTER
    return known[printed == (printed.min() if lower else printed.max())]


def winners(names: Sequence[str]) -> str:
    """The best row, or `a tie between a, b and c`."""
    return names[0] if len(names) == 1 else f"a tie between {', '.join(names[:-1])} and {names[-1]}"


def about_perfect(row: pd.Series) -> str:
    """Exact bound of a perfect score; empty for other scores."""
    if not is_perfect(row["mean"], row["metric"]):
        return ""
    patients = int(row["patients"])
    if np.isnan(row["exact_low"]):
        return f"{UNSEEN}: its interval is no evidence, and {patients} patients give no exact bound for this metric"
    return (
        f"{UNSEEN}; from {patients} patients without an error the exact binomial bound (95 %, two-sided) is "
        f"{row['exact_low']:.{DIGITS}f}"
    )


def about_selection(row: pd.Series) -> str:
    """Score of the best row corrected for its selection on the same patients; empty without selection or resamples."""
    if pd.isna(row["selected_low"]):
        return ""
    score, low, high = (f"{row[name]:.{DIGITS}f}" for name in ("selected", "selected_low", "selected_high"))
    return f"corrected for the selection {score}, 95 % interval {low} to {high}"


def about_one_class(samples: int, name: str) -> str:
    """Meaning of scores on samples of one class."""
    return f"all {samples} samples are of class {name}: the scores are the recall of this class, not the separation of classes"
