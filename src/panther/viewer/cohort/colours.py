"""Colours of the points: columns of the table, shares of prototypes, predictions of studies and of models."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from panther.engine import map_slides
from panther.errors import InputError
from panther.explain.shares import DIGITS
from panther.report.data import Run, load_run
from panther.store import version_of
from panther.study.record import RECORD
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
from panther.viewer.workbench import LruCache, UnknownError, Workbench, pick

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


@dataclass(frozen=True)
class Colour:
    """A choice of colours."""

    id: str
    title: str
    group: str
    kind: Kind


@dataclass(frozen=True, eq=False)
class Coloured:
    """Values of the units that have one."""

    colour: Colour
    values: Mapping[str, Value]
    progress: Progress | None = None
    notes: tuple[str, ...] = ()


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
        return [Colour(column_id(one.name), one.name, "Table", one.kind) for one in self._columns], rows

    def known(self, set_name: str | None) -> tuple[list[Colour], list[str]]:
        """Colours to choose from, and why some are missing."""
        colours = [Colour(column_id(one.name), one.name, "Table", one.kind) for one in self._columns if one.values]
        titles = self.titles(set_name)
        colours += [Colour(f"pi:{c}", title, "Share of a prototype", "number") for c, title in enumerate(titles)]
        contents = self._bench.contents
        outcomes = [self._of_study(name) for name in contents.studies] + [self._of_model(n) for n in contents.models]
        notes = [one for one in outcomes if isinstance(one, str)]
        return colours + [colour for one in outcomes if not isinstance(one, str) for colour in one], notes

    def outcomes(self) -> list[str]:
        """Columns that the studies predict."""
        runs = [self._run(name) for name in self._bench.contents.studies]
        return [column_id(run.study.task.label) for run in runs if isinstance(run, Run) and run.study.task.label]

    def titles(self, set_name: str | None) -> list[str]:
        """Titles of the prototypes."""
        if self._bench.contents.prototypes:
            return [title for title, _ in self._bench.look(set_name)]
        return [f"C{c}" for c in range(self._shares.count(set_name))]

    def values(self, colour_id: str, units: Units, set_name: str | None) -> Coloured:
        """Values of one colour."""
        kind, _, rest = colour_id.partition(":")
        readers = {"column": self._column, "pi": self._pi, "study": self._study, "model": self._model}
        return pick(readers, kind, "colour")(rest, units, set_name)

    def _column(self, name: str, units: Units, _: str | None) -> Coloured:
        column = pick({one.name: one for one in self._columns}, name, "column")
        return Coloured(Colour(column_id(name), name, "Table", column.kind), _by_unit(column.values, units))

    def _pi(self, number: str, units: Units, set_name: str | None) -> Coloured:
        titles = self.titles(set_name)
        c = pick({str(c): c for c in range(len(titles))}, number, "prototype")
        shares, progress, _ = self._shares.known(set_name)
        # as in the tests: a posterior of 1e-20 is not more than one of 1e-30
        values = {name: round(float(pi[c]), DIGITS) for name, pi in unit_shares(units, shares).items()}
        return Coloured(Colour(f"pi:{c}", f"π of {titles[c]}", "Share of a prototype", "number"), values, progress)

    def _of_study(self, name: str) -> list[Colour] | str:
        run = self._run(name)
        if isinstance(run, str):
            return run
        return [
            Colour(f"study:{name}:{output}:{row}", f"{row}: {words}", f"Predictions of the study {name}", kind)
            for row in dict.fromkeys(run.predictions["row"])
            for output, words, kind in STUDY_OUTPUTS[run.kind](run)
        ]

    def _study(self, rest: str, units: Units, _: str | None) -> Coloured:
        study, output_id = _split(rest, self._bench.contents.studies)
        run = self._run(study)
        if isinstance(run, str):
            raise UnknownError(run)
        rows = list(dict.fromkeys(run.predictions["row"]))
        outputs = {f"{output}:{row}": (output, row, words, kind) for output, words, kind in STUDY_OUTPUTS[run.kind](run) for row in rows}  # fmt: skip
        output, row, words, kind = pick(outputs, output_id, "prediction")
        table = run.predictions[run.predictions["row"] == row]
        by_sample = _predicted_class(table) if output == PREDICTED else table.groupby("sample")[output].mean()
        values = {str(name): value if kind == "category" else float(value) for name, value in by_sample.items()}
        note = "Each sample is predicted by models that were not trained on it; several folds or seeds are averaged."
        colour = Colour(f"study:{rest}", f"{row}: {words}", f"Predictions of the study {study}", kind)
        return Coloured(colour, _by_sample(values, units), notes=(note,))

    def _run(self, name: str) -> Run | str:
        """The study, or why it cannot be read."""
        path = pick(self._bench.contents.studies, name, "study")
        return self._runs.get(name, lambda: self._loaded(path / RECORD, lambda: load_run(path)), version_of([path / RECORD]))  # fmt: skip

    def _about_model(self, name: str) -> AboutModel | str:
        """The model, or why it cannot be read."""
        path = pick(self._bench.contents.models, name, "model")
        read = partial(self._bench.compute, about_model, path)
        return self._models.get(name, lambda: self._loaded(path, read), version_of([path]))

    def _loaded(self, file: Any, load: Callable[[], T]) -> T | str:
        try:
            self._bench.refuse_links([file])
            return load()
        except (InputError, OSError) as error:
            return str(error)

    def _of_model(self, name: str) -> list[Colour] | str:
        about = self._about_model(name)
        if isinstance(about, str):
            return about
        return [
            Colour(f"model:{name}:{output}", _output_words(output), f"Predictions of the model {name}", "number")
            for output in _informative(about.outputs, exclusive=about.exclusive)
        ]

    def _model(self, rest: str, units: Units, _: str | None) -> Coloured:
        models = self._bench.contents.models
        name, output = _split(rest, models)
        about = self._about_model(name)
        if isinstance(about, str):
            raise UnknownError(about)
        if output not in about.outputs:
            raise UnknownError(f"the model {name} does not predict {output!r}")
        running = self._predicted.get(name, lambda: Predictions(self._bench, name), version_of([models[name]]))
        is_done, failures = running.done >= running.total, dict(running.failures)
        values = {slide: outputs[output] for slide, outputs in dict(running.values).items()}
        progress = None if is_done else Progress(running.done, running.total, f"predictions of {name}")
        notes = _about_training(name, about, units)
        if is_done and failures:
            notes.append(f"{len(failures)} slides could not be predicted, e.g. {next(iter(failures.values()))}")
        colour = Colour(f"model:{rest}", f"{name}: {_output_words(output)}", f"Predictions of the model {name}", "number")  # fmt: skip
        return Coloured(colour, _by_unit(values, units), progress, tuple(notes))


def _split(rest: str, names: Mapping[str, Any]) -> tuple[str, str]:
    """`name:output`; names may hold colons, so the longest one that fits counts."""
    name = next((name for name in sorted(names, key=len, reverse=True) if rest.startswith(f"{name}:")), "")
    return name, rest.removeprefix(f"{name}:")


def column_id(name: str) -> str:
    """Colour of a column."""
    return f"column:{name}"


def _by_unit(values: Mapping[str, Value], units: Units) -> dict[str, Value]:
    every = {name: joined(values, slides) for name, slides in zip(units.names, units.slides, strict=True)}
    return {name: value for name, value in every.items() if value is not None}


def _by_sample(values: Mapping[str, Value], units: Units) -> dict[str, Value]:
    """Values of a study's samples, which are slides or patients."""
    of_patients = {unit: values[one] for unit, one in zip(units.names, units.patients, strict=True) if one in values}
    return of_patients | _by_unit(values, units)


def _about_training(name: str, about: AboutModel, units: Units) -> list[str]:
    """Note on units of the training set: their predictions are no test."""
    members = zip(units.names, units.patients, units.slides, strict=True)
    seen = sum(bool({unit, patient, *slides} & about.trained_on) for unit, patient, slides in members)
    of_all = f"{seen} of these {len(units.names)} {units.level}"
    return [f"{name} was trained on {of_all}: their predictions are no test."] if seen else []


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


def _predicted_class(table: Any) -> Any:
    columns = [name for name in table.columns if name.startswith(PROBABILITY)]
    mean = table.groupby("sample")[columns].mean()
    # a class outside the fold of some sample has no probability
    return mean.fillna(-1.0).idxmax(axis=1).str.removeprefix(PROBABILITY)
