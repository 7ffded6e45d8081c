"""Chance, groups that are served worse, and a table of results in sentences: which row is best, which only ties, and what a score does not say."""

from collections.abc import Collection, Iterator, Sequence

import numpy as np
import pandas as pd

from panther.errors import InputError
from panther.evaluation.intervals import is_perfect
from panther.evaluation.metrics import LOWER_IS_BETTER, METRICS, OF_LABEL, Metric
from panther.storage.tables import with_points

BALANCED = "balanced_accuracy"


def patients_of_classes(predictions: pd.DataFrame) -> pd.DataFrame:
    """How many patients of each class each fold tests: folds down, classes across."""
    first = predictions.drop_duplicates(["fold", "sample"])  # labels of a later row may be permuted
    once = first.drop_duplicates(["fold", "label", "patient"])
    return once.groupby(["fold", "label"]).size().unstack(fill_value=0)


def chance(metric: str, predictions: pd.DataFrame) -> float | None:
    r"""What guessing gives on one test, where that is one number.

    Balanced accuracy is the mean recall of the :math:`K_f` classes that a fold has, so naming one of them always gives
    :math:`1 / K_f`, and no guess gives more.
    """
    if metric == BALANCED:
        return float((1 / (patients_of_classes(predictions) > 0).sum(axis=1)).mean())
    return METRICS.get("auroc" if metric.startswith(OF_LABEL) else metric, Metric("")).chance


def chance_in_resamples(metric: str, predictions: pd.DataFrame) -> float | None:
    r"""What guessing gives on resamples of the patients, which intervals are made of.

    A resample of N patients lacks all m of a class with probability :math:`(1 - m / N)^N`, and is then scored on the classes that are left,
    of which guessing gets more right: the interval of balanced accuracy is too high by as much.
    """
    if metric != BALANCED:
        return chance(metric, predictions)
    everybody = predictions["patient"].nunique()
    found = []
    for counts in patients_of_classes(predictions).to_numpy():
        number = np.ones(1)  # probability that 0, 1, 2 ... classes are left
        for lost in (1 - counts[counts > 0] / everybody) ** everybody:
            number = np.append(number * lost, 0) + np.append(0, number * (1 - lost))
        found.append(float(number[1:] @ (1 / np.arange(1, len(number)))) / number[1:].sum())
    return float(np.mean(found))


FEW = 10  # patients, below which a group's number is mostly chance and it is not called the worst
MOST_VALUES = 10  # different numbers, above which they are cut into thirds
MOST_GROUPS = 60


def group_names(values: pd.Series, column: str, own: Collection[str] | None = None) -> pd.Series:
    """Group of each sample by what a column says of it: its text, or a third of its numbers where there are many; empty: not known.

    Thirds are those of ``own`` samples (all by default): who is only tested on, in another cohort, does not move them.
    """
    known = values[values != ""]
    numbers = pd.to_numeric(with_points(known, column, "evaluate_by"), errors="coerce")
    numbers = numbers[np.isfinite(numbers)]
    mine = known if own is None else known[known.index.isin(list(own))]
    if mine.nunique() > MOST_VALUES and mine.index.isin(numbers.index).all():
        low, high = np.quantile(numbers.loc[mine.index], [1 / 3, 2 / 3])
        words = np.array([f"up to {low:.4g}", f"{low:.4g} to {high:.4g}", f"above {high:.4g}"])
        third = np.searchsorted([low, high], numbers, side="left")
        return pd.Series(words[third], index=numbers.index).reindex(values.index, fill_value="")
    if known.nunique() > MOST_GROUPS:
        raise InputError(
            f"evaluate_by: {column!r} has {known.nunique()} different values, expected at most {MOST_GROUPS}, or numbers"
        )
    return values


def worst_groups(summary: pd.DataFrame) -> Iterator[str]:
    """A sentence about each column of the rows of one method, test and metric: which group is worst, with its interval.

    The worst of many groups is also the unluckiest, so it is said how many there are.
    """
    grouped = summary[summary["subgroup"] != ""].dropna(subset="mean")
    for column, own in grouped.groupby("by", sort=False):
        sound = own[own["patients"] >= FEW].sort_values("mean", kind="stable")
        small = len(own) - len(sound)
        left_out = f"; {small} of fewer than {FEW} patients not counted" if small else ""
        if len(sound) < 2:
            yield f"By {column} there are no two groups of at least {FEW} patients to compare{left_out}."
            continue
        if sound["metric"].iloc[0] in LOWER_IS_BETTER:
            sound = sound[::-1]
        worst, best = sound.iloc[0], sound.iloc[-1]
        yield (
            f"Worst of {len(sound)} groups by {column}: {_named(worst, column)} {_number(worst)} ({int(worst['patients'])} patients); "
            f"best {_named(best, column)} {_number(best)}{left_out}."
        )


def _named(row: pd.Series, column: object) -> str:
    return str(row["subgroup"]).removeprefix(f"{column}: ")


def _number(row: pd.Series) -> str:
    limits = "" if pd.isna(row["ci_low"]) else f" [{row['ci_low']:.3f}, {row['ci_high']:.3f}]"
    return f"{row['mean']:.3f}{limits}"


DIGITS = 3  # as printed: what reads the same is a tie
UNSEEN = "resampling cannot see the error of a perfect score"


def best_rows(table: pd.DataFrame) -> pd.DataFrame:
    """Rows of one metric with the best mean as printed: more than one is a tie."""
    known = table.dropna(subset="mean")
    printed = known["mean"].round(DIGITS)
    lower = not known.empty and known["metric"].iloc[0] in LOWER_IS_BETTER
    return known[printed == (printed.min() if lower else printed.max())]


def winners(names: Sequence[str]) -> str:
    """Who is best: `a`, or `a tie between a, b and c`."""
    return names[0] if len(names) == 1 else f"a tie between {', '.join(names[:-1])} and {names[-1]}"


def about_perfect(row: pd.Series) -> str:
    """What is known after a perfect score; empty where the score is not."""
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
    """Score of the best row corrected for its selection on the same patients; empty where nothing was selected or resampled."""
    if pd.isna(row["selected_low"]):
        return ""
    score, low, high = (f"{row[name]:.{DIGITS}f}" for name in ("selected", "selected_low", "selected_high"))
    return f"corrected for the selection {score}, 95 % interval {low} to {high}"


def about_one_class(samples: int, name: str) -> str:
    """What scores on samples of one class tell, and what not."""
    return (
        f"all {samples} samples are of class {name}: the scores are the recall of this class and do not say whether the classes can be "
        "told apart"
    )
