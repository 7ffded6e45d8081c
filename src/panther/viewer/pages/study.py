"""Routes of the study page: methods compared, patients and risks."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import compress, product
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from flask import Blueprint

from panther.charts.to_plotly import convert
from panther.errors import InputError
from panther.evaluation.intervals import CAPTION
from panther.report.data import Run, load_run, metric_name, outcome_of, where_tested
from panther.report.figures import plural
from panther.report.sections.results import MEANING, forest_chart
from panther.store import Version, version_of
from panther.study.patients import Predicted, classified, labelled, mean_over_methods, measured, ranked
from panther.viewer.queries import StudyQuery
from panther.viewer.workbench import LruCache, UnknownError, Workbench, pick

RUNS = 4  # kept in memory
# of each metric: mean, interval, spread over folds, and the exact bound of a perfect score
COLUMNS = {"": "mean", "_low": "ci_low", "_high": "ci_high", "_std": "std", "_exact": "exact_low"}
TABLES = ("run.json", "study.json", "cohort.csv", *(f"{name}.parquet" for name in ("metrics", "summary", "comparisons", "predictions")))  # fmt: skip


def _rows(people: Predicted, measure: np.ndarray, **columns: Any) -> list[dict[str, Any]]:
    """Rows of the patients; `all` is the mean over the methods of the measure (M, S) that sorts them."""
    columns |= {"sample": people.samples, "patient": people.patients, "all": mean_over_methods(measure)}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _classes(run: Run, table: pd.DataFrame) -> list[dict[str, Any]]:
    people = classified(table, run.rows, run.classes or [])
    predicted, is_predicted = people.predicted, people.predicted >= 0
    names = np.array([*(run.classes or []), None], object)  # number -1: not known
    return _rows(
        people,
        people.of_truth,
        truth=names[people.truth],
        predicted=names[predicted.T],
        probability=people.of_truth.T,
        right=((predicted == people.truth) & is_predicted).sum(0),
        judged=is_predicted.sum(0),
    )


def _values(run: Run, table: pd.DataFrame) -> list[dict[str, Any]]:
    people = measured(table, run.rows)
    return _rows(
        people,
        people.error,
        truth=people.truth,
        predicted=people.predicted.T,
        error=people.error.T,
        all_predicted=mean_over_methods(people.predicted),
        spread=np.full(len(people.truth), people.truth.std()),
    )


def _ranks(run: Run, table: pd.DataFrame) -> list[dict[str, Any]]:
    people = ranked(table, run.rows)
    return _rows(
        people,
        people.wrong,
        time=people.time,
        event=people.event.astype(bool),
        risk=people.rank.T,
        wrong=people.wrong.T,
        all_risk=mean_over_methods(people.rank),
    )


def _labels(run: Run, table: pd.DataFrame) -> list[dict[str, Any]]:
    """Labels as text, those that are known; a method is right if all of them are."""
    people = labelled(table, run.rows, run.study.task.labels or ())
    known = ~np.isnan(people.truth)  # (S, L)
    is_positive = known & (people.probability > 0.5)  # (M, S, L)
    is_predicted = ~(np.isnan(people.probability) & known).any(2)  # (M, S)
    is_right = (is_positive == (people.truth == 1)).all(2) & is_predicted
    patients = zip(is_positive.swapaxes(0, 1), is_predicted.T, strict=True)
    return _rows(
        people,
        people.of_truth,
        truth=[_listed(people.names, row) for row in people.truth == 1],
        predicted=[
            [_listed(people.names, row) if ok else None for row, ok in zip(*one, strict=True)] for one in patients
        ],
        probability=people.of_truth.T,
        right=is_right.sum(0),
        judged=is_predicted.sum(0),
    )


def _listed(names: Sequence[str], is_listed: np.ndarray) -> str:
    return ", ".join(compress(names, is_listed)) or "none"


class PatientList(NamedTuple):
    """Patients of a kind of study."""

    kind: str  # which columns the page has
    order: str  # of the patients: the measure of the error
    rows: Callable[[Run, pd.DataFrame], list[dict[str, Any]]]  # of predictions


LISTS = {
    "classification": PatientList(
        "classes",
        "Patients are sorted by the probability of the true class (mean over seeds and folds).",
        _classes,
    ),
    "survival": PatientList(
        "survival",
        "Patients are sorted by the share of their comparable pairs (as in the c-index, of the same test fold) that are in the wrong order. "
        "Patients without such a pair are not judged.",
        _ranks,
    ),
    "regression": PatientList(
        "values",
        "Patients are sorted by the absolute error of the prediction (mean over seeds and folds).",
        _values,
    ),
    "labels": PatientList(
        "classes",
        "Patients are sorted by the probability of the truth, averaged over the labels that are known; a label is predicted above one half.",
        _labels,
    ),
}


def study_routes(bench: Workbench) -> Blueprint:
    """Routes; each names its study in the query, because names may hold slashes."""
    routes = Blueprint("study", __name__)
    runs: LruCache[Run] = LruCache(RUNS)
    lists: LruCache[list[dict[str, Any]]] = LruCache(2 * RUNS)

    def selected(query: StudyQuery) -> tuple[Run, str, str, Version]:
        """The study, its name, the test, and the version of its files."""
        studies = bench.contents.studies
        if not studies:
            raise UnknownError("no study here; `panther run` writes one, `panther view FOLDER --study RUN` opens it")
        name = query.study or next(iter(studies))
        folder = pick(studies, name, "study")
        files = [folder / table for table in TABLES]
        bench.refuse_links(file for file in files if file.exists())
        version = version_of(files)
        run = runs.get(name, lambda: load_run(folder), version)
        part = query.part or ("test" if "test" in run.parts else next(iter(run.parts), "test"))
        return run, name, pick(run.parts, part, "test"), version

    @routes.get("/api/study")
    def study() -> dict[str, Any]:
        query = StudyQuery.read()
        run, name, part, _ = selected(query)
        metrics = [metric for metric in run.study.shown if metric in set(run.summary["metric"])]
        if not metrics:
            raise InputError(f"{name}: none of its metrics {', '.join(run.study.shown)}; run `panther run` again")
        metric = pick(metrics, query.metric or metrics[0], "metric")
        chart, title, numbers = forest_chart(run, part, metric)
        rows: list[dict[str, Any]] = [{"row": name} for name in run.rows]
        for row, shown in product(rows, metrics):
            judged = run.judged(part, shown)
            for _, values in judged[judged["row"] == row["row"]].head(1).iterrows():
                row |= {f"{shown}{end}": values[column] for end, column in COLUMNS.items()}
        failures = run.record["failures"]
        failed = [f"{len(failures)} samples failed, e.g. {next(iter(failures.values()))}"] if failures else []
        return {
            "study": name,
            "studies": list(bench.contents.studies),
            "about": _about(run),
            "parts": [{"id": part, "title": where_tested(part)} for part in run.parts],
            "part": part,
            "metrics": [{"id": metric, "title": metric_name(metric)} for metric in metrics],
            "metric": metric,
            "meaning": " ".join((MEANING.get(metric, ""), CAPTION if run.study.bootstrap else "")),
            "rows": rows,
            "best": list(run.best(part)["row"]),
            "words": f"{title}: {numbers}",
            "notes": [*filter(None, map(str, run.record["notes"])), *failed],
            "figure": convert(chart),
        }

    @routes.get("/api/study/patients")
    def patients() -> dict[str, Any]:
        run, name, part, version = selected(StudyQuery.read())
        page = LISTS[run.kind]

        def load() -> list[dict[str, Any]]:
            table = run.tested(part)
            if table.empty:
                raise InputError(f"{run.folder.name}: no predictions of {where_tested(part)}")
            slides: dict[str, list[str]] = defaultdict(list)
            for entry in bench.contents.slides.values():
                if entry.patient is not None:
                    slides[entry.patient].append(entry.name)
            rows = page.rows(run, table)
            for row in rows:
                has_slide = row["sample"] in bench.contents.slides
                row["slides"] = [row["sample"]] if has_slide else slides.get(row["patient"], [])
            return rows

        rows = lists.get((name, part), load, version)
        without = sum(not row["slides"] for row in rows)
        note = f"{without:,} of {len(rows):,} have no slide here; open the folder of their slides, with its table."
        return {
            "kind": page.kind,
            "methods": run.rows,
            "best": next(iter(run.best(part)["row"]), run.rows[0]),
            "unit": run.time_unit,
            "how": page.order,
            "patients": rows,
            "notes": [note] if without else [],
        }

    return routes


def _about(run: Run) -> str:
    """What is predicted, and the numbers of samples and patients tested, each counted once."""
    tested = []
    for part in run.parts:
        people = run.tested(part).drop_duplicates("sample")
        samples = "" if (people["sample"] == people["patient"]).all() else f"{plural(len(people), 'sample')} of "
        tested.append(f"{where_tested(part)} {samples}{plural(people['patient'].nunique(), 'patient')}")
    counts = f"{plural(len(run.folds), 'fold')} · {plural(len(run.rows), 'method')}"
    return f"{outcome_of(run).title} · tested: {'; '.join(tested)} · {counts}"
