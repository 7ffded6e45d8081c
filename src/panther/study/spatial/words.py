"""What the shuffle test says, in sentences."""

from collections.abc import Iterable

import numpy as np
import pandas as pd

from panther.errors import listed
from panther.evaluation.metrics import LOWER_IS_BETTER, metric_title
from panther.study.tables import part_name, row_names, varying_factors

EXACTLY = "exactly all of it survives, because where patches lie is not read"


def in_words(row: pd.Series) -> str:
    """What shuffling did to a score, as the end of a sentence."""
    if row["shuffles"] == 0:
        return EXACTLY
    lost, low, high = row["difference"], row["ci_low"], row["ci_high"]
    if row["metric"] in LOWER_IS_BETTER:
        lost, low, high = -lost, -high, -low
    interval = f"95 % interval {low:.3f} to {high:.3f}"
    scores = f"from {row['score']:.3f} to {row['shuffled']:.3f}"
    if np.isnan(lost) or np.isnan(low):
        return f"{scores}; there is no interval for it"
    if low > 0:
        return f"it loses {lost:.3f} ({interval}), {scores}: it used where patches lie"
    if high < 0:
        return f"it is better by {-lost:.3f} without their places ({interval} for the loss), {scores}"
    return f"no loss is shown: {lost:.3f} ({interval}), {scores}"


def shuffle_sentences(table: pd.DataFrame, metrics: Iterable[str]) -> list[str]:
    """What tables show, in sentences: one of all rows that do not read where patches lie, one per metric of each other row."""
    if table.empty:
        return []
    shown = table[table["metric"].isin(list(metrics))]
    shown = shown.assign(row=row_names(shown, varying_factors(shown)))
    unmoved = list(dict.fromkeys(shown[shown["shuffles"] == 0]["row"]))
    said = [f"Shuffled tissue, {listed(unmoved)}: {EXACTLY}."] if unmoved else []
    return said + [
        f"Shuffled tissue, {row['row']} ({part_name(row['part'])}, {metric_title(row['metric'])}): {row['words']}."
        for _, row in shown[shown["shuffles"] > 0].iterrows()
    ]
