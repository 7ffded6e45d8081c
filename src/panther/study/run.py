"""Run a study: plan the jobs, run what is missing in parallel, collect predictions into one tidy table."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from panther.errors import InputError
from panther.execution import HERE, Work, map_slides
from panther.mil import networks
from panther.models.presets import TrainSettings, preset
from panther.prototypes import KMeansSettings
from panther.prototypes.patches import scan_bags
from panther.storage.fingerprints import FingerprintStore, fingerprint_all
from panther.study.cache import discard_damaged, load_predictions
from panther.study.file import Cell, Study
from panther.study.jobs import EmbeddingJob, HeadJob, NetworkJob, Parts, PrototypeJob, cache_key, run_job
from panther.study.population import Population, gather, subset
from panther.types import Openable


@dataclass(frozen=True)
class Trained:
    """One cell in one fold, and where its predictions are."""

    cell: Cell
    fold: int
    path: Path
    prototypes: Path | None = None
    embeddings: Path | None = None


@dataclass(frozen=True)
class StudyRun:
    """What a study came to."""

    population: Population
    trained: list[Trained]
    failures: dict[str, str]  # what could not be done -> sentence
    patches: dict[str, dict[str, int]]  # encoder -> sample -> how many
    notes: tuple[str, ...] = ()  # of this run only: what it found damaged in its cache


def run_study(study: Study, folder: Path, *, work: Work = HERE) -> StudyRun:
    """Run everything that is not in the cache of ``folder`` yet."""
    store = FingerprintStore(folder / "cache" / "fingerprints.jsonl")
    population, looks, failures = _gathered(study, store, work)
    study = study.model_copy(update={"features": {e: f for e, f in study.features.items() if e in looks}})
    plan = _Plan(study, population, looks, folder / "cache")
    cells = [(cell, fold) for cell in study.cells() for fold in range(len(population.splits))]
    jobs: dict[str, dict[Path, Any]] = {"prototypes": {}, "embeddings": {}, "models": {}}
    trained = []
    for cell, fold in cells:
        made = plan.jobs(cell, fold)
        for stage, job in made.items():
            jobs[stage].setdefault(job.path, job)
        inputs = {stage: made[stage].path for stage in ("prototypes", "embeddings") if stage in made}
        trained.append(Trained(cell, fold, made["models"].path, **inputs))
    damaged = [told for todo in jobs.values() for path in todo if (told := discard_damaged(path))]
    broken: set[Path] = set()
    for stage, todo in jobs.items():
        broken |= _run_stage(stage, list(todo.values()), broken, failures, work)
    done = [t for t in trained if t.path.exists() and t.path not in broken]
    if not done:
        raise InputError(f"No model could be trained. {next(iter(failures.values()), '')}")
    patches = {encoder: {name: look.patches for name, look in found.items()} for encoder, found in looks.items()}
    return StudyRun(population, done, failures, patches, tuple(damaged))


class _Look(NamedTuple):
    """What a study knows of a sample's features before it begins."""

    patches: int
    content: str  # hash of all of them


def _gathered(
    study: Study, store: FingerprintStore, work: Work
) -> tuple[Population, dict[str, dict[str, _Look]], dict[str, str]]:
    """Everybody whose features can be read; a feature set without a single readable bag is told, and left out with all it would exclude."""
    failures: dict[str, str] = {}
    while True:
        population = gather(study, without=failures)
        found = {encoder: _looks(encoder, bags, store, work) for encoder, bags in population.bags.items()}
        lost = {encoder: told for encoder, (looks, told) in found.items() if not looks}
        if len(lost) == len(found):
            raise InputError(f"No features of the study can be read. {_first(next(iter(lost.values())))}")
        left_out = {**population.problems, **{encoder: _first(told) for encoder, told in lost.items()}}
        failures |= {name: f"{name}: the study goes on without it. {why}" for name, why in left_out.items()}
        if not lost:
            looks = {encoder: looks for encoder, (looks, _) in found.items()}
            single = {f"{encoder}: {name}": why for encoder, (_, told) in found.items() for name, why in told.items()}
            return _readable(population, looks), looks, {**population.missing, **failures, **single}


def _first(told: Mapping[str, str]) -> str:
    """One reason for many."""
    more = f" (and {len(told) - 1} more)" if len(told) > 1 else ""
    return f"{next(iter(told.values()), '')}{more}"


def _looks(
    encoder: str, bags: Mapping[str, Openable], store: FingerprintStore, work: Work
) -> tuple[dict[str, _Look], dict[str, str]]:
    """Size and content of every sample, read only where its files have changed, and a sentence for each that cannot be used."""
    try:
        looks, failed = scan_bags(list(bags.values()), work)
    except InputError as error:  # bags of two encoders, half and half
        return {}, {encoder: str(error)}
    empty = {name: f"{name}: zero patches; it is left out." for name, look in looks.items() if look.patches == 0}
    named = {f"{encoder}: {name}": bags[name] for name in looks if name not in empty}
    contents, unreadable = fingerprint_all(named, store, work)
    told = {**failed, **empty, **unreadable}
    found = {
        ref.sample: _Look(looks[ref.sample].patches, contents[name]) for name, ref in named.items() if name in contents
    }
    return found, told


def _readable(population: Population, looks: dict[str, dict[str, _Look]]) -> Population:
    """Samples that every encoder could read, in every part of every split."""
    there = set.intersection(*(set(found) for found in looks.values()))

    def keep(ids: Sequence[str]) -> tuple[str, ...]:
        return tuple(name for name in ids if name in there)

    splits = tuple(
        replace(
            s, train=keep(s.train), val=keep(s.val), test={part: keep(ids) for part, ids in s.test.items() if keep(ids)}
        )
        for s in population.splits
    )
    return replace(population, splits=splits)


def _run_stage(stage: str, jobs: list[Any], broken: set[Path], failures: dict[str, str], work: Work) -> set[Path]:
    """Run the jobs of one stage whose inputs exist; returns the paths that will never be."""
    ready = [job for job in jobs if not broken & set(job.inputs())]
    lost = {job.path for job in jobs if broken & set(job.inputs())}
    missing = [job for job in ready if not job.path.exists()]
    for outcome in work.track(map_slides(run_job, missing, work.executor), stage, len(missing)):
        if outcome.reason is not None:
            job = missing[outcome.index]
            failures[f"{stage}: {job}"] = f"{job}: {outcome.reason}"
            lost.add(job.path)
    return lost


@dataclass(frozen=True)
class _Plan:
    """Jobs of cells, named by the hash of what they depend on."""

    study: Study
    population: Population
    looks: dict[str, dict[str, _Look]]
    cache: Path

    def jobs(self, cell: Cell, fold: int) -> dict[str, Any]:
        """Prototypes, embeddings and model of one cell in one fold, as far as it needs them."""
        split = self.population.splits[fold]
        train = subset(split.train, self.population, cell.train_size, cell.seed)
        made: dict[str, Any] = {}
        if cell.n_prototypes:
            made["prototypes"] = self._prototypes(cell, train)
        if cell.method.name not in networks:
            made["embeddings"] = self._embeddings(cell, made["prototypes"])
        ids = {"train": train, "val": split.val, **split.test}
        ids = {part: names for part, names in ids.items() if names}
        targets = {part: self.population.target.take(self.population.rows(names)) for part, names in ids.items()}
        patient = dict(zip(self.population.ids, self.population.patients, strict=True))
        parts = Parts(ids, targets, {name: patient[name] for names in ids.values() for name in names})
        made["models"] = self._model(cell, fold, parts, made)
        return made

    def _prototypes(self, cell: Cell, train: Sequence[str]) -> PrototypeJob:
        settings = replace(
            KMeansSettings(**{"n_prototypes": cell.n_prototypes, "seed": cell.seed, **self.study.prototypes}),
            n_prototypes=cell.n_prototypes,
        )
        key = cache_key("prototypes", asdict(settings), self._contents(cell.encoder, train))
        bags = tuple(self.population.bags[cell.encoder][name] for name in train)
        return PrototypeJob(bags, settings, self.cache / f"prototypes-{key}.safetensors")

    def _embeddings(self, cell: Cell, prototypes: PrototypeJob) -> EmbeddingJob:
        names = list(self.looks[cell.encoder])
        key = cache_key("embeddings", prototypes.path.name, cell.method.key(), self._contents(cell.encoder, names))
        bags = tuple(self.population.bags[cell.encoder][name] for name in names)
        return EmbeddingJob(bags, prototypes.path, cell.method, self.cache / f"embeddings-{key}.npy")

    def _model(self, cell: Cell, fold: int, parts: Parts, made: dict[str, Any]) -> Any:
        settings = self._training(cell)
        supervised = cell.method.name in networks
        inputs = [job.path.name for job in made.values()]
        spec = [cell.method.key(), cell.head.key(), cell.loss.key(), self.study.scaling.key(), asdict(settings)]
        bags = self._contents(cell.encoder, [n for ids in parts.ids.values() for n in ids]) if supervised else ""
        key = cache_key("model", inputs, spec, parts.signature(), bags)
        path = self.cache / f"model-{key}.npz"
        label = f"{cell.method.title} + {cell.head.title}, {cell.encoder}, fold {fold}"
        if supervised:
            refs = {name: self.population.bags[cell.encoder][name] for ids in parts.ids.values() for name in ids}
            prototypes = made["prototypes"].path if "prototypes" in made else None
            return NetworkJob(refs, prototypes, cell.method, cell.loss, parts, settings, path, label)
        return HeadJob(
            made["embeddings"].path,
            made["prototypes"].path,
            cell.method,
            cell.head,
            cell.loss,
            self.study.scaling,
            parts,
            settings,
            path,
            label,
        )

    def _training(self, cell: Cell) -> TrainSettings:
        kind = "survival" if self.study.is_survival else "classification"
        supervised = cell.method.name in networks
        base = preset(f"paper-mil-{kind}" if supervised else f"paper-{kind}").train
        return replace(base, **{"seed": cell.seed, **(self.study.mil_training if supervised else self.study.training)})

    def _contents(self, encoder: str, names: Sequence[str]) -> str:
        return cache_key(
            [(name, self.looks[encoder][name].content) for name in sorted(names) if name in self.looks[encoder]]
        )


__all__ = ["StudyRun", "Trained", "load_predictions", "run_study"]
