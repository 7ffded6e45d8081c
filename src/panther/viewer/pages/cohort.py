"""Routes of the cohort page: points, their colours, and a comparison of two groups."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from flask import Blueprint

from panther.charts.results import scatter
from panther.charts.to_plotly import convert
from panther.errors import InputError
from panther.viewer.cohort.colours import CohortColours, Colour, Values
from panther.viewer.cohort.compare import compare, slides_of
from panther.viewer.cohort.positions import CohortPositions, Placed
from panther.viewer.cohort.units import LEVELS, CohortShares, Value, levels, units_of
from panther.viewer.queries import CohortQuery, Groups
from panther.viewer.workbench import LruCache, Workbench, pick

FEW = 8  # values of a column that are told apart by their colours


def cohort_routes(bench: Workbench) -> Blueprint:
    """Routes; what they compute is kept as long as the server runs."""
    routes = Blueprint("cohort", __name__)
    shares = CohortShares(bench)
    colours, positions = CohortColours(bench, shares), CohortPositions(bench, shares)
    tables: LruCache[tuple[list[Colour], list[dict[str, Any]]]] = LruCache(len(LEVELS))

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
            "planes": [{"id": plane.id, "title": plane.title} for plane in planes],
            "colours": [colour.to_dict() for colour in choices],
            "colour": _default_colour(choices, rows, colours.outcomes()),
            "compare": any(colour.id.startswith("pi:") for colour in choices),
            "notes": notes + colour_notes,
        }

    @routes.get("/api/cohort/points")
    def points() -> dict[str, Any]:
        query = CohortQuery.read()
        units = units_of(bench.contents, query.level)
        planes = {plane.id: plane for plane in positions.choices(units, query.set)[0]}
        placed = pick(planes, query.plane, "plane").place()
        colour: Colour | None = None
        values, notes = Values({})
        if query.colour:
            choices = {colour.id: colour for colour in colours.choices(query.set)[0]}
            colour = pick(choices, query.colour, "colour")
            values, notes = colour.read(units)
            if placed.names and values.keys().isdisjoint(placed.names):
                notes = (f"{colour.title}: not known for any of these.",)
        return {
            "figure": _figure(placed, colour, values),
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


def _figure(placed: Placed, colour: Colour | None, values: Mapping[str, Value]) -> dict[str, Any]:
    if colour is None or colour.kind == "category":
        groups = ["" if colour is None else str(values.get(name, "not known")) for name in placed.names]
        return convert(scatter(placed.position, placed.names, groups, placed.axes))
    numbers = np.array([values.get(name, np.nan) for name in placed.names], float)
    return convert(scatter(placed.position, placed.names, numbers, placed.axes, colour.title))


def _default_colour(choices: list[Colour], rows: list[dict[str, Any]], outcomes: list[str]) -> str | None:
    """The outcome of a study, else a column of a few values, else of numbers, else the first prototype."""
    for colour in sorted(choices, key=lambda colour: colour.id not in outcomes):
        distinct = {row[colour.id] for row in rows if row.get(colour.id) is not None} if colour.group == "Table" else ()
        if colour.kind == "category" and 1 < len(distinct) <= FEW and len(distinct) < len(rows):
            return colour.id
    return next((colour.id for colour in choices if colour.kind == "number"), None)
