"""Routes of the cohort page: points, their colours, and which prototypes two groups have more and less of."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from flask import Blueprint

from panther.charts.chart import Chart
from panther.charts.prototypes import Group, Tests, group_shares
from panther.charts.results import scatter
from panther.charts.to_plotly import convert
from panther.errors import InputError
from panther.explain.shares import Factor, difference_intervals, mean_intervals, patient_means, share_tests
from panther.viewer.annotations import change_mark, read_marks
from panther.viewer.cohort.colours import CohortColours, Colour, Values
from panther.viewer.cohort.positions import CohortPositions
from panther.viewer.cohort.units import LEVELS, CohortShares, Share, Units, levels, units_of
from panther.viewer.queries import CohortQuery, Groups, MarkChange
from panther.viewer.workbench import LruCache, Workbench, pick

GROUPS = ("A", "B")
MOST_ROWS = 16  # of the chart; the table has all
FEW = 8  # values of a column that are told apart by their colours


def cohort_routes(bench: Workbench) -> Blueprint:
    """Routes; what they compute is kept as long as the server runs."""
    routes = Blueprint("cohort", __name__)
    shares = CohortShares(bench)
    colours, positions = CohortColours(bench, shares), CohortPositions(bench, shares)
    tables: LruCache[tuple[list[Colour], list[dict[str, Any]]]] = LruCache(len(LEVELS))

    @routes.get("/api/slides")
    def slides() -> dict[str, Any]:
        chosen = CohortQuery.read().set
        known = shares.known(chosen)
        shades = bench.legend(chosen) if bench.contents.prototypes else []
        title, labels = colours.labels()
        predictions = colours.predictions()
        rows = []
        for name in bench.contents.slides:
            pi = known[name].pi if name in known else None
            rows.append({"name": name, "label": labels.get(name), "pi": pi, **predictions.get(name, {})})
        return {"label": title, "slides": rows, "colours": [colour for _, colour in shades], "marks": read_marks(bench)}

    @routes.post("/api/slides/<name>/mark")
    def mark(name: str) -> dict[str, Any]:
        body = MarkChange.read()
        bench.slide(name)
        return {"marks": change_mark(bench, name, body.model_dump(exclude={"set"}, exclude_none=True))}

    @routes.get("/api/cohort")
    def cohort() -> dict[str, Any]:
        query = CohortQuery.read()
        units = units_of(bench.contents, query.level)
        columns, rows = tables.get(units.level, lambda: colours.table(units))
        planes, notes = positions.choices(units, query.set)
        choices, colour_notes = colours.choices(query.set)
        return {
            "level": units.level,
            "levels": levels(bench.contents),
            "columns": [column.to_dict() for column in columns],
            "rows": rows,
            "planes": [{"id": plane, "title": title} for plane, (title, _) in planes.items()],
            "colours": [colour.to_dict() for colour in choices],
            "colour": _default_colour(choices, rows, colours.outcomes()),
            "compare": any(colour.id.startswith("pi:") for colour in choices),
            "notes": notes + colour_notes,
        }

    @routes.get("/api/cohort/points")
    def points() -> dict[str, Any]:
        query = CohortQuery.read()
        units = units_of(bench.contents, query.level)
        _title, place = pick(positions.choices(units, query.set)[0], query.plane, "plane")
        placed = place()
        colour: Colour | None = None
        values, notes = Values({})
        if query.colour:
            choices = {colour.id: colour for colour in colours.choices(query.set)[0]}
            colour = pick(choices, query.colour, "colour")
            values, notes = colour.read(units)
            if placed.names and values.keys().isdisjoint(placed.names):
                notes = (f"{colour.title}: not known for any of these.",)
        shades: list[str] | np.ndarray = [
            "" if colour is None else str(values.get(name, "not known")) for name in placed.names
        ]
        if colour is not None and colour.kind == "number":
            shades = np.array([values.get(name, np.nan) for name in placed.names], float)
        return {
            "figure": convert(
                scatter(placed.position, placed.names, shades, placed.axes, colour.title if colour else "")
            ),
            "values": values,
            "colour": None if colour is None else colour.to_dict(),
            "notes": [*placed.notes, *notes],
        }

    @routes.post("/api/cohort/compare")
    def compared() -> dict[str, Any]:
        body = Groups.read()
        units = units_of(bench.contents, body.level)
        known, _failures = shares.read(body.set)
        if not known:
            raise InputError("no shares of prototypes to compare; `panther prototypes` fits some")
        groups = {"A": slides_of(units, body.a), "B": slides_of(units, body.b)}
        slides = units_of(bench.contents, "slides")
        patients = dict(zip(slides.names, slides.patients, strict=True))
        return compare(groups, known, patients, colours.titles(body.set))

    return routes


def _default_colour(choices: list[Colour], rows: list[dict[str, Any]], outcomes: list[str]) -> str | None:
    """The outcome of a study, else a column of a few values, else of numbers, else the first prototype."""
    for colour in sorted(choices, key=lambda colour: colour.id not in outcomes):
        distinct = {row[colour.id] for row in rows if row.get(colour.id) is not None} if colour.group == "Table" else ()
        if colour.kind == "category" and 1 < len(distinct) <= FEW and len(distinct) < len(rows):
            return colour.id
    return next((colour.id for colour in choices if colour.kind == "number"), None)


def slides_of(units: Units, names: Sequence[str]) -> set[str]:
    """Slides of units; unknown names are refused."""
    slides = dict(zip(units.names, units.slides, strict=True))
    return {slide for name in names for slide in pick(slides, name, units.level[:-1])}


def compare(
    groups: Mapping[str, set[str]], shares: Mapping[str, Share], patient_of: Mapping[str, str], titles: Sequence[str]
) -> dict[str, Any]:
    """Compare two groups of slides; a patient counts once, and not at all if in both groups.

    The rows are prototypes, those that differ most clearly first; counts are patients and slides of each group.
    """
    notes: list[str] = []
    if groups["A"] & groups["B"]:
        raise InputError("a slide is in both groups")
    kept = _without_both(groups, shares, patient_of, notes)
    patients, means = {}, {}
    for name, slides in kept.items():
        pi, patches = np.stack([shares[s].pi for s in slides]), np.array([shares[s].patches for s in slides])
        patients[name], means[name] = patient_means(pi, [patient_of[s] for s in slides], patches)
    factor = Factor("group", {p: name for name in GROUPS for p in patients[name]}, ordered=False)
    tests, test_notes = share_tests(factor, [*patients["A"], *patients["B"]], np.concatenate([means["A"], means["B"]]))
    corrected = {test.prototype: test.p_corrected for test in tests}
    rows: list[dict[str, Any]] = []
    for c, difference in enumerate(difference_intervals(means["A"], means["B"])):
        row = {"prototype": c, "title": titles[c], "p": corrected.get(c, np.nan)}
        rows.append(row | {"difference": difference.value, "low": difference.low, "high": difference.high})
    for name in GROUPS:
        for row, mean in zip(rows, mean_intervals(means[name]), strict=True):
            row |= {name.lower(): mean.value, f"{name.lower()}_low": mean.low, f"{name.lower()}_high": mean.high}
    rows.sort(key=lambda row: (np.isnan(row["p"]), np.nan_to_num(row["p"]), -abs(row["difference"])))
    sizes = {name: {"patients": len(patients[name]), "slides": len(kept[name])} for name in GROUPS}
    test = tests[0].test if tests else ""
    return {
        "rows": rows,
        "figure": convert(_chart(rows, sizes, test)),
        "counts": sizes,
        "test": test,
        "sentence": _sentence(rows, bool(tests)),
        "notes": notes + test_notes,
    }


def _without_both(
    groups: Mapping[str, set[str]], shares: Mapping[str, Share], patient_of: Mapping[str, str], notes: list[str]
) -> dict[str, list[str]]:
    """Slides of each group whose shares are known, and whose patients are in one group only: the test requires it."""
    kept = {name: sorted(slide for slide in groups[name] if slide in shares) for name in GROUPS}
    missing = sum(len(groups[name]) - len(kept[name]) for name in GROUPS)
    if missing:
        notes.append(f"{missing} slides without shares of prototypes are left out.")
    patients = [{patient_of[slide] for slide in kept[name]} for name in GROUPS]
    both = set.intersection(*patients)
    if both:
        notes.append(f"{len(both)} patients with slides in both groups are left out, e.g. {min(both)}.")
        kept = {name: [slide for slide in kept[name] if patient_of[slide] not in both] for name in GROUPS}
    empty = [name for name in GROUPS if not kept[name]]
    if empty:
        raise InputError(f"group {empty[0]}: no patient to compare. {' '.join(notes)}".strip())
    return kept


def _chart(rows: Sequence[Mapping[str, Any]], sizes: Mapping[str, Mapping[str, int]], test: str) -> Chart:
    shown = rows[:MOST_ROWS]
    groups = [
        Group(f"group {name}", sizes[name]["patients"], *([row[f"{name.lower()}{end}"] for row in shown] for end in ("", "_low", "_high")))
        for name in GROUPS
    ]  # fmt: skip
    tests = Tests(test, [row["p"] for row in shown]) if test else None
    return group_shares([row["title"] for row in shown], groups, tests, "")


def _sentence(rows: Sequence[Mapping[str, Any]], tested: bool) -> str:
    """The result in words."""
    if not tested:
        return "The groups are too small for a test."
    clear = [row for row in rows if row["p"] < 0.05]
    if not clear:
        return "No prototype's share differs significantly (Holm's correction over all prototypes)."
    parts = []
    for row in clear[:3]:
        points, low, high = (f"{100 * row[key]:+.1f}".replace("-", "\u2212") for key in ("difference", "low", "high"))
        interval = f"{points} points, 95 % interval {low} to {high}"
        parts.append(f"{row['title']}, {row['a']:.1%} in A and {row['b']:.1%} in B ({interval})")
    more = f"; and {len(clear) - 3} more" if len(clear) > 3 else ""
    return f"{len(clear)} of {len(rows)} prototypes differ: {'; '.join(parts)}{more}."
