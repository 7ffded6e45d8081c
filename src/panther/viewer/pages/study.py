"""Routes of the study page: methods compared, patients and risks."""

from collections import defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from flask import Blueprint

from panther.charts.survival import risk_against_time
from panther.charts.to_plotly import convert, plain
from panther.errors import InputError
from panther.evaluation.intervals import CAPTION
from panther.models.tasks import KINDS
from panther.report.data import Run, load_run, metric_name, where_tested
from panther.report.html import plural
from panther.report.sections.results import MEANING, forest_chart
from panther.store import Version, version_of
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
from panther.viewer.queries import StudyQuery
from panther.viewer.workbench import LruCache, UnknownError, Workbench, pick

People = Classified | Ranked | Measured | Labelled
RUNS = 4  # kept in memory
TABLES = ("run.json", "study.json", "cohort.csv", *(f"{name}.parquet" for name in ("metrics", "summary", "comparisons", "predictions")))  # fmt: skip


def _classes(run: Run, people: Classified) -> list[dict[str, Any]]:
    classes, predicted = run.classes or [], people.predicted
    is_right, is_known = (predicted == people.truth) & (predicted >= 0), predicted >= 0
    return [
        {
            "truth": classes[truth] if truth >= 0 else None,
            "predicted": [classes[k] if k >= 0 else None for k in predicted[:, s]],
            "probability": people.of_truth[:, s],
            "right": int(is_right[:, s].sum()),
            "asked": int(is_known[:, s].sum()),
            "disagree": len(set(predicted[is_known[:, s], s].tolist())) > 1,
        }
        for s, truth in enumerate(people.truth)
    ]


def _values(run: Run, people: Measured) -> list[dict[str, Any]]:
    above, spread = people.predicted > np.median(people.truth), float(people.truth.std())
    all_predicted = mean_over_methods(people.predicted)
    return [
        {
            "truth": truth,
            "predicted": people.predicted[:, s],
            "error": people.error[:, s],
            "all_predicted": all_predicted[s],
            "spread": spread,
            "disagree": _differ(above[:, s], people.predicted[:, s]),
        }
        for s, truth in enumerate(people.truth)
    ]


def _labels(run: Run, people: Labelled) -> list[dict[str, Any]]:
    """Labels as text, those that are known; a method is right if all of them are."""
    names, rows = np.array(people.names, object), []
    for s, truth in enumerate(people.truth):
        known = ~np.isnan(truth)
        probability = people.probability[:, s][:, known]  # (M, known)
        is_predicted = ~np.isnan(probability).any(1)
        is_right = ((probability > 0.5) == (truth[known] == 1)).all(1) & is_predicted
        predicted = [_listed(names[known][p > 0.5]) if ok else None for p, ok in zip(probability, is_predicted, strict=True)]  # fmt: skip
        rows.append(
            {
                "truth": _listed(names[truth == 1]),
                "predicted": predicted,
                "probability": people.of_truth[:, s],
                "right": int(is_right.sum()),
                "asked": int(is_predicted.sum()),
                "disagree": len({*predicted} - {None}) > 1,
            }
        )
    return rows


def _listed(names: np.ndarray) -> str:
    return ", ".join(names) or "none"


def _ranks(run: Run, people: Ranked) -> list[dict[str, Any]]:
    all_risk = mean_over_methods(people.rank)
    return [
        {
            "time": people.time[s],
            "event": bool(people.event[s]),
            "risk": people.rank[:, s],
            "wrong": people.wrong[:, s],
            "all_risk": all_risk[s],
            "disagree": _differ(people.rank[:, s] > 0.5, people.rank[:, s]),  # sides of the median patient
        }
        for s in range(len(people.samples))
    ]


def _differ(sides: np.ndarray, values: np.ndarray) -> bool:
    """Whether methods that predicted something are on different sides."""
    return len(set(sides[~np.isnan(values)].tolist())) > 1


class PatientList(NamedTuple):
    """Patients of a kind of study."""

    kind: str  # which columns the page has
    how: str  # measure of the error
    people: Callable[[Run, Any], People]
    rows: Callable[[Run, Any], list[dict[str, Any]]]
    error: Callable[[Any], np.ndarray]  # (M, S), of each method and patient
    about: Callable[[Run], str]  # what is predicted


LISTS: dict[str, PatientList] = {
    "classification": PatientList(
        "classes",
        "Patients are sorted by the probability of the true class (mean over seeds and folds).",
        lambda run, table: classified(table, run.rows, run.classes or []),
        _classes,
        lambda people: people.of_truth,
        lambda run: ", ".join(run.classes or []),
    ),
    "survival": PatientList(
        "survival",
        "Patients are sorted by the share of their comparable pairs in the wrong order: pairs of the same test fold of which it is known "
        "who had the event first (as in the c-index). Patients without such a pair are not judged.",
        lambda run, table: ranked(table, run.rows),
        _ranks,
        lambda people: people.wrong,
        lambda run: run.endpoint,
    ),
    "regression": PatientList(
        "values",
        "Patients are sorted by the absolute error of the prediction (mean over seeds and folds).",
        lambda run, table: measured(table, run.rows),
        _values,
        lambda people: people.error,
        lambda run: str(run.study.task.value),
    ),
    "labels": PatientList(
        "classes",
        "Patients are sorted by the probability of the truth, averaged over the labels that are known; a label is predicted above one half.",
        lambda run, table: labelled(table, run.rows, run.study.task.labels or ()),
        _labels,
        lambda people: people.of_truth,
        lambda run: ", ".join(run.study.task.labels or ()),
    ),
}


def study_routes(bench: Workbench) -> Blueprint:
    """Routes; each names its study in the query, because names may hold slashes."""
    routes = Blueprint("study", __name__)
    runs: LruCache[Run] = LruCache(RUNS)
    people: LruCache[People] = LruCache(2 * RUNS)

    def selected(query: StudyQuery) -> tuple[Run, str, str, Version]:
        """The study, its name, the test, and the version of its files."""
        studies = bench.contents.studies
        if not studies:
            raise UnknownError("No study here; `panther run` writes one, `panther view FOLDER --study RUN` opens it.")
        name = query.study or next(iter(studies))
        folder = pick(studies, name, "study")
        files = [folder / table for table in TABLES]
        bench.refuse_links(file for file in files if file.exists())
        version = version_of(files)
        run = runs.get(name, lambda: load_run(folder), version)
        part = query.part or ("test" if "test" in run.parts else next(iter(run.parts), "test"))
        return run, name, pick({one: one for one in run.parts}, part, "test"), version

    def tested(query: StudyQuery) -> tuple[Run, str, People]:
        run, name, part, version = selected(query)

        def load() -> People:
            table = run.tested(part)
            if table.empty:
                raise InputError(f"{run.folder.name}: no predictions of {where_tested(part)}")
            return LISTS[run.kind].people(run, table)

        return run, part, people.get((name, part), load, version)

    @routes.get("/api/study")
    def study() -> dict[str, Any]:
        query = StudyQuery.read()
        run, name, part, _ = selected(query)
        metrics = [metric for metric in run.study.shown if metric in set(run.summary["metric"])]
        if not metrics:
            raise InputError(f"{name}: none of its metrics {', '.join(run.study.shown)}; run `panther run` again")
        metric = pick({one: one for one in metrics}, query.metric or metrics[0], "metric")
        chart, words = forest_chart(run, part, metric)
        content = {
            "study": name,
            "studies": list(bench.contents.studies),
            "about": _about(run),
            "parts": [{"id": one, "title": where_tested(one)} for one in run.parts],
            "part": part,
            "metrics": [{"id": one, "title": metric_name(one)} for one in metrics],
            "metric": metric,
            "meaning": " ".join((MEANING.get(metric, ""), CAPTION if run.study.bootstrap else "")),
            "rows": [_row(run, part, metrics, row) for row in run.rows],
            "best": list(run.best(part)["row"]),
            "words": words,
            "notes": _notes(run),
        }
        return plain(content) | {"figure": convert(chart)}

    @routes.get("/api/study/patients")
    def patients() -> dict[str, Any]:
        run, part, group = tested(StudyQuery.read())
        slides: dict[str, list[str]] = defaultdict(list)
        for entry in bench.contents.slides.values():
            if entry.patient is not None:
                slides[entry.patient].append(entry.name)
        page = LISTS[run.kind]
        rows = page.rows(run, group)
        means = mean_over_methods(page.error(group))
        for row, sample, patient, mean in zip(rows, group.samples, group.patients, means, strict=True):
            of_sample = [sample] if sample in bench.contents.slides else slides.get(patient, [])
            row |= {"sample": sample, "patient": patient, "all": mean, "slides": of_sample}
        without = sum(not row["slides"] for row in rows)
        note = f"{without:,} of {len(rows):,} have no slide here; open the folder of their slides, with its table."
        return plain(
            {
                "kind": page.kind,
                "methods": run.rows,
                "best": next(iter(run.best(part)["row"]), run.rows[0]),
                "classes": run.classes,
                "unit": run.time_unit,
                "how": page.how,
                "patients": rows,
                "notes": [note] if without else [],
            }
        )

    @routes.get("/api/study/risks")
    def risks() -> dict[str, Any]:
        query = StudyQuery.read()
        run, _, group = tested(query)
        if not isinstance(group, Ranked):
            raise UnknownError(f"The study predicts {KINDS[run.kind]}, not risks.")
        ranks = dict(zip(run.rows, group.rank, strict=True)) | {"all": mean_over_methods(group.rank)}
        rank = pick(ranks, query.method, "method")
        return {"figure": convert(risk_against_time(group.time, group.event, rank, group.samples, run.time_unit))}

    return routes


def _about(run: Run) -> str:
    what = LISTS[run.kind].about(run)
    tested = "; ".join(f"{where_tested(part)} {_whom(run, part)}" for part in run.parts)
    return f"{what} · tested: {tested} · {plural(len(run.folds), 'fold')} · {plural(len(run.rows), 'method')}"


def _whom(run: Run, part: str) -> str:
    """Number of samples and patients tested, each counted once."""
    people = run.tested(part).drop_duplicates("sample")
    patients = plural(people["patient"].nunique(), "patient")
    if (people["sample"] == people["patient"]).all():
        return patients
    return f"{plural(len(people), 'sample')} of {patients}"


def _row(run: Run, part: str, metrics: list[str], name: str) -> dict[str, Any]:
    """One method: for every metric its mean, interval, spread over folds, and the exact bound of a perfect score."""
    columns = {"": "mean", "_low": "ci_low", "_high": "ci_high", "_std": "std", "_exact": "exact_low"}
    row: dict[str, Any] = {"row": name}
    for metric in metrics:
        judged = run.judged(part, metric)
        for _, values in judged[judged["row"] == name].head(1).iterrows():
            row |= {f"{metric}{end}": values[column] for end, column in columns.items()}
    return row


def _notes(run: Run) -> list[str]:
    failures = run.record["failures"]
    failed = [f"{len(failures)} samples failed, e.g. {next(iter(failures.values()))}"] if failures else []
    return [*filter(None, map(str, run.record["notes"])), *failed]
