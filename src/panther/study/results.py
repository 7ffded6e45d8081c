"""What a study found: its tables, its predictions and the models that were tested."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from panther.cohort.covariates import COVARIATES
from panther.errors import InputError, suggestion
from panther.models.model import Model, load_model
from panther.study.record import WRITTEN as RECORDS
from panther.study.record import write_record
from panther.study.spatial.words import shuffle_sentences
from panther.study.tables import RETRIEVAL, SHUFFLE, SURENESS, below_chance, markdown, one_class, write_tables
from panther.study.tables import WRITTEN as TABLES
from panther.study.training import StudyRun, Trained

WRITTEN = (*TABLES, *RECORDS)  # what a study writes into its folder, beside the cache and the models
GROUP = ["encoder", "method", "head", "loss", "n_prototypes", "train_size"]  # what a row of the summary stands for


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
        Everybody who took part, what failed, and the folder with models, prototypes and embeddings.
    failures : dict
        Who was left out of the study, and what else could not be done: a sentence for each.
    gains : DataFrame
        What each embedding adds to the study's covariates, on the same patients; empty where it has none.
    sureness : mapping
        Of classes and values: tables `calibration`, `reliability` and `prediction_sets`.
    retrieval : mapping
        Where the study asks for it: tables `retrieval` and `retrieval_comparisons`, whether the nearest training slides have the label.
    shuffle : DataFrame
        Where the study asks for it: how much of each score survives when patches lie at each other's places.
    """

    metrics: pd.DataFrame
    predictions: pd.DataFrame
    summary: pd.DataFrame
    comparisons: pd.DataFrame
    run: StudyRun
    gains: pd.DataFrame = field(default_factory=pd.DataFrame)
    sureness: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    retrieval: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    shuffle: pd.DataFrame = field(default_factory=pd.DataFrame)

    @property
    def failures(self) -> dict[str, str]:
        """What failed, and who was left out: a sentence for each."""
        return self.run.failures

    def model(self, fold: int = 0, **cell: Any) -> Model:
        """Model that was trained and tested in ``fold``, the same file as `train` writes.

        Parameters
        ----------
        fold : int
            Which fold, from 0.
        **cell
            Which cell of the grid, as the tables name it: `method`, `head`, `encoder`, `loss`, `n_prototypes`, `train_size`, `seed`; only those
            that differ between the models of a fold are needed.
        """
        return load_model(self._chosen(fold, cell).model)

    def to_lines(self) -> list[str]:
        """The summary for people."""
        return [*self.run.population.notes, "", self.table()]

    def to_json(self) -> dict[str, Any]:
        """The same for programs."""
        summary = self.summary.astype(object).where(self.summary.notna(), None)
        files = [str(path) for pattern in WRITTEN for path in sorted(self.run.folder.glob(pattern))]
        return {"summary": summary.to_dict("records"), "files": files}

    def table(self) -> str:
        """The summary as Markdown: methods down, tests across; what shuffling tissue cost, where the study has it."""
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
        tables = {name: getattr(self, name) for name in ("metrics", "predictions", "summary", "comparisons")}
        tables |= {} if self.gains.empty else {"gains": self.gains}
        tables |= {} if self.shuffle.empty else {SHUFFLE: self.shuffle}
        tables |= {**self.sureness, **self.retrieval}
        asked_for = (*SURENESS, *RETRIEVAL, SHUFFLE)
        for path in [folder / f"{name}{suffix}" for name in asked_for for suffix in (".csv", ".parquet")]:
            path.unlink(missing_ok=True)  # of an earlier task
        written = write_tables(tables, folder, self.run.study.shown, self.table())
        return [*written, *write_record(self.run, folder, self._warnings())]

    def _chosen(self, fold: int, cell: dict[str, Any]) -> Trained:
        models = [(trained, trained.cell.columns()) for trained in self.run.trained if trained.fold == fold]
        if not models:
            folds = sorted({trained.fold for trained in self.run.trained})
            raise InputError(f"There is no fold {fold}; this study has {', '.join(map(str, folds))}.")
        for name, value in cell.items():
            columns = models[0][1]
            if name not in columns:
                raise InputError(f"Models have no {name!r}; {suggestion(name, columns)}.")
            values = list(dict.fromkeys(str(own[name]) for _, own in models))
            models = [(trained, own) for trained, own in models if own[name] == value]
            if not models:
                raise InputError(f"No model has {name} {value!r}; {suggestion(str(value), values)}.")
        differ = [name for name in models[0][1] if len({own[name] for _, own in models}) > 1]
        if differ:
            values = list(dict.fromkeys(repr(own[differ[0]]) for _, own in models))
            raise InputError(
                f"{len(models)} models of fold {fold} are meant; name one with `{differ[0]}=`: {', '.join(values)}."
            )
        return models[0][0]
