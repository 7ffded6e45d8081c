"""Train all models of a study: plan the jobs, run those whose results are missing, in parallel."""

import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from panther.engine import LOCAL, Work, stream
from panther.errors import InputError, listed, note
from panther.models.blocks import reads_coordinates
from panther.prototypes.patches import scan_bags
from panther.storage.bags import fingerprint_all
from panther.storage.files import read_json, write_json
from panther.study.file import Cell, Study
from panther.study.jobs import STAGES, EmbeddingJob, ModelJob, StudyJob, discard_damaged, load_failures
from panther.study.parts import parts_of
from panther.study.plan import Features, Plan, reads_places
from panther.study.population import Population, gather
from panther.types import Openable

PLAN = Path("cache", "plan.json")  # files of every stage, from which `panther status` counts


@dataclass(frozen=True)
class Trained:
    """One cell in one fold, and where its files are."""

    cell: Cell
    fold: int
    predictions: Path
    model: Path
    prototypes: Path | None = None
    embeddings: Path | None = None
    shuffle: int = 0  # which shuffle of the tissue; 0: as it is


@dataclass(frozen=True)
class StudyRun:
    """A study that was run, and the folder of its files."""

    study: Study
    population: Population
    trained: list[Trained]
    failures: dict[str, str]  # by job, file or sample
    patches: dict[str, dict[str, int]]  # encoder -> slide or patient -> number
    folder: Path
    notes: tuple[str, ...] = ()  # of this run only: damaged files of its cache
    shuffled: tuple[Trained, ...] = ()  # rows that depend on coordinates, on shuffled tissue


def train_all(study: Study, folder: Path, work: Work = LOCAL) -> StudyRun:
    """Run every job of a study whose results are not in ``folder`` yet."""
    population, features, failures = _gather_readable(study, folder / "cache" / "fingerprints.json", work)
    # what could be read
    folders = {encoder: path for encoder, path in study.features.items() if encoder in features}
    vectors = {name: file for name, file in study.embeddings.items() if name in population.vectors}
    readable = study.model_copy(update={"features": folders, "embeddings": vectors})
    plan = Plan(readable, population, features, folder)
    plans = [plan, *map(plan.shuffled, range(1, int(study.shuffle) + 1))]
    stages: dict[str, dict[Path, StudyJob]] = {stage: {} for stage in STAGES}
    trained = []
    for shuffle, cell in itertools.product(range(len(plans)), readable.cells()):
        if shuffle and not reads_places(cell.method, readable.rows):
            continue
        for fold in range(len(population.splits)):
            jobs = plans[shuffle].jobs(cell, fold)
            for job in jobs:
                stages[job.stage].setdefault(job.path, job)
            model = jobs[-1]
            assert isinstance(model, ModelJob)
            trained.append(Trained(cell, fold, model.path, model.model, model.prototypes, model.embeddings, shuffle))
    outputs = [item for todo in stages.values() for job in todo.values() for item in job.outputs.items()]
    damaged = [message for kind, path in outputs if (message := discard_damaged(kind, path))]
    plan_file = {stage: [path.relative_to(folder).as_posix() for path in todo] for stage, todo in stages.items()}
    if not (folder / PLAN).is_file() or read_json(folder / PLAN) != plan_file:
        write_json(folder / PLAN, plan_file)
    missing = {stage: sum(not job.done for job in todo.values()) for stage, todo in stages.items()}
    if any(missing.values()):
        counts = ", ".join(f"{missing[stage]:,} of {len(todo):,} {stage}" for stage, todo in stages.items() if todo)
        note(f"{len(population.splits)} folds; to be computed: {counts}")
    broken: set[Path] = set()  # files that cannot be made
    for stage, todo in stages.items():
        broken |= {job.path for job in todo.values() if broken & set(job.inputs)}
        jobs = [job for job in todo.values() if job.path not in broken and not job.done]
        for job, reason in STAGES[stage](jobs, work):
            failures[f"{stage}: {job.title}"] = f"{job.title}: {reason}"
            broken.add(job.path)
    done = [t for t in trained if t.predictions not in broken]
    unshuffled, shuffled = ([t for t in done if bool(t.shuffle) == other] for other in (False, True))
    if not unshuffled:
        raise InputError(f"No model could be trained. {next(iter(failures.values()), '')}")
    notes = _not_embedded(stages["embeddings"].values(), failures)
    population = replace(population, notes=(*population.notes, *notes))
    patches = {encoder: {name: bag.patches for name, bag in known.items()} for encoder, known in features.items()}
    return StudyRun(study, population, unshuffled, failures, patches, folder, tuple(damaged), tuple(shuffled))


def _gather_readable(
    study: Study, fingerprints: Path, work: Work
) -> tuple[Population, dict[str, dict[str, Features]], dict[str, str]]:
    """Samples whose features can be read; a feature set without one readable bag is left out, reported, and excludes no sample."""
    failures: dict[str, str] = {}
    reads_coords = any(reads_coordinates(part) for row in study.rows for part in parts_of(row, study.rows))
    while True:
        population = gather(study, without=failures)
        scans = {
            encoder: _scan(encoder, bags, fingerprints, work, reads_coords) for encoder, bags in population.bags.items()
        }
        lost = {encoder: reasons for encoder, (features, reasons) in scans.items() if not features}
        if len(lost) == len(scans) > 0 and not population.vectors:
            raise InputError(f"No features of the study can be read. {_first(next(iter(lost.values())))}")
        left_out = {**population.problems, **{encoder: _first(reasons) for encoder, reasons in lost.items()}}
        failures |= {name: f"{name}: the study goes on without it. {why}" for name, why in left_out.items()}
        if not lost:
            known = {encoder: features for encoder, (features, _) in scans.items()}
            single = {f"{encoder}: {name}": why for encoder, (_, r) in scans.items() for name, why in r.items()}
            return _readable(population, known), known, {**population.missing, **failures, **single}


def _not_embedded(jobs: Iterable[StudyJob], failures: dict[str, str]) -> list[str]:
    """Add samples that methods could not embed, now or in an earlier run, to ``failures``; returns notes with their numbers."""
    lost: dict[str, dict[str, int]] = defaultdict(dict)  # embeddings -> sample that they lack -> of how many
    reasons: dict[tuple[str, str], list[str]] = defaultdict(list)  # sample and why -> embeddings
    for job in jobs:
        if isinstance(job, EmbeddingJob):
            what = f"{job.title} of {job.encoder}"
            for name, why in load_failures(job.path).items():
                if name not in lost[what]:  # as in another fold
                    reasons[name, why].append(what)
                lost[what][name] = len(job.bags)
    failures |= {f"{what[0]}: {name}": f"{listed(what)}: {why}" for (name, why), what in reasons.items()}
    return [
        f"{what}: {len(names)} of {max(names.values())} samples could not be embedded, e.g. {min(names)}; its results are of the others."
        for what, names in lost.items()
        if names
    ]


def _first(reasons: Mapping[str, str]) -> str:
    """The first reason, and the number of the others."""
    more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
    return f"{next(iter(reasons.values()), '')}{more}"


def _scan(
    encoder: str, bags: Mapping[str, Openable], fingerprints: Path, work: Work, reads_coords: bool
) -> tuple[dict[str, Features], dict[str, str]]:
    """Summary of every bag, read only where its files have changed, and failures of others."""
    try:
        infos, failed = scan_bags(list(bags.values()), work)
    except InputError as error:  # bags of two encoders, half and half
        return {}, {encoder: str(error)}
    if len(infos) > 1 and all(info.patches == 1 for info in infos.values()):
        return {}, {encoder: f"{encoder}: one row per slide, expected patches; use embeddings: {{name: folder}}."}
    empty = {name: f"{name}: zero patches; it is left out." for name, info in infos.items() if info.patches == 0}
    named = {f"{encoder}: {name}": bags[name] for name in infos if name not in empty}
    contents, unreadable = fingerprint_all(named, fingerprints, work)
    coords: dict[str, str] = {}
    if reads_coords:  # a bag without coordinates fails where it is embedded
        names, refs = list(named), list(named.values())
        coords = {names[n]: value for n, value in stream(_coords_hash, refs, "reading coordinates", work, {})}
    features = {
        ref.sample: Features(info.patches, contents[name], info.spec, info.dim, info.encoder, coords.get(name, ""))
        for name, ref in named.items()
        if name in contents and (info := infos[ref.sample])
    }
    return features, {**failed, **empty, **unreadable}


def _coords_hash(ref: Openable) -> str:
    return ref.open().places_fingerprint()


def _readable(population: Population, features: Mapping[str, Mapping[str, Features]]) -> Population:
    """Samples that every encoder could read, in every part of every split; a note counts them where others are left out."""
    if not features:
        return population
    readable = set.intersection(*map(set, features.values()))
    rows, number = [i for i, name in enumerate(population.ids) if name in readable], len(population.ids)
    if len(rows) == number:
        return population
    lost = next(name for name in population.ids if name not in readable)
    note = f"The features of {number - len(rows)} of these {number} samples cannot be used, e.g. {lost}: {len(rows)} are in the study."
    return replace(
        population,
        ids=tuple(population.ids[i] for i in rows),
        patients=tuple(population.patients[i] for i in rows),
        sites=tuple(population.sites[i] for i in rows),
        target=population.target.take(np.array(rows, np.int64)),
        table=population.table.iloc[rows],
        splits=tuple(split.among(readable) for split in population.splits),
        notes=(*population.notes, note),
    )
