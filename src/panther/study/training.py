"""Train everything a study asks for: plan the jobs, run those whose results are missing, in parallel."""

import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from panther.engine import HERE, Work, stream
from panther.errors import InputError, listed, note
from panther.models.blocks import reads_coordinates
from panther.prototypes.patches import scan_bags
from panther.storage.bags import fingerprint_all
from panther.storage.files import read_json, write_json
from panther.study.cache import discard_damaged, load_failures
from panther.study.file import Cell, Study
from panther.study.jobs import EmbeddingJob, StudyJob
from panther.study.parts import Given
from panther.study.plan import Features, Plan
from panther.study.population import Population, gather
from panther.study.rows import parts_of
from panther.study.spatial.plan import reads_places, shuffled_plan
from panther.study.stages import STAGES, run_stage
from panther.types import Openable

PLAN = Path("cache", "plan.json")  # files of every stage, from which `panther status` counts

ONE_ROW = (
    "every slide has one row: these are vectors of whole slides, of which no method on patches can be made; name their folder as "
    "embeddings: {name: folder}."
)


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
    """What a study came to, and the folder of its files."""

    study: Study
    population: Population
    trained: list[Trained]
    failures: dict[str, str]  # what could not be done -> sentence
    patches: dict[str, dict[str, int]]  # encoder -> slide or patient -> how many
    folder: Path
    notes: tuple[str, ...] = ()  # of this run only: what it found damaged in its cache
    shuffled: tuple[Trained, ...] = ()  # the same on shuffled tissue, of rows that read where patches lie


def train_all(study: Study, folder: Path, work: Work = HERE) -> StudyRun:
    """Run every job of a study whose results are not in ``folder`` yet."""
    population, features, failures = _gathered(study, folder / "cache" / "fingerprints.json", work)
    readable = study.model_copy(
        update={
            "features": {e: f for e, f in study.features.items() if e in features},
            "embeddings": _kept(study, population),
        }
    )
    plan = Plan(readable, population, features, folder)
    plans = [plan, *(shuffled_plan(plan, repeat) for repeat in range(1, study.shuffles + 1))]
    stages: dict[str, dict[Path, StudyJob]] = {stage: {} for stage in STAGES}
    trained = []
    for shuffle, cell in itertools.product(range(len(plans)), readable.cells()):
        if shuffle and not reads_places(cell.method, readable.rows):
            continue
        for fold in range(len(population.splits)):
            jobs = plans[shuffle].jobs(cell, fold)
            model = jobs.model
            for stage, job in (*jobs.before, ("models", model)):
                stages[stage].setdefault(job.path, job)
            trained.append(Trained(cell, fold, model.path, model.model, model.prototypes, model.embeddings, shuffle))
    outputs = [item for todo in stages.values() for job in todo.values() for item in job.outputs.items()]
    damaged = [sentence for kind, path in outputs if (sentence := discard_damaged(kind, path))]
    broken: set[Path] = set()
    plan_file = {stage: [path.relative_to(folder).as_posix() for path in todo] for stage, todo in stages.items()}
    if not (folder / PLAN).is_file() or read_json(folder / PLAN) != plan_file:
        write_json(folder / PLAN, plan_file)
    missing = {stage: sum(not job.done for job in todo.values()) for stage, todo in stages.items()}
    if any(missing.values()):
        counts = ", ".join(f"{missing[stage]:,} of {len(todo):,} {stage}" for stage, todo in stages.items() if todo)
        note(f"{len(population.splits)} folds; to be computed: {counts}")
    for stage, todo in stages.items():
        broken |= run_stage(stage, list(todo.values()), broken, failures, work)
    usable = [t for t in trained if t.predictions not in broken]
    if not any(t.shuffle == 0 for t in usable):
        raise InputError(f"No model could be trained. {next(iter(failures.values()), '')}")
    notes = _not_embedded(stages["embeddings"].values(), failures)
    population = replace(population, notes=(*population.notes, *notes))
    patches = {encoder: {name: bag.patches for name, bag in known.items()} for encoder, known in features.items()}
    as_it_is, shuffled = ([t for t in usable if bool(t.shuffle) == other] for other in (False, True))
    return StudyRun(study, population, as_it_is, failures, patches, folder, tuple(damaged), tuple(shuffled))


def _gathered(
    study: Study, fingerprints: Path, work: Work
) -> tuple[Population, dict[str, dict[str, Features]], dict[str, str]]:
    """Everybody whose features can be read; a feature set without one readable bag is left out, reported, and excludes nobody."""
    failures: dict[str, str] = {}
    while True:
        population = gather(study, without=failures)
        placed = any(reads_coordinates(part) for row in study.rows for part in parts_of(row, study.rows))
        found = {encoder: _scan(encoder, bags, fingerprints, work, placed) for encoder, bags in population.bags.items()}
        lost = {encoder: reasons for encoder, (features, reasons) in found.items() if not features}
        if len(lost) == len(found) > 0 and not population.given:
            raise InputError(f"No features of the study can be read. {_first(next(iter(lost.values())))}")
        left_out = {**population.problems, **{encoder: _first(reasons) for encoder, reasons in lost.items()}}
        failures |= {name: f"{name}: the study goes on without it. {why}" for name, why in left_out.items()}
        if not lost:
            known = {encoder: features for encoder, (features, _) in found.items()}
            single = {f"{encoder}: {name}": why for encoder, (_, r) in found.items() for name, why in r.items()}
            return _readable(population, known), known, {**population.missing, **failures, **single}


def _not_embedded(jobs: Iterable[StudyJob], failures: dict[str, str]) -> list[str]:
    """Add to ``failures`` whom methods could not embed, now or when the stored embeddings were made; returns how many, as notes."""
    lost: dict[str, dict[str, int]] = defaultdict(dict)  # embeddings -> who is not among them -> of how many
    reasons: dict[tuple[str, str], list[str]] = defaultdict(list)  # who and why -> embeddings
    for job in jobs:
        if isinstance(job, EmbeddingJob):
            what = f"{job} of {job.encoder}"
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


def _kept(study: Study, population: Population) -> dict[str, dict[str, Given]]:
    """Given embeddings that could be read."""
    kept = {
        name: {encoder: one for encoder, one in own.items() if (name, encoder) in population.given}
        for name, own in study.embeddings.items()
    }
    return {name: own for name, own in kept.items() if own}


def _first(reasons: Mapping[str, str]) -> str:
    """One reason for many."""
    more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
    return f"{next(iter(reasons.values()), '')}{more}"


def _scan(
    encoder: str, bags: Mapping[str, Openable], fingerprints: Path, work: Work, placed: bool
) -> tuple[dict[str, Features], dict[str, str]]:
    """Size and content of every bag, read only where its files have changed, and a sentence for each that cannot be used."""
    try:
        infos, failed = scan_bags(list(bags.values()), work)
    except InputError as error:  # bags of two encoders, half and half
        return {}, {encoder: str(error)}
    if len(infos) > 1 and all(info.patches == 1 for info in infos.values()):
        return {}, {encoder: f"{encoder}: {ONE_ROW}"}
    empty = {name: f"{name}: zero patches; it is left out." for name, info in infos.items() if info.patches == 0}
    named = {f"{encoder}: {name}": bags[name] for name in infos if name not in empty}
    contents, unreadable = fingerprint_all(named, fingerprints, work)
    where = _places(named, work) if placed else {}
    features = {
        ref.sample: Features(info.patches, contents[name], info.spec, info.dim, info.encoder, where.get(name, ""))
        for name, ref in named.items()
        if name in contents and (info := infos[ref.sample])
    }
    return features, {**failed, **empty, **unreadable}


def _places(named: Mapping[str, Openable], work: Work) -> dict[str, str]:
    """Hash of where the patches of each lie; whoever cannot tell fails where it is embedded."""
    names, without = list(named), dict[str, str]()
    found = stream(_places_of, list(named.values()), "looking where patches lie", work, without)
    return {names[index]: value for index, value in found}


def _places_of(ref: Openable) -> str:
    return ref.open().places_fingerprint()


def _readable(population: Population, features: Mapping[str, Mapping[str, Features]]) -> Population:
    """Those whom every encoder could read, in every part of every split; a note says how many they are where others are left out."""
    if not features:
        return population
    there = set.intersection(*(set(known) for known in features.values()))

    def keep(ids: Sequence[str]) -> tuple[str, ...]:
        return tuple(name for name in ids if name in there)

    splits = tuple(
        replace(
            s, train=keep(s.train), val=keep(s.val), test={part: keep(ids) for part, ids in s.test.items() if keep(ids)}
        )
        for s in population.splits
    )
    rows, number = [i for i, name in enumerate(population.ids) if name in there], len(population.ids)
    if len(rows) == number:
        return population
    lost = next(name for name in population.ids if name not in there)
    note = f"The features of {number - len(rows)} of these {number} samples cannot be used, e.g. {lost}: {len(rows)} are in the study."
    return replace(
        population,
        ids=tuple(population.ids[i] for i in rows),
        patients=tuple(population.patients[i] for i in rows),
        sites=tuple(population.sites[i] for i in rows),
        target=population.target.take(np.array(rows, np.int64)),
        table=population.table.iloc[rows],
        splits=splits,
        notes=(*population.notes, note),
    )
