"""Which prototypes lie side by side, in sentences for people who look at slides."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from panther.explain.touching.count import Touching

CLEAR = 1.5  # times as often, or as seldom
RARE = 0.005  # share of the places below which a prototype is not spoken of
FEWEST = 20.0  # touches of one with others, for its border to be spoken of


class _Pair(NamedTuple):
    """The rarer prototype of two beside the other one."""

    of: int
    with_: int
    times: float  # touches against chance
    border: float  # share of its border
    by_chance: float  # what that would be


def neighbour_sentences(found: Touching, titles: Sequence[str], most: int = 4) -> list[str]:
    """What lies in or along what, clearest first, then what keeps apart; at most so many of each.

    Tissue that lies in pieces touches everything else more seldom than chance. That two keep apart is said only where the border of the rarer
    one avoids the other, too.
    """
    pairs = _pairs(found)
    mixed = [pair for pair in pairs if pair.times >= CLEAR]
    along = [pair for pair in pairs if pair.times < CLEAR and pair.border >= CLEAR * pair.by_chance]
    apart = [pair for pair in pairs if pair.times <= 1 / CLEAR and pair.border <= pair.by_chance / CLEAR]
    mixed.sort(key=lambda pair: -pair.times)
    along.sort(key=lambda pair: -pair.border / pair.by_chance)
    apart.sort(key=lambda pair: pair.times)
    return [
        *(_mixed(found, pair, titles) for pair in mixed[:most]),
        *(_along(pair, titles) for pair in along[: most - len(mixed[:most])]),
        *(_apart(found, pair, titles) for pair in apart[: most // 2]),
    ]


def _pairs(found: Touching) -> list[_Pair]:
    """Pairs of prototypes of which there is enough."""
    known = np.flatnonzero(found.members >= max(1.0, RARE * found.members.sum()))
    times, border, by_chance = 2.0 ** found.log_ratio(), found.border(), found.border_by_chance()
    others = found.touches.sum(1) - np.diag(found.touches)
    pairs = []
    for b in known:
        for a in known[known < b]:
            small, large = sorted((int(a), int(b)), key=lambda c: int(found.members[c]))
            if others[small] >= FEWEST and by_chance[small, large] > 0:
                values = (times[small, large], border[small, large], by_chance[small, large])
                pairs.append(_Pair(small, large, *map(float, values)))
    return pairs


def _mixed(found: Touching, pair: _Pair, titles: Sequence[str]) -> str:
    members, other = int(found.members[pair.of]), titles[pair.with_]
    inside, beside = (_percent(matrix[pair.of, pair.with_] / members) for matrix in (found.inside, found.beside))
    return (
        f"{titles[pair.of]} touches {other} {pair.times:.1f} times as often as if patches lay at random{_on_slides(found, pair, more=True)}: "
        f"{inside} of its patches lie inside {other} (most of their neighbours are), {beside} beside it."
    )


def _along(pair: _Pair, titles: Sequence[str]) -> str:
    return (
        f"{titles[pair.of]} lies along {titles[pair.with_]}: {_percent(pair.border)} of its border is with it, "
        f"where {_percent(pair.by_chance)} would be so by chance."
    )


def _apart(found: Touching, pair: _Pair, titles: Sequence[str]) -> str:
    seldom = (
        f"{1 / pair.times:.1f} times more seldom than if patches lay at random{_on_slides(found, pair, more=False)}"
    )
    return (
        f"{titles[pair.of]} and {titles[pair.with_]} keep apart: they touch {seldom}, and {_percent(pair.border)} instead of "
        f"{_percent(pair.by_chance)} of the border of {titles[pair.of]} is with it."
    )


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _on_slides(found: Touching, pair: _Pair, *, more: bool) -> str:
    """On how many slides it is so, where there are several."""
    total, over = int(found.slides[pair.of, pair.with_]), int(found.more[pair.of, pair.with_])
    return f" (on {over if more else total - over} of the {total} slides that have both)" if total > 1 else ""
