"""Colours of the points: columns of the table, shares of prototypes, and predictions of studies."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

from panther.charts.display_names import column_titles
from panther.errors import InputError
from panther.explain.shares import DIGITS
from panther.report.data import Run, load_run
from panther.store import version_of
from panther.study.results import RECORD
from panther.viewer.cohort.units import (
    CohortShares,
    Column,
    Kind,
    Units,
    Value,
    columns_of,
    unit_shares,
    unit_value,
)
from panther.viewer.workbench import LruCache, Workbench

PROBABILITY = "probability_"
PREDICTED = "predicted class"


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
        self._runs: LruCache[Run] = LruCache(8)

    @cached_property
    def _columns(self) -> list[tuple[Column, Colour]]:
        """Columns of the table, each as a colour."""
        columns = columns_of(self._bench.contents.table, self._bench.contents.slides)
        titles = column_titles(column.name for column in columns)
        return [
            (c, Colour(f"column:{c.name}", titles[c.name], "Table", c.kind, partial(_in_table, c), c.name))
            for c in columns
        ]

    def table(self, units: Units) -> tuple[list[Colour], list[dict[str, Any]]]:
        """Columns of the page's table, and its rows."""
        rows = []
        for name, patient, slides in zip(units.names, units.patients, units.slides, strict=True):
            values = {colour.id: unit_value(column.values, slides) for column, colour in self._columns}
            rows.append({**values, "name": name, "patient": patient, "slides": slides})
        return [colour for _, colour in self._columns], rows

    def choices(self, set_name: str | None) -> tuple[list[Colour], list[str]]:
        """Colours to choose from, and why some are missing."""
        colours = [colour for column, colour in self._columns if column.values]
        for c, title in enumerate(self.titles(set_name)):
            read = partial(self._pi, c, set_name)
            colours.append(Colour(f"pi:{c}", f"π of {title}", "Share of a prototype", "number", read))
        runs, notes = self._studies()
        for name, run in runs.items():
            for row in dict.fromkeys(run.predictions["row"]):
                for output, words, kind in _outputs(run):
                    read = partial(_predicted_by_study, run, row, output)
                    names = f"study:{name}:{output}:{row}", f"{row}: {words}", f"Predictions of the study {name}"
                    colours.append(Colour(*names, kind, read))
        return colours, notes

    def outcomes(self) -> list[str]:
        """Columns that the studies predict."""
        labels = [run.study.task.label for run in self._studies()[0].values()]
        return [f"column:{label}" for label in labels if label]

    def labels(self) -> tuple[str, Mapping[str, Value]]:
        """Title and values by slide of the outcome of a study, else of the first column of categories."""
        table = self._bench.contents.table
        if table is None or Path(table.source).name == "summary.csv":  # of a job: paths and states
            return "", {}
        outcomes = self.outcomes()
        categories = [(c.values, colour) for c, colour in self._columns if c.kind == "category" and c.values]
        values, colour = min(categories, key=lambda one: one[1].id not in outcomes, default=({}, None))
        return (colour.title, values) if colour else ("", {})

    def predictions(self) -> dict[str, dict[str, Value]]:
        """Class that the best method of a study of classes predicts for each slide, and its mean probability."""
        slides = self._bench.contents.slides
        for run in self._studies()[0].values():
            if run.kind != "classification":
                continue
            table = run.predictions[run.predictions["row"] == next(iter(run.best()["row"]), run.rows[0])]
            probabilities = [name for name in table.columns if name.startswith(PROBABILITY)]
            mean = table.groupby("sample")[probabilities].mean().fillna(0)
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
        return [f"C{c}" for share in list(self._shares.of_file(set_name).values())[:1] for c in range(len(share.pi))]

    def _pi(self, c: int, set_name: str | None, units: Units) -> Values:
        shares, _failures = self._shares.read(set_name)
        # rounded as in the tests: a posterior of 1e-20 is not larger than one of 1e-30
        return Values({name: round(float(pi[c]), DIGITS) for name, pi in unit_shares(units, shares).items()})

    def _studies(self) -> tuple[dict[str, Run], list[str]]:
        """Studies by name, and why others cannot be read."""
        runs, notes = {}, []
        for name, folder in self._bench.contents.studies.items():
            record = folder / RECORD
            try:
                self._bench.refuse_links([record])
                runs[name] = self._runs.get(name, partial(load_run, folder), version_of([record]))
            except (InputError, OSError) as error:
                notes.append(str(error))
        return runs, notes


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


def _by_unit(values: Mapping[str, Value], units: Units) -> dict[str, Value]:
    members = zip(units.names, units.slides, strict=True)
    return {name: value for name, slides in members if (value := unit_value(values, slides)) is not None}


def _outputs(run: Run) -> list[tuple[str, str, Kind]]:
    """Outputs of a study's methods: column of the predictions, words for it, and its kind."""
    classes = run.classes or []
    if run.kind == "survival":
        return [("risk", "risk", "number")]
    if run.kind == "regression":
        return [("predicted", f"predicted {run.study.task.value}", "number")]
    if run.kind == "labels":
        return _probabilities(run.study.task.labels or ())
    # of two classes one probability follows from the other
    return [(PREDICTED, PREDICTED, "category"), *_probabilities(classes[-1:] if len(classes) == 2 else classes)]


def _probabilities(names: Sequence[str]) -> list[tuple[str, str, Kind]]:
    return [(f"{PROBABILITY}{name}", f"probability of {name}", "number") for name in names]
