"""What the cells of a status column mean: event or censored, in numbers or words, and whether that can be right."""

import re
from collections.abc import Sequence
from typing import Any

import pandas as pd

from panther.errors import InputError, listed
from panther.storage.clinical import called
from panther.storage.tables import is_missing, plain_labels, source_of

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
        raise InputError(
            f"{source_of(table)}: {name} says {values}; expected 0 and 1, or words such as Alive and Dead."
        )
    return [None if gone else meaning[cell] for cell, gone in zip(cells, missing, strict=True)]


def meaning_of(status: pd.Series, one: str) -> str:
    """What the cells of a status column mean: `1 = event`, or the words that do."""
    cells = plain_labels(status)
    words = sorted(set(cells[cells.str.lower().map(lambda cell: WORDS.get(cell, False))]))
    return f"{' or '.join(words)} = event" if words else f"1 = {one}"


def polarity_doubts(table: pd.DataFrame, name: str, about: Sequence[str], values: list[Any]) -> list[str]:
    """Polarity is doubtful where most patients with the event are alive, unless the names ``about`` it say that it is no death."""
    vital = next(iter(called(table.columns, [VITAL])), None)
    words = set(re.findall("[a-z]+", " ".join([*about, name]).lower()))
    if vital is None or vital == name or words & OTHER_EVENTS:
        return []
    said = table[vital].str.strip().str.lower().map(WORDS)
    dead = [
        bool(d) for d, value in zip(said, values, strict=True) if value is not None and value[1] and isinstance(d, bool)
    ]
    if 2 * sum(dead) >= len(dead):
        return []
    other = "" if words & DEATH else ", or is the event another than death"
    return [
        f"{len(dead) - sum(dead)} of {len(dead)} patients with the event are alive by {vital}: is the polarity of {name} reversed{other}?"
    ]
