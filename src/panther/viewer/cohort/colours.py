"""Colours of the points: columns of the table, shares of prototypes, predictions of studies and of models."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from panther.engine import map_slides
from panther.errors import InputError
from panther.explain.shares import DIGITS
from panther.report.data import Run, load_run
from panther.store import version_of
from panther.study.results import RECORD
from panther.viewer.cohort.units import (
    RISK,
    VALUE,
    AboutModel,
    CohortShares,
    Column,
    Kind,
    Progress,
    Units,
    Value,
    about_model,
    columns_of,
    joined,
    slide_predictions,
    unit_shares,
)
from panther.viewer.workbench import LruCache, Workbench

T = TypeVar("T")
PROBABILITY = "probability_"
PREDICTED = "predicted class"
MODELS = 4  # with predictions in memory
AT_ONCE = 16  # slides of a task: the model is loaded for each task


class Predictions:
    """Outputs of a model for all slides, computed in the background."""

    def __init__(self, bench: Workbench, model: str) -> None:
        slides = [one for one in bench.contents.slides.values() if one.features is not None]
        readable, self.failures = bench.readable(slides)
        self.values: dict[str, dict[str, float]] = {}
        self.done, self.total = len(self.failures), len(slides)
        batches = [readable[start : start + AT_ONCE] for start in range(0, len(readable), AT_ONCE)]
        predict = partial(slide_predictions, model=bench.contents.models[model])
        results = map_slides(predict, batches, bench.long_work.executor, ahead=1)
        threading.Thread(target=self._run, args=(batches, results), daemon=True).start()

    def _run(self, batches: Any, results: Any) -> None:
        for batch, result in zip(batches, results, strict=True):
            values, failures = result.value or ({}, {entry.name: result.reason for entry in batch})
            self.values |= values
            self.failures |= failures
            self.done += len(batch)


class Values(NamedTuple):
    """Values of the units that have one."""

    values: Mapping[str, Value]
    progress: Progress | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Colour:
    """A choice of colours."""

    id: str
    title: str
    group: str
    kind: Kind
    read: Callable[[Units], Values]

    def to_dict(self) -> dict[str, str]:
        """Plain values for the page."""
        return {"id": self.id, "title": self.title, "group": self.group, "kind": self.kind}


class CohortColours:
    """All colours of one workbench."""

    def __init__(self, bench: Workbench, shares: CohortShares) -> None:
        self._bench, self._shares = bench, shares
        self._table: LruCache[list[Column]] = LruCache(1)
        self._runs: LruCache[Run | str] = LruCache(8)
        self._models: LruCache[AboutModel | str] = LruCache(32)
        self._predicted: LruCache[Predictions] = LruCache(MODELS)

    @property
    def _columns(self) -> list[Column]:
        contents = self._bench.contents
        return self._table.get(None, lambda: columns_of(contents.table, contents.slides))

    def rows(self, units: Units) -> tuple[list[Colour], list[dict[str, Any]]]:
        """Columns of the table, and their values of every unit."""
        rows = [{column_id(one.name): joined(one.values, slides) for one in self._columns} for slides in units.slides]
        return [_of_column(one) for one in self._columns], rows

    def known(self, set_name: str | None) -> tuple[list[Colour], list[str]]:
        """Colours to choose from, and why some are missing."""
        colours, notes = [_of_column(one) for one in self._columns if one.values], []
        for c, title in enumerate(self.titles(set_name)):
            read = partial(self._pi, c, set_name)
            colours.append(Colour(f"pi:{c}", f"π of {title}", "Share of a prototype", "number", read))
        for name, path in self._bench.contents.studies.items():
            run = self._run(path)
            if isinstance(run, str):
                notes.append(run)
                continue
            for row in dict.fromkeys(run.predictions["row"]):
                for output, words, kind in STUDY_OUTPUTS[run.kind](run):
                    read = partial(_predicted_by_study, run, row, output)
                    about = f"study:{name}:{output}:{row}", f"{row}: {words}", f"Predictions of the study {name}"
                    colours.append(Colour(*about, kind, read))
        for name, path in self._bench.contents.models.items():
            model = self._loaded(self._models, path, lambda path=path: self._bench.compute(about_model, path))  # type: ignore[misc]
            if isinstance(model, str):
                notes.append(model)
                continue
            for output in _informative(model.outputs, exclusive=model.exclusive):
                read = partial(self._predicted_by_model, name, model, output)
                title, group = f"{name}: {_output_words(output)}", f"Predictions of the model {name}"
                colours.append(Colour(f"model:{name}:{output}", title, group, "number", read))
        return colours, notes

    def outcomes(self) -> list[str]:
        """Columns that the studies predict."""
        runs = [self._run(path) for path in self._bench.contents.studies.values()]
        return [column_id(run.study.task.label) for run in runs if isinstance(run, Run) and run.study.task.label]

    def titles(self, set_name: str | None) -> list[str]:
        """Titles of the prototypes."""
        if self._bench.contents.prototypes:
            return [title for title, _ in self._bench.look(set_name)]
        return [f"C{c}" for c in range(self._shares.count(set_name))]

    def _pi(self, c: int, set_name: str | None, units: Units) -> Values:
        shares, progress, _ = self._shares.known(set_name)
        # as in the tests: a posterior of 1e-20 is not more than one of 1e-30
        return Values({name: round(float(pi[c]), DIGITS) for name, pi in unit_shares(units, shares).items()}, progress)

    def _run(self, path: Path) -> Run | str:
        return self._loaded(self._runs, path / RECORD, lambda: load_run(path))

    def _loaded(self, cache: "LruCache[T | str]", file: Path, load: Callable[[], T]) -> T | str:
        """A study or a model, or why it cannot be read."""

        def read() -> T | str:
            try:
                self._bench.refuse_links([file])
                return load()
            except (InputError, OSError) as error:
                return str(error)

        return cache.get(file, read, version_of([file]))

    def _predicted_by_model(self, name: str, about: AboutModel, output: str, units: Units) -> Values:
        version = version_of([self._bench.contents.models[name]])
        running = self._predicted.get(name, lambda: Predictions(self._bench, name), version)
        is_done, failures = running.done >= running.total, dict(running.failures)
        values = {slide: outputs[output] for slide, outputs in dict(running.values).items()}
        progress = None if is_done else Progress(running.done, running.total, f"predictions of {name}")
        members = zip(units.names, units.patients, units.slides, strict=True)
        seen = sum(bool({unit, patient, *slides} & about.trained_on) for unit, patient, slides in members)
        notes = []
        if seen:
            of_all = f"{seen} of these {len(units.names)} {units.level}"
            notes.append(f"{name} was trained on {of_all}: their predictions are no test.")
        if is_done and failures:
            notes.append(f"{len(failures)} slides could not be predicted, e.g. {next(iter(failures.values()))}")
        return Values(_by_unit(values, units), progress, tuple(notes))


def _of_column(column: Column) -> Colour:
    def read(units: Units) -> Values:
        return Values(_by_unit(column.values, units))

    return Colour(column_id(column.name), column.name, "Table", column.kind, read)


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
    of_patients = {unit: values[one] for unit, one in zip(units.names, units.patients, strict=True) if one in values}
    note = "Each sample is predicted by models that were not trained on it; several folds or seeds are averaged."
    return Values(of_patients | _by_unit(values, units), notes=(note,))


def column_id(name: str) -> str:
    """Colour of a column."""
    return f"column:{name}"


def _by_unit(values: Mapping[str, Value], units: Units) -> dict[str, Value]:
    every = {name: joined(values, slides) for name, slides in zip(units.names, units.slides, strict=True)}
    return {name: value for name, value in every.items() if value is not None}


def _class_outputs(run: Run) -> list[tuple[str, str, Kind]]:
    classes = _informative(run.classes or [], exclusive=True)
    return [
        (PREDICTED, PREDICTED, "category"),
        *((f"{PROBABILITY}{name}", _output_words(name), "number") for name in classes),
    ]


# column of the predictions, words for it, and its kind
STUDY_OUTPUTS: dict[str, Callable[[Run], list[tuple[str, str, Kind]]]] = {
    "classification": _class_outputs,
    "survival": lambda run: [(RISK, RISK, "number")],
    "regression": lambda run: [("predicted", f"predicted {run.study.task.value}", "number")],
    "labels": lambda run: [
        (f"{PROBABILITY}{name}", _output_words(name), "number") for name in run.study.task.labels or ()
    ],
}


def _informative(outputs: list[str], *, exclusive: bool) -> list[str]:
    """Of two classes one is enough."""
    return outputs[-1:] if exclusive and len(outputs) == 2 else outputs


def _output_words(output: str) -> str:
    return output if output in (RISK, VALUE) else f"probability of {output}"
