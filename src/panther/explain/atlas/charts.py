"""Charts of an atlas, from what `atlas.json` holds: `panther atlas` writes them as files, the report shows them in its page."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from panther.charts.chart import Chart
from panther.charts.prototypes import Group, Tests, contacts, cooccurrence, correlations, group_shares, shares
from panther.explain.names import label, row_colour

Content = Mapping[str, Any]


def share_chart(content: Content, names: Sequence[str] | None = None) -> Chart:
    """Mean share of each prototype over patients, with its interval."""
    rows, names = content["prototypes"], names or _names(content)
    limits = _numbers(rows, "low"), _numbers(rows, "high")
    return shares(
        names,
        _numbers(rows, "share"),
        [row_colour(row) for row in rows],
        "share of the tissue",
        limits,
    )


def group_charts(content: Content, names: Sequence[str] | None = None) -> dict[str, Chart]:
    """Mean share of each prototype in each group of a clinical column, or Spearman's rho where it is a number, by column."""
    names = names or _names(content)
    groups, tests = content.get("groups", []), content.get("tests", [])
    columns = dict.fromkeys([row["column"] for row in groups] + [row["column"] for row in tests])
    return {
        column: _groups([row for row in groups if row["column"] == column], _tests(tests, column, len(names)), names, column)
        for column in columns
    }  # fmt: skip


def relation_charts(content: Content, names: Sequence[str] | None = None) -> dict[str, Chart]:
    """Which prototypes occur together and which touch each other, by the names that `atlas.json` has; empty matrices are left out."""
    names = names or _names(content)
    kinds = {"cooccurrence": cooccurrence, "neighbours": contacts}
    values = {kind: np.array(content.get(kind) or [], float) for kind in kinds}  # None becomes NaN
    known = {kind for kind, matrix in values.items() if matrix.shape == (len(names), len(names))}
    return {kind: chart(names, values[kind]) for kind, chart in kinds.items() if kind in known}


def _groups(rows: Sequence[Content], tests: tuple[Tests | None, list[float]], names: Sequence[str], column: str) -> Chart:  # fmt: skip
    found, statistic = tests
    if not rows:
        return correlations(names, statistic, found, column)
    groups = []
    for value in dict.fromkeys(row["value"] for row in rows):
        own = {row["prototype"]: row for row in rows if row["value"] == value}
        ordered = [own.get(c, {}) for c in range(len(names))]
        patients = next(iter(own.values())).get("n")
        groups.append(Group(str(value), patients, *(_numbers(ordered, key) for key in ("mean", "low", "high"))))
    return group_shares(names, groups, found, column)


def _tests(rows: Sequence[Content], column: str, count: int) -> tuple[Tests | None, list[float]]:
    """P-values and statistics of each prototype."""
    own = {row["prototype"]: row for row in rows if row["column"] == column}
    ordered = [own.get(c, {}) for c in range(count)]
    name = next((row.get("test", "") for row in own.values()), "")
    return Tests(name, _numbers(ordered, "p_corrected")) if own else None, _numbers(ordered, "statistic")


def _names(content: Content) -> list[str]:
    names = {row["prototype"]: row["name"] for row in content["prototypes"] if row.get("name")}
    return [label(row["prototype"], names) for row in content["prototypes"]]


def _numbers(rows: Sequence[Content], key: str) -> list[float]:
    return [np.nan if row.get(key) is None else float(row[key]) for row in rows]
