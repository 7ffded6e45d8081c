"""Colours of the points: columns of the table, shares of prototypes, predictions of studies and of models."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from panther.charts.display_names import column_titles
from panther.engine import map_slides
from panther.errors import InputError
from panther.explain.shares import DIGITS
from panther.report.data import Run, load_run
from panther.store import version_of
from panther.study.results import RECORD
from panther.viewer.cohort.units import (
    RISK,
    VALUE,
    CohortShares,
    Column,
    Kind,
    ModelHeader,
    Units,
    Value,
    columns_of,
    read_header,
    slide_predictions,
    unit_shares,
    unit_value,
)
from panther.viewer.workbench import InProgressError, LruCache, Workbench

T = TypeVar("T")
PROBABILITY = "probability_"
PREDICTED = "predicted class"
MODELS = 4  # with predictions in memory
AT_ONCE = 16  # slides of a task: the model is loaded for each task


class Predictions:
    """Outputs of a model for all slides, computed in the background."""

    def __init__(self, bench: Workbench, model: str) -> None:
        slides = [slide for slide in bench.contents.slides.values() if slide.features is not None]
        readable, self.failures = bench.readable(slides)
        self.values: dict[str, dict[str, float]] = {}
        self.done, self.total = len(self.failures), len(slides)
        batches = [readable[start : start + AT_ONCE] for start in range(0, len(readable), AT_ONCE)]
        predict = partial(slide_predictions, model=bench.contents.models[model])
        results = map_slides(predict, batches, bench.long_work.executor, ahead=1)
        threading.Thread(target=self._collect, args=(batches, results), daemon=True).start()

    def _collect(self, batches: Any, results: Any) -> None:
        for batch, result in zip(batches, results, strict=True):
            values, failures = result.value or ({}, {entry.name: result.reason for entry in batch})
            self.values |= values
            self.failures |= failures
            self.done += len(batch)


class Values(NamedTuple):
    """Values of the units that have one."""

    values: Mapping[str, Value]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Colour:
    """A choice of colours."""

    id: str
    title: str
    group: str
    kind: Kind
    read: Callable[[Units], Values]
    hint: str = ""  # name of a column in the table

    def to_dict(self) -> dict[str, str]:
        """Entry of the page's list."""
        return {"id": self.id, "title": self.title, "group": self.group, "kind": self.kind, "hint": self.hint}


class CohortColours:
    """All colours of one workbench."""

    def __init__(self, bench: Workbench, shares: CohortShares) -> None:
        self._bench, self._shares = bench, shares
        self._table: LruCache[list[Column]] = LruCache(1)
        self._runs: LruCache[Run] = LruCache(8)
        self._models: LruCache[ModelHeader] = LruCache(32)
        self._predicted: LruCache[Predictions] = LruCache(MODELS)

    @property
    def _columns(self) -> list[Column]:
        contents = self._bench.contents
        return self._table.get(None, lambda: columns_of(contents.table, contents.slides))

    def table(self, units: Units) -> tuple[list[Colour], list[dict[str, Any]]]:
        """Columns of the page's table, and its rows."""
        columns, rows = self._columns, []
        for name, patient, slides in zip(units.names, units.patients, units.slides, strict=True):
            values = {column_id(column.name): unit_value(column.values, slides) for column in columns}
            rows.append({**values, "name": name, "patient": patient, "slides": slides})
        return _column_colours(columns), rows

    def choices(self, set_name: str | None) -> tuple[list[Colour], list[str]]:
        """Colours to choose from, and why some are missing."""
        colours = [
            colour
            for column, colour in zip(self._columns, _column_colours(self._columns), strict=True)
            if column.values
        ]
        for c, title in enumerate(self.titles(set_name)):
            read = partial(self._pi, c, set_name)
            colours.append(Colour(f"pi:{c}", f"π of {title}", "Share of a prototype", "number", read))
        runs, notes = self._studies()
        for name, run in runs.items():
            for row in dict.fromkeys(run.predictions["row"]):
                for output, words, kind in STUDY_OUTPUTS[run.kind](run):
                    read = partial(_predicted_by_study, run, row, output)
                    names = f"study:{name}:{output}:{row}", f"{row}: {words}", f"Predictions of the study {name}"
                    colours.append(Colour(*names, kind, read))
        models = self._bench.contents.models
        read_model = partial(self._bench.compute, read_header)
        headers, more_notes = self._readable(self._models, models, read_model)
        for name, header in headers.items():
            for output in _informative(header.outputs, exclusive=header.exclusive):
                read = partial(self._predicted_by_model, name, header, output)
                title, group = f"{name}: {_output_words(output)}", f"Predictions of the model {name}"
                colours.append(Colour(f"model:{name}:{output}", title, group, "number", read))
        return colours, notes + more_notes

    def outcomes(self) -> list[str]:
        """Columns that the studies predict."""
        labels = [run.study.task.label for run in self._studies()[0].values()]
        return [column_id(label) for label in labels if label]

    def labels(self) -> tuple[str, Mapping[str, Value]]:
        """Outcome of a study, else the first column of categories, by slide."""
        outcomes = self.outcomes()
        table = self._bench.contents.table
        if table is None or Path(table.source).name == "summary.csv":  # of a job: paths and states
            return "", {}
        columns = [column for column in self._columns if column.kind == "category" and column.values]
        columns.sort(key=lambda column: column_id(column.name) not in outcomes)
        titles = column_titles(column.name for column in self._columns)
        return (titles[columns[0].name], columns[0].values) if columns else ("", {})

    def predictions(self) -> dict[str, dict[str, Value]]:
        """Class that the best method of a study of classes predicts for each slide, and its mean probability."""
        slides = self._bench.contents.slides
        for run in self._studies()[0].values():
            if run.kind != "classification":
                continue
            table = run.predictions[run.predictions["row"] == next(iter(run.best()["row"]), run.rows[0])]
            mean = (
                table.groupby("sample")[[name for name in table.columns if name.startswith(PROBABILITY)]]
                .mean()
                .fillna(0)
            )
            of_sample: dict[str, dict[str, Value]] = {
                str(sample): {"predicted": str(best).removeprefix(PROBABILITY), "certainty": float(highest)}
                for sample, best, highest in zip(mean.index, mean.idxmax(axis=1), mean.max(axis=1), strict=True)
            }
            samples = {name: name if name in of_sample else entry.patient for name, entry in slides.items()}
            return {name: of_sample[sample] for name, sample in samples.items() if sample in of_sample}
        return {}

    def titles(self, set_name: str | None) -> list[str]:
        """Titles of the prototypes."""
        if self._bench.contents.prototypes:
            return [title for title, _ in self._bench.legend(set_name)]
        return [f"C{c}" for c in range(self._shares.count(set_name))]

    def _pi(self, c: int, set_name: str | None, units: Units) -> Values:
        shares, _failures = self._shares.read(set_name)
        # rounded as in the tests: a posterior of 1e-20 is not larger than one of 1e-30
        return Values({name: round(float(pi[c]), DIGITS) for name, pi in unit_shares(units, shares).items()})

    def _studies(self) -> tuple[dict[str, Run], list[str]]:
        records = {name: folder / RECORD for name, folder in self._bench.contents.studies.items()}
        return self._readable(self._runs, records, lambda record: load_run(record.parent))

    def _readable(
        self, cache: LruCache[T], files: Mapping[str, Path], load: Callable[[Path], T]
    ) -> tuple[dict[str, T], list[str]]:
        """Studies or models by name, and why others cannot be read."""
        values, notes = {}, []
        for name, file in files.items():
            try:
                self._bench.refuse_links([file])
                values[name] = cache.get(file, partial(load, file), version_of([file]))
            except (InputError, OSError) as error:
                notes.append(str(error))
        return values, notes

    def _predicted_by_model(self, name: str, header: ModelHeader, output: str, units: Units) -> Values:
        version = version_of([self._bench.contents.models[name]])
        predictions = self._predicted.get(name, lambda: Predictions(self._bench, name), version)
        if predictions.done < predictions.total:
            raise InProgressError(predictions.done, predictions.total, f"predictions of {name}")
        values = {slide: outputs[output] for slide, outputs in predictions.values.items()}
        members = zip(units.names, units.patients, units.slides, strict=True)
        trained_on = sum(bool({unit, patient, *slides} & header.trained_on) for unit, patient, slides in members)
        notes = []
        if trained_on:
            count = f"{trained_on} of these {len(units.names)} {units.level}"
            notes.append(f"{name} was trained on {count}: their predictions are no test.")
        if predictions.failures:
            example = next(iter(predictions.failures.values()))
            notes.append(f"{len(predictions.failures)} slides could not be predicted, e.g. {example}")
        return Values(_by_unit(values, units), tuple(notes))


def _column_colours(columns: Sequence[Column]) -> list[Colour]:
    titles = column_titles(column.name for column in columns)
    return [
        Colour(
            column_id(column.name), titles[column.name], "Table", column.kind, partial(_in_table, column), column.name
        )
        for column in columns
    ]


def _in_table(column: Column, units: Units) -> Values:
    return Values(_by_unit(column.values, units))


def _predicted_by_study(run: Run, row: str, output: str, units: Units) -> Values:
    """Predictions of the study's samples, which are slides or patients."""
    table = run.predictions[run.predictions["row"] == row]
    columns = [name for name in table.columns if name.startswith(PROBABILITY)]
    if output == PREDICTED:
        # a class outside the fold of some sample has no probability
        mean = table.groupby("sample")[columns].mean().fillna(-1.0)
        by_sample = mean.idxmax(axis=1).astype(str).str.removeprefix(PROBABILITY)
    else:
        by_sample = table.groupby("sample")[output].mean()
    values = dict(zip(map(str, by_sample.index), by_sample.tolist(), strict=True))
    pairs = zip(units.names, units.patients, strict=True)
    of_patients = {unit: values[patient] for unit, patient in pairs if patient in values}
    note = "Each sample is predicted by models that were not trained on it; several folds or seeds are averaged."
    return Values(of_patients | _by_unit(values, units), notes=(note,))


def column_id(name: str) -> str:
    """Colour of a column."""
    return f"column:{name}"


def _by_unit(values: Mapping[str, Value], units: Units) -> dict[str, Value]:
    members = zip(units.names, units.slides, strict=True)
    return {name: value for name, slides in members if (value := unit_value(values, slides)) is not None}


def _probabilities(names: Sequence[str]) -> list[tuple[str, str, Kind]]:
    return [(f"{PROBABILITY}{name}", _output_words(name), "number") for name in names]


# column of the predictions, words for it, and its kind
STUDY_OUTPUTS: dict[str, Callable[[Run], list[tuple[str, str, Kind]]]] = {
    "classification": lambda run: [
        (PREDICTED, PREDICTED, "category"),
        *_probabilities(_informative(run.classes or [], exclusive=True)),
    ],
    "survival": lambda run: [(RISK, RISK, "number")],
    "regression": lambda run: [("predicted", f"predicted {run.study.task.value}", "number")],
    "labels": lambda run: _probabilities(run.study.task.labels or ()),
}


def _informative(outputs: list[str], *, exclusive: bool) -> list[str]:
    """One of two classes: the other probability follows from it."""
    return outputs[-1:] if exclusive and len(outputs) == 2 else outputs


def _output_words(output: str) -> str:
    return output if output in (RISK, VALUE) else f"probability of {output}"
