"""From columns of a table to numbers, or to several labels at once."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from panther.cohort.endpoints import Parsed, positive_counts
from panther.cohort.status import ZERO_ONE
from panther.cohort.targets import Labels, Values
from panther.errors import InputError, listed
from panther.storage.clinical import find_column
from panther.storage.tables import is_missing, plain_labels, source_of, with_points

YES_NO = {  # words of tables that say whether somebody has it
    **ZERO_ONE,
    **dict.fromkeys(("yes", "y", "positive", "pos", "present", "mutated", "mutant", "mut", "altered"), True),
    **dict.fromkeys(("no", "n", "negative", "neg", "absent", "wild type", "wild-type", "wildtype", "wt"), False),
}


def parse_values(table: pd.DataFrame, name: str) -> Parsed:
    """Number of every row; rows without one are None, text is refused."""
    find_column(table, name, (), "value")
    missing = is_missing(table[name]).to_numpy()
    cells = with_points(table[name], name, source_of(table))
    numbers = pd.to_numeric(cells.mask(missing), errors="coerce").to_numpy(float)
    for wrong, what in ((np.isnan(numbers) & ~missing, "not a number"), (np.isinf(numbers), "infinite")):
        if wrong.any():
            line = int(wrong.argmax())
            raise InputError(
                f"{source_of(table)}: {int(wrong.sum())} values of {name} are {what}, the first ({table[name].iloc[line]}) in line {line + 2}; "
                f"a value is a number; correct it, leave the cell empty to drop the row, or predict classes with `label=`."
            )
    values = [None if gone else float(number) for number, gone in zip(numbers, missing, strict=True)]
    return Parsed(values, name, positive_counts({f"no {name}": int(missing.sum())}))


def make_values(values: Sequence[float], source: str) -> Values:
    """Values; at least two different ones."""
    found = np.array(values, dtype=np.float64)
    if len(np.unique(found)) < 2:
        raise InputError(
            f"{source}: all {len(found)} samples have the value {found[0]:g}; nothing can be learned. Choose another `value=`."
        )
    return Values(found)


def parse_many_labels(table: pd.DataFrame, names: Sequence[str]) -> Parsed:
    """Labels of every row, one number for each: 1, 0, or NaN where the cell is empty; rows without any are None."""
    if len(set(names)) < len(names):
        twice = next(name for name in names if list(names).count(name) > 1)
        raise InputError(f"The label {twice!r} stands twice; name each column once in `labels=`.")
    columns = np.column_stack([_yes_or_no(table, name) for name in names])  # (n, L)
    nothing = np.isnan(columns).all(1)
    values = [None if empty else tuple(map(float, row)) for row, empty in zip(columns, nothing, strict=True)]
    dropped = positive_counts({f"none of {listed(names, 5)}": int(nothing.sum())})
    return Parsed(values, listed(names, 10), dropped)


def make_many_labels(values: Sequence[Sequence[float]], names: Sequence[str], source: str) -> Labels:
    """Labels; of each at least one who has it and one who has not."""
    target = Labels(tuple(names), np.array(values, dtype=np.float64).reshape(len(values), len(names)))
    for name, has, known in zip(names, target.positive, target.known, strict=True):
        if has in (0, known):
            every = (
                "not known of anybody" if not known else f"{'yes' if has else 'no'} for all {known} of whom it is known"
            )
            raise InputError(
                f"{source}: the label {name} is {every}; nothing can be learned, so leave it out of `labels=`."
            )
    return target


def _yes_or_no(table: pd.DataFrame, name: str) -> np.ndarray:
    """1, 0 or NaN (n,)."""
    find_column(table, name, (), "label")
    cells = plain_labels(table[name]).str.lower()
    missing = is_missing(table[name])
    unknown = sorted(set(cells[~missing]) - set(YES_NO))
    if unknown:
        raise InputError(
            f"{source_of(table)}: {name} says {listed(unknown, 6)}; each of `labels=` says 0 or 1, no or yes, and is empty where it is not "
            f"known. A column of classes is predicted with `label=`."
        )
    return np.array([np.nan if gone else float(YES_NO[cell]) for cell, gone in zip(cells, missing, strict=True)])
