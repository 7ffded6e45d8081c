"""The jobs of a study: prototypes, embeddings, models. What a job makes depends on its fields alone and is stored under a name that is
the hash of all of them, so a killed study goes on where it was and nothing stale is reused.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from panther.content import hash_of
from panther.models.fitting import Bags, Embedded, FittedModel, Parts, TrainingRecipe, fit_model
from panther.models.model_file import save_model
from panther.models.named import Named
from panther.prototypes import KMeansSettings
from panther.storage.embeddings import EmbeddingTable
from panther.storage.files import write_array, write_arrays, write_json
from panther.storage.prototypes import load_prototypes
from panther.study.cache import load_embeddings, sound_checkpoint
from panther.types import Openable, PatchSpec
from panther.version import __version__


def cache_key(*parts: Any) -> str:
    """Hash of plain values and of the version: another one may compute something else."""
    return hash_of([__version__, *parts])


class StudyJob:
    """One piece of work, and the files that it makes; the last one is written last."""

    path: Path

    @property
    def inputs(self) -> tuple[Path, ...]:
        """Files of other jobs that this one needs."""
        return ()

    @property
    def outputs(self) -> dict[str, Path]:
        """Files that it makes, by their kind (see :mod:`panther.study.cache`)."""
        raise NotImplementedError

    @property
    def done(self) -> bool:
        """Whether all of them are there."""
        return all(path.exists() for path in self.outputs.values())


@dataclass(frozen=True)
class PrototypeJob(StudyJob):
    """Fit prototypes on training bags; jobs of one encoder are done together (see :mod:`panther.study.stages`)."""

    encoder: str
    bags: tuple[Openable, ...]
    settings: KMeansSettings
    path: Path

    def __str__(self) -> str:
        return f"{self.settings.n_prototypes} prototypes"

    @property
    def outputs(self) -> dict[str, Path]:
        """The prototype file."""
        return {"prototypes": self.path}


@dataclass(frozen=True)
class EmbeddingJob(StudyJob):
    """Embed everybody on given prototypes; jobs of one encoder are done together (see :mod:`panther.study.stages`)."""

    encoder: str
    bags: tuple[Openable, ...]
    prototypes: Path
    method: Named
    path: Path  # .npy; the names of its rows are in the .json beside it

    def __str__(self) -> str:
        return f"embeddings by {self.method.title}"

    @property
    def inputs(self) -> tuple[Path, ...]:
        """The prototypes."""
        return (self.prototypes,)

    @property
    def outputs(self) -> dict[str, Path]:
        """The matrix."""
        return {"embeddings": self.path}

    def write(self, table: EmbeddingTable) -> None:
        """Write the names of those who could be embedded, then the matrix (n, out_dim)."""
        write_json(self.path.with_suffix(".json"), {"samples": table.samples, "failures": dict(table.failures)})
        write_array(self.path, table.vectors)


@dataclass(frozen=True)
class ModelJob(StudyJob):
    """Train one cell in one fold and predict every part of it."""

    recipe: TrainingRecipe
    parts: Parts
    prototypes: Path | None
    embeddings: Path | None  # of methods without a network ...
    bags: Mapping[str, Openable]  # ... or what a network reads
    spec: PatchSpec  # what the training patches have in common
    model: Path
    path: Path  # .npz of predictions
    label: str

    def __str__(self) -> str:
        return self.label

    @property
    def inputs(self) -> tuple[Path, ...]:
        """Prototypes and embeddings, as far as the method has them."""
        return tuple(path for path in (self.prototypes, self.embeddings) if path is not None)

    @property
    def outputs(self) -> dict[str, Path]:
        """The model, and its predictions."""
        return {"models": self.model, "predictions": self.path}

    def run(self) -> None:
        """Write the model, then its predictions and the learning curve where there is one."""
        checkpoint = sound_checkpoint(self.path.with_suffix(".ckpt"))
        fitted = fit_model(self.recipe, self.parts, self._data(), checkpoint=checkpoint)
        save_model(fitted.model, self.model)
        write_predictions(fitted, self.path)
        checkpoint.unlink(missing_ok=True)

    def _data(self) -> Embedded | Bags:
        prototypes = None if self.prototypes is None else load_prototypes(self.prototypes)
        if self.embeddings is None:
            return Bags(self.bags, prototypes, self.spec)
        assert prototypes is not None
        return Embedded(*load_embeddings(self.embeddings), prototypes)


def write_predictions(fitted: FittedModel, path: Path) -> None:
    """Predictions of every part in one .npz."""
    about = {"task": fitted.model.task.settings(), "history": fitted.history}
    arrays: dict[str, Any] = {"about": np.array(json.dumps(about, default=list))}
    predictions = fitted.predictions()
    for part, ids in fitted.parts.ids.items():
        arrays[f"{part}/ids"] = np.array(ids)
        arrays |= {f"{part}/{name}": values for name, values in predictions[part].items()}
    write_arrays(path, arrays)


def run_job(job: ModelJob) -> None:
    """Run a job, unless another process has made its files meanwhile."""
    if not job.done:
        job.run()
