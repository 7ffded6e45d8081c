"""Which jobs a study is made of. Every job's file is named by the hash of what it depends on."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NamedTuple

from panther.mil import networks
from panther.models.fitting import Parts, TrainingRecipe
from panther.models.presets import TrainSettings, preset, usual_preset
from panther.patch_spec import PatchSpec, in_common
from panther.prototypes import KMeansSettings
from panther.study.file import Cell, Study
from panther.study.jobs import EmbeddingJob, ModelJob, PrototypeJob, cache_key
from panther.study.population import Population, subset


class Features(NamedTuple):
    """What a study knows about one bag before it begins."""

    patches: int
    content: str  # hash of all numbers
    spec: PatchSpec


class CellJobs(NamedTuple):
    """What one cell needs in one fold."""

    model: ModelJob
    prototypes: PrototypeJob | None
    embeddings: EmbeddingJob | None


@dataclass(frozen=True)
class Plan:
    """Jobs of the cells of a study, in the folder of its results."""

    study: Study
    population: Population
    features: Mapping[str, Mapping[str, Features]]  # encoder -> name of the bag
    folder: Path

    def jobs(self, cell: Cell, fold: int) -> CellJobs:
        """Prototypes, embeddings and model of one cell in one fold, as far as it needs them."""
        split = self.population.splits[fold]
        train = subset(split.train, self.population, cell.train_size, cell.seed)
        prototypes = self._prototypes(cell, train) if cell.n_prototypes else None
        embeddings = None
        if cell.method.name not in networks:
            assert prototypes is not None
            embeddings = self._embeddings(cell, prototypes)
        ids = {"train": train, "val": split.val, **split.test}
        ids = {part: names for part, names in ids.items() if names}
        targets = {part: self.population.target.take(self.population.rows(names)) for part, names in ids.items()}
        patient = dict(zip(self.population.ids, self.population.patients, strict=True))
        patients = {name: patient[name] for names in ids.values() for name in names}
        contents = {name: self.features[cell.encoder][name].content for name in train}
        parts = Parts(ids, targets, patients, contents)
        return CellJobs(self._model(cell, fold, parts, prototypes, embeddings), prototypes, embeddings)

    def _prototypes(self, cell: Cell, train: Sequence[str]) -> PrototypeJob:
        settings = self._kmeans(cell)
        key = cache_key("prototypes", asdict(settings), self._contents(cell.encoder, train))
        bags = tuple(self.population.bags[cell.encoder][name] for name in train)
        path = self.folder / "cache" / f"prototypes-{key}.safetensors"
        return PrototypeJob(cell.encoder, bags, settings, path)

    def _embeddings(self, cell: Cell, prototypes: PrototypeJob) -> EmbeddingJob:
        names = list(self.features[cell.encoder])
        key = cache_key("embeddings", prototypes.path.name, cell.method.key(), self._contents(cell.encoder, names))
        bags = tuple(self.population.bags[cell.encoder][name] for name in names)
        path = self.folder / "cache" / f"embeddings-{key}.npy"
        return EmbeddingJob(cell.encoder, bags, prototypes.path, cell.method, path)

    def _model(
        self,
        cell: Cell,
        fold: int,
        parts: Parts,
        prototypes: PrototypeJob | None,
        embeddings: EmbeddingJob | None,
    ) -> ModelJob:
        recipe = self._recipe(cell)
        inputs = [job.path.name for job in (prototypes, embeddings) if job is not None]
        names = [name for ids in parts.ids.values() for name in ids] if recipe.supervised else []
        key = cache_key(
            "model",
            inputs,
            [cell.method.key(), cell.head.key(), cell.loss.key(), recipe.scaling.key(), asdict(recipe.training)],
            self.study.task.model_dump(exclude_none=True),  # the file of a model says what it predicts
            parts.signature(),
            self._contents(cell.encoder, names),
        )
        return ModelJob(
            recipe,
            parts,
            None if prototypes is None else prototypes.path,
            None if embeddings is None else embeddings.path,
            {name: self.population.bags[cell.encoder][name] for name in names},
            in_common([self.features[cell.encoder][name].spec for name in parts.ids["train"]]),
            self.folder / "models" / f"{cell.method.name}-{cell.head.name}-{key}.safetensors",
            self.folder / "cache" / f"model-{key}.npz",
            f"{cell.method.title} + {cell.head.title}, {cell.encoder}, fold {fold}",
        )

    def _recipe(self, cell: Cell) -> TrainingRecipe:
        scaling, task = self.study.scaling, self.study.task
        return TrainingRecipe(
            cell.method, cell.head, cell.loss, self._kmeans(cell), self._training(cell), scaling, task
        )

    def _kmeans(self, cell: Cell) -> KMeansSettings:
        count = max(cell.n_prototypes, 1)  # 0: the method has none
        return KMeansSettings(**{"seed": cell.seed, **self.study.prototypes, "n_prototypes": count})

    def _training(self, cell: Cell) -> TrainSettings:
        supervised = cell.method.name in networks
        base = preset(usual_preset(self.study.kind, network=supervised)).train
        return replace(base, **{"seed": cell.seed, **(self.study.mil_training if supervised else self.study.training)})

    def _contents(self, encoder: str, names: Sequence[str]) -> str:
        known = self.features[encoder]
        return cache_key([(name, known[name].content) for name in sorted(names) if name in known])
