"""Players of the optional blocks: two prototypes that touch share what they add; what belongs to no prototype is nobody's."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

BESIDE = "beside C"  # and the number of the other
BLOCK = {"regions": "space", "size": "space", "border": "space"}  # statistic -> what charts count it to


def statistic_of_pair(other: int) -> str:
    """What a prototype's touching of another one is called: `beside C7`."""
    return f"{BESIDE}{other}"


def partner(statistic: str) -> int | None:
    """The other prototype of a pair; None where the statistic is of one alone."""
    return int(statistic.removeprefix(BESIDE)) if statistic.startswith(BESIDE) else None


def block_of(statistic: str) -> str:
    """What charts show a statistic as: itself, or the block that it belongs to."""
    if partner(statistic) is not None:
        return "space"
    return "tail" if statistic.startswith("tail") else BLOCK.get(statistic, statistic)


def owners(prototype: int, statistic: str) -> dict[int, float]:
    """Prototypes that a player belongs to, and their shares: half of a pair is each one's; nobody where it is of the whole slide."""
    other = partner(statistic)
    if prototype < 0:
        return {}
    return {prototype: 1.0} if other is None or other == prototype else {prototype: 0.5, other: 0.5}


def ownership(players: Sequence[tuple[int, str]]) -> np.ndarray:
    """Share (P, C) of each player that belongs to each prototype."""
    found = [owners(*player) for player in players]
    own = np.zeros((len(found), 1 + max((c for one in found for c in one), default=-1)))
    for row, one in zip(own, found, strict=True):
        for c, share in one.items():
            row[c] = share
    return own


def by_block(rows: Iterable[Mapping[str, Any]]) -> dict[tuple[str, int], float]:
    """Mean absolute contributions of rows of `attribution.json`, by (what charts show, prototype)."""
    size: dict[tuple[str, int], float] = {}
    for row in rows:
        for c, share in owners(row["prototype"], row["statistic"]).items():
            key = block_of(row["statistic"]), c
            size[key] = size.get(key, 0.0) + share * float(row["mean_absolute"])
    return size


def largest_pairs(rows: Iterable[Mapping[str, Any]], most: int) -> list[Mapping[str, Any]]:
    """Rows of touching prototypes, those that move the output most first."""
    pairs = [row for row in rows if partner(row["statistic"]) is not None and row["mean_absolute"] > 0]
    return sorted(pairs, key=lambda row: -row["mean_absolute"])[:most]
