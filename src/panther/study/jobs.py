"""The jobs of a study: prototypes, embeddings, models. What a job makes depends on its fields alone and is stored under a name that is
the hash of all of them, so a killed study resumes and nothing stale is reused.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from panther.errors import InputError
from panther.models.blocks import Block
from panther.models.fitting import Bags, Embedded, FittedModel, Parts, TrainingRecipe, fit_model
from panther.models.model import save_model
from panther.models.settings import Named
from panther.prototypes import KMeansSettings
from panther.prototypes.centre import Sites
from panther.registry import PLUGINS
from panther.storage.embeddings import EmbeddingTable
from panther.storage.files import write_array, write_arrays, write_json
from panther.storage.prototypes import load_prototypes
from panther.store import hash_of
from panther.study.cache import load_embeddings, sound_checkpoint
from panther.study.rows.given import GivenRows
from panther.types import FeatureSpace, Openable, PatchSpec, Prototypes
from panther.version import __version__


def cache_key(*parts: Any) -> str:
    """Hash of plain values, of the version and of the user's plug-ins: others may compute something else."""
    return hash_of([__version__, *parts, *(file.read_text() for file in PLUGINS)])


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
    everyone: tuple[Openable, ...] = ()  # whose sites the prototypes must know, where they are centred by site
    sites: Sites | None = None

    def __str__(self) -> str:
        return f"{self.settings.n_prototypes} prototypes"

    @property
    def outputs(self) -> dict[str, Path]:
        """The prototype file."""
        return {"prototypes": self.path}


@dataclass(frozen=True)
class BlockSource:
    """A representation, and where what it stands on comes from: a file of prototypes, or the features (or vectors) themselves."""

    method: Named
    prototypes: Path | None = None
    space: FeatureSpace | None = None

    @property
    def files(self) -> tuple[Path, ...]:
        """The prototypes, where it has any."""
        return () if self.prototypes is None else (self.prototypes,)

    def load(self, read: Callable[[Path], Prototypes] = load_prototypes) -> Block:
        """With its prototypes read."""
        if self.prototypes is not None:
            return Block(self.method, read(self.prototypes))
        assert self.space is not None
        return Block(self.method, self.space)


@dataclass(frozen=True)
class EmbeddingJob(StudyJob):
    """Embed everybody on what the method stands on; jobs of one encoder are done together (see :mod:`panther.study.stages`)."""

    encoder: str  # whose bags are walked over; of shuffled ones with a note
    bags: tuple[Openable, ...]
    block: BlockSource
    path: Path  # .npy; the names of its rows are in the .json beside it

    def __str__(self) -> str:
        return f"embeddings by {self.block.method.title}"

    @property
    def inputs(self) -> tuple[Path, ...]:
        """The prototypes, where it has any."""
        return self.block.files

    @property
    def outputs(self) -> dict[str, Path]:
        """The matrix."""
        return {"embeddings": self.path}

    def write(self, table: EmbeddingTable) -> None:
        """Write those who could be embedded."""
        write_rows(self.path, table.samples, table.vectors, table.failures)


@dataclass(frozen=True, eq=False)
class GivenJob(StudyJob):
    """Vectors that somebody gave, written as embeddings are."""

    title: str
    rows: GivenRows
    path: Path

    def __str__(self) -> str:
        return f"vectors of {self.title}"

    @property
    def outputs(self) -> dict[str, Path]:
        """The matrix."""
        return {"embeddings": self.path}

    def run(self) -> None:
        """Write those who have one."""
        write_rows(self.path, self.rows.names, self.rows.vectors)


@dataclass(frozen=True)
class JoinedJob(StudyJob):
    """Embeddings side by side, of those who have all of them."""

    title: str
    parts: tuple[Path, ...]
    path: Path

    def __str__(self) -> str:
        return f"embeddings of {self.title}"

    @property
    def inputs(self) -> tuple[Path, ...]:
        """Embeddings of each."""
        return self.parts

    @property
    def outputs(self) -> dict[str, Path]:
        """The matrix."""
        return {"embeddings": self.path}

    def run(self) -> None:
        """Write those who are in all parts, in the order of the first."""
        parts = [load_embeddings(path) for path in self.parts]
        rows = [{name: row for row, name in enumerate(names)} for _, names in parts]
        common = [name for name in parts[0][1] if all(name in own for own in rows)]
        if not common:
            raise InputError(f"{self.title}: nobody has all of these embeddings.")
        pieces = [x[[own[name] for name in common]] for (x, _), own in zip(parts, rows, strict=True)]
        write_rows(self.path, common, np.concatenate(pieces, 1))


def write_rows(
    path: Path, names: Sequence[str], vectors: np.ndarray, failures: Mapping[str, str] | None = None
) -> None:
    """Write a matrix (n, D); the names of its rows, and why others are missing, into the .json beside it, first."""
    write_json(path.with_suffix(".json"), {"samples": list(names), "failures": dict(failures or {})})
    write_array(path, vectors)


@dataclass(frozen=True)
class ModelJob(StudyJob):
    """Train one cell in one fold and predict every part of it."""

    recipe: TrainingRecipe
    parts: Parts
    prototypes: Path | None  # of a single method that has them
    embeddings: Path | None  # of methods without a network ...
    blocks: tuple[BlockSource, ...]  # ... what these are
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
        files = [self.prototypes, self.embeddings, *(file for block in self.blocks for file in block.files)]
        return tuple(dict.fromkeys(path for path in files if path is not None))

    @property
    def outputs(self) -> dict[str, Path]:
        """The model, and its predictions."""
        return {"models": self.model, "predictions": self.path}

    def run(self, device: str = "cpu") -> None:
        """Write the model, then its predictions and the learning curve where there is one."""
        checkpoint = sound_checkpoint(self.path.with_suffix(".ckpt"))
        training = self.recipe.training
        if training.device == "cpu":  # the study says nothing else
            training = replace(training, device=device)
        fitted = fit_model(replace(self.recipe, training=training), self.parts, self._data(), checkpoint=checkpoint)
        save_model(fitted.model, self.model)
        write_predictions(fitted, self.path)
        checkpoint.unlink(missing_ok=True)

    def _data(self) -> Embedded | Bags:
        if self.embeddings is None:
            prototypes = None if self.prototypes is None else load_prototypes(self.prototypes)
            return Bags(self.bags, prototypes, self.spec)
        return Embedded(*load_embeddings(self.embeddings), tuple(block.load() for block in self.blocks))


def write_predictions(fitted: FittedModel, path: Path) -> None:
    """Predictions of every part in one .npz."""
    about = {"task": fitted.model.task.settings(), "history": fitted.history}
    arrays: dict[str, Any] = {"about": np.array(json.dumps(about, default=list))}
    predictions = fitted.predictions()
    for part, ids in fitted.parts.ids.items():
        arrays[f"{part}/ids"] = np.array(ids)
        arrays |= {f"{part}/{name}": values for name, values in predictions[part].items()}
    write_arrays(path, arrays)


def run_job(job: "ModelJob | GivenJob | JoinedJob", device: str = "cpu") -> None:
    """Run a job, unless another process has made its files meanwhile; models are trained on a device."""
    if not job.done:
        job.run(device) if isinstance(job, ModelJob) else job.run()
