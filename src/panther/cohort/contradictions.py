"""Several columns that may each be the time or the status of one endpoint: where they disagree, nothing is guessed (decision 3)."""

from collections.abc import Sequence
from itertools import product

import numpy as np
import pandas as pd

from panther.cohort.status import VITAL, meaning_of, read_events
from panther.cohort.targets import DAYS_IN
from panther.cohort.time_units import unit_of
from panther.errors import InputError
from panther.storage.tables import is_missing, source_of

ROUNDED = 0.02  # relative; a month of 30 or 31 days instead of 30.4375


def refuse_contradictions(
    table: pd.DataFrame, chosen: tuple[str, str, str], possible: Sequence[tuple[str, str, str]]
) -> None:
    """Refuse a time, a status and what a 1 in it means where the table has others, possible too, that disagree."""
    time, status, one = chosen
    for other in dict.fromkeys(t for t, _, _ in possible if t != time and t in table.columns):
        _refuse_times(table, time, other)
    for other, meaning in dict.fromkeys((s, m) for _, s, m in possible if s in table.columns):
        if other not in (status, VITAL):  # who is alive may have had another event
            _refuse_statuses(table, (status, one), (other, meaning))


def _refuse_statuses(table: pd.DataFrame, first: tuple[str, str], second: tuple[str, str]) -> None:
    try:
        events = [read_events(table, name, one) for name, one in (first, second)]
    except InputError:
        return  # one that cannot be read contradicts nothing; the first is refused where it is read
    wrong = np.array([None not in pair and pair[0] != pair[1] for pair in zip(*events, strict=True)])
    if wrong.any():
        said = [f"{name} ({meaning_of(table[name], one)})" for name, one in (first, second)]
        raise InputError(
            f"{_where(table, wrong, said, [first[0], second[0]])}; correct one of them, or name the right one with `event=` or `censorship=`."
        )


def _refuse_times(table: pd.DataFrame, first: str, second: str) -> None:
    """Times may differ by what units differ by, and by rounding."""
    a, b = (_numbers(table[name]) for name in (first, second))
    units = [[unit] if (unit := unit_of(name)) else list(DAYS_IN) for name in (first, second)]
    wrong = min((_differ(a, b, unit, other) for unit, other in product(*units)), key=np.sum)
    if wrong.any():
        raise InputError(
            f"{_where(table, wrong, [first, second], [first, second])}; correct one of them, or name the right one with `time=`."
        )


def _numbers(cells: pd.Series) -> np.ndarray:
    """Numbers (n,), NaN where there is none that is finite."""
    found = pd.to_numeric(cells.mask(is_missing(cells)), errors="coerce").to_numpy(np.float64)
    return np.where(np.isfinite(found), found, np.nan)


def _differ(first: np.ndarray, second: np.ndarray, unit: str, other: str) -> np.ndarray:
    """Rows (n,) whose times, in these units, differ by more than one of the larger unit (and a little, where units differ)."""
    a, b = first * DAYS_IN[unit], second * DAYS_IN[other]  # NaN differs from nothing
    rounding = max(DAYS_IN[unit], DAYS_IN[other])
    return np.abs(a - b) > rounding + (0.0 if unit == other else ROUNDED * np.maximum(a, b))


def _where(table: pd.DataFrame, wrong: np.ndarray, said: Sequence[str], columns: Sequence[str]) -> str:
    row = int(wrong.argmax())
    first, second = (table[name].iloc[row] for name in columns)
    return (
        f"{source_of(table)}: {said[0]} and {said[1]} contradict each other in {int(wrong.sum())} of {len(wrong)} rows, "
        f"e.g. {first} and {second} of {table.index[row]}"
    )
