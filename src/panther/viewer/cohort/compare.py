"""Two groups of slides or patients: which prototypes they have more and less of."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from panther.charts.chart import Chart
from panther.charts.prototypes import Group, Tests
from panther.charts.prototypes import group_shares as shares_chart
from panther.errors import InputError
from panther.explain.shares import Factor, difference_intervals, mean_intervals, patient_means, share_tests
from panther.viewer.cohort.units import Units
from panther.viewer.cohort.worker import Share

GROUPS = ("A", "B")
MOST_ROWS = 16  # of the chart; the table has all


@dataclass(frozen=True, eq=False)
class Comparison:
    """Rows are prototypes, those that differ most clearly first."""

    rows: list[dict[str, Any]]
    chart: Chart
    counts: dict[str, dict[str, int]]  # group -> patients and slides
    test: str
    notes: tuple[str, ...]
    sentence: str


def slides_of(units: Units, names: Sequence[str]) -> set[str]:
    """Slides of units; unknown names are refused."""
    own = dict(zip(units.names, units.slides, strict=True))
    unknown = next((name for name in names if name not in own), None)
    if unknown is not None:
        raise InputError(f"There is no {units.level[:-1]} {unknown!r} here.")
    return {slide for name in names for slide in own[name]}


def compare(
    groups: Mapping[str, set[str]], shares: Mapping[str, Share], patient_of: Mapping[str, str], titles: Sequence[str]
) -> Comparison:
    """Compare two groups of slides; several slides of a patient count as one patient, one who is in both groups as none."""
    notes: list[str] = []
    if groups["A"] & groups["B"]:
        raise InputError("A slide is in both groups; it can only be compared with others.")
    kept = _without_both(groups, shares, patient_of, notes)
    means = {}
    for name in GROUPS:
        slides = kept[name]
        pi, patches = np.stack([shares[s].pi for s in slides]), np.array([shares[s].patches for s in slides])
        means[name] = patient_means(pi, [patient_of[s] for s in slides], patches)
    a, b = means["A"][1], means["B"][1]
    patients = [*means["A"][0], *means["B"][0]]
    found = Factor("group", {p: name for name in GROUPS for p in means[name][0]}, ordered=False)
    tests, about = share_tests(found, patients, np.concatenate([a, b]))
    corrected = {test.prototype: test.p_corrected for test in tests}
    intervals = {name: mean_intervals(means[name][1]) for name in GROUPS}
    gaps = difference_intervals(a, b)
    rows: list[dict[str, Any]] = [
        {
            "prototype": c,
            "title": titles[c],
            **{f"{name.lower()}": intervals[name][c].value for name in GROUPS},
            **{f"{name.lower()}_low": intervals[name][c].low for name in GROUPS},
            **{f"{name.lower()}_high": intervals[name][c].high for name in GROUPS},
            "difference": gaps[c].value,
            "low": gaps[c].low,
            "high": gaps[c].high,
            "p": corrected.get(c, np.nan),
        }
        for c in range(len(titles))
    ]
    rows.sort(key=lambda row: (np.isnan(row["p"]), row["p"] if row["p"] == row["p"] else 0.0, -abs(row["difference"])))
    sizes = {name: {"patients": len(means[name][0]), "slides": len(kept[name])} for name in GROUPS}
    test = tests[0].test if tests else ""
    return Comparison(rows, _chart(rows, sizes, test), sizes, test, (*notes, *about), _sentence(rows, bool(tests)))


def _without_both(
    groups: Mapping[str, set[str]], shares: Mapping[str, Share], patient_of: Mapping[str, str], notes: list[str]
) -> dict[str, list[str]]:
    """Slides of each group whose shares are known, and whose patients are in one group only: a test needs groups apart."""
    kept = {name: sorted(slide for slide in groups[name] if slide in shares) for name in GROUPS}
    missing = sum(len(groups[name]) - len(kept[name]) for name in GROUPS)
    if missing:
        notes.append(f"{missing} slides without shares of prototypes are left out.")
    owners = {name: {patient_of[slide] for slide in kept[name]} for name in GROUPS}
    both = owners["A"] & owners["B"]
    if both:
        notes.append(f"{len(both)} patients with slides in both groups are left out, e.g. {min(both)}.")
        kept = {name: [slide for slide in kept[name] if patient_of[slide] not in both] for name in GROUPS}
    empty = [name for name in GROUPS if not kept[name]]
    if empty:
        raise InputError(f"Group {empty[0]} has nobody to compare with. {' '.join(notes)}".strip())
    return kept


def _chart(rows: Sequence[Mapping[str, Any]], sizes: Mapping[str, Mapping[str, int]], test: str) -> Chart:
    shown = rows[:MOST_ROWS]
    groups = [
        Group(f"group {name}", sizes[name]["patients"], *([row[f"{name.lower()}{end}"] for row in shown] for end in ("", "_low", "_high")))
        for name in GROUPS
    ]  # fmt: skip
    tests = Tests(test, [row["p"] for row in shown]) if test else None
    return shares_chart([row["title"] for row in shown], groups, tests, "")


def _sentence(rows: Sequence[Mapping[str, Any]], tested: bool) -> str:
    """What came out, in words."""
    if not tested:
        return "The groups are too small for a test; the means are shown without one."
    clear = [row for row in rows if row["p"] < 0.05]
    if not clear:
        return "No prototype's share differs beyond what chance would do (Holm over all prototypes)."
    parts = [_words(row) for row in clear[:3]]
    more = f"; and {len(clear) - 3} more" if len(clear) > 3 else ""
    return f"{len(clear)} of {len(rows)} prototypes differ: {'; '.join(parts)}{more}."


def _words(row: Mapping[str, Any]) -> str:
    gap, low, high = (f"{100 * row[key]:+.1f}".replace("-", "\u2212") for key in ("difference", "low", "high"))
    return f"{row['title']}, {row['a']:.1%} in A and {row['b']:.1%} in B ({gap} points, 95 % interval {low} to {high})"
