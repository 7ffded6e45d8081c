"""The results folder of a study as one value, and the outcome that the study predicts."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from panther.charts.display_names import endpoint_title, method_title
from panther.cohort.targets import Kind
from panther.evaluation.metrics import metric_title
from panther.evaluation.verdicts import best_rows, chance
from panther.storage.files import read_errors, read_text
from panther.storage.tables import as_table, read_parquet
from panther.study.file import Study
from panther.study.jobs import load_predictions
from panther.study.results import COHORT, GROUP, RECORD, STUDY, Results, read_record
from panther.study.tables import SURENESS, row_names, varying_factors

METRIC_NAMES = {  # where the short title of a table's column needs a longer one
    "balanced_accuracy": "balanced accuracy",
    "weighted_f1": "weighted F1",
    "quadratic_kappa": "quadratic-weighted kappa",
    "r2": "R²",
    "mae": "mean absolute error",
}
OUTCOMES = ("label", "event", "time", "value")
IDENTIFIERS = ("sample", "patient", "n_slides")  # columns of cohort.csv that name or count rather than describe
TABLES = ("metrics", "summary", "comparisons", "predictions")
QUARTERS = ("lowest quarter", "second quarter", "third quarter", "highest quarter")


@dataclass(frozen=True, eq=False)
class Run:
    """A finished study. Its tables have a column `row`, the name of the method in the printed table."""

    folder: Path
    record: dict[str, Any]
    study: Study
    cohort: pd.DataFrame  # strings, indexed by sample
    metrics: pd.DataFrame
    summary: pd.DataFrame
    comparisons: pd.DataFrame
    predictions: pd.DataFrame
    trained: pd.DataFrame  # one row per cell and fold: its files
    gains: pd.DataFrame  # of each embedding beside covariates; empty where the study has none
    sureness: Mapping[str, pd.DataFrame] = field(default_factory=dict)  # by the names of study.tables.SURENESS

    @property
    def rows(self) -> list[str]:
        """Methods in the order of the study."""
        return list(dict.fromkeys(self.summary["row"]))

    @property
    def parts(self) -> list[str]:
        """Test sets: `test`, and external cohorts."""
        return sorted(set(self.summary["part"]))

    @property
    def metric(self) -> str:
        """The metric of the summary."""
        return self.study.shown[0]

    @property
    def folds(self) -> list[dict[str, list[str]]]:
        """Samples of each part of each fold."""
        return list(self.record["folds"])

    @property
    def kind(self) -> Kind:
        """Kind of target."""
        return self.study.kind

    @property
    def classes(self) -> list[str] | None:
        """Names of the classes; None for other kinds of target."""
        return self.record["classes"]

    @property
    def endpoint(self) -> str:
        """Name of the survival endpoint."""
        return endpoint_title(self.study.task.survival, self.study.task.time)

    @property
    def time_unit(self) -> str:
        """Unit of survival times; empty where the name of their column has none."""
        return self.record.get("time_unit") or ""

    def tested(self, part: str = "test") -> pd.DataFrame:
        """Predictions on one test set."""
        return self.predictions[self.predictions["part"] == part]

    def on(self, part: str, text: str) -> str:
        """Text with the name of its test set, where the study has several."""
        return text if len(self.parts) == 1 else f"{text}, {where_tested(part)}"

    def chance(self, metric: str, part: str = "test") -> float | None:
        """Score of guessing, where that is one number."""
        return chance(metric, self.tested(part))

    def judged(self, part: str, metric: str) -> pd.DataFrame:
        """Rows of the summary of one test set and metric, without subgroups."""
        table = self.summary
        return table[(table["part"] == part) & (table["metric"] == metric) & (table["subgroup"] == "")]

    def best(self, part: str = "test") -> pd.DataFrame:
        """Rows of the summary with the highest mean; more than one where they tie."""
        return best_rows(self.judged(part, self.metric))

    def patients(self, samples: Sequence[str]) -> set[str]:
        """Patients of samples."""
        return set(self.cohort.loc[list(samples), "patient"])

    def column(self, name: str, samples: Sequence[str]) -> list[str]:
        """Clinical column for samples; empty cells are `not known`."""
        return [value or "not known" for value in self.cohort[name].reindex(list(samples)).fillna("")]

    def cached(self, name: str | None) -> Path | None:
        """File of the run; None where it has been deleted."""
        path = None if name is None else self.folder / name
        return path if path is not None and path.exists() else None

    def predicted(self, predictions: str) -> tuple[dict[str, Any], dict[str, dict[str, np.ndarray]]] | None:
        """Settings of a model and its predictions of all parts, training included; None where the cache was deleted."""
        path = self.cached(predictions)
        return None if path is None else load_predictions(path)

    def predictions_of(self, row: str, part: str) -> pd.DataFrame:
        """Predictions of one method on one test set."""
        table = self.tested(part)
        return table[table["row"] == row]


def load_run(run: Results | Path | str) -> Run:
    """Read the results of a study; results that were never written are written into the folder of their models."""
    if isinstance(run, Results):
        folder = run.run.folder
        if not (folder / RECORD).exists():
            run.write(folder)
    else:
        folder = Path(run)
    record = read_record(folder)
    with read_errors(folder, "run", "do `panther run` again"):
        study = Study.model_validate_json(read_text(folder / STUDY))
        trained = pd.DataFrame(record["trained"]).astype(object)
        trained = trained.where(trained.notna(), None)  # pandas turns None in a column of names into NaN
        tables = {"trained": trained} | {name: read_parquet(folder / f"{name}.parquet") for name in TABLES}
        tables["gains"] = read_parquet(folder / "gains.parquet") if study.covariates else pd.DataFrame()
        summary = tables["summary"]
        varying = varying_factors(summary[summary["metric"].isin(study.shown)])
        named = {name: _name_rows(table, varying) for name, table in tables.items()}
    if "reference" in named["comparisons"]:
        references = [readable(method_title(str(name))) for name in named["comparisons"]["reference"]]
        named["comparisons"] = named["comparisons"].assign(reference=references)
    cohort = as_table(folder / COHORT).set_index("sample", drop=False)
    present = [name for name in SURENESS if (folder / f"{name}.parquet").exists()]
    sureness = {name: _name_rows(read_parquet(folder / f"{name}.parquet"), varying) for name in present}
    return Run(folder, record, study, cohort, **named, sureness=sureness)


def _name_rows(table: pd.DataFrame, varying: list[str]) -> pd.DataFrame:
    """Add the column `row`."""
    if table.empty:
        return table.assign(row=[])
    cells = table[GROUP].drop_duplicates()
    words = (readable(name) for name in row_names(cells, varying))
    names = dict(zip(cells.itertuples(index=False, name=None), words, strict=True))
    return table.assign(row=[names[key] for key in table[GROUP].itertuples(index=False, name=None)])


def readable(row: str) -> str:
    """`PANTHER + probe [loss cox]` as `PANTHER + probe, loss cox`."""
    return re.sub(r" \[([^\]]*)\]", r", \1", row)


def metric_name(metric: str) -> str:
    """Full name of a metric."""
    return METRIC_NAMES.get(metric) or metric_title(metric).replace("_", " ")


def where_tested(part: str, subgroup: str = "") -> str:
    """Name of a test set."""
    name = "test folds" if part == "test" else f"{part.removeprefix('test_')} (external)"
    return f"{name}, {subgroup}" if subgroup else name


def describing_columns(run: Run, most: int = 12, limit: int = 60) -> list[str]:
    """Columns to colour by, outcomes first: more than one value, and not one value per patient."""
    outcomes = [name for name in run.cohort.columns if name in OUTCOMES or name.startswith("label_")]
    unique: dict[tuple[str, ...], str] = {}  # `label` is replaced by the column it was read from
    for name in dict.fromkeys([*outcomes, *run.cohort.columns]):
        known = run.cohort[name][run.cohort[name] != ""]
        is_category = known.nunique() <= min(limit, max(2, len(known) // 2))
        if name not in IDENTIFIERS and known.nunique() > 1 and (is_category or numeric(known) is not None):
            unique[tuple(run.cohort[name])] = name
    return list(unique.values())[:most]


def numeric(values: pd.Series, few: int = 10) -> np.ndarray | None:
    """Values as numbers; None where a known value is not a number, or the distinct values are few."""
    known = values != ""
    number = pd.to_numeric(values.where(known), errors="coerce")
    return number.to_numpy(float) if bool(number[known].notna().all()) and number.nunique() > few else None


@dataclass(frozen=True, eq=False)
class Outcome:
    """The outcome of a study, and the groups that it divides the samples into."""

    title: str  # of the report
    tile: tuple[str, str]  # name and number in the row of counts
    member: pd.DataFrame  # (samples, groups), whether a sample is in a group
    few: int  # samples of the rarest group of a test fold, below which its result is mostly chance
    scarce: str  # name of those samples
    scarcest: Callable[[Sequence[int]], int]  # from the counts of the groups
    counted: str = "samples"  # unit of the bars

    @property
    def groups(self) -> list[str]:
        """Names of the groups."""
        return list(self.member.columns)

    def counts(self, samples: Sequence[str]) -> list[int]:
        """Number of samples in each group."""
        return [int(n) for n in self.member.loc[list(samples)].sum()]


def outcome_of(run: Run) -> Outcome:
    """Outcome of a run."""
    task, cohort = run.study.task, run.cohort
    if run.kind == "survival":
        event = cohort["event"] == "1"
        member = pd.DataFrame({"censored": ~event, "event": event}, index=cohort.index)
        title = f"{run.endpoint[:1].upper()}{run.endpoint[1:]}"
        return Outcome(title, ("events", f"{int(event.sum()):,}"), member, 10, "events", lambda counts: counts[1])
    if run.kind == "regression":
        values = observed(run)
        quarter = np.searchsorted(np.quantile(values, [0.25, 0.5, 0.75]), values, side="right")
        member = pd.DataFrame({q: quarter == k for k, q in enumerate(QUARTERS)}, index=cohort.index)
        tile = (f"median {task.value}", short(np.quantile(values, 0.5)))
        return Outcome(f"Prediction of {task.value}", tile, member, 10, "values", sum)
    if run.kind == "labels":
        names = list(task.labels or ())
        member = pd.DataFrame({name: has_label(run, name) == 1 for name in names}, index=cohort.index)
        title, tile = f"Prediction of {len(names)} labels", ("labels", str(len(names)))
        return Outcome(title, tile, member, 5, "samples with the rarest label", min, "samples with the label")
    classes = run.classes or []
    member = pd.DataFrame({name: cohort["label"] == name for name in classes}, index=cohort.index)
    return Outcome("Classification", ("classes", str(len(classes))), member, 5, "samples of the rarest class", min)


def short(value: float) -> str:
    """Format a measured number with four digits: its scale is unknown."""
    return f"{value:,.4g}".replace("-", "\N{MINUS SIGN}")


def observed(run: Run, samples: Sequence[str] | None = None) -> np.ndarray:
    """Measured values (n,)."""
    column = run.cohort["value"] if samples is None else run.cohort["value"].loc[list(samples)]
    return pd.to_numeric(column).to_numpy(float)


def has_label(run: Run, name: str) -> np.ndarray:
    """1, 0, or NaN where the label is not known (n,)."""
    return pd.to_numeric(run.cohort[f"label_{name}"].replace("", np.nan)).to_numpy(float)


def cohorts_of(run: Run) -> dict[str, list[str]]:
    """Samples of the study's cohort (`study`), and of each external cohort."""
    cohorts: dict[str, dict[str, None]] = {"study": dict.fromkeys(run.cohort.index)}
    for parts in run.folds:
        for name, ids in parts.items():
            if name.startswith("test_"):
                cohorts.setdefault(name.removeprefix("test_"), {}).update(dict.fromkeys(ids))  # each sample once
                for sample in ids:
                    cohorts["study"].pop(sample, None)
    return {name: list(ids) for name, ids in cohorts.items()}
