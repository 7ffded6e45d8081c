"""From columns of a table to a target: labels, or survival with what a 1 in its status means."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from panther.cohort.contradictions import refuse_contradictions
from panther.cohort.status import meaning_of, polarity_doubts, read_events
from panther.cohort.targets import Classes, Survival
from panther.cohort.time_units import unit_of
from panther.errors import InputError, listed
from panther.storage.clinical import find_column
from panther.storage.tables import is_missing, plain_labels, source_of, with_points

LABEL_COLUMNS = ("label", "OncoTreeCode", "OncotreeCode", "diagnosis", "Diagnosis", "isup_grade")
ENDPOINTS = ("os", "dss", "dfi", "pfi")
# Time and status columns as tables write them, and what a 1 in the status means.
SURVIVAL_ALIASES = (
    ("{e}_survival_days", "{e}_censorship", "censored"),
    ("{e}_survival_months", "{e}_censorship", "censored"),
    ("{e}_days", "{e}_censorship", "censored"),
    ("{e}_survival_days", "{e}_event", "event"),
    ("{e}_days", "{e}_event", "event"),
    ("{e}_time", "{e}_event", "event"),
    ("{E}.time", "{E}", "event"),  # TCGA-CDR
    ("{E}_MONTHS", "{E}_STATUS", "event"),  # cBioPortal
)
UNNAMED_ALIASES = (
    ("survival_days", "censorship", "censored"),
    ("survival_months", "censorship", "censored"),
    ("survival_days", "event", "event"),
    ("survival_months", "event", "event"),
    ("time", "event", "event"),
    ("time", "vital_status", "event"),
)


@dataclass(frozen=True)
class Parsed:
    """Value of every row, None where it cannot be used, and how many of those for each reason."""

    values: list[Any]
    stated: str  # which column was read, and how
    dropped: Mapping[str, int] = field(default_factory=dict)
    notes: Sequence[str] = ()
    unit: str | None = None  # of times, where the name of their column says it


def usual_label(table: pd.DataFrame) -> str:
    """Label column by its usual names."""
    name = find_column(table, None, LABEL_COLUMNS, "label")
    if name is None:
        raise InputError(
            f"{source_of(table)}: no label column of a usual name among {listed(table.columns)}; name it with `label=`."
        )
    return name


def parse_labels(table: pd.DataFrame, name: str, classes: Sequence[str] | None = None) -> Parsed:
    """Labels of all rows; rows without one, and of classes that were not asked for, are None."""
    find_column(table, name, (), "label")
    labels = plain_labels(table[name])
    missing = is_missing(table[name])
    dropped = {f"no {name}": int(missing.sum())}
    if classes is not None:
        other = ~missing & ~labels.isin(classes)
        dropped[f"another {name} ({listed(sorted(labels[other].unique()), 5)})"] = int(other.sum())
        missing |= other
    values = [None if gone else label for label, gone in zip(labels, missing, strict=True)]
    return Parsed(values, name, positive_counts(dropped))


def make_classes(values: Sequence[str], names: Sequence[str] | None, source: str) -> Classes:
    """Classes of labels, in numeric or alphabetic order where no ``names`` are given."""
    names = tuple(names or sorted(set(values), key=natural_order))
    if len(names) < 2:
        raise InputError(
            f"{source}: all {len(values)} samples are of one class, {listed(names)}; "
            f"choose another `label=`, or an endpoint with `survival=`."
        )
    if len(values) > 10 and len(set(values)) > len(values) / 2:
        raise InputError(
            f"{source}: {len(set(values))} different labels among {len(values)} samples look like names or measurements, "
            f"not classes; choose another column with `label=`, or predict numbers with `value=`."
        )
    position = {name: index for index, name in enumerate(names)}
    return Classes(names, np.array([position[value] for value in values], dtype=np.int64))


def survival_columns(
    table: pd.DataFrame, endpoint: str | None, time: str | None, event: str | None, censorship: str | None
) -> tuple[str, str, str]:
    """Time column, status column and what a 1 in it means; what is not named follows from the endpoint (os, dss, dfi, pfi).

    A named ``event`` column holds 1 for an event, a named ``censorship`` column 1 for a censored patient; words (Dead, Alive) speak
    for themselves. Several columns that may each be meant are refused where they disagree.
    """
    source = source_of(table)
    if event and censorship:
        raise InputError("Name an event column (1 = event) or a censorship column (1 = censored), not both.")
    status, one = (censorship, "censored") if censorship else (event, "event")
    if time and status:
        find_column(table, time, (), "time"), find_column(table, status, (), "status")
        return time, status, one
    aliases = (
        {endpoint: _aliases(endpoint)} if endpoint else {"": UNNAMED_ALIASES, **{e: _aliases(e) for e in ENDPOINTS}}
    )
    possible = {
        name: [(time or t, status or s, one if status else m) for t, s, m in triples]
        for name, triples in aliases.items()
    }
    found: dict[str, tuple[str, str, str]] = {}
    for name, triples in possible.items():
        present = [columns for columns in triples if columns[0] in table.columns and columns[1] in table.columns]
        if present:
            found[name] = present[0]
    if len(set(found.values())) > 1:
        raise InputError(
            f"{source}: there are several endpoints, {listed(sorted(found))}; say which, e.g. `survival=dss`."
        )
    if not found:
        e = endpoint or "os"
        raise InputError(
            f"{source}: no columns for the endpoint {e!r}, e.g. {e}_survival_days and {e}_censorship; "
            f"name them with `time=` and `event=` or `censorship=`; the columns are {listed(table.columns)}."
        )
    name, columns = next(iter(found.items()))
    refuse_contradictions(table, columns, possible[name])
    return columns


def endpoints_of(table: pd.DataFrame) -> list[str]:
    """Endpoints that a table has a time and a status of, by their usual names."""
    return [e for e in ENDPOINTS if any({time, status} <= set(table.columns) for time, status, _ in _aliases(e))]


def parse_survival(
    table: pd.DataFrame, time_column: str, status_column: str, one: str, endpoint: str | None = None
) -> Parsed:
    """Pairs (time, event); rows that lack one of them, or were followed for 0 days, are None."""
    time = _times(table, time_column)  # NaN where missing
    event = read_events(table, status_column, one)
    zero = (time == 0).to_numpy()
    missing = time.isna().to_numpy() | np.array([e is None for e in event])
    dropped = {
        f"no {status_column} or {time_column}": int(missing.sum()),
        f"{time_column} = 0, which says nothing about survival": int((zero & ~missing).sum()),
    }
    usable = ~(missing | zero)
    values = [(float(t), e) if ok else None for t, e, ok in zip(time, event, usable, strict=True)]
    stated = f"{time_column} and {status_column} ({meaning_of(table[status_column], one)})"
    notes = polarity_doubts(table, status_column, [endpoint or "", time_column], values)
    return Parsed(values, stated, positive_counts(dropped), notes, unit_of(time_column))


def make_survival(values: Sequence[tuple[float, bool]], source: str, unit: str | None = None) -> Survival:
    """Times and events; at least one event."""
    time, event = np.array([v[0] for v in values], dtype=np.float64), np.array([v[1] for v in values], dtype=bool)
    if not event.any():
        raise InputError(
            f"{source}: none of the {len(values)} samples has the event; nothing can be learned. "
            f"Check the polarity: `censorship=` means 1 = censored, `event=` means 1 = event."
        )
    return Survival(time, event, unit)


def _aliases(endpoint: str) -> tuple[tuple[str, str, str], ...]:
    """Columns of one endpoint."""
    names = {"e": endpoint.lower(), "E": endpoint.upper()}
    return tuple((time.format(**names), status.format(**names), one) for time, status, one in SURVIVAL_ALIASES)


def natural_order(name: str) -> tuple[int, float, str]:
    """Key of numeric, then alphabetic order."""
    try:
        return 0, float(name), name
    except ValueError:
        return 1, 0.0, name


def positive_counts(counts: Mapping[str, int]) -> dict[str, int]:
    """Without reasons that nobody was left out for."""
    return {reason: n for reason, n in counts.items() if n}


def _times(table: pd.DataFrame, name: str) -> pd.Series:
    """Numbers, NaN where missing; text, infinite and negative times are refused."""
    cells = with_points(table[name], name, source_of(table))
    time = pd.to_numeric(cells.mask(is_missing(cells)), errors="coerce")
    text = time.isna() & ~is_missing(table[name])
    for wrong, what in ((text, "not a number"), (np.isinf(time), "infinite"), (time < 0, "negative")):
        if wrong.any():
            line = int(wrong.to_numpy().argmax())
            raise InputError(
                f"{source_of(table)}: {int(wrong.sum())} values of {name} are {what}, the first ({table[name].iloc[line]}) in line {line + 2}; "
                f"a time is a positive number of days or months; correct it, or leave the cell empty to drop the row."
            )
    return time
