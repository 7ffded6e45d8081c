"""What a run leaves behind beside its tables: who was in which part, where each result lies, and what it was made with."""

import platform
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import pandas as pd

from panther.cohort.targets import Classes, Survival
from panther.errors import InputError
from panther.storage.files import content_of, read_json, write_json, write_text
from panther.study.training import StudyRun, Trained
from panther.version import __version__

FORMAT = 1  # raised when a reader of the old format would misread the new one
RECORD, COHORT, MODELS, STUDY = WRITTEN = "run.json", "cohort.csv", "models.csv", "study.json"
SHAPE = {"packages": dict, "tables": dict, "folds": list, "trained": list, "notes": list, "failures": dict}
PACKAGES = ("torch", "numpy", "scipy", "scikit-learn", "pandas", "h5py", "anndata")


def write_record(run: StudyRun, folder: Path, notes: Sequence[str] = ()) -> list[Path]:
    """Write run.json (with further ``notes``), cohort.csv, models.csv and study.json; the same run writes the same bytes."""
    models = pd.DataFrame([_entry(trained, run.folder) for trained in run.trained])
    files = [*run.trained[0].cell.columns(), "fold", "model"]
    texts = {
        STUDY: run.study.model_dump_json(indent=2),
        COHORT: cohort_table(run).to_csv(index=False, lineterminator="\n"),
        MODELS: models[files].to_csv(index=False, lineterminator="\n"),
    }
    for name, text in texts.items():
        write_text(folder / name, text)
    write_json(folder / RECORD, _record(run, notes))
    return [folder / name for name in (*texts, RECORD)]


def read_record(folder: Path) -> dict[str, Any]:
    """Content of run.json of a run's folder."""
    path = folder / RECORD
    if (folder / "cache").is_dir() and not path.exists() and not (folder / STUDY).exists():
        raise InputError(f"{folder}: this run is not finished; run the same `panther run` again to resume it")
    if not folder.is_dir() or not (folder / STUDY).exists():
        raise InputError(f"{folder}: this is not the folder of a run (no {STUDY}); give what `panther run -o` wrote.")
    if not path.exists():
        raise InputError(f"{folder}: there is no {RECORD}; do `panther run` again, it takes seconds from its cache.")
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
    """One row per slide or patient: who it is, how large, its target, then the clinical columns word for word."""
    population = run.population
    own: dict[str, Any] = {
        "sample": population.ids,
        "patient": population.patients,
        "site": [site or "" for site in population.sites],
        "n_slides": population.table["n_slides"].to_numpy(),
    }
    for encoder, patches in run.patches.items():
        own["patches" if len(run.patches) == 1 else f"patches_{encoder}"] = [patches.get(n) for n in population.ids]
    target = {name: pd.Series(values) for name, values in population.target.columns().items()}
    own |= {name: values.astype(int) if values.dtype == bool else values for name, values in target.items()}
    clinical = population.table.drop(columns="n_slides").reset_index(drop=True)
    clinical.columns = [f"{name} (table)" if name in own else str(name) for name in clinical.columns]
    return pd.concat([pd.DataFrame(own).convert_dtypes(), clinical], axis=1)


def _record(run: StudyRun, notes: Sequence[str]) -> dict[str, Any]:
    study = run.study
    target = run.population.target
    tables = {"table": study.table, **{f"external {name}": e.table for name, e in study.external.items()}}
    return {
        "format": FORMAT,
        "version": __version__,
        "python": platform.python_version(),
        "packages": {name: metadata.version(name) for name in PACKAGES},
        "classes": list(target.names) if isinstance(target, Classes) else None,
        "time_unit": target.unit if isinstance(target, Survival) else None,
        "tables": {name: content_of(path) for name, path in tables.items() if path is not None and path.is_file()},
        "folds": [{part: list(ids) for part, ids in split.parts().items()} for split in run.population.splits],
        "trained": [_entry(trained, run.folder) for trained in run.trained],
        "notes": [*run.population.notes, *notes],
        "failures": dict(run.failures),
    }


def _entry(trained: Trained, folder: Path) -> dict[str, Any]:
    files = {
        "predictions": trained.predictions,
        "model": trained.model,
        "prototypes": trained.prototypes,
        "embeddings": trained.embeddings,
    }
    return {
        **trained.cell.columns(),
        "fold": trained.fold,
        "aggregator": trained.cell.method.name,
        "options": trained.cell.method.options,
        **{what: None if path is None else path.relative_to(folder).as_posix() for what, path in files.items()},
    }
