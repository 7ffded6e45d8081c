"""Why two slides are alike: which prototypes both have, which differ and by how much, as numbers and as a sentence."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from panther.alike.distances import Mixtures, hellinger_parts, parts_of_distance, symmetric_kl
from panther.explain.names import label

SHARED = 0.9  # of what two slides have in common is told by name
MOST = 4  # prototypes in a part of the sentence
LEAST = 0.02  # share of the tissue, and difference of shares, worth a word
STRIKING = 0.2  # of the distance squared: a look that is told


@dataclass(frozen=True)
class Compared:
    """One prototype in both slides."""

    prototype: int
    name: str  # C2 tumour
    query: float  # its share of the slide that was asked about
    hit: float  # ... and of the one that was found
    adds: float  # to the distance squared, by its shares
    adds_look: float | None = None  # ... and by how it looks; None: proportions alone are compared
    divergence: float | None = None  # symmetric KL per dimension, nats; None: not compared, or one of them lacks it

    @property
    def common(self) -> float:
        """Share that both have."""
        return min(self.query, self.hit)


@dataclass(frozen=True)
class Reasons:
    """Why two slides are alike; prototypes in the order of what both have of them."""

    prototypes: tuple[Compared, ...]
    sentence: str

    @property
    def common(self) -> float:
        """Share of the tissue that is of the same prototypes."""
        return sum(one.common for one in self.prototypes)

    @property
    def shared(self) -> tuple[int, ...]:
        """Prototypes that make up most of what both have, the largest first."""
        return tuple(one.prototype for one in _shared(self.prototypes))

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "sentence": self.sentence,
            "common": self.common,
            "shared": [f"C{c}" for c in self.shared],
            "prototypes": [{**asdict(one), "common": one.common} for one in self.prototypes],
        }


def reasons_of(
    query: np.ndarray,
    hit: np.ndarray,
    names: Mapping[int, str],
    called: tuple[str, str],
    mixtures: tuple[Mixtures, Mixtures] | None = None,
) -> Reasons:
    """Reasons from the proportions (C,) of both slides and, where whole mixtures are compared, from these; ``called`` are the slides' names."""
    by_share, by_look, divergence = hellinger_parts(query, hit), None, None
    if mixtures is not None:
        by_share, by_look = parts_of_distance(*mixtures)
        divergence = symmetric_kl(*mixtures) / mixtures[0].means.shape[-1]
    compared = [
        Compared(
            c,
            label(c, names),
            float(query[c]),
            float(hit[c]),
            float(by_share[c]),
            None if by_look is None else float(by_look[c]),
            None if divergence is None or min(query[c], hit[c]) <= 0 else float(divergence[c]),
        )
        for c in range(len(query))
    ]
    ordered = tuple(sorted(compared, key=lambda one: (-one.common, one.prototype)))
    return Reasons(ordered, _sentence(ordered, called))


def _sentence(prototypes: tuple[Compared, ...], called: tuple[str, str]) -> str:
    common = sum(one.common for one in prototypes)
    shared = _shared(prototypes)
    told = [
        f"{common:.0%} of the tissue is of the same prototypes: "
        + ", ".join(f"{one.name} ({one.query:.0%} and {one.hit:.0%})" for one in shared)
        + "."
        if shared
        else f"They share hardly any tissue ({common:.1%})."
    ]
    other = sorted(prototypes, key=lambda one: (-abs(one.query - one.hit), one.prototype))
    other = [one for one in other if abs(one.query - one.hit) >= LEAST][:MOST]
    more = {
        called[1]: [one for one in other if one.hit > one.query],
        called[0]: [one for one in other if one.hit < one.query],
    }
    for name, mine in more.items():
        words = [f"{one.name} ({max(one.query, one.hit):.0%} against {one.common:.0%})" for one in mine]
        told += [f"{name} has more {', '.join(words)}."] if words else []
    total = sum(one.adds + (one.adds_look or 0) for one in prototypes)
    looks = [one for one in prototypes if total and (one.adds_look or 0) >= STRIKING * total]
    if looks:
        words = [f"{one.name} ({(one.adds_look or 0) / total:.0%} of the distance)" for one in looks[:MOST]]
        told.append(f"What looks most different: {', '.join(words)}.")
    return " ".join(told)


def _shared(prototypes: tuple[Compared, ...]) -> list[Compared]:
    """Prototypes that make up nine tenths of what is in common, few and large ones."""
    found: list[Compared] = []
    total = sum(one.common for one in prototypes)
    for one in prototypes:
        if one.common < LEAST or sum(f.common for f in found) >= SHARED * total or len(found) == MOST:
            break
        found.append(one)
    return found
