"""From columns of a table to a target: labels, numbers, several labels at once, or survival.

A status column holds events or censorings, in numbers or words; its polarity and the units of times are read from names, with a note where
the table contradicts them. Several columns that may be the time or the status of one endpoint are refused where they disagree (decision 3).
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from panther.cohort.targets import DAYS_IN, Classes, Labels, Survival, Target, Values
from panther.errors import InputError, listed
from panther.storage.clinical import called, find_column
from panther.storage.tables import is_missing, plain_labels, source_of, with_points

ZERO_ONE = {"0": False, "1": True, "false": False, "true": True}
WORDS = {  # words need no polarity
    **dict.fromkeys(
        ("dead", "deceased", "1:deceased", "died", "1:dead with tumor", "1:recurred/progressed", "1:progression"), True
    ),
    **dict.fromkeys(
        ("alive", "living", "0:living", "0:alive or dead tumor free", "0:diseasefree", "0:censored"), False
    ),
}
VITAL = "vital_status"
DEATH = {"os", "dss"}  # endpoints whose event is a death
OTHER_EVENTS = {
    *("dfi", "pfi", "dfs", "pfs", "rfs", "efs", "mfs", "ttp", "ttr"),
    *("disease", "progression", "recurrence", "relapse", "metastasis", "progressed", "recurred"),
}


def read_events(table: pd.DataFrame, name: str, one: str) -> list[bool | None]:
    """Whether the event happened, None where missing."""
    cells = plain_labels(table[name]).str.lower()
    missing = is_missing(table[name])
    known = set(cells[~missing])
    meaning = {cell: value == (one == "event") for cell, value in ZERO_ONE.items()} if known <= set(ZERO_ONE) else WORDS
    if not known <= set(meaning):
        values = listed(sorted(set(table[name][~missing])), 6)
        raise InputError(f"{source_of(table)}: {name} says {values}; expected 0 and 1, or e.g. Alive and Dead")
    return [None if gone else meaning[cell] for cell, gone in zip(cells, missing, strict=True)]


def meaning_of(status: pd.Series, one: str) -> str:
    """Meaning of a status column: `1 = event`, or the words of an event."""
    cells = plain_labels(status)
    words = sorted(set(cells[cells.str.lower().map(lambda cell: WORDS.get(cell, False))]))
    return f"{' or '.join(words)} = event" if words else f"1 = {one}"


def polarity_doubts(table: pd.DataFrame, name: str, about: Sequence[str], values: list[Any]) -> list[str]:
    """Polarity is doubtful where most patients with the event are alive, unless the names ``about`` it say that it is no death."""
    vital = next(iter(called(table.columns, [VITAL])), None)
    words = set(re.findall("[a-z]+", " ".join([*about, name]).lower()))
    if vital is None or vital == name or words & OTHER_EVENTS:
        return []
    died = table[vital].str.strip().str.lower().map(WORDS)
    dead = [d for d, value in zip(died, values, strict=True) if value is not None and value[1] and isinstance(d, bool)]
    alive, other = len(dead) - sum(dead), "" if words & DEATH else ", or is the event another than death"
    doubt = f"patients with the event are alive by {vital}: is the polarity of {name} reversed{other}?"
    return [f"{alive} of {len(dead)} {doubt}"] if alive > sum(dead) else []


UNIT_WORDS = {word: unit for unit in DAYS_IN for word in (unit, unit[:-1])}  # days, day, months, month, ...
APART = 8  # largest ratio of median times of two cohorts; days and months differ by 30, cohorts hardly by as much


def unit_of(column: str) -> str | None:
    """Unit in the name of a column: `os_days`, `OS_MONTHS`, `daysToDeath`; None where there is none, or several."""
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", column)
    units = {UNIT_WORDS[word.lower()] for word in words if word.lower() in UNIT_WORDS}
    return units.pop() if len(units) == 1 else None


def about_times(study: Survival, other: Survival, source: str) -> list[str]:
    """Notes on the times of an external cohort: conversion, or medians so different that units may differ."""
    converted = other.in_unit(study.unit)
    notes = []
    if converted is not other:
        unit, factor = str(other.unit), DAYS_IN[other.unit or ""] / DAYS_IN[study.unit or ""]
        notes.append(f"{source}: times in {unit} were converted (1 {unit[:-1]} = {factor:.6g} {study.unit}).")
    medians = float(np.median(converted.time)), float(np.median(study.time))
    if max(medians) > APART * min(medians):
        notes.append(
            f"{source}: the median time is {medians[0]:g}, in the study {medians[1]:g}: are the units the same?"
        )
    return notes


ROUNDED = 0.02  # relative; a month of 30 or 31 days instead of 30.4375


def refuse_contradictions(
    table: pd.DataFrame, chosen: tuple[str, str, str], possible: Sequence[tuple[str, str, str]]
) -> None:
    """Refuse a time, a status and its polarity that disagree with another possible column of the table.

    Times may differ by one of the larger unit and, where units differ, by rounding; columns without a unit may be in any.
    """
    time, status, one = chosen
    for other in dict.fromkeys(t for t, _, _ in possible if t != time and t in table.columns):
        numbers = [pd.to_numeric(table[n].mask(is_missing(table[n])), errors="coerce") for n in (time, other)]
        a, b = (values.where(np.isfinite(values)).to_numpy(np.float64) for values in numbers)  # NaN agrees with all
        differ = []
        for unit, second in product(*([unit_of(n)] if unit_of(n) else DAYS_IN for n in (time, other))):
            days, others = DAYS_IN[unit or ""], DAYS_IN[second or ""]
            x, y = a * days, b * others
            allowed = max(days, others) + (0.0 if unit == second else ROUNDED * np.maximum(x, y))
            differ.append(np.abs(x - y) > allowed)
        _refuse_rows(table, min(differ, key=np.sum), {time: time, other: other}, "`time=`")
    for other, meaning in dict.fromkeys((s, m) for _, s, m in possible if s in table.columns):
        if other in (status, VITAL):  # the endpoint may be another event than death
            continue
        sides = ((status, one), (other, meaning))
        try:
            events = [read_events(table, name, m) for name, m in sides]
        except InputError:
            continue  # the first is refused where it is read
        wrong = np.array([None not in pair and pair[0] != pair[1] for pair in zip(*events, strict=True)])
        titles = {name: f"{name} ({meaning_of(table[name], m)})" for name, m in sides}
        _refuse_rows(table, wrong, titles, "`event=` or `censorship=`")


def _refuse_rows(table: pd.DataFrame, wrong: np.ndarray, titles: Mapping[str, str], remedy: str) -> None:
    if wrong.any():
        row = int(wrong.argmax())
        first, second = (table[name].iloc[row] for name in titles)
        raise InputError(
            f"{source_of(table)}: {' and '.join(titles.values())} contradict each other in {int(wrong.sum())} of {len(wrong)} rows, "
            f"e.g. {first} and {second} of {table.index[row]}; correct one of them, or name the right one with {remedy}."
        )


LABEL_COLUMNS = ("label", "OncoTreeCode", "OncotreeCode", "diagnosis", "Diagnosis", "isup_grade")
ENDPOINTS = ("os", "dss", "dfi", "pfi")
# Usual time and status columns, and the meaning of a 1 in the status.
SURVIVAL_ALIASES = (
    ("{e}_survival_days", "{e}_censorship", "censored"),
    ("{e}_survival_months", "{e}_censorship", "censored"),
    ("{e}_days", "{e}_censorship", "censored"),
    ("{e}_survival_days", "{e}_event", "event"),
    ("{e}_days", "{e}_event", "event"),
    ("{e}_time", "{e}_event", "event"),
    ("{e}_months", "{e}_censorship", "censored"),
    ("{e}_months", "{e}_event", "event"),
    ("{e}_months", "{e}_status", "event"),
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
    """Value of every row, None where it cannot be used, and the number of those for each reason."""

    values: list[Any]
    columns: str  # names, and the meaning of their values
    make: Callable[[list[Any], str], Target]  # target of values, of a table of this name
    dropped: Mapping[str, int] = field(default_factory=dict)
    notes: Sequence[str] = ()


def usual_label(table: pd.DataFrame) -> str:
    """Label column by its usual names."""
    name = find_column(table, None, LABEL_COLUMNS, "label")
    if name is None:
        raise InputError(f"{source_of(table)}: no label among {listed(table.columns)}; name it with `label=`")
    return name


def parse_labels(table: pd.DataFrame, name: str, classes: Sequence[str] | None = None) -> Parsed:
    """Labels of all rows; rows without one, and of other classes, are None."""
    find_column(table, name, (), "label")
    labels = plain_labels(table[name])
    missing = is_missing(table[name])
    dropped = {f"no {name}": int(missing.sum())}
    if classes is not None:
        other = ~missing & ~labels.isin(classes)
        dropped[f"another {name} ({listed(sorted(labels[other].unique()), 5)})"] = int(other.sum())
        missing |= other
    values = [None if gone else label for label, gone in zip(labels, missing, strict=True)]
    return Parsed(values, name, partial(_classes, classes), dropped)


def _classes(names: Sequence[str] | None, values: Sequence[str], source: str) -> Classes:
    """Classes of labels, in numeric or alphabetic order where no ``names`` are given."""
    names = tuple(names or sorted(set(values), key=natural_order))
    if len(names) < 2:
        raise InputError(f"{source}: all {len(values)} samples are of one class, {listed(names)}, expected two or more")
    if len(values) > 10 and len(set(values)) > len(values) / 2:
        raise InputError(
            f"{source}: {len(set(values))} different labels among {len(values)} samples, expected classes (numbers: `value=`)"
        )
    position = {name: index for index, name in enumerate(names)}
    return Classes(names, np.array([position[value] for value in values], dtype=np.int64))


def survival_columns(
    table: pd.DataFrame, endpoint: str | None, time: str | None, event: str | None, censorship: str | None
) -> tuple[str, str, str]:
    """Time column, status column and the meaning of a 1 in it, by their names or by the endpoint (os, dss, dfi, pfi).

    An ``event`` column holds 1 for an event, a ``censorship`` column 1 for a censored patient; words (Dead, Alive) need no polarity.
    Several possible columns are refused where they disagree.
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
    matches: dict[str, tuple[str, str, str]] = {}
    for name, triples in possible.items():
        if present := [columns for columns in triples if {columns[0], columns[1]} <= set(table.columns)]:
            matches[name] = present[0]
    if len(set(matches.values())) > 1:
        raise InputError(f"{source}: several endpoints, {listed(sorted(matches))}; choose one, e.g. `survival=dss`")
    if not matches:
        example = f"{endpoint or 'os'}_survival_days and {endpoint or 'os'}_censorship"
        names = "name them with `time=` and `event=` or `censorship=`"
        raise InputError(f"{source}: no columns such as {example} among {listed(table.columns)}; {names}")
    name, columns = next(iter(matches.items()))
    refuse_contradictions(table, columns, possible[name])
    return columns


def endpoints_of(table: pd.DataFrame) -> list[str]:
    """Endpoints with a time and a status in the table, by their usual names."""
    return [e for e in ENDPOINTS if any({time, status} <= set(table.columns) for time, status, _ in _aliases(e))]


def parse_survival(
    table: pd.DataFrame, time_column: str, status_column: str, one: str, endpoint: str | None = None
) -> Parsed:
    """Pairs (time, event); rows that lack one of them, or were followed for 0 days, are None."""
    time = _finite(table, time_column, least=0)
    event = read_events(table, status_column, one)
    missing = np.isnan(time) | np.array([e is None for e in event])
    dropped = {
        f"no {status_column} or {time_column}": int(missing.sum()),
        f"{time_column} = 0, which says nothing about survival": int(((time == 0) & ~missing).sum()),
    }
    usable = ~missing & (time > 0)
    values = [(float(t), e) if ok else None for t, e, ok in zip(time, event, usable, strict=True)]
    columns = f"{time_column} and {status_column} ({meaning_of(table[status_column], one)})"
    notes = polarity_doubts(table, status_column, [endpoint or "", time_column], values)
    return Parsed(values, columns, partial(_survival, unit_of(time_column)), dropped, notes)


def _survival(unit: str | None, values: Sequence[tuple[float, bool]], source: str) -> Survival:
    """Times and events; at least one event."""
    time, event = np.array([v[0] for v in values], dtype=np.float64), np.array([v[1] for v in values], dtype=bool)
    if not event.any():
        raise InputError(f"{source}: none of the {len(values)} samples has the event; `censorship=` means 1 = censored")
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


def _finite(table: pd.DataFrame, name: str, least: float = -np.inf) -> np.ndarray:
    """Numbers (n,), NaN where missing; text, infinite numbers and smaller ones are refused."""
    missing = is_missing(table[name]).to_numpy()
    cells = with_points(table[name], name, source_of(table))
    numbers = pd.to_numeric(cells.mask(missing), errors="coerce").to_numpy(np.float64)
    wrong = ~missing & ~(np.isfinite(numbers) & (numbers >= least))
    if wrong.any():
        line, expected = int(wrong.argmax()), "a number" if least == -np.inf else f"a number of at least {least:g}"
        example = f"{table[name].iloc[line]} in line {line + 2}"
        raise InputError(f"{source_of(table)}: {name}: {int(wrong.sum())} are not {expected}, the first {example}")
    return numbers


YES_NO = {  # words of tables for yes and no
    **ZERO_ONE,
    **dict.fromkeys(("yes", "y", "positive", "pos", "present", "mutated", "mutant", "mut", "altered"), True),
    **dict.fromkeys(("no", "n", "negative", "neg", "absent", "wild type", "wild-type", "wildtype", "wt"), False),
}


def parse_values(table: pd.DataFrame, name: str) -> Parsed:
    """Number of every row; rows without one are None, text is refused."""
    find_column(table, name, (), "value")
    numbers = _finite(table, name)
    values = [None if np.isnan(number) else float(number) for number in numbers]
    return Parsed(values, name, _values, {f"no {name}": int(np.isnan(numbers).sum())})


def _values(values: Sequence[float], source: str) -> Values:
    """Values; at least two different ones."""
    if len(set(values)) < 2:
        raise InputError(f"{source}: all {len(values)} samples have the value {values[0]:g}, expected several")
    return Values(np.array(values, dtype=np.float64))


def parse_many_labels(table: pd.DataFrame, names: Sequence[str]) -> Parsed:
    """Labels of every row, one number for each: 1, 0, or NaN where the cell is empty; rows without any are None."""
    if repeated := [name for name in names if names.count(name) > 1]:
        raise InputError(f"labels: {repeated[0]!r} is repeated")
    columns = np.full((len(table), len(names)), np.nan)  # (n, L)
    for k, name in enumerate(names):
        find_column(table, name, (), "label")
        cells, known = plain_labels(table[name]).str.lower(), ~is_missing(table[name]).to_numpy()
        if unknown := sorted(set(cells[known]) - set(YES_NO)):
            expected = f"{listed(unknown, 6)}; expected 0, 1, yes, no or nothing"
            raise InputError(f"{source_of(table)}: {name} says {expected}")
        columns[known, k] = [YES_NO[cell] for cell in cells[known]]
    nothing = np.isnan(columns).all(1)
    values = [None if empty else tuple(map(float, row)) for row, empty in zip(columns, nothing, strict=True)]
    dropped = {f"none of {listed(names, 5)}": int(nothing.sum())}
    return Parsed(values, listed(names, 10), partial(_labels, names), dropped)


def _labels(names: Sequence[str], values: Sequence[Sequence[float]], source: str) -> Labels:
    """Labels; each with at least one positive and one negative sample."""
    target = Labels(tuple(names), np.array(values, dtype=np.float64).reshape(len(values), len(names)))
    for name, has, known in zip(names, target.positive, target.known, strict=True):
        if has in (0, known):
            every = f"{'yes' if has else 'no'} for all {known}" if known else "not known of any"
            raise InputError(f"{source}: label {name}: {every}, expected both")
    return target
