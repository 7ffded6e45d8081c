"""Jobs of a study. Files are named by the hash of all that they depend on; jobs of the shuffle test have shuffled bags."""

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
from panther.models.settings import Named, TrainSettings, usual_training
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
from panther.study.parts import is_of_patches, parts_of
from panther.study.population import Population, SampleVectors, subset
from panther.types import Bag, FeatureSpace, Openable, Rows


class Features(NamedTuple):
    """Summary of one bag."""

    patches: int
    content: str  # hash of all numbers
    spec: PatchSpec
    dim: int
    encoder: str | None
    coords: str = ""  # hash of the patches' coordinates, where a row of the study reads them


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
            encoder: {n: one._replace(content=hash_of(["shuffled", repeat, one.content])) for n, one in bags.items()}
            for encoder, bags in self.features.items()
        }
        population = replace(self.population, bags=bags)
        return replace(self, population=population, features=features, original=self, note=f", shuffled {repeat}")

    def jobs(self, cell: Cell, fold: int) -> list[StudyJob]:
        """Prototypes and embeddings that a cell needs in one fold, then its model."""
        population, split = self.population, self.population.splits[fold]
        train = subset(split.train, population, cell.train_size, cell.seed)
        ids = {part: names for part, names in {"train": train, "val": split.val, **split.test}.items() if names}
        targets = {part: population.target.take(population.rows(names)) for part, names in ids.items()}
        patient = dict(zip(population.ids, population.patients, strict=True))
        patients = {name: patient[name] for names in ids.values() for name in names}
        prototypes = self._prototypes(cell, train) if cell.n_prototypes else None
        jobs: list[StudyJob] = [] if prototypes is None else [prototypes]
        features = {name: one.content for name, one in self.features.get(cell.encoder, {}).items()}
        contents, embeddings, blocks = [features], None, []
        if cell.method.name not in networks:
            rows = parts_of(cell.method, self.study.rows)
            parts = [self._part(row, cell, prototypes, train) for row in rows]
            contents = [job.rows.contents if isinstance(job, VectorJob) else features for job, _ in parts]
            blocks = [block for _, block in parts]
            paths = tuple(job.path for job, _ in parts)
            jobs += [job for job, _ in parts]
            if len(parts) > 1:
                path = self.folder / "cache" / f"joined-{cache_key('joined', [path.name for path in paths])}.npy"
                jobs.append(JoinedJob(title=f"embeddings of {cell.method.title}", path=path, inputs=paths))
            embeddings = jobs[-1].path
        known = [name for name in train if all(name in some for some in contents)]
        hashes = {n: contents[0][n] if len(contents) == 1 else hash_of([c[n] for c in contents]) for n in known}
        model = self._model(cell, fold, Parts(ids, targets, patients, hashes), prototypes, embeddings, tuple(blocks))
        return [*jobs, model]

    def _prototypes(self, cell: Cell, train: Sequence[str]) -> PrototypeJob:
        if self.original is not None:
            return self.original._prototypes(cell, train)
        settings, bags = self._kmeans(cell), self.population.bags[cell.encoder]
        inputs = [asdict(settings), self._contents(cell.encoder, train)]
        names = list(self.features[cell.encoder]) if settings.centre == "site" else []
        sites = self._sites if settings.centre == "site" else None
        if sites is not None:
            inputs += [self._contents(cell.encoder, names), sites.of]
        return PrototypeJob(
            title=f"{settings.n_prototypes} prototypes",
            path=self.folder / "cache" / f"prototypes-{cache_key('prototypes', *inputs)}.safetensors",
            encoder=cell.encoder,
            bags=tuple(bags[name] for name in train),
            settings=settings,
            all_bags=tuple(bags[name] for name in names),
            sites=sites,
        )

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
            population = self.population
            if row.name == PRECOMPUTED:
                rows = population.vectors[row.options["name"]]
            else:  # covariates, as the training rows are read
                table, specs = population.table.loc[list(train)], self.study.covariates
                fitted, _ = fit_covariates(table, specs, len(population.of_study))
                rows = SampleVectors(population.ids, fitted.encode(population.table).astype(np.float32))
                row = row.model_copy(update={"options": {"columns": fitted.settings()}, "label": COVARIATES})
            path = cache / f"given-{cache_key('given', rows.contents)}.npy"
            job = VectorJob(title=f"vectors of {row.title}", path=path, rows=rows)
            return job, BlockSource(row, space=FeatureSpace(rows.vectors.shape[1]))
        known = self.features[cell.encoder]
        file = prototypes.path if prototypes is not None and needs_prototypes(row) else None
        space: FeatureSpace | None = None
        if file is None:
            spec, encoders = in_common([one.spec for one in known.values()]), [one.encoder for one in known.values()]
            space = FeatureSpace(next(iter(known.values())).dim, next(filter(None, encoders), None), spec)
        source, basis = BlockSource(row, file, space), "features" if file is None else file.name
        block = replace(source, method=made_by(row))
        contents = self._contents(cell.encoder, list(known), coords=reads_coordinates(row))
        embedding = EmbeddingJob(
            title=f"embeddings by {block.method.title}",
            path=cache / f"embeddings-{cache_key('embeddings', basis, block.method.key(), contents)}.npy",
            inputs=() if file is None else (file,),
            encoder=f"{cell.encoder}{self.note}",
            bags=tuple(self.population.bags[cell.encoder][name] for name in known),
            block=block,
        )
        return embedding, source

    def _model(
        self,
        cell: Cell,
        fold: int,
        parts: Parts,
        prototypes: PrototypeJob | None,
        embeddings: Path | None,
        blocks: tuple[BlockSource, ...],
    ) -> ModelJob:
        study, by_class = self.study, self.study.prediction_sets == "by-class"
        kmeans, training = self._kmeans(cell), self.training(cell)
        recipe = TrainingRecipe(
            cell.method, cell.head, cell.loss, kmeans, training, study.scaling, by_class, study.task
        )
        inputs = [path for path in (prototypes.path if prototypes else None, embeddings) if path is not None]
        names = [name for ids in parts.ids.values() for name in ids] if recipe.supervised else []
        named = [entry.key() for entry in (cell.method, cell.head, cell.loss, study.scaling)]
        task = study.task.model_dump(exclude_none=True)  # the file of a model says what it predicts
        key = cache_key(
            "model",
            [path.name for path in inputs],
            [*named, asdict(training), by_class],
            task,
            parts.signature(),
            self._contents(cell.encoder, names),
        )
        known = self.features.get(cell.encoder, {})
        folder = (
            "models" if self.original is None else "cache"
        )  # models of shuffled tissue are not offered for prediction
        return ModelJob(
            title=f"{cell.method.title} + {cell.head.title}, {cell.encoder}, fold {fold}{self.note}",
            path=self.folder / "cache" / f"model-{key}.npz",
            inputs=(*inputs, *(block.prototypes for block in blocks if block.prototypes)),
            model=self.folder / folder / f"{cell.method.name}-{cell.head.name}-{key}.safetensors",
            recipe=recipe,
            parts=parts,
            prototypes=None if prototypes is None or len(blocks) > 1 else prototypes.path,
            embeddings=embeddings,
            blocks=blocks,
            bags={name: self.population.bags[cell.encoder][name] for name in names},
            spec=in_common([known[name].spec for name in parts.ids["train"] if name in known]),
        )

    def _kmeans(self, cell: Cell) -> KMeansSettings:
        count = max(cell.n_prototypes, 1)  # 0: the method has none
        settings = KMeansSettings(**{"seed": cell.seed, **self.study.prototypes, "n_prototypes": count})
        # networks read features as they are
        return replace(settings, centre=None) if cell.method.name in networks else settings

    def training(self, cell: Cell) -> TrainSettings:
        """Settings of training of a cell."""
        study, supervised = self.study, cell.method.name in networks
        changes = {"seed": cell.seed, **(study.mil_training if supervised else study.training)}
        return usual_training(study.kind, network=supervised).changed(changes)

    def _contents(self, encoder: str, names: Sequence[str], *, coords: bool = False) -> str:
        features = self.features.get(encoder, {})
        bags = [(name, features[name]) for name in sorted(names) if name in features]
        return cache_key([(name, bag.content) for name, bag in bags], *(bag.coords for _, bag in bags if coords))


def reads_places(row: Named, rows: Sequence[Named]) -> bool:
    """Whether a part of a row depends on coordinates, or on the order of patches.

    The contract of all others, which is tested, is that shuffling leaves their numbers exactly as they are.
    """
    for part in filter(is_of_patches, parts_of(row, rows)):
        if part.name in networks:
            depends = not networks.entry(part.name).metadata.permutation_invariant
        else:
            method = made_by(part)
            metadata = aggregators.entry(method.name).metadata
            depends = metadata.reads_places(method.options) or metadata.permutation_invariant is not True
        if depends:
            return True
    return False


@dataclass(frozen=True)
class Shuffled:
    """A slide, or the slides of a patient, with features shuffled against coordinates within each slide.

    Coordinates keep their order and get other features. That is the same as moving every patch to new coordinates and sorting the rows by them:
    for a method that reads coordinates, or the order of rows, only the outline of the tissue remains.
    """

    ref: Openable
    repeat: int  # number of the shuffle

    @property
    def sample(self) -> str:
        """Name of the slide or patient."""
        return self.ref.sample

    @property
    def files(self) -> tuple[Path, ...]:
        """Files that hold the patches."""
        return self.ref.files

    def open(self) -> Bag:
        """Patches with shuffled features; in memory, as stored, once they are read."""
        bag = self.ref.open()
        seed = int(hash_of(["shuffle", self.sample, self.repeat]), 16)
        return replace(bag, features=ShuffledRows(bag.features, bag.lengths or (len(bag),), seed))


@dataclass(frozen=True)
class ShuffledRows:
    """Rows (N, d), permuted within each slide by the seed alone."""

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
