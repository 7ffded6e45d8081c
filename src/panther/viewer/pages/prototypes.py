"""The prototype page: what prototypes look like, who has them, what they lie beside and what they predict."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
from flask import Blueprint, request

from panther.charts.prototypes import Group, Tests, correlations, group_shares
from panther.charts.to_plotly import convert
from panther.cohort.load import Cohort, load_cohort
from panther.cohort.outcomes import endpoints_of
from panther.errors import InputError
from panther.explain import kaplan_meier, shares
from panther.explain.attribution.mathematics import owners
from panther.explain.shares import factor_of
from panther.storage.files import read_json
from panther.viewer.gallery import Findings, gallery_of
from panther.viewer.workbench import UnknownError, Workbench

MOST_LEVELS = 12  # of a column that is offered first


def prototype_routes(bench: Workbench) -> Blueprint:
    """Routes of the page."""
    routes = Blueprint("prototypes", __name__)

    @routes.get("/api/prototypes")
    def overview() -> dict[str, Any]:
        chosen = request.args.get("set")
        gallery = gallery_of(bench, chosen).findings()
        rows = [_overview(gallery, c) for c in range(len(bench.prototypes(chosen)))]
        return {**_progress(gallery), "prototypes": rows, "columns": _columns(bench), "notes": list(gallery.notes)}

    @routes.get("/api/prototypes/<int:prototype>")
    def one(prototype: int) -> dict[str, Any]:
        chosen = request.args.get("set")
        if prototype >= len(bench.prototypes(chosen)):
            raise UnknownError(f"There is no prototype C{prototype} in this set.")
        gallery = gallery_of(bench, chosen).findings()
        titles = [title for title, _ in bench.look(chosen)]
        return {
            **_progress(gallery),
            **_overview(gallery, prototype),
            "exemplars": _exemplars(gallery, prototype),
            "here": _here(bench, request.args.get("slide"), chosen, prototype),
            "groups": _said(lambda: _groups(bench, gallery, prototype, titles, request.args.get("column"))),
            "survival": _said(lambda: _survival(bench, gallery, prototype)),
            "beside": _beside(gallery, prototype),
            "predicts": _predicts(bench, chosen, prototype),
        }

    @routes.post("/api/prototypes/look")
    def look() -> dict[str, Any]:
        body = request.get_json(silent=True)
        chosen = body.get("set") if isinstance(body, dict) else None
        gallery = gallery_of(bench, chosen if isinstance(chosen, str) else None)
        gallery.start(although=True)
        return _progress(gallery.findings())

    return routes


def _progress(findings: Findings) -> dict[str, Any]:
    about = {"done": findings.done, "total": findings.total, "running": findings.running, "whole": findings.whole}
    about["can_look"] = findings.can_look
    return {**about, "failures": dict(list(findings.failures.items())[:20]), "failed": len(findings.failures)}


def _overview(findings: Findings, prototype: int) -> dict[str, Any]:
    """Share of one prototype and its most typical patch."""
    row = findings.content["prototypes"][prototype] if findings.content else {}
    wanted = ("share", "low", "high", "patches", "slides")
    first = next(iter(_of_kind(findings, prototype, "nearest")), None)
    return {"prototype": prototype, **{name: row.get(name) for name in wanted}, "exemplar": first}


def _exemplars(findings: Findings, prototype: int) -> dict[str, list[dict[str, Any]]]:
    kinds = ("nearest", "borderline", "farthest", "random")
    return {kind: rows for kind in kinds if (rows := list(_of_kind(findings, prototype, kind)))}


def _of_kind(findings: Findings, prototype: int, kind: str) -> Iterable[dict[str, Any]]:
    for row in findings.content.get("exemplars", ()):
        if row["prototype"] == prototype and row["kind"] == kind:
            about = {"slide": row["slide"], "patch": row["row"], "patient": row["patient"]}
            yield {**about, "distance": row["distance"], "place": row.get("place")}


def _here(bench: Workbench, slide: str | None, chosen: str | None, prototype: int) -> dict[str, Any] | None:
    """How much of it the slide at hand has."""
    if slide is None:
        return None
    patch_map = bench.patches(slide, chosen)
    if patch_map.assignment is None or patch_map.weights is None:
        return {"slide": slide, "notes": list(patch_map.notes)}
    members = int((patch_map.assignment.argmax(1) == prototype).sum())
    about = {"share": float(patch_map.weights[prototype]), "members": members, "patches": len(patch_map.assignment)}
    return {"slide": slide, **about, "placed": patch_map.grid is not None, "notes": list(patch_map.notes)}


def _said(make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """A figure, or the sentence why there is none."""
    try:
        return make()
    except InputError as error:
        return {"figure": None, "why": str(error)}


def _columns(bench: Workbench) -> list[str]:
    """Columns of the table to compare by; those of a few different values first."""
    table = bench.contents.table
    if table is None:
        return []
    ids = [list(table.who.slide), list(table.who.patient)]
    different = {str(name): int(table.rows[name].nunique()) for name in table.rows.columns}
    offered = [name for name, levels in different.items() if levels > 1 and table.rows[name].tolist() not in ids]
    return sorted(offered, key=lambda name: (different[name] > MOST_LEVELS, min(different[name], MOST_LEVELS)))


def _groups(
    bench: Workbench, findings: Findings, prototype: int, titles: list[str], column: str | None
) -> dict[str, Any]:
    """Share by group, with intervals and a test over patients."""
    table = bench.contents.table
    if table is None:
        raise InputError(
            "There is no clinical table; give one (`panther view FOLDER --table cohort.csv`) to compare groups of patients."
        )
    offered = _columns(bench)
    column = column or next(iter(offered), None)
    if column is None:
        raise InputError("The clinical table has no column that tells patients apart.")
    if column not in offered:
        raise InputError(f"The clinical table has no column {column!r} with different values.")
    if findings.proportions is None:
        raise InputError("No slide has been looked at yet.")
    pi = findings.proportions
    patients, means = _by_patient(findings)
    known = [slide for slide in pi.samples if slide in table.rows.index]
    if not known:
        raise InputError(f"{table.source}: none of the slides with features is in the table.")
    whose = dict(zip(pi.samples, findings.patients, strict=True))
    factor = factor_of(table.rows.loc[known], column, table.source, whose, categories=False)
    tests, notes = shares.share_tests(factor, patients, means)
    test = next((one for one in tests if one.prototype == prototype), None)
    own = [one for one in shares.group_shares(factor, patients, means) if one.prototype == prototype]
    named = None if test is None else Tests(test.test, [test.p_corrected])
    title = [titles[prototype]]
    if own:
        groups = [Group(one.value, one.n, [one.mean], [one.low], [one.high]) for one in own]
        chart = group_shares(title, groups, named, column)
    elif test is not None:
        chart = correlations(title, [test.statistic], named, column)
    else:
        raise InputError(" ".join(notes) or f"{column}: there is nothing to compare.")
    return {
        "column": column,
        "figure": convert(chart),
        "groups": [_plain(asdict(one)) for one in own],
        "test": None if test is None else _plain(asdict(test)),
        "notes": notes,
    }


def _by_patient(findings: Findings) -> tuple[list[str], np.ndarray]:
    assert findings.proportions is not None
    patches = findings.proportions.patches
    weights = np.ones(len(findings.patients)) if patches is None else patches
    return shares.patient_means(findings.proportions.pi, list(findings.patients), weights)


def _survival(bench: Workbench, findings: Findings, prototype: int) -> dict[str, Any]:
    """Kaplan-Meier curves of patients with little, some and much of it."""
    table = bench.contents.table
    if table is None:
        raise InputError(
            "There is no clinical table; give one (`panther view FOLDER --table cohort.csv`) to see survival."
        )
    if findings.proportions is None:
        raise InputError("No slide has been looked at yet.")
    refused = []
    for endpoint in endpoints_of(table.rows):
        try:
            cohort = load_cohort(table.with_ids().reset_index(drop=True), survival=endpoint)
        except InputError as error:
            refused.append(str(error))
            continue
        patients = kaplan_meier.by_patient(findings.proportions, cohort)
        compared = kaplan_meier.compare(patients)
        one = next((row for row in compared.prototypes if row.prototype == prototype), None)
        if one is None:
            own = [note for note in compared.notes if note.startswith(f"C{prototype}:")]
            raise InputError(" ".join(own) or "There is nothing to compare.")
        row = kaplan_meier.described(one, {})
        chart = kaplan_meier.curve_chart(row, compared.unit, "")
        test = {"p": one.p, "p_corrected": one.p_corrected}
        return {"endpoint": endpoint, "figure": convert(chart), "test": _plain(test), "notes": _told(cohort, patients)}
    raise InputError(
        refused[0]
        if refused
        else "The clinical table has no survival of a usual name, such as os_survival_days and os_censorship."
    )


def _told(cohort: Cohort, patients: kaplan_meier.Patients) -> list[str]:
    """Columns that were read and who was left out, without the name that a table in memory has."""
    return [*cohort.report.sentences()[1:], *patients.notes]


def _beside(findings: Findings, prototype: int) -> list[dict[str, Any]]:
    """Other prototypes: how much oftener they touch this one than by chance, and how they go together over slides."""
    if not findings.content:
        return []
    touching, together = (findings.content[name][prototype] for name in ("neighbours", "cooccurrence"))
    return [
        {"prototype": c, "log2": touching[c], "together": together[c] if c != prototype else None}
        for c in range(len(touching))
    ]


def _predicts(bench: Workbench, chosen: str | None, prototype: int) -> dict[str, Any]:
    """What attributions of the same prototypes say of this one."""
    own_hash = bench.prototypes(chosen).content_hash()
    rows = []
    for folder in bench.contents.artefacts.get("attribution", ()):
        try:
            content = read_json(folder / "attribution.json")
            if content["prototypes_hash"] == own_hash:
                rows += [{"from": folder.name, **row} for row in _contributions(content, prototype)]
        except (OSError, ValueError, KeyError, TypeError):
            continue  # damaged: the others are shown
    if rows:
        return {"rows": rows, "why": ""}
    with_model = "explain a model of these prototypes with `panther attribute`"
    return {"rows": [], "why": f"No attribution of these prototypes was found; {with_model} to see what they predict."}


def _contributions(content: Mapping[str, Any], prototype: int) -> list[dict[str, Any]]:
    """Mean contribution to each output, and where its size stands among all prototypes."""
    found = []
    for output in content["outputs"]:
        rows = [row for row in content["cohort"] if row["output"] == output]
        total: dict[int, float] = {}
        mean = 0.0
        for row in rows:
            own = owners(row["prototype"], row["statistic"])  # of a pair that touches, half is each one's
            mean += own.get(prototype, 0.0) * float(row["mean"])
            for c, share in own.items():
                total[c] = total.get(c, 0.0) + share * float(row["mean_absolute"])
        place = 1 + sum(size > total[prototype] for size in total.values())
        about = {"mean": mean, "size": total[prototype], "rank": place, "of": len(total)}
        found.append({"output": str(output), **_plain(about)})
    return found


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """JSON has no NaN."""
    return {name: None if isinstance(value, float) and not np.isfinite(value) else value for name, value in row.items()}
