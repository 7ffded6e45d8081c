"""The pieces a study is made of: prototypes, embeddings, trainings. Each is a pure function of its job and lands in a cache
under a name that is the hash of everything it depends on, so a killed study goes on and nothing stale is reused.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from panther.aggregators import build, embed_cohort
from panther.cohort.targets import Target
from panther.content import hash_of
from panther.errors import InputError
from panther.mil import BagSource, LoadSettings, build_model
from panther.models.heads import PROBE, build_head, token_shape
from panther.models.named import Named
from panther.models.presets import TrainSettings
from panther.models.probes import fit_suitable
from panther.models.scaling import build_scaler
from panther.models.sources import ArraySource
from panther.models.tasks import fit_task
from panther.models.trainer import fit, predict_logits
from panther.prototypes import KMeansSettings, fit_prototypes
from panther.storage.atomic import atomic_write
from panther.storage.prototypes import load_prototypes, save_prototypes
from panther.study.cache import load_embeddings, sound_checkpoint
from panther.types import Openable
from panther.version import __version__


def cache_key(*parts: Any) -> str:
    """Hash of plain values and of the version: another one may compute something else."""
    return hash_of([__version__, *parts])


@dataclass(frozen=True)
class PrototypeJob:
    """Fit prototypes on training bags."""

    bags: tuple[Openable, ...]
    settings: KMeansSettings
    path: Path

    def inputs(self) -> list[Path]:
        """Files of other jobs that this one needs."""
        return []

    def __str__(self) -> str:
        return f"{self.settings.n_prototypes} prototypes"

    def run(self) -> None:
        """Write the prototype file."""
        fitted = fit_prototypes(self.bags, self.settings)
        save_prototypes(fitted.prototypes, self.path)


@dataclass(frozen=True)
class EmbeddingJob:
    """Embed all samples on given prototypes."""

    bags: tuple[Openable, ...]
    prototypes: Path
    method: Named
    path: Path  # .npy; the samples in it stand in the .json beside it

    def inputs(self) -> list[Path]:
        """Files of other jobs that this one needs."""
        return [self.prototypes]

    def __str__(self) -> str:
        return f"embeddings by {self.method.title}"

    def run(self) -> None:
        """Write the matrix (n, out_dim) and the list of samples that could be embedded."""
        table = embed_cohort(self.bags, load_prototypes(self.prototypes), self.method.name, self.method.options)
        with atomic_write(self.path.with_suffix(".json")) as temporary:
            temporary.write_text(
                json.dumps({"samples": table.samples, "failures": dict(table.failures)}), encoding="utf-8"
            )
        with atomic_write(self.path) as temporary, temporary.open("wb") as handle:
            np.save(handle, np.asarray(table.vectors))


@dataclass(frozen=True)
class Parts:
    """Who is trained on and who is predicted: sample names and target of each part."""

    ids: Mapping[str, tuple[str, ...]]  # train, val, test, test_<cohort>
    targets: Mapping[str, Target]
    patients: Mapping[str, str]  # of each sample

    def signature(self) -> str:
        """Hash of who is in which part, and of their patients and targets."""
        who = {part: [(name, self.patients[name]) for name in ids] for part, ids in self.ids.items()}
        values = (value for part in sorted(self.targets) for value in vars(self.targets[part]).values())
        return hash_of(who, *(v.tobytes() if isinstance(v, np.ndarray) else str(v).encode() for v in values))

    def known(self, samples: Sequence[str]) -> "Parts":
        """Only those who have an embedding."""
        there = set(samples)
        keep = {
            part: np.array([i for i, s in enumerate(ids) if s in there], np.int64) for part, ids in self.ids.items()
        }
        keep = {part: rows for part, rows in keep.items() if len(rows)}
        return Parts(
            {part: tuple(self.ids[part][i] for i in rows) for part, rows in keep.items()},
            {part: self.targets[part].take(rows) for part, rows in keep.items()},
            self.patients,
        )


@dataclass(frozen=True)
class HeadJob:
    """Train a head on embeddings and predict every part."""

    embeddings: Path
    prototypes: Path
    method: Named
    head: Named
    loss: Named
    scaling: Named
    parts: Parts
    settings: TrainSettings
    path: Path  # .npz of predictions
    label: str

    def inputs(self) -> list[Path]:
        """Files of other jobs that this one needs."""
        return [self.prototypes, self.embeddings]

    def __str__(self) -> str:
        return self.label

    def run(self) -> None:
        """Write predictions, and the learning curve where there is one."""
        x, samples = load_embeddings(self.embeddings)
        parts = self.parts.known(samples)
        if "train" not in parts.ids:
            raise InputError(f"{self.method.title}: none of the training samples could be embedded.")
        where = {name: row for row, name in enumerate(samples)}
        rows = {part: np.array([where[s] for s in ids], np.int64) for part, ids in parts.ids.items()}
        columns = build(self.method.name, load_prototypes(self.prototypes), self.method.options).columns()
        scaler = build_scaler(self.scaling.name, self.scaling.options).fit(x[rows["train"]], columns)
        task = fit_task(self.loss.name, parts.targets["train"], **self.loss.options)
        history: list[dict[str, float]] = []
        if self.head.name == PROBE:
            scaled = {part: scaler(torch.from_numpy(np.array(x[r]))).numpy() for part, r in rows.items()}
            probe = fit_suitable(
                scaled["train"],
                parts.targets["train"],
                groups=np.array([parts.patients[name] for name in parts.ids["train"]]),
                blocks=scaler.blocks(columns),
                seed=self.settings.seed,
            )
            predictions = {
                part: task.predict(torch.from_numpy(probe.logits(values))) for part, values in scaled.items()
            }
        else:
            head = build_head(
                self.head.name,
                token_shape(scaler.columns(columns)),
                task.n_outputs,
                self.head.options,
                seed=self.settings.seed,
            )
            sources = {
                part: ArraySource(
                    x,
                    task.encode(parts.targets[part]),
                    self.settings.batch_size,
                    r,
                    scaler,
                    shuffle=part == "train" and self.settings.shuffle,
                )
                for part, r in rows.items()
            }
            checkpoint = sound_checkpoint(self.path.with_suffix(".ckpt"))
            fitted = fit(head, sources["train"], task, self.settings, val=sources.get("val"), checkpoint=checkpoint)
            ordered = {
                part: ArraySource(x, s.target, s.batch_size, s.rows, scaler, shuffle=False)
                for part, s in sources.items()
            }
            predictions = {
                part: task.predict(predict_logits(fitted.model, s, self.settings)[0]) for part, s in ordered.items()
            }
            history = fitted.history
        write_predictions(self.path, parts, predictions, task.settings(), history)
        self.path.with_suffix(".ckpt").unlink(missing_ok=True)


@dataclass(frozen=True)
class NetworkJob:
    """Train a supervised network on bags and predict every part."""

    bags: Mapping[str, Openable]
    prototypes: Path | None
    method: Named
    loss: Named
    parts: Parts
    settings: TrainSettings
    path: Path  # .npz of predictions
    label: str

    def inputs(self) -> list[Path]:
        """Files of other jobs that this one needs."""
        return [] if self.prototypes is None else [self.prototypes]

    def __str__(self) -> str:
        return self.label

    def run(self) -> None:
        """Write predictions and the learning curve."""
        task = fit_task(self.loss.name, self.parts.targets["train"], **self.loss.options)
        prototypes = None if self.prototypes is None else load_prototypes(self.prototypes)
        dim = self.bags[self.parts.ids["train"][0]].open().dim
        model = build_model(
            self.method.name, dim, task.n_outputs, prototypes, self.method.options, seed=self.settings.seed
        )
        load = LoadSettings(batch_size=self.settings.batch_size)
        sources = {
            part: BagSource(
                [self.bags[name] for name in ids],
                task.encode(self.parts.targets[part]),
                load if part == "train" else load.for_evaluation(),
            )
            for part, ids in self.parts.ids.items()
        }
        checkpoint = sound_checkpoint(self.path.with_suffix(".ckpt"))
        fitted = fit(model, sources["train"], task, self.settings, val=sources.get("val"), checkpoint=checkpoint)
        ordered = {**sources, "train": replace(sources["train"], settings=load.for_evaluation())}
        predictions = {
            part: task.predict(predict_logits(fitted.model, s, self.settings)[0]) for part, s in ordered.items()
        }
        write_predictions(self.path, self.parts, predictions, task.settings(), fitted.history)
        checkpoint.unlink(missing_ok=True)


def write_predictions(
    path: Path,
    parts: Parts,
    predictions: Mapping[str, Mapping[str, np.ndarray]],
    task: Mapping[str, Any],
    history: list[dict[str, float]],
) -> None:
    """Predictions of every part in one .npz."""
    arrays: dict[str, Any] = {"about": np.array(json.dumps({"task": task, "history": history}, default=list))}
    for part, ids in parts.ids.items():
        arrays[f"{part}/ids"] = np.array(ids)
        arrays |= {f"{part}/{name}": values for name, values in predictions[part].items()}
    with atomic_write(path) as temporary, temporary.open("wb") as handle:
        np.savez(handle, **arrays)


def run_job(job: Any) -> str:
    """Run a job unless its result is there already; returns where it is."""
    if not job.path.exists():
        job.run()
    return str(job.path)
