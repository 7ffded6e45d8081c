"""What points are coloured by: columns of the table, shares of prototypes, predictions of studies and of models."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np

from panther.errors import InputError
from panther.explain.shares import DIGITS
from panther.machine import cores
from panther.report.data import Run, load_run
from panther.store import version_of
from panther.study.results import RECORD
from panther.viewer.cohort.units import (
    CohortShares,
    Column,
    Kind,
    Progress,
    Units,
    Value,
    columns_of,
    joined,
    unit_shares,
)
from panther.viewer.cohort.worker import RISK, VALUE, AboutModel, about_model, slide_predictions
from panther.viewer.kept import Kept
from panther.viewer.workbench import UnknownError, Workbench

T = TypeVar("T")
PROBABILITY = "probability_"
PREDICTED = "predicted class"
MODELS = 4  # with predictions in memory
AT_ONCE = 16  # slides of a task: the model is loaded for each task


class Background(Generic[T]):
    """Values by name, a few names at a time, in threads of their own that leave half of the machine to the pages."""

    def __init__(
        self,
        compute: Callable[[list[str]], tuple[Mapping[str, T], Mapping[str, str]]],
        names: Sequence[str],
        at_once: int = 4,
    ) -> None:
        self._compute, self._at_once = compute, at_once
        self.total = len(names)
        self.values: dict[str, T] = {}
        self.failures: dict[str, str] = {}
        self._left = list(reversed(names))
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(max(1, cores() // 2))]
        for thread in self._threads:
            thread.start()

    @property
    def done(self) -> int:
        """Slides that are finished, well or not."""
        return len(self.values) + len(self.failures)

    @property
    def finished(self) -> bool:
        """Whether all are."""
        return self.done >= self.total

    def wait(self) -> None:
        """Until all are finished."""
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while names := self._take():
            try:
                values, failures = self._compute(names)
            except (InputError, OSError, RuntimeError) as error:
                values, failures = {}, {name: str(error) for name in names}
            with self._lock:
                self.values.update(values)
                self.failures.update(failures)
                # a slide without value or failure would be waited for without end
                lost = [name for name in names if name not in self.values and name not in self.failures]
                self.failures.update({name: f"{name}: nothing came back." for name in lost})

    def _take(self) -> list[str]:
        with self._lock:
            return [self._left.pop() for _ in range(min(self._at_once, len(self._left)))]


@dataclass(frozen=True)
class Colour:
    """Something to colour by."""

    id: str
    title: str
    group: str
    kind: Kind


@dataclass(frozen=True, eq=False)
class Coloured:
    """Its value of every unit that has one."""

    colour: Colour
    values: Mapping[str, Value]
    progress: Progress | None = None
    notes: tuple[str, ...] = field(default=())


class CohortColours:
    """All of them for one workbench."""

    def __init__(self, bench: Workbench, shares: CohortShares) -> None:
        self._bench, self._shares = bench, shares
        self._table: Kept[list[Column]] = Kept(1)
        self._runs: Kept[Run | str] = Kept(8)
        self._models: Kept[AboutModel | str] = Kept(32)
        self._predicted: Kept[Background[dict[str, float]]] = Kept(MODELS)

    @property
    def _columns(self) -> list[Column]:
        contents = self._bench.contents
        return self._table.get(None, lambda: columns_of(contents.table, contents.slides))

    def rows(self, units: Units) -> tuple[list[Colour], list[dict[str, Any]]]:
        """Columns of the table, and what they say of every unit."""
        rows = [{column_id(one.name): joined(one.values, slides) for one in self._columns} for slides in units.slides]
        return [Colour(column_id(one.name), one.name, "Table", one.kind) for one in self._columns], rows

    def known(self, set_name: str | None) -> tuple[list[Colour], list[str]]:
        """What can be chosen, and why something cannot."""
        notes: list[str] = []
        found = [Colour(column_id(one.name), one.name, "Table", one.kind) for one in self._columns if one.values]
        titles = self.titles(set_name)
        found += [Colour(f"pi:{c}", title, "Share of a prototype", "number") for c, title in enumerate(titles)]
        for name in self._bench.contents.studies:
            found += self._of_study(name, notes)
        for name in self._bench.contents.models:
            found += self._of_model(name, notes)
        return found, notes

    def outcomes(self) -> list[str]:
        """Columns that the studies predict."""
        runs = [self._run(name) for name in self._bench.contents.studies]
        return [column_id(run.study.task.label) for run in runs if isinstance(run, Run) and run.study.task.label]

    def titles(self, set_name: str | None) -> list[str]:
        """What the prototypes are called."""
        if self._bench.contents.prototypes:
            return [title for title, _ in self._bench.look(set_name)]
        return [f"C{c}" for c in range(self._shares.count(set_name))]

    def values(self, colour_id: str, units: Units, set_name: str | None) -> Coloured:
        """Values of one colour."""
        kind, _, rest = colour_id.partition(":")
        readers = {"column": self._column, "pi": self._pi, "study": self._study, "model": self._model}
        if kind not in readers:
            raise UnknownError(f"Points cannot be coloured by {colour_id!r}.")
        return readers[kind](rest, units, set_name)

    def _column(self, name: str, units: Units, _: str | None) -> Coloured:
        column = _pick({one.name: one for one in self._columns}, name, "column")
        return Coloured(Colour(column_id(name), name, "Table", column.kind), _by_unit(column.values, units))

    def _pi(self, number: str, units: Units, set_name: str | None) -> Coloured:
        titles = self.titles(set_name)
        if not number.isdecimal() or int(number) >= len(titles):
            raise UnknownError(f"There is no prototype C{number} here.")
        shares, progress, _ = self._shares.known(set_name)
        c = int(number)
        # as in the tests: a posterior of 1e-20 is not more than one of 1e-30
        values = {name: round(float(pi[c]), DIGITS) for name, pi in unit_shares(units, shares).items()}
        return Coloured(Colour(f"pi:{c}", f"π of {titles[c]}", "Share of a prototype", "number"), values, progress)

    def _of_study(self, name: str, notes: list[str]) -> list[Colour]:
        run = self._run(name)
        if isinstance(run, str):
            notes.append(run)
            return []
        found = []
        for row in dict.fromkeys(run.predictions["row"]):
            found += [
                Colour(f"study:{name}:{output}:{row}", f"{row}: {words}", f"Predictions of the study {name}", kind)
                for output, words, kind in _study_outputs(run)
            ]
        return found

    def _study(self, rest: str, units: Units, _: str | None) -> Coloured:
        # neither the outputs nor the studies of `contents` may hold a colon that confuses: the longest name that fits counts
        study = next((n for n in sorted(self._bench.contents.studies, key=len, reverse=True) if rest.startswith(f"{n}:")), None)  # fmt: skip
        run = None if study is None else self._run(study)
        if study is None or run is None or isinstance(run, str):
            raise UnknownError(run or "There is no such study here.")
        asked = rest.removeprefix(f"{study}:")
        rows = list(dict.fromkeys(run.predictions["row"]))
        outputs = {f"{output}:{row}": (output, row, words, kind) for output, words, kind in _study_outputs(run) for row in rows}  # fmt: skip
        output, row, words, kind = _pick(outputs, asked, "prediction")
        table = run.predictions[run.predictions["row"] == row]
        by_sample = _predicted_class(table) if output == PREDICTED else table.groupby("sample")[output].mean()
        values = {str(name): value if kind == "category" else float(value) for name, value in by_sample.items()}
        note = "Every sample is predicted by a model that did not see it in training; predictions of several folds or seeds are averaged."
        colour = Colour(f"study:{rest}", f"{row}: {words}", f"Predictions of the study {study}", kind)
        return Coloured(colour, _by_sample(values, units), notes=(note,))

    def _run(self, name: str) -> Run | str:
        """The study, or why it cannot be read."""
        path = _pick(self._bench.contents.studies, name, "study")

        def load() -> Run | str:
            try:
                self._bench.refuse_links([path / RECORD])
                return load_run(path)
            except (InputError, OSError) as error:
                return str(error)

        return self._runs.get(name, load, version_of([path / RECORD]))

    def _of_model(self, name: str, notes: list[str]) -> list[Colour]:
        about = self._about_model(name)
        if isinstance(about, str):
            notes.append(about)
            return []
        return [
            Colour(f"model:{name}:{output}", _output_words(output), f"Predictions of the model {name}", "number")
            for output in _worth(about.outputs, exclusive=about.exclusive)
        ]

    def _about_model(self, name: str) -> AboutModel | str:
        """The model, or why it cannot be read."""
        path = _pick(self._bench.contents.models, name, "model")

        def load() -> AboutModel | str:
            try:
                self._bench.refuse_links([path])
                return self._bench.compute(about_model, path)
            except (InputError, OSError) as error:
                return str(error)

        return self._models.get(name, load, version_of([path]))

    def _model(self, rest: str, units: Units, _: str | None) -> Coloured:
        models = self._bench.contents.models
        name = next((n for n in sorted(models, key=len, reverse=True) if rest.startswith(f"{n}:")), "")
        about = self._about_model(name)
        output = rest.removeprefix(f"{name}:")
        if isinstance(about, str):
            raise UnknownError(about)
        if output not in about.outputs:
            raise UnknownError(f"The model {name} does not predict {output!r}.")
        slides = [slide for slide, one in self._bench.contents.slides.items() if one.features is not None]
        version = version_of([models[name]])
        running = self._predicted.get(name, lambda: Background(partial(self._predict, name), slides, AT_ONCE), version)
        values = {slide: found[output] for slide, found in running.values.items()}
        progress = None if running.finished else Progress(running.done, running.total, f"predictions of {name}")
        notes = _seen(name, about, units)
        if running.finished and running.failures:
            notes.append(f"{len(running.failures)} slides could not be predicted, e.g. {next(iter(running.failures.values()))}")  # fmt: skip
        colour = Colour(f"model:{rest}", f"{name}: {_output_words(output)}", f"Predictions of the model {name}", "number")  # fmt: skip
        return Coloured(colour, _by_unit(values, units), progress, tuple(notes))

    def _predict(self, name: str, slides: list[str]) -> tuple[dict[str, dict[str, float]], dict[str, str]]:
        entries, refused = [], {}
        for slide in slides:
            try:
                entry = self._bench.slide(slide)
                self._bench.refuse_links(entry.files)
                entries.append(entry)
            except InputError as error:
                refused[slide] = str(error)
        found, failures = self._bench.compute_long(slide_predictions, entries, self._bench.contents.models[name])
        return found, {**refused, **failures}


def _pick(choices: Mapping[str, Any], name: str, what: str) -> Any:
    if name not in choices:
        raise UnknownError(f"There is no {what} {name!r} here.")
    return choices[name]


def column_id(name: str) -> str:
    """What the page calls a column."""
    return f"column:{name}"


def _by_unit(values: Mapping[str, Value], units: Units) -> dict[str, Value]:
    found = {name: joined(values, slides) for name, slides in zip(units.names, units.slides, strict=True)}
    return {name: value for name, value in found.items() if value is not None}


def _by_sample(values: Mapping[str, Value], units: Units) -> dict[str, Value]:
    """Values of a study's samples, which are slides or patients."""
    found = dict(_by_unit(values, units))
    for name, patient in zip(units.names, units.patients, strict=True):
        if name not in found and patient in values:
            found[name] = values[patient]
    return found


def _seen(name: str, about: AboutModel, units: Units) -> list[str]:
    """Note on units of the training set: their predictions are no test."""
    who = zip(units.names, units.patients, units.slides, strict=True)
    seen = sum(bool({unit, patient, *slides} & about.trained_on) for unit, patient, slides in who)
    of_all = f"{seen} of these {len(units.names)} {units.level}"
    return [f"{name} was trained on {of_all}: what it predicts of them is no test."] if seen else []


def _study_outputs(run: Run) -> list[tuple[str, str, Kind]]:
    """Column of the predictions, words for it, and what it is."""
    return STUDY_OUTPUTS[run.kind](run)


def _class_outputs(run: Run) -> list[tuple[str, str, Kind]]:
    found: list[tuple[str, str, Kind]] = [(PREDICTED, PREDICTED, "category")]
    classes = _worth(run.classes or [], exclusive=True)
    return [*found, *((f"{PROBABILITY}{name}", _output_words(name), "number") for name in classes)]


STUDY_OUTPUTS: dict[str, Callable[[Run], list[tuple[str, str, Kind]]]] = {
    "classification": _class_outputs,
    "survival": lambda run: [(RISK, RISK, "number")],
    "regression": lambda run: [("predicted", f"predicted {run.study.task.value}", "number")],
    "labels": lambda run: [
        (f"{PROBABILITY}{name}", _output_words(name), "number") for name in run.study.task.labels or ()
    ],
}


def _worth(outputs: list[str], *, exclusive: bool) -> list[str]:
    """Of two classes one says it all."""
    return outputs[-1:] if exclusive and len(outputs) == 2 else outputs


def _output_words(output: str) -> str:
    return output if output in (RISK, VALUE) else f"probability of {output}"


def _predicted_class(table: Any) -> Any:
    columns = [name for name in table.columns if name.startswith(PROBABILITY)]
    mean = table.groupby("sample")[columns].mean()
    # a class outside the fold of some sample has no probability
    best = np.nanargmax(np.where(mean.isna(), -1.0, mean.to_numpy()), axis=1)
    return mean.index.to_series().map(dict(zip(mean.index, [columns[k].removeprefix(PROBABILITY) for k in best], strict=True)))  # fmt: skip
