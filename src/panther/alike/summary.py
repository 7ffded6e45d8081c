"""Scores of queries as tables: means with intervals over patients, what guessing gives, and paired comparison."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from panther.alike.scores import Scores
from panther.evaluation.correction import holm
from panther.evaluation.intervals import Difference, Measure, Resampled, differences, intervals, resample
from panther.evaluation.metrics import mean_of_defined, ratio

if TYPE_CHECKING:
    import pandas as pd

ALL, MEAN = "all", "mean over classes"  # in place of a class
COMPARED = ["representation", "against", "group", "metric", "k", "difference", "ci_low", "ci_high", "p_value", "p_holm"]


@dataclass(frozen=True, eq=False)
class Queries:
    """Slides that were asked about: what was found, what guessing gives, and whose they are."""

    names: tuple[str, ...]  # acc@1, acc@3, ...
    found: np.ndarray  # (m, names)
    chance: np.ndarray  # (m, names)
    ids: np.ndarray  # (m,)
    labels: np.ndarray  # (m,)
    patients: np.ndarray  # (m,)

    @classmethod
    def of(cls, scores: Scores, ids: Sequence[str], labels: np.ndarray, patients: np.ndarray) -> "Queries":
        """Those that have a right answer."""
        asked = scores.queries
        return cls(scores.names, scores.found, scores.chance, np.array(ids)[asked], labels[asked], patients[asked])

    def take(self, rows: np.ndarray) -> "Queries":
        """Some of them."""
        return Queries(self.names, *(part[rows] for part in self._parts()))

    @staticmethod
    def joined(several: Sequence["Queries"]) -> "Queries":
        """One after the other: those of all folds."""
        parts = zip(*(one._parts() for one in several), strict=True)
        return Queries(several[0].names, *(np.concatenate(part) for part in parts))

    def _parts(self) -> tuple[np.ndarray, ...]:
        return self.found, self.chance, self.ids, self.labels, self.patients


def summarise(
    judged: Mapping[str, Queries], classes: Sequence[str], bootstrap: int, seed: int = 0
) -> "tuple[pd.DataFrame, pd.DataFrame]":
    """Values with intervals over patients and what guessing gives; and every representation against the first."""
    import pandas as pd

    resampled = {name: _resampled(one, classes, bootstrap, seed) for name, one in judged.items()}
    rows = [row for name, one in judged.items() for row in _rows(name, one, classes, resampled[name], bootstrap)]
    first = next(iter(judged))
    others = [name for name in judged if name != first] if bootstrap else []
    pairs = {name: _compared(judged[name], judged[first], classes, bootstrap, seed) for name in others}
    compared = []
    for group in (ALL, MEAN, *classes):
        for metric in judged[first].names:
            found = {name: pair[f"{metric}|{group}"] for name, pair in pairs.items()}
            adjusted = holm([d.p_value for d in found.values()])
            for (name, d), p in zip(found.items(), adjusted, strict=True):
                values = (name, first, group, *_named(metric).values(), d.value, d.low, d.high, d.p_value, p)
                compared.append(dict(zip(COMPARED, values, strict=True)))
    return pd.DataFrame(rows), pd.DataFrame(compared, columns=COMPARED)


def _compared(
    one: Queries, other: Queries, classes: Sequence[str], bootstrap: int, seed: int
) -> Mapping[str, Difference]:
    """Differences on the slides that both were asked about, resampled alike."""
    both, here, there = np.intersect1d(one.ids, other.ids, return_indices=True)
    if len(both) == 0:
        nothing = Difference(np.nan, np.nan, np.nan, 0, np.nan)
        return {f"{metric}|{group}": nothing for metric in one.names for group in (ALL, MEAN, *classes)}
    first, second = (_resampled(side, classes, bootstrap, seed) for side in (one.take(here), other.take(there)))
    return differences(first, second)


def _resampled(one: Queries, classes: Sequence[str], bootstrap: int, seed: int) -> Resampled:
    return resample(_measure(one, classes, one.found), one.patients, max(bootstrap, 1), seed)


def _rows(
    name: str, one: Queries, classes: Sequence[str], resampled: Resampled, bootstrap: int
) -> list[dict[str, Any]]:
    limits = intervals(resampled) if bootstrap else {}
    by_chance = _measure(one, classes, one.chance)(np.ones((1, len(one.labels))))
    sizes = {ALL: len(one.labels), MEAN: len(one.labels)}
    sizes |= {group: int((one.labels == number).sum()) for number, group in enumerate(classes)}
    rows = []
    for group, size in sizes.items():
        for metric in one.names:
            key = f"{metric}|{group}"
            low, high = (limits[key].low, limits[key].high) if limits else (np.nan, np.nan)
            rows.append(
                {"representation": name, "group": group, **_named(metric), "value": resampled.whole[key]}
                | {"ci_low": low, "ci_high": high, "chance": float(by_chance[key][0]), "queries": size}
            )
    return rows


def _measure(one: Queries, classes: Sequence[str], values: np.ndarray) -> Measure:
    """Mean of each metric over the queries as often as they count: of all, of each class, and the mean of these."""
    members = np.stack([one.labels == number for number in range(len(classes))], 1).astype(float)  # (m, classes)

    def measure(counts: np.ndarray) -> dict[str, np.ndarray]:
        found = {}
        sizes = counts @ members
        for column, name in enumerate(one.names):
            of_class = ratio(counts @ (members * values[:, column : column + 1]), sizes)  # (b, classes)
            found[f"{name}|{ALL}"] = ratio(counts @ values[:, column], counts.sum(1))
            found[f"{name}|{MEAN}"] = mean_of_defined(of_class)
            found |= {f"{name}|{group}": of_class[:, number] for number, group in enumerate(classes)}
        return found

    return measure


def _named(metric: str) -> dict[str, Any]:
    kind, k = metric.split("@")
    return {"metric": kind, "k": int(k)}
