"""The jobs of a study (prototypes, embeddings, models), how they are run stage by stage, and the files that they leave in the cache.

The result of a job depends on its fields alone and is stored under the hash of all of them, so a killed study resumes and nothing stale is
reused. Jobs that read the same bags share one walk over them: a large grid reads a bag as often as a small one. A stored file is read before
it is used again; a damaged one is reported, removed and made anew.
"""

import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from panther.aggregators.embed import Embedder, embed_grid
from panther.engine import Work, map_slides, side_by_side
from panther.errors import InputError
from panther.models.blocks import Block, join_rows
from panther.models.fitting import Bags, Embedded, FittedModel, Parts, TrainingRecipe, fit_model
from panther.models.model import read_about, save_model
from panther.models.settings import Named
from panther.prototypes import KMeansSettings, fit_many
from panther.prototypes.centre import Sites, add_sites
from panther.registry import PLUGINS
from panther.storage.files import DAMAGE, read_array, read_arrays, read_json, write_array, write_arrays, write_json
from panther.storage.prototypes import load_prototypes, save_prototypes
from panther.store import hash_of
from panther.study.population import SampleVectors
from panther.types import FeatureSpace, Openable, PatchSpec, Prototypes
from panther.version import __version__

WRITERS = 2  # files that are written at a time: one waits for the disk while the other is copied


def cache_key(*parts: Any) -> str:
    """Hash of plain values, of the version and of the user's plug-ins: others may compute something else."""
    return hash_of([__version__, *parts, *(file.read_text() for file in PLUGINS)])


@dataclass(frozen=True, eq=False, kw_only=True)
class StudyJob:
    """One piece of work, and the files that it makes."""

    title: str
    path: Path  # of the result, written last
    inputs: tuple[Path, ...] = ()  # files of other jobs that it needs
    stage: ClassVar[str]
    kind: ClassVar[str] = "embeddings"  # of the file (see `READERS`)

    @property
    def outputs(self) -> dict[str, Path]:
        """Files that it makes, by their kind."""
        return {self.kind: self.path}

    @property
    def done(self) -> bool:
        """Whether all of them exist."""
        return all(path.exists() for path in self.outputs.values())


@dataclass(frozen=True, eq=False, kw_only=True)
class PrototypeJob(StudyJob):
    """Fit prototypes on training bags."""

    stage = kind = "prototypes"
    encoder: str
    bags: tuple[Openable, ...]
    settings: KMeansSettings
    all_bags: tuple[Openable, ...] = ()  # of all sites, where features are centred by site
    sites: Sites | None = None


@dataclass(frozen=True)
class BlockSource:
    """A representation with its prototypes (a file), or with the space of its features (or vectors)."""

    method: Named
    prototypes: Path | None = None
    space: FeatureSpace | None = None

    def load(self, read: Callable[[Path], Prototypes] = load_prototypes) -> Block:
        """With its prototypes read."""
        basis = self.space if self.prototypes is None else read(self.prototypes)
        assert basis is not None
        return Block(self.method, basis)


@dataclass(frozen=True, eq=False, kw_only=True)
class EmbeddingJob(StudyJob):
    """Embed all bags; the result is an .npy file, with the names of its rows in the .json beside it."""

    stage = "embeddings"
    encoder: str  # of the bags; of shuffled ones with a note
    bags: tuple[Openable, ...]
    block: BlockSource


@dataclass(frozen=True, eq=False, kw_only=True)
class VectorJob(StudyJob):
    """Write precomputed vectors as embeddings are written."""

    stage = "precomputed vectors"
    rows: SampleVectors

    def run(self) -> None:
        """Write those of samples that have one."""
        write_rows(self.path, self.rows.names, self.rows.vectors)


@dataclass(frozen=True, eq=False, kw_only=True)
class JoinedJob(StudyJob):
    """Write the embeddings of ``inputs`` side by side."""

    stage = "joined embeddings"

    def run(self) -> None:
        """Write the samples that have all embeddings, in the order of the first."""
        names, vectors = join_rows([load_embeddings(path)[::-1] for path in self.inputs])
        if not names:
            raise InputError("no sample has all of them.")
        write_rows(self.path, names, vectors)


@dataclass(frozen=True, eq=False, kw_only=True)
class ModelJob(StudyJob):
    """Train one cell in one fold and predict every part of it; the result is the predictions (.npz)."""

    stage, kind = "models", "predictions"
    model: Path
    recipe: TrainingRecipe
    parts: Parts
    prototypes: Path | None  # of a single method that has them
    embeddings: Path | None  # input of methods without a network ...
    blocks: tuple[BlockSource, ...]  # ... and their parts
    bags: Mapping[str, Openable]  # input of networks
    spec: PatchSpec  # what the training patches have in common

    @property
    def outputs(self) -> dict[str, Path]:
        """The model, and its predictions."""
        return {"models": self.model, "predictions": self.path}

    def run(self, device: str = "cpu") -> None:
        """Write the model, then its predictions and the learning curve where there is one."""
        if self.done:  # by another process
            return
        recipe = self.recipe
        if recipe.training.device == "cpu":  # the default
            recipe = replace(recipe, training=replace(recipe.training, device=device))
        data: Bags | Embedded
        if self.embeddings is None:
            prototypes = None if self.prototypes is None else load_prototypes(self.prototypes)
            data = Bags(self.bags, prototypes, self.spec)
        else:
            data = Embedded(*load_embeddings(self.embeddings), tuple(block.load() for block in self.blocks))
        fitted = fit_model(recipe, self.parts, data)
        save_model(fitted.model, self.model)
        write_predictions(fitted, self.path)


def write_rows(
    path: Path, names: Sequence[str], vectors: np.ndarray, failures: Mapping[str, str] | None = None
) -> None:
    """Write a matrix (n, D), after the names of its rows and the failures of others in the .json beside it."""
    write_json(path.with_suffix(".json"), {"samples": list(names), "failures": dict(failures or {})})
    write_array(path, vectors)


def load_embeddings(path: Path) -> tuple[np.ndarray, list[str]]:
    """Matrix (n, out_dim) as a memory map, and the names of its rows, which are in the .json beside it."""
    matrix = read_array(path)
    samples = read_json(path.with_suffix(".json"))["samples"]
    if matrix.ndim != 2 or len(matrix) != len(samples):
        raise ValueError(f"a matrix {matrix.shape} for {len(samples)} samples")
    return matrix, samples


def load_failures(path: Path) -> dict[str, str]:
    """Failures of stored embeddings, by sample; none where the file does not exist."""
    return dict(read_json(path.with_suffix(".json"))["failures"]) if path.exists() else {}


def write_predictions(fitted: FittedModel, path: Path) -> None:
    """Predictions of every part in one .npz."""
    about = {"task": fitted.model.task.settings(), "history": fitted.history}
    arrays: dict[str, Any] = {"about": np.array(json.dumps(about, default=list))}
    for part, ids in fitted.parts.ids.items():
        arrays[f"{part}/ids"] = np.array(ids)
        arrays |= {f"{part}/{name}": values for name, values in fitted.predict(part).items()}
    write_arrays(path, arrays)


def load_predictions(path: Path) -> tuple[dict[str, Any], dict[str, dict[str, np.ndarray]]]:
    """Task and learning curve of a model, and its predictions of each part: ids and arrays."""
    arrays = read_arrays(path)
    parts: dict[str, dict[str, np.ndarray]] = {}
    for name, values in arrays.items():
        if "/" in name:
            part, field = name.rsplit("/", 1)
            parts.setdefault(part, {})[field] = values
    return json.loads(str(arrays["about"])), parts


READERS: dict[str, Callable[[Path], Any]] = {
    "prototypes": load_prototypes,
    "embeddings": load_embeddings,
    "models": read_about,  # its tensors are checked where it is used
    "predictions": load_predictions,
}


def discard_damaged(kind: str, path: Path) -> str | None:
    """Remove a stored result that cannot be read; returns a note, or None where it is sound or does not exist."""
    if not path.exists():
        return None
    try:
        READERS[kind](path)
    except DAMAGE as error:
        reason = str(error).removeprefix(f"{path}: ").split("; ")[0].rstrip(".") or "it is cut short"
        path.unlink()
        return f"{path.name} in the cache was damaged ({reason}) and is made anew."
    return None


Failure = tuple[StudyJob, str]  # a job that failed, and the reason


def _prototypes(jobs: Sequence[PrototypeJob], work: Work) -> Iterator[Failure]:
    """All K-means of an encoder from the same walks over its bags."""
    sites = next((job.sites for job in jobs if job.sites is not None), None)
    fitted = fit_many([(job.bags, job.settings) for job in jobs], sites=sites, work=work)
    for job, fit in zip(jobs, fitted, strict=True):
        if isinstance(fit, InputError):
            yield job, str(fit)
        else:
            known = fit.prototypes
            if job.sites is not None:  # sites that are tested on and not learned from
                known, _ = add_sites(known, job.all_bags, job.sites, work=work)
            save_prototypes(known, job.path)


def _embeddings(jobs: Sequence[EmbeddingJob], work: Work) -> Iterator[Failure]:
    """All embeddings of an encoder from one walk over its bags."""
    walking: list[tuple[EmbeddingJob, Embedder]] = []
    load = cache(load_prototypes)  # once for all methods on them
    for job in jobs:
        try:
            block = job.block.load(load)
            walking.append((job, Embedder(block.basis, block.method.name, block.method.options)))
        except InputError as error:
            yield job, str(error)
    if not walking:
        return
    grid = embed_grid(walking[0][0].bags, [embedder for _, embedder in walking], work, jobs[0].path.parent)
    with closing(grid) as tables, ThreadPoolExecutor(WRITERS) as writers:
        written: deque[Future[None]] = deque()
        for (job, _), table in zip(walking, tables, strict=True):
            if isinstance(table, InputError):
                yield job, str(table)
            else:
                written.append(writers.submit(write_rows, job.path, table.samples, table.vectors, table.failures))
            if len(written) > WRITERS:
                written.popleft().result()
        for file in written:
            file.result()


def _models(jobs: Sequence[ModelJob], work: Work) -> Iterator[Failure]:
    """Each by itself, in parallel; where there is a GPU, it is for the networks."""
    groups: dict[str, list[ModelJob]] = {work.device: [], "cpu": []}
    for job in jobs:
        groups[work.device if job.recipe.supervised else "cpu"].append(job)
    for device, group in groups.items():
        on = work if device == work.device else work.on_cpu()
        results = map_slides(partial(ModelJob.run, device=on.device), group, on.executor)
        for result in on.track(results, "models", len(group)):
            if result.reason is not None:
                yield group[result.index], result.reason


def _in_turn(jobs: Sequence[VectorJob | JoinedJob], work: Work) -> Iterator[Failure]:
    """One after the other in this process: they only copy numbers."""
    for job in jobs:
        try:
            job.run()
        except InputError as error:
            yield job, str(error)


def _by_encoder(run: Callable[[Sequence[Any], Work], Iterator[Failure]]) -> Callable[..., Iterator[Failure]]:
    def run_all(jobs: Sequence[Any], work: Work) -> Iterator[Failure]:
        work = work.on_cpu()  # a study's numbers are the same wherever it runs
        groups: dict[str, list[Any]] = {}
        for job in jobs:
            groups.setdefault(job.encoder, []).append(job)
        if work.executor is None or len(groups) < 2:
            return chain.from_iterable(run(group, work) for group in groups.values())
        # workers have something to do while one encoder's K-means waits for its slowest bag
        calls = [lambda group=group: list(run(group, work)) for group in groups.values()]
        return chain.from_iterable(side_by_side(calls))

    return run_all


STAGES: dict[str, Callable[[Sequence[Any], Work], Iterator[Failure]]] = {
    "prototypes": _by_encoder(_prototypes),
    "embeddings": _by_encoder(_embeddings),
    "precomputed vectors": _in_turn,
    "joined embeddings": _in_turn,
    "models": _models,
}
