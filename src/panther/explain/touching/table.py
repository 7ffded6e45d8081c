"""Neighbours as rows of a table: every prototype with every other, and with itself."""

import math
from typing import Any

from panther.explain.touching.count import Touching

COLUMNS = (
    "prototype", "neighbour", "contacts", "expected", "log2_ratio", "share_of_border", "share_of_border_by_chance", "patches", "inside", "beside"
)  # fmt: skip


def neighbour_rows(found: Touching) -> list[list[Any]]:
    """One row per ordered pair; empty where a number is not defined."""
    touches, expected, ratio = found.touches, found.expected, found.log_ratio()
    border, by_chance = found.border(), found.border_by_chance()
    count = len(touches)
    return [
        [
            f"C{a}",
            f"C{b}",
            round(float(touches[a, b]), 3),
            round(float(expected[a, b]), 3),
            _known(ratio[a, b]),
            _known(border[a, b]),
            _known(by_chance[a, b]),
            int(found.members[a]),
            int(found.inside[a, b]) if a != b else None,
            int(found.beside[a, b]) if a != b else None,
        ]
        for a in range(count)
        for b in range(count)
    ]


def _known(value: float) -> float | None:
    return round(float(value), 6) if math.isfinite(value) else None
