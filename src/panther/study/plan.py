"""Which jobs a study is made of. Every job's file is named by the hash of what it depends on; those of the shuffle test have shuffled bags."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from panther.aggregators import aggregators
from panther.cohort.covariates import COVARIATES, fit_covariates
from panther.mil import networks
from panther.models.blocks import PRECOMPUTED, made_by, needs_prototypes, reads_coordinates
from panther.models.fitting import Parts, TrainingRecipe
from panther.models.settings import Named, TrainSettings, preset, usual_preset
from panther.patches import PatchSpec, in_common
from panther.prototypes import KMeansSettings
from panther.prototypes.centre import Sites
from panther.store import hash_of
from panther.study.file import Cell, Study
from panther.study.jobs import (
    BlockSource,
    EmbeddingJob,
    JoinedJob,
    ModelJob,
    PrototypeJob,
    StudyJob,
    VectorJob,
    cache_key,
)
from panther.study.parts import NOT_NAMED, is_of_patches, parts_of
from panther.study.population import Population, SampleVectors, subset
from panther.types import Bag, FeatureSpace, Openable, Rows


class Features(NamedTuple):
    """What a study knows about one bag before it begins."""

    patches: int
    content: str  # hash of all numbers
    spec: PatchSpec
    dim: int
    encoder: str | None
    where: str = ""  # hash of the patches' coordinates, where a row of the study reads them


class CellJobs(NamedTuple):
    """What one cell needs in one fold."""

    model: ModelJob
    before: tuple[tuple[str, StudyJob], ...]  # stage and job of all that it stands on


@dataclass(frozen=True)
class Plan:
    """Jobs of the cells of a study, in the folder of its results."""

    study: Study
    population: Population
    features: Mapping[str, Mapping[str, Features]]  # encoder -> name of the bag
    folder: Path
    original: "Plan | None" = None  # of a plan on shuffled bags: the one on the tissue as it is
    note: str = ""  # distinguishes its jobs from those of the original

    def shuffled(self, repeat: int) -> "Plan":
        """The same plan on shuffled bags; prototypes stay, because K-means does not read coordinates."""
        bags = {
            encoder: {name: Shuffled(ref, repeat) for name, ref in refs.items()}
            for encoder, refs in self.population.bags.items()
        }
        features = {
            encoder: {n: one._replace(content=hash_of(["shuffled", repeat, one.content])) for n, one in known.items()}
            for encoder, known in self.features.items()
        }
        population = replace(self.population, bags=bags)
        return replace(self, population=population, features=features, original=self, note=f", shuffled {repeat}")

    def jobs(self, cell: Cell, fold: int) -> CellJobs:
        """Prototypes, embeddings and model of one cell in one fold, as far as it needs them."""
        population, split = self.population, self.population.splits[fold]
        train = subset(split.train, population, cell.train_size, cell.seed)
        ids = {part: names for part, names in {"train": train, "val": split.val, **split.test}.items() if names}
        target = population.permuted if cell.permuted else population.target
        targets = {part: target.take(population.rows(names)) for part, names in ids.items()}
        patient = dict(zip(population.ids, population.patients, strict=True))
        patients = {name: patient[name] for names in ids.values() for name in names}
        prototypes = self._prototypes(cell, train) if cell.n_prototypes else None
        before: list[tuple[str, StudyJob]] = [] if prototypes is None else [("prototypes", prototypes)]
        matrix: StudyJob | None = None
        blocks: tuple[BlockSource, ...] = ()
        if cell.method.name in networks:
            contents = [self._contents_of(cell.method, cell, train)]
        else:
            rows = parts_of(cell.method, self.study.rows)
            contents = [self._contents_of(row, cell, train) for row in rows]
            made = [self._part(row, cell, prototypes, train) for row in rows]
            jobs, blocks = tuple(job for job, _ in made), tuple(block for _, block in made)
            before += [("precomputed vectors" if isinstance(job, VectorJob) else "embeddings", job) for job in jobs]
            matrix = jobs[0]
            if len(jobs) > 1:
                paths = tuple(job.path for job in jobs)
                key = cache_key("joined", [path.name for path in paths])
                matrix = JoinedJob(cell.method.title, paths, self.folder / "cache" / f"joined-{key}.npy")
                before.append(("joined embeddings", matrix))
        there = [name for name in train if all(name in known for known in contents)]
        hashes = {n: contents[0][n] if len(contents) == 1 else hash_of([c[n] for c in contents]) for n in there}
        parts = Parts(ids, targets, patients, hashes)
        return CellJobs(self._model(cell, fold, parts, prototypes, matrix, blocks), tuple(before))

    def _prototypes(self, cell: Cell, train: Sequence[str]) -> PrototypeJob:
        if self.original is not None:
            return self.original._prototypes(cell, train)
        settings, bags = self._kmeans(cell), self.population.bags[cell.encoder]
        inputs = [asdict(settings), self._contents(cell.encoder, train)]
        everyone: tuple[Openable, ...] = ()
        sites = None
        if settings.centre == "site":
            sites, names = self._sites, list(self.features[cell.encoder])
            everyone = tuple(bags[name] for name in names)
            inputs += [self._contents(cell.encoder, names), sites.of]
        path = self.folder / "cache" / f"prototypes-{cache_key('prototypes', *inputs)}.safetensors"
        return PrototypeJob(cell.encoder, tuple(bags[name] for name in train), settings, path, everyone, sites)

    @cached_property
    def _sites(self) -> Sites:
        """Site of each sample, also by the names of its slides."""
        population = self.population
        sites = {name: site for name, site in zip(population.ids, population.sites, strict=True) if site is not None}
        for bags in population.bags.values():
            of_slides = {file.stem: sites[name] for name, bag in bags.items() if name in sites for file in bag.files}
            sites = {**of_slides, **sites}
        return Sites(sites, str(self.study.table or self.study.splits))

    def _part(
        self, row: Named, cell: Cell, prototypes: PrototypeJob | None, train: Sequence[str]
    ) -> tuple[EmbeddingJob | VectorJob, BlockSource]:
        """Matrix of one representation, and what that is."""
        cache = self.folder / "cache"
        if not is_of_patches(row):
            row, rows = self._vectors(row, cell, train)
            path = cache / f"given-{cache_key('given', rows.contents)}.npy"
            return VectorJob(row.title, rows, path), BlockSource(row, space=FeatureSpace(rows.vectors.shape[1]))
        known = self.features[cell.encoder]
        if prototypes is not None and needs_prototypes(row):
            source, inputs = BlockSource(row, prototypes.path), prototypes.path.name
        else:
            specs, name = (
                in_common([one.spec for one in known.values()]),
                [o.encoder for o in known.values() if o.encoder],
            )
            space = FeatureSpace(next(iter(known.values())).dim, next(iter(name), None), specs)
            source, inputs = BlockSource(row, space=space), "features"
        made = replace(source, method=made_by(row))
        contents = self._contents(cell.encoder, list(known), places=reads_coordinates(row))
        path = cache / f"embeddings-{cache_key('embeddings', inputs, made.method.key(), contents)}.npy"
        bags = tuple(self.population.bags[cell.encoder][name] for name in known)
        return EmbeddingJob(f"{cell.encoder}{self.note}", bags, made, path), source

    def _vectors(self, row: Named, cell: Cell, train: Sequence[str]) -> tuple[Named, SampleVectors]:
        """Precomputed vectors, or covariates as the training rows are read."""
        population = self.population
        if row.name == PRECOMPUTED:
            key = row.options["name"], cell.encoder
            return row, population.vectors[key if key in population.vectors else (key[0], NOT_NAMED)]
        fitted, _ = fit_covariates(population.table.loc[list(train)], self.study.covariates, len(population.of_study))
        rows = SampleVectors(population.ids, fitted.encode(population.table).astype(np.float32))
        return row.model_copy(update={"options": {"columns": fitted.settings()}, "label": COVARIATES}), rows

    def _model(
        self,
        cell: Cell,
        fold: int,
        parts: Parts,
        prototypes: PrototypeJob | None,
        embeddings: StudyJob | None,
        blocks: tuple[BlockSource, ...],
    ) -> ModelJob:
        study, by_class = self.study, self.study.prediction_sets == "by-class"
        kmeans, training = self._kmeans(cell), self._training(cell)
        recipe = TrainingRecipe(
            cell.method, cell.head, cell.loss, kmeans, training, study.scaling, by_class, study.task
        )
        inputs = [job.path.name for job in (prototypes, embeddings) if job is not None]
        names = [name for ids in parts.ids.values() for name in ids] if recipe.supervised else []
        named = [entry.key() for entry in (cell.method, cell.head, cell.loss, study.scaling)]
        task = study.task.model_dump(exclude_none=True)  # the file of a model says what it predicts
        settings = [*named, asdict(training), by_class]
        key = cache_key("model", inputs, settings, task, parts.signature(), self._contents(cell.encoder, names))
        known = self.features.get(cell.encoder, {})
        # models of shuffled tissue are not offered for prediction, nor those of permuted labels
        kept = "models" if self.original is None and not cell.permuted else "cache"
        return ModelJob(
            recipe,
            parts,
            None if prototypes is None or len(blocks) > 1 else prototypes.path,
            None if embeddings is None else embeddings.path,
            blocks,
            {name: self.population.bags[cell.encoder][name] for name in names},
            in_common([known[name].spec for name in parts.ids["train"] if name in known]),
            self.folder / kept / f"{cell.method.name}-{cell.head.name}-{key}.safetensors",
            self.folder / "cache" / f"model-{key}.npz",
            f"{cell.method.title} + {cell.head.title}, {cell.encoder}, fold {fold}{self.note}",
        )

    def _kmeans(self, cell: Cell) -> KMeansSettings:
        count = max(cell.n_prototypes, 1)  # 0: the method has none
        settings = KMeansSettings(**{"seed": cell.seed, **self.study.prototypes, "n_prototypes": count})
        # networks read features as they are
        return replace(settings, centre=None) if cell.method.name in networks else settings

    def _training(self, cell: Cell) -> TrainSettings:
        supervised = cell.method.name in networks
        base = preset(usual_preset(self.study.kind, network=supervised)).train
        return base.changed({"seed": cell.seed, **(self.study.mil_training if supervised else self.study.training)})

    def _contents(self, encoder: str, names: Sequence[str], *, places: bool = False) -> str:
        known = self.features.get(encoder, {})
        there = [name for name in sorted(names) if name in known]
        return cache_key([(name, known[name].content) for name in there], *(known[n].where for n in there if places))

    def _contents_of(self, row: Named, cell: Cell, train: Sequence[str]) -> Mapping[str, str]:
        """Hash of the features or precomputed vectors of each sample."""
        if is_of_patches(row):
            return {name: one.content for name, one in self.features[cell.encoder].items()}
        return self._vectors(row, cell, train)[1].contents


def reads_places(row: Named, rows: Sequence[Named]) -> bool:
    """Whether anything that stands in a row of a study depends on coordinates, or on the order of patches.

    For all others it is part of their contract, which is tested, that shuffling leaves their numbers exactly as they are.
    """
    for part in filter(is_of_patches, parts_of(row, rows)):
        if part.name in networks:
            depends = not networks.entry(part.name).metadata.permutation_invariant
        else:
            method = made_by(part)
            about = aggregators.entry(method.name).metadata
            depends = about.reads_places(method.options) or about.permutation_invariant is not True
        if depends:
            return True
    return False


@dataclass(frozen=True)
class Shuffled:
    """A slide, or the slides of a patient, with features shuffled against coordinates within each slide.

    Coordinates keep their order in the file and get other features. That is the same as to give every patch a new place and to bring the rows
    into the order of these places: a method that reads coordinates, or the order of rows, sees the outline of the tissue as it was, nothing else.
    """

    ref: Openable
    repeat: int  # another one is another shuffle

    @property
    def sample(self) -> str:
        """Name of the slide or patient."""
        return self.ref.sample

    @property
    def files(self) -> tuple[Path, ...]:
        """Files that hold the patches."""
        return self.ref.files

    def open(self) -> Bag:
        """Patches at shuffled places; in memory, as stored, once they are read."""
        bag = self.ref.open()
        seed = int(hash_of(["shuffle", self.sample, self.repeat]), 16)
        return replace(bag, features=ShuffledRows(bag.features, bag.lengths or (len(bag),), seed))


@dataclass(frozen=True)
class ShuffledRows:
    """Rows (N, d), those of each slide in an order that the seed alone decides."""

    rows: Rows
    lengths: tuple[int, ...]  # patches of each slide
    seed: int

    @property
    def shape(self) -> tuple[int, int]:
        """(N, d)."""
        return int(self.rows.shape[0]), int(self.rows.shape[1])

    @property
    def dtype(self) -> torch.dtype:
        """Type of the numbers as stored."""
        return self.rows.dtype

    @cached_property
    def _in_memory(self) -> Tensor:
        # any slice of shuffled rows lies all over the file: it is read once, from first to last
        rng, ends = np.random.default_rng(self.seed), np.cumsum(self.lengths)
        order = np.concatenate([end - n + rng.permutation(n) for n, end in zip(self.lengths, ends, strict=True)])
        return self.rows[0 : self.shape[0]][torch.from_numpy(order)]

    def __getitem__(self, rows: slice) -> Tensor:
        return self._in_memory[rows]
