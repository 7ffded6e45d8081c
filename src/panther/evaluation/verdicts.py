"""What a table of results says, in sentences: which is best, which only ties, and what a score does not say."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from panther.evaluation.metric_names import LOWER_IS_BETTER
from panther.evaluation.perfect_scores import is_perfect

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
