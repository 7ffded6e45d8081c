"""Which jobs a study is made of. Every job's file is named by the hash of what it depends on."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from panther.cohort.covariates import COVARIATES, fit_covariates
from panther.mil import networks
from panther.models.blocks import made_by, needs_prototypes, reads_coordinates
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
    GivenJob,
    JoinedJob,
    ModelJob,
    PrototypeJob,
    StudyJob,
    cache_key,
)
from panther.study.parts import NOT_NAMED
from panther.study.population import Population, subset
from panther.study.rows import is_given, is_of_patches, parts_of
from panther.study.rows.given import GivenRows, Key
from panther.types import FeatureSpace, Openable


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


class _Part(NamedTuple):
    """One representation of a cell: its matrix, and what that is."""

    job: EmbeddingJob | GivenJob
    source: BlockSource


@dataclass(frozen=True)
class Plan:
    """Jobs of the cells of a study, in the folder of its results."""

    study: Study
    population: Population
    features: Mapping[str, Mapping[str, Features]]  # encoder -> name of the bag
    folder: Path
    original: "Plan | None" = None  # of a plan on shuffled bags: the one on the tissue as it is
    note: str = ""  # what tells its jobs from those of the original, in words

    def jobs(self, cell: Cell, fold: int) -> CellJobs:
        """Prototypes, embeddings and model of one cell in one fold, as far as it needs them."""
        split = self.population.splits[fold]
        train = subset(split.train, self.population, cell.train_size, cell.seed)
        ids = {"train": train, "val": split.val, **split.test}
        ids = {part: names for part, names in ids.items() if names}
        target = self.population.permuted if cell.permuted else self.population.target
        targets = {part: target.take(self.population.rows(names)) for part, names in ids.items()}
        patient = dict(zip(self.population.ids, self.population.patients, strict=True))
        patients = {name: patient[name] for names in ids.values() for name in names}
        prototypes = self._prototypes(cell, train) if cell.n_prototypes else None
        before: list[tuple[str, StudyJob]] = [] if prototypes is None else [("prototypes", prototypes)]
        if cell.method.name in networks:
            parts = Parts(ids, targets, patients, self._made_of([cell.method], cell, train))
            return CellJobs(self._model(cell, fold, parts, prototypes, None, ()), tuple(before))
        rows = parts_of(cell.method, self.study.rows)
        made = [self._part(row, cell, prototypes, train) for row in rows]
        before += [("given vectors" if isinstance(part.job, GivenJob) else "embeddings", part.job) for part in made]
        matrix: StudyJob = made[0].job
        if len(made) > 1:
            matrix = self._joined(cell, [part.job for part in made])
            before.append(("joined embeddings", matrix))
        parts = Parts(ids, targets, patients, self._made_of(rows, cell, train))
        sources = tuple(part.source for part in made)
        return CellJobs(self._model(cell, fold, parts, prototypes, matrix, sources), tuple(before))

    def _prototypes(self, cell: Cell, train: Sequence[str]) -> PrototypeJob:
        if self.original is not None:
            return self.original._prototypes(cell, train)
        settings = self._kmeans(cell)
        bags = self.population.bags[cell.encoder]
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
        """Where everybody is from, also by the names of their slides."""
        population = self.population
        sites = {name: site for name, site in zip(population.ids, population.sites, strict=True) if site is not None}
        for bags in population.bags.values():
            of_slides = {file.stem: sites[name] for name, bag in bags.items() if name in sites for file in bag.files}
            sites = {**of_slides, **sites}
        return Sites(sites, str(self.study.table or self.study.splits))

    def _part(self, row: Named, cell: Cell, prototypes: PrototypeJob | None, train: Sequence[str]) -> _Part:
        """Matrix of one representation."""
        if not is_of_patches(row):
            row, rows = self._unmade(row, cell, train)
            path = self.folder / "cache" / f"given-{cache_key('given', rows.contents)}.npy"
            return _Part(GivenJob(row.title, rows, path), BlockSource(row, space=FeatureSpace(rows.vectors.shape[1])))
        stands_on = prototypes if needs_prototypes(row) else None
        names = list(self.features[cell.encoder])
        space = self._space(cell.encoder) if stands_on is None else None
        source = BlockSource(row, None if stands_on is None else stands_on.path, space)
        made = replace(source, method=made_by(row))
        inputs = "features" if stands_on is None else stands_on.path.name
        contents = self._contents(cell.encoder, names, places=reads_coordinates(row))
        key = cache_key("embeddings", inputs, made.method.key(), contents)
        bags = tuple(self.population.bags[cell.encoder][name] for name in names)
        walk, path = f"{cell.encoder}{self.note}", self.folder / "cache" / f"embeddings-{key}.npy"
        return _Part(EmbeddingJob(walk, bags, made, path), source)

    def _unmade(self, row: Named, cell: Cell, train: Sequence[str]) -> tuple[Named, GivenRows]:
        """Vectors that are there already: given ones, or covariates as the training rows say that they are read."""
        if is_given(row):
            return row, self.population.given[self._given_key(row, cell)]
        table = self.population.table
        fitted, _ = fit_covariates(table.loc[list(train)], self.study.covariates, self.population.of_study)
        rows = GivenRows(self.population.ids, fitted.encode(table).astype(np.float32))
        return row.model_copy(update={"options": {"columns": fitted.settings()}, "label": COVARIATES}), rows

    def _joined(self, cell: Cell, parts: Sequence[StudyJob]) -> JoinedJob:
        paths = tuple(part.path for part in parts)
        key = cache_key("joined", [path.name for path in paths])
        return JoinedJob(cell.method.title, paths, self.folder / "cache" / f"joined-{key}.npy")

    def _model(
        self,
        cell: Cell,
        fold: int,
        parts: Parts,
        prototypes: PrototypeJob | None,
        embeddings: StudyJob | None,
        blocks: tuple[BlockSource, ...],
    ) -> ModelJob:
        recipe = self._recipe(cell)
        inputs = [job.path.name for job in (prototypes, embeddings) if job is not None]
        names = [name for ids in parts.ids.values() for name in ids] if recipe.supervised else []
        key = cache_key(
            "model",
            inputs,
            [
                cell.method.key(),
                cell.head.key(),
                cell.loss.key(),
                recipe.scaling.key(),
                asdict(recipe.training),
                recipe.by_class,
            ],
            self.study.task.model_dump(exclude_none=True),  # the file of a model says what it predicts
            parts.signature(),
            self._contents(cell.encoder, names),
        )
        known = self.features.get(cell.encoder, {})
        # nobody predicts with a model of shuffled tissue, or of permuted labels
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

    def _recipe(self, cell: Cell) -> TrainingRecipe:
        scaling, task = self.study.scaling, self.study.task
        return TrainingRecipe(
            cell.method,
            cell.head,
            cell.loss,
            self._kmeans(cell),
            self._training(cell),
            scaling,
            self.study.sets_by_class,
            task,
        )

    def _kmeans(self, cell: Cell) -> KMeansSettings:
        count = max(cell.n_prototypes, 1)  # 0: the method has none
        settings = KMeansSettings(**{"seed": cell.seed, **self.study.prototypes, "n_prototypes": count})
        if cell.method.name in networks:  # they read features as they are
            return replace(settings, centre=None)
        return settings

    def _training(self, cell: Cell) -> TrainSettings:
        supervised = cell.method.name in networks
        base = preset(usual_preset(self.study.kind, network=supervised)).train
        return base.changed({"seed": cell.seed, **(self.study.mil_training if supervised else self.study.training)})

    def _contents(self, encoder: str, names: Sequence[str], *, places: bool = False) -> str:
        known = self.features.get(encoder, {})
        there = [name for name in sorted(names) if name in known]
        also = [known[name].where for name in there] if places else []
        return cache_key([(name, known[name].content) for name in there], *also)

    def _given_key(self, row: Named, cell: Cell) -> Key:
        name = row.options["name"]
        return (name, cell.encoder) if (name, cell.encoder) in self.population.given else (name, NOT_NAMED)

    def _made_of(self, rows: Sequence[Named], cell: Cell, names: Sequence[str]) -> dict[str, str]:
        """Hash of the features or given vectors that each sample's numbers are made of, of those who have all."""
        own = [
            {name: one.content for name, one in self.features[cell.encoder].items()}
            if is_of_patches(row)
            else self._unmade(row, cell, names)[1].contents
            for row in rows
        ]
        there = [name for name in names if all(name in known for known in own)]
        if len(own) == 1:
            return {name: own[0][name] for name in there}
        return {name: hash_of([known[name] for known in own]) for name in there}

    def _space(self, encoder: str) -> FeatureSpace:
        """What the features of an encoder are, of which all bags were found to be alike."""
        known = list(self.features[encoder].values())
        name = next((one.encoder for one in known if one.encoder), None)
        return FeatureSpace(known[0].dim, name, in_common([one.spec for one in known]))
