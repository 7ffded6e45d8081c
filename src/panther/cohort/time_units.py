"""Units of survival times: read from the name of a column, converted, and doubted where two cohorts differ too much."""

import re

import numpy as np

from panther.cohort.targets import DAYS_IN, Survival

WORDS = {**{unit: unit for unit in DAYS_IN}, **{unit[:-1]: unit for unit in DAYS_IN}}  # days, day, months, month, ...
APART = 8  # times that medians of two cohorts may differ; days and months differ by 30, patients hardly by as much


def unit_of(column: str) -> str | None:
    """Unit that the name of a column says: `os_days`, `OS_MONTHS`, `daysToDeath`; None where it says none, or several."""
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", column)
    found = {WORDS[word.lower()] for word in words if word.lower() in WORDS}
    return found.pop() if len(found) == 1 else None


def about_times(study: Survival, other: Survival, source: str) -> list[str]:
    """What is to be said of the times of another cohort that is tested on: that they were converted, or that they may be of another unit."""
    converted = other.in_unit(study.unit)
    notes = []
    if converted is not other:
        factor = DAYS_IN[other.unit or ""] / DAYS_IN[study.unit or ""]
        notes.append(
            f"{source}: its times are in {other.unit}, those of the study in {study.unit}: they were converted (1 {str(other.unit)[:-1]} = "
            f"{factor:.6g} {study.unit})."
        )
    medians = float(np.median(converted.time)), float(np.median(study.time))
    if max(medians) > APART * min(medians):
        notes.append(
            f"{source}: the median time is {medians[0]:g}, that of the study {medians[1]:g}: are both in the same unit? Uno's c-index, the "
            "time-dependent AUC and the Brier score are right only then."
        )
    return notes
