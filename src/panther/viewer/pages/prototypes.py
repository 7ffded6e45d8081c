"""Routes of the prototype page: patches, shares by group, survival, neighbours, contributions, and names."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from itertools import islice
from typing import Any

import numpy as np
from flask import Blueprint, jsonify

from panther.charts.display_names import column_titles
from panther.charts.prototypes import Group, Tests, correlations, group_shares
from panther.charts.to_plotly import convert
from panther.cohort.load import load_cohort
from panther.cohort.outcomes import endpoints_of
from panther.errors import InputError
from panther.explain import kaplan_meier, shares
from panther.explain.attribution.draw import by_size
from panther.explain.attribution.mathematics import by_block, owners
from panther.explain.names import Naming
from panther.explain.shares import factor_of
from panther.storage.clinical import ClinicalTable
from panther.storage.files import read_json
from panther.viewer.gallery import Findings, gallery_of
from panther.viewer.names import ConflictError, NamesState, legend
from panther.viewer.queries import Body, NameChange, PrototypeQuery, Query
from panther.viewer.workbench import UnknownError, Workbench, as_sentence

KINDS = ("nearest", "borderline", "farthest", "random")  # of patches, in the order of the page
ON_CARD = 9  # patches
MOST_LEVELS = 12  # of a column that is offered first


def prototype_routes(bench: Workbench) -> Blueprint:
    """Routes of the page."""
    routes = Blueprint("prototypes", __name__)

    @routes.get("/api/prototypes")
    def overview() -> dict[str, Any]:
        chosen = PrototypeQuery.read().set
        findings = gallery_of(bench, chosen).findings()
        rows = [_overview(findings, c) for c in range(len(bench.prototypes(chosen)))]
        spec = bench.prototypes(chosen).spec
        side = spec.mpp * spec.size if spec.mpp and spec.size else None  # of a patch, micrometres
        return {
            **_progress(findings),
            "prototypes": rows,
            "columns": _columns(bench),
            "titles": column_titles(_columns(bench)),
            "notes": findings.notes,
            "um": side,
        }

    @routes.get("/api/prototypes/<int:prototype>")
    def one(prototype: int) -> dict[str, Any]:
        query = PrototypeQuery.read()
        if prototype >= len(bench.prototypes(query.set)):
            raise UnknownError(f"there is no prototype C{prototype} in this set")
        findings = gallery_of(bench, query.set).findings()
        title, _colour = bench.legend(query.set)[prototype]
        return {
            **_progress(findings),
            **_overview(findings, prototype),
            "exemplars": {kind: rows for kind in KINDS if (rows := list(_exemplars(findings, prototype, kind)))},
            "groups": _figure(lambda: _groups(bench, findings, prototype, title, query.column)),
            "survival": _figure(lambda: _survival(bench, findings, prototype)),
            "beside": _beside(findings, prototype),
            "predicts": _predicts(bench, query.set, prototype),
        }

    @routes.post("/api/prototypes/look")
    def look() -> dict[str, Any]:
        gallery = gallery_of(bench, Body.read().set)
        gallery.start(despite_atlas=True)
        return _progress(gallery.findings())

    @routes.get("/api/names")
    def names() -> dict[str, Any]:
        return names_state(bench, Query.read().set)

    @routes.post("/api/names")
    def change() -> Any:
        body = NameChange.read()
        if not bench.has_names(bench.set_name(body.set)):
            raise InputError(f"only the prototypes {bench.set_name()!r} have a names file here")
        fields = body.model_dump(include={"name", "note", "colour", "group"}, exclude_none=True)
        return changed(lambda: bench.names().change(body.prototype, fields, body.seen))

    @routes.post("/api/names/undo")
    def undo() -> Any:
        Body.read()
        return changed(bench.names().undo)

    def changed(change: Callable[[], None]) -> Any:
        try:
            change()
        except ConflictError as error:
            return jsonify(error=str(error), **names_state(bench)), 409
        return names_state(bench)

    return routes


def names_state(bench: Workbench, chosen: str | None = None) -> dict[str, Any]:
    """Names and colours of the prototypes of a set, and whether they can be changed."""
    has_names = bench.has_names(chosen)
    state = bench.names().state() if has_names else NamesState({})
    other_set = f"The names file belongs to the prototypes {bench.set_name()!r}; these are shown by their numbers."
    rows = []
    for prototype, (title, colour) in enumerate(legend(state, len(bench.prototypes(chosen)))):
        naming = state.namings.get(prototype, Naming())
        row = {"prototype": prototype, "title": title, "colour": colour, "chosen_colour": naming.colour}
        rows.append(asdict(naming) | row)
    undo = bench.names().next_undo if has_names else ""
    return {
        "version": state.version,
        "file": bench.contents.names.name,
        "problem": state.problem if has_names else other_set,
        "prototypes": rows,
        "can_undo": bool(undo),
        "undo": undo,
    }


def _progress(findings: Findings) -> dict[str, Any]:
    progress = {name: getattr(findings, name) for name in ("done", "total", "running", "can_look")}
    return progress | {"failures": dict([*findings.failures.items()][:20]), "failed": len(findings.failures)}


def _overview(findings: Findings, prototype: int) -> dict[str, Any]:
    """Share of one prototype and its most typical patches."""
    row = findings.content["prototypes"][prototype] if findings.content else {}
    shares = {name: row.get(name) for name in ("share", "low", "high", "patches", "slides")}
    typical = islice(_exemplars(findings, prototype, "nearest"), ON_CARD)
    return {"prototype": prototype, **shares, "typical": list(typical)}


def _exemplars(findings: Findings, prototype: int, kind: str) -> Iterator[dict[str, Any]]:
    for row in findings.content.get("exemplars", ()):
        if row["prototype"] == prototype and row["kind"] == kind:
            yield {name: row.get(name) for name in ("slide", "patient", "distance", "place")} | {"patch": row["row"]}


def _figure(make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """A figure, or why there is none."""
    try:
        return make()
    except InputError as error:
        return {"figure": None, "why": as_sentence(str(error))}


def _columns(bench: Workbench) -> list[str]:
    """Columns of the table to compare by; those of a few different values first."""
    table = bench.contents.table
    if table is None:
        return []
    identifiers = [list(table.who.slide), list(table.who.patient)]
    levels = {str(name): int(table.rows[name].nunique()) for name in table.rows.columns}
    offered = [name for name in levels if levels[name] > 1 and table.rows[name].tolist() not in identifiers]
    return sorted(offered, key=lambda name: min(levels[name], MOST_LEVELS + 1))


def _table_and_shares(bench: Workbench, findings: Findings) -> tuple[ClinicalTable, shares.Proportions]:
    if bench.contents.table is None:
        raise InputError("no clinical table; `panther view FOLDER --table cohort.csv` compares patients")
    if findings.proportions is None:
        raise InputError("no slide has been described yet")
    return bench.contents.table, findings.proportions


def _groups(bench: Workbench, findings: Findings, prototype: int, title: str, column: str | None) -> dict[str, Any]:
    """Share by group, with intervals and a test over patients."""
    table, pi = _table_and_shares(bench, findings)
    offered = _columns(bench)
    column = column or next(iter(offered), None)
    if column is None or column not in offered:
        raise InputError(f"column: found {column!r}, expected one with different values")
    weights = np.ones(len(findings.patients)) if pi.patches is None else pi.patches
    patients, means = shares.patient_means(pi.pi, list(findings.patients), weights)
    in_table = [slide for slide in pi.samples if slide in table.rows.index]
    if not in_table:
        raise InputError(f"{table.source}: none of the slides with features is in the table")
    patient_of = dict(zip(pi.samples, findings.patients, strict=True))
    factor = factor_of(table.rows.loc[in_table], column, table.source, patient_of, categories=False)
    tests, notes = shares.share_tests(factor, patients, means)
    test = next((test for test in tests if test.prototype == prototype), None)
    groups = [group for group in shares.group_shares(factor, patients, means) if group.prototype == prototype]
    p_value = None if test is None else Tests(test.test, [test.p_corrected])
    if groups:
        rows = [Group(group.value, group.n, [group.mean], [group.low], [group.high]) for group in groups]
        chart = group_shares([title], rows, p_value, column)
    elif test is not None:
        chart = correlations([title], [test.statistic], p_value, column)
    else:
        raise InputError(" ".join(notes) or f"{column}: there is nothing to compare")
    return {"column": column, "figure": convert(chart), "groups": groups, "test": test, "notes": notes}


def _survival(bench: Workbench, findings: Findings, prototype: int) -> dict[str, Any]:
    """Kaplan-Meier curves of patients with little, some and much of it."""
    table, pi = _table_and_shares(bench, findings)
    reasons = []
    for endpoint in endpoints_of(table.rows):
        try:
            cohort = load_cohort(table.with_ids().reset_index(drop=True), survival=endpoint)
        except InputError as error:
            reasons.append(str(error))
            continue
        patients = kaplan_meier.by_patient(pi, cohort)
        comparison = kaplan_meier.compare(patients)
        curves = next((row for row in comparison.prototypes if row["prototype"] == prototype), None)
        if curves is None:
            notes = [note for note in comparison.notes if note.startswith(f"C{prototype}:")]
            raise InputError(" ".join(notes) or "there is nothing to compare")
        chart = kaplan_meier.curve_chart(curves, comparison.unit, "")
        return {
            "endpoint": endpoint,
            "figure": convert(chart),
            "test": {"p": curves["p"], "p_corrected": curves["p_corrected"]},
            # columns and exclusions, without the name that a table in memory has
            "notes": [*cohort.report.sentences()[1:], *patients.notes],
        }
    reasons.append("the clinical table has no survival, expected columns such as os_survival_days and os_censorship")
    raise InputError(reasons[0])


def _beside(findings: Findings, prototype: int) -> list[dict[str, Any]]:
    """Other prototypes: how often they touch this one relative to chance, and how their shares correlate over slides."""
    if not findings.content:
        return []
    log_ratios, correlations = (findings.content[name][prototype] for name in ("neighbours", "cooccurrence"))
    return [
        {"prototype": c, "log2": log_ratio, "together": None if c == prototype else correlation}
        for c, (log_ratio, correlation) in enumerate(zip(log_ratios, correlations, strict=True))
    ]


def _predicts(bench: Workbench, chosen: str | None, prototype: int) -> dict[str, Any]:
    """Contributions of this prototype by attributions of the same prototypes."""
    prototypes_hash = bench.prototypes(chosen).content_hash()
    rows = []
    for folder in bench.contents.artefacts.get("attribution", ()):
        try:
            content = read_json(folder / "attribution.json")
            if content["prototypes_hash"] == prototypes_hash:
                rows += [{"from": folder.name, **row} for row in _contributions(content, prototype)]
        except (OSError, ValueError, KeyError, TypeError):
            continue  # damaged: the others are shown
    return {"rows": rows, "why": "" if rows else "No attribution of these prototypes; `panther attribute` writes one."}


def _contributions(content: Mapping[str, Any], prototype: int) -> Iterator[dict[str, Any]]:
    """Mean contribution to each output, and the rank of its size among all prototypes."""
    for output in content["outputs"]:
        rows = [row for row in content["cohort"] if row["output"] == output]
        # of a pair that touches each prototype has half
        mean = sum(owners(row["prototype"], row["statistic"]).get(prototype, 0.0) * float(row["mean"]) for row in rows)
        size = sum(value for (_, c), value in by_block(rows).items() if c == prototype)
        order = by_size(rows)
        rank = 1 + order.index(prototype)
        yield {"output": str(output), "mean": mean, "size": size, "rank": rank, "of": len(order)}
