"""Routes of the study page: methods compared, patients and risks."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from flask import Blueprint, request

from panther.charts.survival import risk_against_time
from panther.charts.to_plotly import convert, plain
from panther.errors import InputError
from panther.evaluation.intervals import CAPTION
from panther.models.tasks import KINDS
from panther.report.data import Run, load_run, metric_name, where_tested
from panther.report.figures import plural
from panther.report.sections.results import MEANING, forest_chart
from panther.store import version_of
from panther.study.patients import (
    Classified,
    Labelled,
    Measured,
    Ranked,
    classified,
    labelled,
    mean_over_methods,
    measured,
    ranked,
)
from panther.viewer.kept import Kept
from panther.viewer.workbench import UnknownError, Workbench

BY_CLASS = "A method is the more wrong about a patient the less probability it gave to the true class (mean over seeds and folds)."
BY_RANK = (
    "A method is the more wrong about a patient the more of its pairs it orders wrongly: pairs with patients of the same test fold of "
    "whom it is known who had the event first (those that the c-index counts), ordered wrongly where the one with the earlier event "
    "has the lower risk. Whoever is in no such pair is not judged."
)

BY_ERROR = "A method is the more wrong about a patient the farther its prediction (mean over seeds and folds) lies from what was observed."
BY_LABELS = (
    "A method is the more wrong about a patient the less probability it gave to what is true, the mean over the labels that are known of "
    "the patient; it says of a label that it is there where its probability is above a half."
)
People = Classified | Ranked | Measured | Labelled
RUNS = 4  # kept in memory
TABLES = ("run.json", "study.json", "cohort.csv", *(f"{name}.parquet" for name in ("metrics", "summary", "comparisons", "predictions")))  # fmt: skip


def _classes(run: Run, people: Classified) -> list[dict[str, Any]]:
    predicted, given = people.predicted, people.of_truth
    assert run.classes is not None
    right = (predicted == people.truth) & (predicted >= 0)
    return [
        {
            "truth": run.classes[people.truth[s]] if people.truth[s] >= 0 else None,
            "predicted": [run.classes[k] if k >= 0 else None for k in predicted[:, s]],
            "probability": given[:, s],
            "all": mean,
            "right": int(right[:, s].sum()),
            "asked": int((predicted[:, s] >= 0).sum()),
            "disagree": len(set(predicted[predicted[:, s] >= 0, s].tolist())) > 1,
        }
        for s, mean in enumerate(mean_over_methods(given))
    ]


def _values(run: Run, people: Measured) -> list[dict[str, Any]]:
    middle = float(np.median(people.truth))
    sides, known = people.predicted > middle, ~np.isnan(people.predicted)
    return [
        {
            "truth": people.truth[s],
            "predicted": people.predicted[:, s],
            "error": people.error[:, s],
            "all": mean,
            "all_predicted": predicted,
            "spread": float(people.truth.std()),
            "disagree": len(set(sides[known[:, s], s].tolist())) > 1,
        }
        for s, (mean, predicted) in enumerate(
            zip(mean_over_methods(people.error), mean_over_methods(people.predicted), strict=True)
        )
    ]


def _labels(run: Run, people: Labelled) -> list[dict[str, Any]]:
    """Labels as text, those that are known; a method is right where it says of each what is true."""
    rows = []
    for s, (truth, mean) in enumerate(zip(people.truth, mean_over_methods(people.of_truth), strict=True)):
        known = ~np.isnan(truth)
        named = [name for name, there in zip(people.names, known, strict=True) if there]
        own = people.probability[:, s][:, known]  # (M, known)
        met = ~np.isnan(own).any(1)
        said = [_listed(named, p > 0.5) if there else None for p, there in zip(own, met, strict=True)]
        rows.append(
            {
                "truth": _listed(named, truth[known] == 1),
                "predicted": said,
                "probability": people.of_truth[:, s],
                "all": mean,
                "right": int((((own > 0.5) == (truth[known] == 1)).all(1) & met).sum()),
                "asked": int(met.sum()),
                "disagree": len({text for text in said if text is not None}) > 1,
            }
        )
    return rows


def _listed(names: list[str], chosen: np.ndarray) -> str:
    return ", ".join(name for name, there in zip(names, chosen, strict=True) if there) or "none"


def _ranks(run: Run, people: Ranked) -> list[dict[str, Any]]:
    halves = people.rank > 0.5  # on which side of the middle of those tested together
    known = ~np.isnan(people.rank)
    return [
        {
            "time": people.time[s],
            "event": bool(people.event[s]),
            "risk": people.rank[:, s],
            "wrong": people.wrong[:, s],
            "all": mean,
            "all_risk": risk,
            "disagree": len(set(halves[known[:, s], s].tolist())) > 1,
        }
        for s, (mean, risk) in enumerate(
            zip(mean_over_methods(people.wrong), mean_over_methods(people.rank), strict=True)
        )
    ]


class PatientList(NamedTuple):
    """How patients of a kind of study are shown."""

    kind: str  # which columns the page has
    how: str  # what is meant by wrong
    people: Callable[[Run, Any], People]
    rows: Callable[[Run, Any], list[dict[str, Any]]]
    about: Callable[[Run], str]  # what is predicted


LISTS: dict[str, PatientList] = {
    "classification": PatientList(
        "classes",
        BY_CLASS,
        lambda run, table: classified(table, run.rows, run.classes or []),
        _classes,
        lambda run: ", ".join(run.classes or []),
    ),
    "survival": PatientList(
        "survival", BY_RANK, lambda run, table: ranked(table, run.rows), _ranks, lambda run: run.endpoint
    ),
    "regression": PatientList(
        "values", BY_ERROR, lambda run, table: measured(table, run.rows), _values, lambda run: str(run.study.task.value)
    ),
    "labels": PatientList(
        "classes",
        BY_LABELS,
        lambda run, table: labelled(table, run.rows, run.study.task.labels or ()),
        _labels,
        lambda run: ", ".join(run.study.task.labels or ()),
    ),
}


def study_routes(bench: Workbench) -> Blueprint:
    """Routes; each names its study in the query, because names may hold slashes."""
    routes = Blueprint("study", __name__)
    runs: Kept[Run] = Kept(RUNS)
    people: Kept[People] = Kept(2 * RUNS)

    def asked() -> tuple[Run, str, Any]:
        name = request.args.get("study") or next(iter(bench.contents.studies), "")
        run, version = _run(bench, runs, name)
        part = request.args.get("part") or ("test" if "test" in run.parts else next(iter(run.parts), "test"))
        if part not in run.parts:
            raise UnknownError(f"{name}: this study has no test called {part!r}.")
        return run, part, (name, version)

    def of_patients(run: Run, part: str, key: Any) -> People:
        return people.get((key[0], part), lambda: _people(run, part), key[1])

    @routes.get("/api/study")
    def study() -> dict[str, Any]:
        run, part, key = asked()
        metrics = [metric for metric in run.study.shown if metric in set(run.summary["metric"])]
        if not metrics:
            raise InputError(f"{key[0]}: its tables hold none of the metrics that it is about; do `panther run` again.")
        metric = request.args.get("metric") or metrics[0]
        if metric not in metrics:
            raise UnknownError(f"{key[0]}: this study does not show a metric called {metric!r}.")
        chart, words = forest_chart(run, part, metric)
        return plain(
            {
                "study": key[0],
                "studies": list(bench.contents.studies),
                "about": _about(run),
                "parts": [{"id": one, "title": where_tested(one)} for one in run.parts],
                "part": part,
                "metrics": [{"id": one, "title": metric_name(one)} for one in metrics],
                "metric": metric,
                "meaning": " ".join((MEANING.get(metric, ""), CAPTION if run.study.bootstrap else "")),
                "rows": [_row(run, part, metrics, name) for name in run.rows],
                "best": list(run.best(part)["row"]),
                "words": words,
                "notes": _notes(run),
            }
        ) | {"figure": convert(chart)}

    @routes.get("/api/study/patients")
    def patients() -> dict[str, Any]:
        run, part, key = asked()
        found = of_patients(run, part, key)
        slides = _slides_by_patient(bench)
        page = LISTS[run.kind]
        rows = page.rows(run, found)
        for row, sample, patient in zip(rows, found.samples, found.patients, strict=True):
            row |= {"sample": sample, "patient": patient}
            row["slides"] = [sample] if sample in bench.contents.slides else slides.get(patient, [])
        return plain(
            {
                "kind": page.kind,
                "methods": run.rows,
                "best": next(iter(run.best(part)["row"]), run.rows[0]),
                "classes": run.classes,
                "unit": run.time_unit,
                "how": page.how,
                "patients": rows,
                "notes": _about_slides(rows),
            }
        )

    @routes.get("/api/study/risks")
    def risks() -> dict[str, Any]:
        run, part, key = asked()
        found = of_patients(run, part, key)
        if not isinstance(found, Ranked):
            raise UnknownError(f"{key[0]}: this study predicts {KINDS[run.kind]}, no risks.")
        method = request.args.get("method") or "all"
        if method != "all" and method not in run.rows:
            raise UnknownError(f"{key[0]}: this study has no method called {method!r}.")
        rank = mean_over_methods(found.rank) if method == "all" else found.rank[run.rows.index(method)]
        return {"figure": convert(risk_against_time(found.time, found.event, rank, found.samples, run.time_unit))}

    return routes


def _run(bench: Workbench, runs: Kept[Run], name: str) -> tuple[Run, Any]:
    if not bench.contents.studies:
        raise UnknownError(
            "There is no study here; `panther run` makes one, and `panther view FOLDER --study RUN` opens one that lies elsewhere."
        )
    if name not in bench.contents.studies:
        raise UnknownError(f"There is no study {name!r} here.")
    folder = bench.contents.studies[name]
    files = [folder / table for table in TABLES]
    bench.refuse_links(file for file in files if file.exists())
    version = version_of(files)
    return runs.get(name, lambda: load_run(folder), version), version


def _people(run: Run, part: str) -> People:
    table = run.predictions[run.predictions["part"] == part]
    if table.empty:
        raise InputError(f"{run.folder.name}: no predictions of {where_tested(part)} are in its tables.")
    return LISTS[run.kind].people(run, table)


def _about(run: Run) -> str:
    what = LISTS[run.kind].about(run)
    tested = "; ".join(f"{where_tested(part)} {_whom(run, part)}" for part in run.parts)
    return f"{what} · tested: {tested} · {plural(len(run.folds), 'fold')} · {plural(len(run.rows), 'method')}"


def _whom(run: Run, part: str) -> str:
    """Who was tested there, each counted once, however many folds and seeds tested them."""
    people = run.predictions[run.predictions["part"] == part].drop_duplicates("sample")
    patients = plural(people["patient"].nunique(), "patient")
    if (people["sample"] == people["patient"]).all():
        return patients
    return f"{plural(len(people), 'sample')} of {patients}"


def _row(run: Run, part: str, metrics: list[str], name: str) -> dict[str, Any]:
    """One method: for every metric its mean, interval, spread over folds, and the exact bound of a perfect score."""
    row: dict[str, Any] = {"row": name}
    for metric in metrics:
        judged = run.judged(part, metric)
        for _, found in judged[judged["row"] == name].head(1).iterrows():
            row[metric] = found["mean"]
            row[f"{metric}_low"], row[f"{metric}_high"] = found["ci_low"], found["ci_high"]
            row[f"{metric}_std"], row[f"{metric}_exact"] = found["std"], found["exact_low"]
    return row


def _notes(run: Run) -> list[str]:
    failures = run.record["failures"]
    failed = f"{len(failures)} samples could not be used in this study, the first: {next(iter(failures.values()))}" if failures else ""  # fmt: skip
    return [note for note in (*map(str, run.record["notes"]), failed) if note]


def _slides_by_patient(bench: Workbench) -> Mapping[str, list[str]]:
    slides: dict[str, list[str]] = defaultdict(list)
    for entry in bench.contents.slides.values():
        if entry.patient is not None:
            slides[entry.patient].append(entry.name)
    return slides


def _about_slides(rows: list[dict[str, Any]]) -> list[str]:
    without = sum(not row["slides"] for row in rows)
    if not without:
        return []
    who = "None of them has a" if without == len(rows) else f"{without:,} of {len(rows):,} have no"
    return [f"{who} slide among those opened here; open the folder of their slides, with its table."]
