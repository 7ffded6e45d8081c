"""What a report is made from: the folder of a run as one value."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pydantic import ValidationError

from panther.charts.display_names import endpoint_title, method_title
from panther.cohort.targets import Kind
from panther.errors import InputError
from panther.evaluation.metrics import OF_LABEL
from panther.evaluation.verdicts import best_rows, chance
from panther.storage.files import read_text
from panther.storage.tables import as_table, read_parquet
from panther.study.file import Study
from panther.study.jobs import load_predictions
from panther.study.results import COHORT, GROUP, RECORD, STUDY, Results, read_record
from panther.study.tables import SURENESS, row_names, varying_factors

METRIC_NAMES = {
    "c_index": "c-index",
    "c_index_uno": "Uno's c-index",
    "weighted_f1": "weighted F1",
    "quadratic_kappa": "quadratic-weighted kappa",
    "auroc": "AUROC",
    "time_auc": "time-dependent AUC",
    "macro_auroc": "mean AUROC",
    "pearson": "Pearson's r",
    "spearman": "Spearman's rho",
    "r2": "R²",
    "mae": "mean absolute error",
    "rmse": "root mean square error",
}
OUTCOMES = ("label", "event", "time", "value")
OWN_COLUMNS = ("sample", "patient", "n_slides")  # of cohort.csv, that name or count rather than describe


@dataclass(frozen=True, eq=False)
class Run:
    """A finished study. Tables have a column `row`: what the printed table calls the method."""

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
    sureness: Mapping[str, pd.DataFrame] = field(default_factory=dict)  # those of study.tables.SURENESS that there are

    @property
    def rows(self) -> list[str]:
        """Methods in the order of the study."""
        return list(dict.fromkeys(self.summary["row"]))

    @property
    def parts(self) -> list[str]:
        """What was tested on: `test`, and external cohorts."""
        return sorted(set(self.summary["part"]))

    @property
    def metric(self) -> str:
        """The one number that the summary speaks about."""
        return self.study.shown[0]

    @property
    def folds(self) -> list[dict[str, list[str]]]:
        """Samples of each part of each fold."""
        return list(self.record["folds"])

    @property
    def over(self) -> str:
        """What means and spreads are over."""
        return "folds" if len(self.study.seeds) == 1 else "folds and seeds"

    @property
    def kind(self) -> Kind:
        """What kind of target is predicted."""
        return self.study.kind

    @property
    def classes(self) -> list[str] | None:
        """Names of the classes; None where other things are predicted."""
        return self.record["classes"]

    @property
    def endpoint(self) -> str:
        """What is predicted of survival, in words."""
        return endpoint_title(self.study.task.survival, self.study.task.time)

    @property
    def time_unit(self) -> str:
        """Unit of times of survival; empty where the name of their column does not say it."""
        return self.record.get("time_unit") or ""

    def tested(self, part: str = "test") -> pd.DataFrame:
        """Predictions of one test."""
        return self.predictions[self.predictions["part"] == part]

    def chance(self, metric: str, part: str = "test") -> float | None:
        """What guessing gives, where that is one number."""
        return chance(metric, self.tested(part))

    def judged(self, part: str, metric: str) -> pd.DataFrame:
        """Rows of the summary of one test and metric, without subgroups."""
        table = self.summary
        return table[(table["part"] == part) & (table["metric"] == metric) & (table["subgroup"] == "")]

    def best(self, part: str = "test") -> pd.DataFrame:
        """Rows of the summary with the highest mean; more than one where they tie."""
        return best_rows(self.judged(part, self.metric))

    def patients(self, samples: Sequence[str]) -> set[str]:
        """Whom samples belong to."""
        return set(self.cohort.loc[list(samples), "patient"])

    def column(self, name: str, samples: Sequence[str]) -> list[str]:
        """Clinical column for samples; what is empty is `not known`."""
        return [value or "not known" for value in self.cohort[name].reindex(list(samples)).fillna("")]

    def cached(self, name: str | None) -> Path | None:
        """File of the run, while it is there."""
        path = None if name is None else self.folder / name
        return path if path is not None and path.exists() else None

    def predicted(self, predictions: str) -> tuple[dict[str, Any], dict[str, dict[str, np.ndarray]]] | None:
        """What a model was and its predictions of all parts, training included, while the cache is there."""
        path = self.cached(predictions)
        return None if path is None else load_predictions(path)


def load_run(run: Results | Path | str) -> Run:
    """Read what a study wrote; results that were never written are written into the folder of their models."""
    if isinstance(run, Results):
        folder = run.run.folder
        if not (folder / RECORD).exists():
            run.write(folder)
    else:
        folder = Path(run)
    record = read_record(folder)
    try:
        study = Study.model_validate_json(read_text(folder / STUDY))
    except ValidationError as error:
        reason = error.errors()[0]["msg"]
        raise InputError(
            f"{folder / STUDY}: this version cannot read it ({reason}); do `panther run` again."
        ) from error
    tables = {name: _table(folder, name) for name in ("metrics", "summary", "comparisons", "predictions")}
    tables["gains"] = _table(folder, "gains") if study.covariates else pd.DataFrame()
    try:
        tables["trained"] = _trained(record["trained"])
    except (TypeError, AttributeError, ValueError, KeyError) as error:
        raise InputError(f"{folder}: its run.json is damaged ({error}); do `panther run` again.") from error
    varying = varying_factors(tables["summary"][tables["summary"]["metric"].isin(study.shown)])
    named = {name: _named(table, varying) for name, table in tables.items()}
    if "reference" in named["comparisons"]:
        compared = named["comparisons"]
        named["comparisons"] = compared.assign(reference=[method_title(str(name)) for name in compared["reference"]])
    cohort = as_table(folder / COHORT).set_index("sample", drop=False)
    there = [name for name in SURENESS if (folder / f"{name}.parquet").exists()]
    sureness = {name: _named(_table(folder, name), varying) for name in there}
    return Run(folder, record, study, cohort, **named, sureness=sureness)


def metric_name(metric: str) -> str:
    """In words."""
    if metric.startswith(OF_LABEL):
        return f"AUROC of {metric.removeprefix(OF_LABEL)}"
    return METRIC_NAMES.get(metric, metric.replace("_", " "))


def where_tested(part: str, subgroup: str = "") -> str:
    """What was tested on, in words."""
    name = "test folds" if part == "test" else f"{part.removeprefix('test_')} (external)"
    return f"{name}, {subgroup}" if subgroup else name


def describing_columns(run: Run, most: int = 12, limit: int = 60) -> list[str]:
    """Columns worth colouring by: more than one value, and not a unique name per patient."""
    found = []
    outcome = [name for name in run.cohort.columns if name in OUTCOMES or name.startswith("label_")]
    for name in dict.fromkeys([*outcome, *run.cohort.columns]):  # what is predicted comes first
        values = run.cohort[name]
        known = values[values != ""]
        distinct = known.nunique()
        few = distinct <= min(limit, max(2, len(known) // 2))
        if name not in OWN_COLUMNS and distinct > 1 and (few or numeric(known) is not None):
            found.append(name)
    unique: dict[tuple[str, ...], str] = {}
    for name in found:  # `label` and the column it came from say the same
        unique.setdefault(tuple(run.cohort[name]), name)
    return list(unique.values())[:most]


def numeric(values: pd.Series, few: int = 10) -> np.ndarray | None:
    """Values as numbers where all that are known are, and they are more than a few."""
    number = pd.to_numeric(values.where(values != ""), errors="coerce")
    known = values != ""
    return number.to_numpy(float) if bool(number[known].notna().all()) and number.nunique() > few else None


def _named(table: pd.DataFrame, varying: list[str]) -> pd.DataFrame:
    if table.empty:
        return table.assign(row=[])
    cells = table[GROUP].drop_duplicates()
    names = dict(zip(cells.itertuples(index=False, name=None), row_names(cells, varying), strict=True))
    return table.assign(row=[names[key] for key in table[GROUP].itertuples(index=False, name=None)])


def _trained(entries: list[dict[str, Any]]) -> pd.DataFrame:
    """Files that there are none of are None, whatever pandas makes of None in a column of names (3: NaN)."""
    table = pd.DataFrame(entries)
    files = [name for name in ("predictions", "model", "prototypes", "embeddings") if name in table]
    return table.assign(**{name: table[name].astype(object).where(table[name].notna(), None) for name in files})


def _table(folder: Path, name: str) -> pd.DataFrame:
    path = folder / f"{name}.parquet"
    try:
        return read_parquet(path)
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: the table cannot be read ({_first_line(error)}); do `panther run` again.") from error


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def read_json(path: Path, what: str) -> dict[str, Any]:
    """A JSON file of another command, with a sentence where it is missing or damaged."""
    try:
        content = json.loads(read_text(path))
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror}); give the folder that `panther {what}` wrote."
        ) from error
    except ValueError as error:
        raise InputError(f"{path}: this is not JSON ({error}); do `panther {what}` again.") from error
    if not isinstance(content, dict) or content.get("format", 1) != 1:
        raise InputError(f"{path}: not of a format that this version knows; do `panther {what}` again, or update.")
    return content
