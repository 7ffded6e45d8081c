"""Routes of the cohort page: points, what colours them, and two groups of them compared."""

from dataclasses import asdict
from typing import Any

from flask import Blueprint, request

from panther.charts.results import scatter
from panther.charts.to_plotly import convert, plain
from panther.errors import InputError
from panther.viewer.cohort.colours import CohortColours, Colour, Coloured
from panther.viewer.cohort.compare import compare, slides_of
from panther.viewer.cohort.positions import CohortPositions, Placed
from panther.viewer.cohort.units import LEVELS, CohortShares, Units, levels, units_of
from panther.viewer.kept import Kept
from panther.viewer.workbench import Workbench

FEW = 8  # values of a column that are told apart by their colours


def cohort_routes(bench: Workbench) -> Blueprint:
    """Routes; what they compute is kept as long as the server runs."""
    routes = Blueprint("cohort", __name__)
    shares = CohortShares(bench)
    colours, positions = CohortColours(bench, shares), CohortPositions(bench, shares)
    tables: Kept[tuple[list[Colour], list[dict[str, Any]]]] = Kept(len(LEVELS))

    def asked() -> tuple[Units, str | None]:
        return units_of(bench.contents, request.args.get("level", "slides")), request.args.get("set")

    @routes.get("/api/cohort")
    def cohort() -> dict[str, Any]:
        units, chosen = asked()
        columns, rows = tables.get(units.level, lambda: _table(colours, units))
        planes, about_planes = positions.known(units, chosen)
        can, about_colours = colours.known(chosen)
        return {
            "level": units.level,
            "levels": levels(bench.contents),
            "columns": [asdict(column) for column in columns],
            "rows": rows,
            "planes": [{"id": key, "title": title} for key, title in planes],
            "colours": [asdict(colour) for colour in can],
            "colour": _usual(can, rows, colours.outcomes()),
            "compare": any(colour.id.startswith("pi:") for colour in can),
            "notes": [*about_planes, *about_colours],
        }

    @routes.get("/api/cohort/points")
    def points() -> dict[str, Any]:
        units, chosen = asked()
        placed = positions.place(request.args.get("plane", ""), units, chosen)
        colour = request.args.get("colour")
        coloured = colours.values(colour, units, chosen) if colour else None
        progress = placed.progress or (coloured.progress if coloured else None)
        if progress is not None:
            return {"progress": asdict(progress)}
        return {
            "progress": None,
            "figure": _figure(placed, coloured),
            "values": {} if coloured is None else plain(dict(coloured.values)),
            "colour": None if coloured is None else asdict(coloured.colour),
            "notes": [*placed.notes, *(() if coloured is None else _notes(coloured, placed))],
        }

    @routes.post("/api/cohort/compare")
    def compared() -> dict[str, Any]:
        wanted = request.get_json()
        units, chosen = units_of(bench.contents, _text(wanted, "level") or "slides"), _text(wanted, "set")
        a, b = _names(wanted, "a"), _names(wanted, "b")
        known, progress, _ = shares.known(chosen)
        if progress is not None:
            return {"progress": asdict(progress)}
        if not known:
            raise InputError("There are no shares of prototypes to compare; fit some with `panther prototypes`.")
        groups = {"A": slides_of(units, a), "B": slides_of(units, b)}
        everybody = units_of(bench.contents, "slides")
        patients = dict(zip(everybody.names, everybody.patients, strict=True))
        comparison = compare(groups, known, patients, colours.titles(chosen))
        return {
            "progress": None,
            "rows": plain(comparison.rows),
            "figure": convert(comparison.chart),
            "counts": comparison.counts,
            "test": comparison.test,
            "sentence": comparison.sentence,
            "notes": list(comparison.notes),
        }

    return routes


def _table(colours: CohortColours, units: Units) -> tuple[list[Colour], list[dict[str, Any]]]:
    """Columns and rows of the page's table."""
    columns, values = colours.rows(units)
    known = zip(units.names, units.patients, units.slides, values, strict=True)
    return columns, plain(
        [{**row, "name": name, "patient": patient, "slides": own} for name, patient, own, row in known]
    )


def _figure(placed: Placed, coloured: Coloured | None) -> dict[str, Any]:
    names = placed.names
    if coloured is None or coloured.colour.kind == "category":
        values = {} if coloured is None else coloured.values
        groups = [str(values.get(name, "not known")) if coloured else "" for name in names]
        return convert(scatter(placed.position, names, groups, placed.axes))
    import numpy as np

    numbers = np.array([coloured.values.get(name, np.nan) for name in names], float)
    return convert(scatter(placed.position, names, numbers, placed.axes, coloured.colour.title))


def _notes(coloured: Coloured, placed: Placed) -> list[str]:
    if placed.names and not set(placed.names) & set(coloured.values):
        return [f"{coloured.colour.title}: not known of anybody here."]
    return list(coloured.notes)


def _usual(can: list[Colour], rows: list[dict[str, Any]], outcomes: list[str]) -> str | None:
    """What is looked at first: what a study predicts, else a column of a few values, else of numbers, else the first prototype."""
    for colour in sorted(can, key=lambda colour: colour.id not in outcomes):
        distinct = {row[colour.id] for row in rows if row.get(colour.id) is not None} if colour.group == "Table" else ()
        if colour.kind == "category" and 1 < len(distinct) <= FEW and len(distinct) < len(rows):
            return colour.id
    return next((colour.id for colour in can if colour.kind == "number"), None)


def _text(wanted: Any, key: str) -> str | None:
    value = wanted.get(key) if isinstance(wanted, dict) else None
    if value is not None and not isinstance(value, str):
        raise InputError(f"{key} is not a text.")
    return value


def _names(wanted: Any, key: str) -> list[str]:
    value = wanted.get(key) if isinstance(wanted, dict) else None
    if not isinstance(value, list) or not value or not all(isinstance(name, str) for name in value):
        raise InputError(f"Group {key.upper()} is empty; choose slides with the lasso, or by a column.")
    return value
