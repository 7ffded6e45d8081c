"""Results of a study: tables, predictions, the tested models, and a record of versions, samples and files."""

import platform
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import pandas as pd

from panther.cohort.covariates import COVARIATES
from panther.cohort.targets import Classes, Survival
from panther.errors import InputError, suggestion
from panther.models.model import Model, load_model
from panther.storage.files import content_of, read_json, write_json, write_text
from panther.study.tables import (
    ALWAYS,
    OPTIONAL,
    SHUFFLE,
    below_chance,
    markdown,
    one_class,
    shuffle_sentences,
    write_tables,
)
from panther.study.tables import WRITTEN as TABLES
from panther.study.training import StudyRun
from panther.version import __version__

FORMAT = 1  # raised when a reader of the old format would misread the new one
RECORD, COHORT, MODELS, STUDY = RECORDS = "run.json", "cohort.csv", "models.csv", "study.json"
WRITTEN = (*TABLES, *RECORDS)  # files of a study beside the cache and the models
GROUP = ["encoder", "method", "head", "loss", "n_prototypes", "train_size"]  # of a row of the summary
SHAPE = {"packages": dict, "tables": dict, "folds": list, "trained": list, "notes": list, "failures": dict}
PACKAGES = ("torch", "numpy", "scipy", "scikit-learn", "pandas", "h5py", "anndata")


@dataclass(frozen=True, eq=False)
class Results:
    """Results of a study.

    Attributes
    ----------
    metrics : DataFrame
        One number per row: cell of the grid, fold, part, subgroup, metric, value.
    predictions : DataFrame
        One row per tested slide (or patient), cell and fold.
    summary : DataFrame
        Mean and standard deviation over folds and seeds, interval over patients, exact bound of a perfect score.
    comparisons : DataFrame
        Every method against the reference, on the same patients.
    run : StudyRun
        Samples, what failed, and the folder with models, prototypes and embeddings.
    failures : dict
        Samples left out of the study, and other failures: a message for each.
    gains : DataFrame
        Gain of each embedding over the study's covariates, on the same patients; empty without covariates.
    sureness : mapping
        Of classes and values: tables `calibration`, `reliability` and `prediction_sets`.
    shuffle : DataFrame
        With that key of the study: how much of each score remains on shuffled tissue.
    """

    metrics: pd.DataFrame
    predictions: pd.DataFrame
    summary: pd.DataFrame
    comparisons: pd.DataFrame
    run: StudyRun
    gains: pd.DataFrame = field(default_factory=pd.DataFrame)
    sureness: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    shuffle: pd.DataFrame = field(default_factory=pd.DataFrame)

    @property
    def failures(self) -> dict[str, str]:
        """Failures, and samples left out: a message for each."""
        return self.run.failures

    def model(self, fold: int = 0, **cell: Any) -> Model:
        """Model that was trained and tested in ``fold``, the same file as `train` writes.

        Parameters
        ----------
        fold : int
            Which fold, from 0.
        **cell
            Cell of the grid, by columns of the tables: `method`, `head`, `encoder`, `loss`, `n_prototypes`, `train_size`, `seed`; only those
            that differ between the models of a fold are needed.
        """
        models = [(trained, trained.cell.columns()) for trained in self.run.trained if trained.fold == fold]
        if not models:
            raise InputError(f"fold: {fold}, expected {sorted({trained.fold for trained in self.run.trained})}")
        for name, value in cell.items():
            if name not in models[0][1]:
                raise InputError(f"Models have no {name!r}; {suggestion(name, models[0][1])}.")
            values = list(dict.fromkeys(str(columns[name]) for _, columns in models))
            models = [(trained, columns) for trained, columns in models if columns[name] == value]
            if not models:
                raise InputError(f"No model has {name} {value!r}; {suggestion(str(value), values)}.")
        for name in models[0][1]:
            if len(values := list(dict.fromkeys(repr(columns[name]) for _, columns in models))) > 1:
                raise InputError(f"{len(models)} models of fold {fold}; name one with `{name}=`: {', '.join(values)}.")
        return load_model(models[0][0].model)

    def to_lines(self) -> list[str]:
        """The summary for people."""
        return [*self.run.population.notes, "", self.table()]

    def to_json(self) -> dict[str, Any]:
        """The same for programs."""
        summary = self.summary.astype(object).where(self.summary.notna(), None)
        files = [str(path) for pattern in WRITTEN for path in sorted(self.run.folder.glob(pattern))]
        return {"summary": summary.to_dict("records"), "files": files}

    def table(self) -> str:
        """The summary as Markdown: methods down, tests across; the shuffle test, where the study has it."""
        lines = [*shuffle_sentences(self.shuffle, self.run.study.shown), *self._warnings()]
        return markdown(self.summary, self.run.study.shown) + "".join(f"- {sentence}\n" for sentence in lines)

    def _warnings(self) -> list[str]:
        study = self.run.study
        rows = {study.reference_row, *([] if self.gains.empty else [COVARIATES])}
        return [
            *one_class(self.predictions),
            *below_chance(self.summary[self.summary["method"].isin(rows)], self.predictions, study.shown),
        ]

    def write(self, folder: Path | str) -> list[Path]:
        """Write the tables (CSV, Parquet, Markdown, LaTeX) and the record that `panther report` reads; returns the files."""
        folder = Path(folder)
        if folder.resolve() != self.run.folder.resolve():
            for part in ("cache", "models"):
                shutil.copytree(self.run.folder / part, folder / part, dirs_exist_ok=True)
        for name in ("gains", *OPTIONAL):
            for suffix in (".csv", ".parquet"):
                (folder / f"{name}{suffix}").unlink(missing_ok=True)  # of an earlier task
        optional = {"gains": self.gains, SHUFFLE: self.shuffle}
        tables = {name: getattr(self, name) for name in ALWAYS}
        tables |= {name: table for name, table in optional.items() if not table.empty}
        tables |= self.sureness
        written = write_tables(tables, folder, self.run.study.shown, self.table())
        return [*written, *write_record(self.run, folder, self._warnings())]


def write_record(run: StudyRun, folder: Path, notes: Sequence[str] = ()) -> list[Path]:
    """Write run.json (with further ``notes``), cohort.csv, models.csv and study.json; the same run writes the same bytes."""
    entries = []
    for trained in run.trained:
        paths = {name: getattr(trained, name) for name in ("predictions", "model", "prototypes", "embeddings")}
        relative = {name: path and path.relative_to(run.folder).as_posix() for name, path in paths.items()}
        method = {"aggregator": trained.cell.method.name, "options": trained.cell.method.options}
        entries.append({**trained.cell.columns(), "fold": trained.fold, **method, **relative})
    models = pd.DataFrame(entries)
    files = [*run.trained[0].cell.columns(), "fold", "model"]
    texts = {
        STUDY: run.study.model_dump_json(indent=2),
        COHORT: cohort_table(run).to_csv(index=False, lineterminator="\n"),
        MODELS: models[files].to_csv(index=False, lineterminator="\n"),
    }
    for name, text in texts.items():
        write_text(folder / name, text)
    study, target = run.study, run.population.target
    tables = {"table": study.table, **{f"external {name}": e.table for name, e in study.external.items()}}
    record = {
        "format": FORMAT,
        "version": __version__,
        "python": platform.python_version(),
        "packages": {name: metadata.version(name) for name in PACKAGES},
        "classes": list(target.names) if isinstance(target, Classes) else None,
        "time_unit": target.unit if isinstance(target, Survival) else None,
        "tables": {name: content_of(path) for name, path in tables.items() if path is not None and path.is_file()},
        "folds": [{part: list(ids) for part, ids in split.parts().items()} for split in run.population.splits],
        "trained": entries,
        "notes": [*run.population.notes, *notes],
        "failures": dict(run.failures),
    }
    write_json(folder / RECORD, record)
    return [folder / name for name in (*texts, RECORD)]


def read_record(folder: Path) -> dict[str, Any]:
    """Content of run.json of a run's folder."""
    path = folder / RECORD
    is_study = (folder / STUDY).exists()
    if not path.exists() and (is_study or (folder / "cache").is_dir()):
        raise InputError(f"{folder}: this run is not finished; run the same `panther run` again to resume it")
    if not is_study:
        raise InputError(f"{folder}: not the folder of a run (no {STUDY}); expected what `panther run -o` wrote")
    try:
        record = read_json(path)
        newer = record["format"] > FORMAT
        for name, kind in SHAPE.items():
            if not newer and not isinstance(record[name], kind):
                raise TypeError(f"{name!r} is no {kind.__name__}")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: the file is damaged ({error}); do `panther run` again.") from error
    if newer:
        raise InputError(f"{path}: written by a newer panther-wsi ({record.get('version')}); update this one.")
    return record


def cohort_table(run: StudyRun) -> pd.DataFrame:
    """One row per slide or patient: names, size, target, then the clinical columns as they are."""
    population = run.population
    columns: dict[str, Any] = {
        "sample": population.ids,
        "patient": population.patients,
        "site": [site or "" for site in population.sites],
        "n_slides": population.table["n_slides"].to_numpy(),
    }
    for encoder, patches in run.patches.items():
        name = "patches" if len(run.patches) == 1 else f"patches_{encoder}"
        columns[name] = [patches.get(sample) for sample in population.ids]
    for name, target in population.target.columns().items():
        values = pd.Series(target)
        columns[name] = values.astype(int) if values.dtype == bool else values
    clinical = population.table.drop(columns="n_slides").reset_index(drop=True)
    clinical.columns = [f"{name} (table)" if name in columns else str(name) for name in clinical.columns]
    return pd.concat([pd.DataFrame(columns).convert_dtypes(), clinical], axis=1)
