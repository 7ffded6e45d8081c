"""Do neighbours share a label? Acc@k, mMV@k and mAP@k of one or more representations, with intervals, chance and paired comparison."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from panther.alike.labelled import labelled_slides
from panther.alike.scores import Scores, score
from panther.alike.search import EmbeddingsLike, Searchable, as_embeddings, searchable
from panther.alike.whose import groups
from panther.cohort.spec import TaskSpec, checked
from panther.errors import InputError
from panther.evaluation.correction import holm
from panther.evaluation.intervals import Measure, Resampled, differences, intervals, resample
from panther.evaluation.metrics import mean_of_defined, ratio
from panther.limits import check_whole
from panther.storage.clinical import USUAL, Columns
from panther.storage.vectors.opened import Embeddings

if TYPE_CHECKING:
    import pandas as pd

AT = (1, 3, 5, 10)
ALL, MEAN = "all", "mean over classes"  # in place of a class
AT_ONCE = 256  # queries that are searched in one pass


@dataclass(frozen=True, eq=False)
class Retrieval:
    """How well neighbours share a label.

    Attributes
    ----------
    summary : DataFrame
        One row per representation, class (`all` slides, the `mean over classes`, and each) and metric: value, interval, chance.
    comparisons : DataFrame
        Every representation against the first, on the same slides: difference, interval and p-value (Holm's correction over representations).
    notes : tuple of str
        Who was left out and why.
    """

    summary: "pd.DataFrame"
    comparisons: "pd.DataFrame"
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Queries:
    """Scores of queries with whose they are."""

    scores: Scores
    labels: np.ndarray  # (m,), of those that have a right answer
    patients: np.ndarray  # (m,)


def retrieval(
    embeddings: EmbeddingsLike | Mapping[str, EmbeddingsLike],
    table: "Path | str | pd.DataFrame | None" = None,
    label: str | None = None,
    *,
    on: str | Sequence[str] | None = None,
    at: Sequence[int] = AT,
    classes: Sequence[str] | None = None,
    leave_site_out: bool = False,
    columns: Columns = USUAL,
    bootstrap: int = 1000,
    seed: int = 0,
) -> Retrieval:
    """Judge representations by whether the nearest slides of other patients have the same label.

    Parameters
    ----------
    embeddings : EmbeddingTable, path, or mapping of names to them
        One representation or several, which are compared on the slides that all have.
    table : path or DataFrame, optional
        Clinical table with the label; by default the embeddings' own columns.
    label : str
        Column of the label.
    on : str or list of str, optional
        What is compared, see `similar`; several are judged beside each other.
    at : sequence of int
        Numbers k of neighbours.
    classes : sequence of str, optional
        Classes that count; all others are left out.
    leave_site_out : bool, default=False
        Whether neighbours must be of another site.
    columns : Columns
        Names of the table's columns, where they are not the usual ones.
    bootstrap : int, default=1000
        Resamples of the patients for the intervals; 0: none.
    seed : int, default=0
        Same seed and input: same intervals.

    Returns
    -------
    Retrieval
        Tables `summary` and `comparisons`, and notes.

    Examples
    --------
    >>> import numpy as np, pandas as pd, torch, panther
    >>> rng = np.random.default_rng(0)
    >>> bags = {f"S{n}": rng.normal(size=(50, 3)) + 3 * np.eye(3)[n % 2] for n in range(12)}
    >>> cohort = panther.embed_cohort(bags, panther.Prototypes(3 * torch.eye(3)))
    >>> table = pd.DataFrame({"slide_id": list(bags), "case_id": list(bags), "subtype": ["a", "b"] * 6})
    >>> found = panther.retrieval(cohort, table, "subtype", at=[1])
    >>> found.summary.query("group == 'all' and metric == 'acc'")[["value", "chance"]].round(2).values.tolist()
    [[1.0, 0.45]]
    """
    if label is None:
        raise InputError("`label=` is missing: the column that says which slides belong together.")
    at = _checked(at)
    given = embeddings if isinstance(embeddings, Mapping) else {"embeddings": embeddings}
    opened = {name: as_embeddings(one) for name, one in given.items()}
    task = checked(TaskSpec, label=label, classes=tuple(classes) if classes else None, level="slide")
    cohort = labelled_slides(opened, table, task, columns, sites_needed=leave_site_out)
    ways = {name: searchable(cohort.rows_of(one), way) for name, one, way in _ways(opened, on)}
    sites = cohort.sites if leave_site_out else None
    judged = {name: judge(way, cohort.labels, cohort.patients, sites, at) for name, way in ways.items()}
    unread = [problem for one in opened.values() for problem in one.problems]
    notes = (*cohort.notes, *unread, *_left_out(judged, len(cohort.ids)))
    return Retrieval(*summarise(judged, cohort.classes, bootstrap, seed), notes)


def judge(
    way: Searchable, labels: np.ndarray, patients: np.ndarray, sites: Sequence[str | None] | None, at: Sequence[int]
) -> Queries:
    """Scores of every slide as a query against all slides of other patients and, where sites are given, of other sites."""
    apart = [groups(list(patients), list(patients)), *([groups(sites, sites)] if sites is not None else [])]
    near = []
    for start in range(0, len(labels), AT_ONCE):
        part = slice(start, start + AT_ONCE)
        queries = way.rows[part].double().numpy()
        near += way.nearest(queries, max(at), [one._replace(queries=one.queries[part]) for one in apart])
    scores = score(near, labels, labels, apart, at)
    return Queries(scores, labels[scores.queries], patients[scores.queries])


def summarise(
    judged: Mapping[str, Queries], classes: Sequence[str], bootstrap: int, seed: int = 0
) -> "tuple[pd.DataFrame, pd.DataFrame]":
    """Values with intervals over patients and what guessing gives; and every representation against the first."""
    import pandas as pd

    resampled = {
        name: resample(_measure(one, classes, one.scores.found), one.patients, max(bootstrap, 1), seed)
        for name, one in judged.items()
    }
    rows = [row for name, one in judged.items() for row in _rows(name, one, classes, resampled[name], bootstrap)]
    first = next(iter(judged))
    pairs = (
        {name: differences(resampled[name], resampled[first]) for name in judged if name != first} if bootstrap else {}
    )
    compared = []
    for group in (ALL, MEAN, *classes):
        for metric in judged[first].scores.names:
            key = f"{metric}|{group}"
            adjusted = holm([found[key].p_value for found in pairs.values()])
            for (name, found), p in zip(pairs.items(), adjusted, strict=True):
                d = found[key]
                compared.append(
                    {"representation": name, "against": first, "group": group, **_named(metric), "difference": d.value}
                    | {"ci_low": d.low, "ci_high": d.high, "p_value": d.p_value, "p_holm": p}
                )
    columns = [
        "representation",
        "against",
        "group",
        "metric",
        "k",
        "difference",
        "ci_low",
        "ci_high",
        "p_value",
        "p_holm",
    ]
    return pd.DataFrame(rows), pd.DataFrame(compared, columns=columns)


def _rows(
    name: str, one: Queries, classes: Sequence[str], resampled: Resampled, bootstrap: int
) -> list[dict[str, Any]]:
    limits = intervals(resampled) if bootstrap else {}
    by_chance = _measure(one, classes, one.scores.chance)(np.ones((1, len(one.labels))))
    sizes = {ALL: len(one.labels), MEAN: len(one.labels)}
    sizes |= {group: int((one.labels == number).sum()) for number, group in enumerate(classes)}
    rows = []
    for group, size in sizes.items():
        for metric in one.scores.names:
            key = f"{metric}|{group}"
            ends = (
                {"ci_low": limits[key].low, "ci_high": limits[key].high}
                if key in limits
                else {"ci_low": np.nan, "ci_high": np.nan}
            )
            rows.append(
                {"representation": name, "group": group, **_named(metric), "value": resampled.whole[key], **ends}
                | {"chance": float(by_chance[key][0]), "queries": size}
            )
    return rows


def _measure(one: Queries, classes: Sequence[str], values: np.ndarray) -> Measure:
    """Mean of each metric over the queries as often as they count: of all, of each class, and the mean of these."""
    members = np.stack([one.labels == number for number in range(len(classes))], 1).astype(float)  # (m, classes)

    def measure(counts: np.ndarray) -> dict[str, np.ndarray]:
        found = {}
        for column, name in enumerate(one.scores.names):
            of_class = ratio(counts @ (members * values[:, column : column + 1]), counts @ members)  # (b, classes)
            found[f"{name}|{ALL}"] = ratio(counts @ values[:, column], counts.sum(1))
            found[f"{name}|{MEAN}"] = mean_of_defined(of_class)
            found |= {f"{name}|{group}": of_class[:, number] for number, group in enumerate(classes)}
        return found

    return measure


def _named(metric: str) -> dict[str, Any]:
    kind, k = metric.split("@")
    return {"metric": kind, "k": int(k)}


def _checked(at: Sequence[int]) -> tuple[int, ...]:
    if not at:
        raise InputError("`at=` is empty; give numbers of neighbours, e.g. 1, 3, 5, 10.")
    for k in at:
        check_whole("`at=`", k, 1, 1000)
    return tuple(sorted(set(at)))


def _ways(opened: Mapping[str, Embeddings], on: str | Sequence[str] | None) -> list[tuple[str, Embeddings, str | None]]:
    """Every representation with every way to compare it, named."""
    ways = [on] if on is None or isinstance(on, str) else list(on)
    several = len(ways) > 1
    return [(f"{name} on {way}" if several else name, one, way) for name, one in opened.items() for way in ways]


def _left_out(judged: Mapping[str, Queries], count: int) -> list[str]:
    notes = []
    for name, one in judged.items():
        if len(one.labels) == 0:
            raise InputError(
                "No slide has another patient's slide of the same label to be found; there is nothing to judge."
            )
        if len(one.labels) < count:
            notes.append(
                f"{name}: {count - len(one.labels)} of {count} slides have no right answer (no slide of another patient with the same label), "
                "or cannot be compared, and are not asked about."
            )
    return notes
