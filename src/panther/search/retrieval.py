r"""Retrieval scores: how often neighbours share the label of a query, with intervals, chance and paired comparison.

Acc@k
    whether any of the k nearest slides has the label of the query;
mMV@k
    whether the majority of them has it; ties are won by the label of the nearest slide;
mAP@k
    :math:`\frac{1}{\min(k, R)} \sum_{i \le k} r_i P_i`, with :math:`r_i = 1` if the i-th neighbour has the label, :math:`P_i` the share of the first
    i neighbours with it, and R candidates with the label.

Ties of distance are broken by the order of names. A query without a candidate of its label is left out. Chance is the exact expectation of
neighbours drawn at random from the candidates, which depends on the numbers of candidates per class only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import comb
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from panther.cohort.load import Cohort, make_cohort
from panther.cohort.spec import TaskSpec
from panther.cohort.targets import Classes
from panther.errors import InputError
from panther.evaluation.intervals import Difference, Measure, Resampled, differences, holm, intervals, resample
from panther.evaluation.metrics import mean_of_defined, ratio
from panther.search.neighbours import Searchable, groups
from panther.storage.clinical import Columns, read_clinical
from panther.storage.embeddings import Embeddings
from panther.storage.names import without_suffix

if TYPE_CHECKING:
    import pandas as pd


def chance_of_any(counts: Sequence[int], label: int, k: int) -> float:
    r"""Acc@k of a draw: :math:`1 - \binom{N - R}{k} / \binom{N}{k}`, with R of N slides (``counts`` per class) of the class ``label``."""
    right, total = counts[label], sum(counts)
    k = min(k, total)
    return 1 - comb(total - right, k) / comb(total, k)


def chance_of_precision(counts: Sequence[int], label: int, k: int) -> float:
    r"""AP@k of a draw: :math:`\frac{1}{\min(k, R)} \sum_{i \le k} \frac{R}{N} \frac{1}{i} \big(1 + (i-1) \frac{R-1}{N-1}\big)`."""
    right, total = counts[label], sum(counts)
    k = min(k, total)
    place = np.arange(1, k + 1)
    others = (right - 1) / (total - 1) if total > 1 else 0.0
    return float((right / total * (1 + (place - 1) * others) / place).sum() / min(k, right))


def chance_of_majority(counts: Sequence[int], label: int, k: int) -> float:
    """mMV@k of a draw from ``counts`` slides per class for class ``label``; each class of a tie is equally likely to win."""
    return _majority(counts[label], tuple(sorted((*counts[:label], *counts[label + 1 :]))), k)


@lru_cache(maxsize=10_000)
def _majority(right: int, others: tuple[int, ...], k: int) -> float:
    k = min(k, right + sum(others))
    won = 0.0
    for votes in range(1, min(right, k) + 1):
        ways = _ways(others, k - votes, votes)
        won += comb(right, votes) * sum(number / (ties + 1) for ties, number in ways.items())
    return won / comb(right + sum(others), k)


def _ways(others: tuple[int, ...], slots: int, most: int) -> dict[int, int]:
    """Number of ways in which other classes fill ``slots`` with at most ``most`` each, by the number of classes that reach it."""
    states = {(slots, 0): 1}
    for count in others:
        nexts: dict[tuple[int, int], int] = {}
        for (left, ties), number in states.items():
            for taken in range(min(count, left, most) + 1):
                key = left - taken, ties + (taken == most)
                nexts[key] = nexts.get(key, 0) + number * comb(count, taken)
        states = nexts
    ways: dict[int, int] = {}
    for (left, ties), number in states.items():
        if left == 0:
            ways[ties] = ways.get(ties, 0) + number
    return ways


def any_right(labels: np.ndarray, label: int, most: int) -> float:
    """Whether any of the nearest has the label."""
    return float((labels == label).any())


def majority_right(labels: np.ndarray, label: int, most: int) -> float:
    """Whether the majority of the nearest has the label; ties are won by the label of the nearest slide."""
    votes = np.bincount(labels)
    return float(labels[votes[labels] == votes.max()][0] == label)


def average_precision(labels: np.ndarray, label: int, most: int) -> float:
    """Sum of the precision at each rank with the label, divided by the largest possible number ``most`` of them."""
    right = labels == label
    precision = np.cumsum(right) / np.arange(1, len(labels) + 1)
    return float(precision[right].sum() / most)


TITLES = {"acc": "Acc", "mmv": "mMV", "map": "mAP"}
MEASURES = {"acc": any_right, "mmv": majority_right, "map": average_precision}
CHANCE = {"acc": chance_of_any, "mmv": chance_of_majority, "map": chance_of_precision}
ALL, MEAN = "all", "mean over classes"  # groups besides the classes
COMPARED = ["representation", "against", "group", "metric", "k", "difference", "ci_low", "ci_high", "p_value", "p_holm"]


class Queries(NamedTuple):
    """Scores of queries with a candidate of their label, and scores by chance."""

    names: tuple[str, ...]  # acc@1, acc@3, ..., mmv@1, ...
    scores: np.ndarray  # (m, names)
    chance: np.ndarray  # (m, names)
    ids: np.ndarray  # (m,)
    labels: np.ndarray  # (m,)
    patients: np.ndarray  # (m,)

    def take(self, rows: np.ndarray) -> "Queries":
        """Scores of these rows."""
        return Queries(self.names, *(part[rows] for part in self[1:]))


def summarise(
    judged: Mapping[str, Queries], classes: Sequence[str], bootstrap: int, seed: int = 0
) -> "tuple[pd.DataFrame, pd.DataFrame]":
    """Scores with intervals over patients and chance, and the comparison of every representation with the first."""
    import pandas as pd

    resampled = {name: _resampled(one, classes, bootstrap, seed) for name, one in judged.items()}
    rows = [row for name, one in judged.items() for row in _rows(name, one, classes, resampled[name], bootstrap)]
    first = next(iter(judged))
    others = [name for name in judged if name != first] if bootstrap else []
    pairs = {name: _compared(judged[name], judged[first], classes, bootstrap, seed) for name in others}
    compared = []
    for group in (ALL, MEAN, *classes):
        for metric in judged[first].names:
            results = {name: pair[f"{metric}|{group}"] for name, pair in pairs.items()}
            adjusted = holm([d.p_value for d in results.values()])
            for (name, d), p in zip(results.items(), adjusted, strict=True):
                values = (name, first, group, *_named(metric).values(), d.value, d.low, d.high, d.p_value, p)
                compared.append(dict(zip(COMPARED, values, strict=True)))
    return pd.DataFrame(rows), pd.DataFrame(compared, columns=COMPARED)


def _compared(
    one: Queries, other: Queries, classes: Sequence[str], bootstrap: int, seed: int
) -> Mapping[str, Difference]:
    """Differences on their common queries, with the same resamples."""
    common, here, there = np.intersect1d(one.ids, other.ids, return_indices=True)
    if len(common) == 0:
        nothing = Difference(np.nan, np.nan, np.nan, 0, np.nan)
        return {f"{metric}|{group}": nothing for metric in one.names for group in (ALL, MEAN, *classes)}
    first, second = (_resampled(side, classes, bootstrap, seed) for side in (one.take(here), other.take(there)))
    return differences(first, second)


def _resampled(one: Queries, classes: Sequence[str], bootstrap: int, seed: int) -> Resampled:
    return resample(_measure(one, classes, one.scores), one.patients, max(bootstrap, 1), seed)


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
    """Mean of each metric over the queries, weighted by their counts: of all, of each class, and the mean over classes."""
    members = np.stack([one.labels == number for number in range(len(classes))], 1).astype(float)  # (m, classes)

    def measure(counts: np.ndarray) -> dict[str, np.ndarray]:
        means = {}
        sizes = counts @ members
        for column, name in enumerate(one.names):
            of_class = ratio(counts @ (members * values[:, column : column + 1]), sizes)  # (b, classes)
            means[f"{name}|{ALL}"] = ratio(counts @ values[:, column], counts.sum(1))
            means[f"{name}|{MEAN}"] = mean_of_defined(of_class)
            means |= {f"{name}|{group}": of_class[:, number] for number, group in enumerate(classes)}
        return means

    return measure


def _named(metric: str) -> dict[str, Any]:
    kind, k = metric.split("@")
    return {"metric": kind, "k": int(k)}


def labelled_slides(
    opened: Mapping[str, Embeddings],
    table: "Path | str | pd.DataFrame | None",
    task: TaskSpec,
    columns: Columns,
    *,
    with_sites: bool = False,
) -> tuple[Cohort, list[str]]:
    """Slides (or patients) with all representations and a label, and notes; the default table is that of the embeddings' columns."""
    import pandas as pd

    if table is None:
        first = next(iter(opened.values()))
        table = pd.DataFrame({"slide_id": list(first.samples), **first.columns})
        table.attrs["source"] = first.source
    clinical = read_clinical(table, columns=columns)
    who, source = clinical.who, clinical.source
    common = set.intersection(*({without_suffix(name) for name in one.samples} for one in opened.values()))
    by_patient = len(common & set(who.patient)) > len(common & set(who.slide))
    names = who.patient if by_patient else who.slide
    slides = [slide for slide, name in zip(who.slide, names, strict=True) if name in common]
    if not slides:
        here = min(common) if common else "no slide in all of them"
        raise InputError(
            f"{source}: names none of the slides of {', '.join(opened)}: {names[0]!r} there, {here!r} here"
        )
    notes = []
    if with_sites:
        site = dict(zip(who.slide, who.site, strict=True))
        unknown = [slide for slide in slides if site[slide] is None]
        slides = [slide for slide in slides if site[slide] is not None]
        if not slides:
            raise InputError(f"{source}: no sites, expected a site column: `leave_site_out` compares sites")
        if unknown:
            notes.append(f"{len(unknown)} slides of unknown site are left out, e.g. {unknown[0]}")
    cohort = make_cohort(clinical, task.model_copy(update={"level": "patient" if by_patient else "slide"}), slides)
    if len(opened) > 1:
        notes.append(f"{len(common)} slides have all {len(opened)} representations, and these are compared")
    for what, values in (("patient", cohort.patients), ("label", classes_of(cohort).labels)):
        if len(set(values.tolist())) < 2:
            raise InputError(f"{source}: all slides have the same {what}, expected two or more")
    return cohort, [*cohort.report.sentences(), *notes]


def classes_of(cohort: Cohort) -> Classes:
    """Classes of a cohort with a label."""
    assert isinstance(cohort.target, Classes)
    return cohort.target


def rows_of(cohort: Cohort, one: Embeddings) -> Embeddings:
    """Rows of a cohort's slides, in this order."""
    named = {without_suffix(name): name for name in one.samples}
    return one.take([named[name] for name in cohort.ids])


def judge(way: Searchable, cohort: Cohort, at: Sequence[int], *, leave_site_out: bool = False) -> Queries:
    """Scores of every slide against all slides of other patients and, with ``leave_site_out``, of other sites."""
    labels, patients = classes_of(cohort).labels, cohort.patients.astype(str)
    apart = [groups(patients.tolist(), patients.tolist())]
    if leave_site_out:
        apart.append(groups(cohort.sites.tolist(), cohort.sites.tolist()))
    names = tuple(f"{metric}@{k}" for metric in MEASURES for k in at)
    kept, scores, chance = [], [], []
    for query, near in enumerate(way.nearest(way.rows[:].double().numpy(), max(at), apart)):
        label = int(labels[query])
        allowed = np.ones(len(labels), bool)
        for group in apart:
            allowed &= (group.rows != group.queries[query]) | (group.rows < 0)
        counts = np.bincount(labels[allowed], minlength=len(classes_of(cohort).names)).tolist()
        if counts[label] == 0 or len(near.rows) == 0:
            continue
        kept.append(query)
        nearest = labels[near.rows]
        scores.append([measure(nearest[:k], label, min(k, counts[label])) for measure in MEASURES.values() for k in at])
        chance.append([guess(counts, label, k) for guess in CHANCE.values() for k in at])
    rows = np.array(kept, np.int64)
    values, guessed = (np.array(one, float).reshape(len(kept), len(names)) for one in (scores, chance))
    return Queries(names, values, guessed, np.array(cohort.ids)[rows], labels[rows], patients[rows])


@dataclass(frozen=True, eq=False)
class Retrieval:
    """Retrieval scores.

    Attributes
    ----------
    summary : DataFrame
        One row per representation, class (`all` slides, the `mean over classes`, and each) and metric: value, interval, chance.
    comparisons : DataFrame
        Every representation against the first, on the same slides: difference, interval and p-value (Holm's correction over representations).
    notes : tuple of str
        Slides that were left out, with reasons.
    """

    summary: "pd.DataFrame"
    comparisons: "pd.DataFrame"
    notes: tuple[str, ...] = ()

    def to_lines(self) -> list[str]:
        """Scores of all slides with intervals and chance, and of each class without."""
        lines = []
        for name, rows in self.summary.groupby("representation", sort=False):
            lines.append(f"{name}: {rows['queries'].iloc[0]} queries")
            for row in rows[rows["group"] == ALL].to_dict("records"):
                has_interval = row["ci_low"] == row["ci_low"]
                interval = f" [{row['ci_low']:.3f}, {row['ci_high']:.3f}]" if has_interval else ""
                metric = f"{TITLES[row['metric']]}@{row['k']:<3}"
                lines.append(f"  {metric} {row['value']:.3f}{interval}  chance {row['chance']:.3f}")
            for group, part in rows[rows["group"] != ALL].groupby("group", sort=False):
                values = [f"{TITLES[row['metric']]}@{row['k']} {row['value']:.3f}" for row in part.to_dict("records")]
                lines.append(f"  {group}: {', '.join(values)}")
        lines += [
            f"{TITLES[row['metric']]}@{row['k']}: {row['representation']} less {row['against']} {row['difference']:+.3f} "
            f"[{row['ci_low']:+.3f}, {row['ci_high']:+.3f}], p {row['p_value']:.3g}, Holm {row['p_holm']:.3g}"
            for row in self.comparisons.query("group == @ALL").to_dict("records")
        ]
        return lines

    def to_json(self) -> dict[str, Any]:
        """Rows of both tables."""
        tables = {"summary": self.summary, "comparisons": self.comparisons}
        return {
            name: table.astype(object).where(table.notna(), None).to_dict("records") for name, table in tables.items()
        }
