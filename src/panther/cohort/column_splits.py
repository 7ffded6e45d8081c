"""Splits that a column of the clinical table says: the fold that each sample is tested in, or its part of one split."""

import numpy as np
import pandas as pd

from panther.cohort.endpoints import natural_order
from panther.cohort.load import Cohort
from panther.cohort.split import Split, check
from panther.errors import InputError, listed
from panther.storage.clinical import find_column
from panther.storage.table_files.parts import PART
from panther.storage.tables import is_missing, plain_labels

WORDS = {"training": "train", "valid": "val", "validation": "val", "testing": "test"}


def column_splits(cohort: Cohort, column: str, *, val: bool = False) -> tuple[list[Split], list[str]]:
    """Splits of a cohort by a column of its table, checked, and notes about them.

    Where the column says train and test (and val, test_<cohort>) it is one split; otherwise its values are folds, each of
    which is tested once by models of the others. With ``val`` the next fold validates.
    """
    says = _per_sample(cohort, column)
    named = {name: value for name, value in says.items() if value}
    values = sorted(set(named.values()), key=natural_order)
    parts = {value: WORDS.get(value.lower(), value.lower()) for value in values}
    if "train" in parts.values() and all(PART.fullmatch(part) for part in parts.values()):
        if val:
            raise InputError(f"The column {column!r} says by itself who validates; leave out `val`.")
        splits = [_one_split({name: parts[value] for name, value in named.items()})]
    else:
        splits = _rotated(cohort, column, named, values, val)
    notes = (
        [f"{len(says) - len(named)} samples have no {column} and are used nowhere."] if len(named) < len(says) else []
    )
    for number, split in enumerate(splits):
        where = f"fold {values[number]} of column {column!r}" if len(splits) > 1 else f"the column {column!r}"
        notes += check(cohort, split, where)
    return splits, notes


def _per_sample(cohort: Cohort, column: str) -> dict[str, str]:
    """What the column says about each sample, empty where nothing; refuses a sample whose slides disagree."""
    find_column(cohort.rows, column, (), "split")
    cells = plain_labels(cohort.rows[column]).mask(is_missing(cohort.rows[column]), "")
    says = {}
    for sample in cohort.samples:
        different = sorted(set(cells.loc[list(sample.slides)]))
        if len(different) > 1:
            raise InputError(
                f"{cohort.report.source}: the slides of {sample.id} have different {column} ({listed(different)}); "
                "a patient in two parts would make the test dishonest. Split by patient."
            )
        says[sample.id] = different[0]
    return says


def _one_split(part: dict[str, str]) -> Split:
    mine = pd.Series(part, dtype=str)
    groups = {name: tuple(sorted(mine.index[mine == name])) for name in mine.unique()}
    return Split(
        groups["train"], groups.get("val", ()), {name: ids for name, ids in groups.items() if name.startswith("test")}
    )


def _rotated(cohort: Cohort, column: str, fold: dict[str, str], values: list[str], val: bool) -> list[Split]:
    least = 3 if val else 2
    if len(values) < least or len(values) > len(fold) / 2:
        raise InputError(
            f"{cohort.report.source}: {column} says {listed(values, 6)}; expected train and test, or at least {least} folds "
            "of several samples each."
        )
    ids = np.array(list(fold))
    number = np.array([values.index(fold[name]) for name in ids])
    splits = []
    for i in range(len(values)):
        validates = (number == (i + 1) % len(values)) & val
        chosen = ((number != i) & ~validates, validates, number == i)
        train, validation, test = (tuple(map(str, ids[mine])) for mine in chosen)
        splits.append(Split(train, validation, {"test": test}))
    return splits
