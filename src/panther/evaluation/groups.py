"""Who is served worse: groups of patients by a column of the table, and the worst of them."""

from collections.abc import Collection, Iterator

import numpy as np
import pandas as pd

from panther.errors import InputError
from panther.evaluation.metric_names import LOWER_IS_BETTER
from panther.storage.tables import with_points

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
            f"The column {column!r} has {known.nunique()} different values, so its groups would be single patients; "
            f"evaluate_by takes columns of at most {MOST_GROUPS} values, or of numbers."
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
