"""Slides or patients of a study: features, precomputed vectors, targets, splits and external cohorts."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from pathlib import Path

import numpy as np
import pandas as pd

from panther.cohort.covariates import check_columns, check_covariates
from panther.cohort.load import Cohort, make_cohort
from panther.cohort.outcomes import about_times
from panther.cohort.spec import Level, SplitSpec
from panther.cohort.split_files import SplitFiles, assign, read_splits
from panther.cohort.splits import Split, balanced_splits, column_splits, fold_notes
from panther.cohort.targets import Classes, Survival, Target
from panther.errors import InputError, listed
from panther.evaluation.intervals import about_resamples
from panther.evaluation.verdicts import about_one_class
from panther.storage.bags import Listing, Reading, list_bags
from panther.storage.clinical import ClinicalTable, read_clinical, without_features
from panther.storage.names import without_suffix
from panther.storage.slide_vectors import SlideVectors, read_slide_vectors
from panther.storage.tables import with_points
from panther.store import hash_of
from panther.study.file import ColumnSplits, External, Study
from panther.types import Openable


@dataclass(frozen=True, eq=False)
class SampleVectors:
    """One vector for each sample of a study that has one."""

    names: tuple[str, ...]  # of samples
    vectors: np.ndarray  # (n, d) float32

    @cached_property
    def contents(self) -> dict[str, str]:
        """Hash of each vector."""
        return {name: hash_of("vector", row.tobytes()) for name, row in zip(self.names, self.vectors, strict=True)}


@dataclass(frozen=True, eq=False)
class Population:
    """Samples of a study, those of external cohorts last."""

    ids: tuple[str, ...]
    patients: tuple[str, ...]
    sites: tuple[str | None, ...]
    target: Target
    table: pd.DataFrame  # one row per slide or patient
    splits: tuple[Split, ...]
    bags: Mapping[str, Mapping[str, Openable]]  # encoder -> sample -> its slides
    notes: tuple[str, ...]
    vectors: Mapping[str, SampleVectors] = field(default_factory=dict)  # precomputed, by the name of the row
    problems: Mapping[str, str] = field(default_factory=dict)  # feature sets that cannot be used -> message
    missing: Mapping[str, str] = field(default_factory=dict)  # slides of the tables that cannot be used -> message

    @cached_property
    def of_study(self) -> frozenset[str]:
        """Samples without those of external cohorts."""
        return frozenset(name for s in self.splits for name in (*s.train, *s.val, *s.test.get("test", ())))

    def rows(self, ids: Sequence[str]) -> np.ndarray:
        """Positions of samples."""
        where = {name: index for index, name in enumerate(self.ids)}
        return np.array([where[name] for name in ids], np.int64)


@dataclass(frozen=True, eq=False)
class _Inputs:
    """A clinical table, with the features and precomputed vectors that can be read."""

    table: ClinicalTable
    listings: Mapping[str, Listing]  # by encoder
    vectors: Mapping[str, tuple[SlideVectors, Level]]  # and the level of each vector
    problems: Mapping[str, str]

    def slides(self) -> set[str]:
        """Slides that every encoder has; in a study without features, those with any vector."""
        who = self.table.who
        if not self.listings:
            owners = {"slide": who.slide, "patient": who.patient}
            pairs = [(set(read.names), zip(who.slide, owners[of], strict=True)) for read, of in self.vectors.values()]
            return {slide for names, rows in pairs for slide, owner in rows if owner in names}
        slides = set(who.slide)
        samples = {encoder: {ref.sample for ref in listing.refs} for encoder, listing in self.listings.items()}
        for encoder, names in samples.items():
            if len(samples) > 1 and not slides & set(map(without_suffix, names)):
                examples = f"e.g. {min(slides)!r} in the table, {min(names)!r} among the features"
                raise InputError(f"{self.table.source}: none of its slides has features of {encoder!r}, {examples}.")
        return set.intersection(*samples.values())


def gather(study: Study, without: Collection[str] = ()) -> Population:
    """Join tables, features, precomputed vectors and splits.

    Every encoder must have the same samples, so that methods are compared on the same patients; vectors may lack some.
    A feature set or a file of vectors that exists but holds nothing usable is left out and reported, and so are those named by ``without``.
    """
    files = read_splits(study.splits) if isinstance(study.splits, Path) else None
    table = study.table or (files.table() if files is not None else None)
    assert table is not None  # by the checks of a study
    inputs = _read(study, read_clinical(table, columns=study.columns), study, without)
    problems = dict(inputs.problems)
    if not inputs.listings and (study.features or not inputs.vectors):
        raise InputError(next(iter(problems.values())))
    cohort = make_cohort(inputs.table, study.task, inputs.slides())
    for column in study.by_columns:
        with_points(cohort.column(column, "evaluate_by").astype(str), column, cohort.report.source)
    covariate_notes = check_covariates(cohort, study.covariates)
    splits, notes = _splits(study, cohort, files)
    notes = [*cohort.report.sentences(), *notes, *covariate_notes]
    notes += filter(None, [about_resamples(study.bootstrap)])
    bags = {encoder: _bags(cohort, listing) for encoder, listing in inputs.listings.items()}
    patients, sites = tuple(cohort.patients.tolist()), tuple(cohort.sites.tolist())
    population = Population(cohort.ids, patients, sites, cohort.target, cohort.table, tuple(splits), bags, tuple(notes))
    population = _with_inputs(population, cohort, inputs, study.task.level)
    for name, external in study.external.items():
        rows = read_clinical(external.table, columns=external.columns or study.columns)
        other = _read(external, rows, study, {*without, *problems})
        if other.problems:
            problems[f"external {name}"] = next(iter(other.problems.values()))
            continue
        # labels of an external cohort are the classes that were trained on
        classes = {"classes": cohort.target.names} if isinstance(cohort.target, Classes) else {}
        extra = make_cohort(rows, study.task.model_copy(update=classes), other.slides())
        check_columns(extra, study.covariates)
        population = _with_inputs(_joined(population, extra, other, name), extra, other, study.task.level)
    folds = len(population.splits)
    if sum(1 for _ in islice(study.cells(), study.max_models // folds + 1)) * folds > study.max_models:
        raise InputError(f"max_models: {study.max_models:,}, but the study is of more models in {folds} folds.")
    for number, split in zip(files.numbers if files is not None else range(folds), population.splits, strict=True):
        if not split.test:
            raise InputError(f"splits: fold k={number} has no test part (test.csv); a study tests its models.")
    return replace(population, problems=problems)


def _read(cohort: Study | External, table: ClinicalTable, study: Study, without: Collection[str]) -> _Inputs:
    """Features and vectors of a cohort, and problems of those that cannot be used; one that does not exist is refused."""
    reading = Reading(allow_mixed_resolution=study.allow_mixed_resolution)
    listings: dict[str, Listing] = {}
    vectors: dict[str, tuple[SlideVectors, Level]] = {}
    problems = {}
    for encoder, folder in cohort.features.items():
        if encoder in without:
            continue
        if not folder.exists():
            raise InputError(f"{folder}: there is no such folder; the study names it as features of {encoder!r}.")
        try:
            listings[encoder] = list_bags(folder, reading=reading)
        except InputError as error:
            problems[encoder] = str(error)
    for title, file in cohort.embeddings.items():
        if title in without:
            continue
        if not file.path.exists():
            raise InputError(f"{file.path}: there is no such file; the study names it as embeddings of {title!r}.")
        try:
            read = read_slide_vectors(file.path, file.key)
            names, who = set(read.names), table.who
            matches: dict[Level, int] = {"slide": len(names & set(who.slide)), "patient": len(names & set(who.patient))}
            level: Level = "patient" if matches["patient"] > matches["slide"] else "slide"
            level = file.level or read.level or level
            if not matches[level]:
                example = min(who.patient if level == "patient" else who.slide)
                lack = f"none of its names is a {level} of the table, {min(names)!r} here and {example!r} there"
                raise InputError(f"{read.source}: {lack}")
            vectors[title] = read, level
        except InputError as error:
            problems[title] = str(error)
    return _Inputs(table, listings, vectors, problems)


def _with_inputs(population: Population, cohort: Cohort, inputs: _Inputs, level: Level) -> Population:
    """Population with the precomputed vectors of a cohort and the slides that cannot be used."""
    source, vectors, notes = cohort.report.source, dict(population.vectors), list(population.notes)
    missing = {**population.missing}
    missing |= {slide: without_features(slide, source) for slide in cohort.report.missing_features}
    missing |= {slide: why for listing in inputs.listings.values() for slide, why in listing.problems.items()}
    for title, (read, of) in inputs.vectors.items():
        if of == "patient" and level == "slide":
            raise InputError(f"{read.source}: {title} has vectors of patients, the study slides; use `level: patient`")
        row_of = {name: row for row, name in enumerate(read.names)}
        members = [sample.slides if of == "slide" else (sample.patient,) for sample in cohort.samples]
        rows = [[row_of[name] for name in names if name in row_of] for names in members]
        with_vector = tuple(name for name, some in zip(cohort.ids, rows, strict=True) if some)
        if not with_vector:
            raise InputError(f"{read.source}: none of the study's {level}s has a vector of {title}.")
        # in float64, so that the mean of a patient's slides does not depend on their order
        means = np.stack([read.vectors[some].mean(0, dtype=np.float64) for some in rows if some]).astype(np.float32)
        first = vectors.get(title, SampleVectors((), means[:0]))
        if read.dim != first.vectors.shape[1]:
            dims = f"{first.vectors.shape[1]} numbers in the study and {read.dim} in the external cohort"
            raise InputError(f"{title}: the vectors have {dims}; encode both with the same slide encoder.")
        vectors[title] = SampleVectors((*first.names, *with_vector), np.concatenate([first.vectors, means]))
        several = sum(len(some) > 1 for some in rows)
        averaged = f"; several of a patient's slides are averaged ({several} patients)" if several else ""
        notes.append(f"{title}: {read.dim} numbers per {of} from {read.source}{averaged}.")
        missing |= {f"{title}: {name}": why for name, why in read.problems.items()}
        if lacking := sorted(name for names in members for name in names if name not in row_of):
            why = f"{len(lacking)} {of}s of the study have no vector of {title} ({listed(lacking, 5)}); its rows lack them."
            missing[f"{title} ({source})"] = f"{read.source}: {why}"
    return replace(population, vectors=vectors, notes=tuple(notes), missing=missing)


def _splits(study: Study, cohort: Cohort, files: SplitFiles | None) -> tuple[list[Split], list[str]]:
    """Splits of a study, and notes about them."""
    if files is not None:
        splits, report = assign(files, cohort, study.columns)
        return splits, list(report.notes)
    if isinstance(study.splits, ColumnSplits):
        return column_splits(cohort, study.splits.column, val=study.splits.val)
    assert isinstance(study.splits, SplitSpec)
    splits, balance = balanced_splits(cohort, study.splits)
    notes = [] if balance is None else [f"Folds by {study.splits.scheme}: imbalance {balance.imbalance:.3f}."]
    return splits, [*notes, *fold_notes(cohort, splits)]


def subset(train: Sequence[str], population: Population, size: float, seed: int) -> tuple[str, ...]:
    """Part of the training samples (a share, or a number), with classes or events in the same proportions."""
    count = len(train) if size == 1 else round(size * len(train)) if size < 1 else int(size)
    if count >= len(train):
        return tuple(train)
    rng = np.random.default_rng([seed, count])
    groups = population.target.take(population.rows(train)).strata(bins=1)
    shuffled = rng.permutation(len(train))
    # take the same share of every stratum: order by the rank within it
    rank = np.empty(len(train))
    for group in np.unique(groups):
        members = shuffled[groups[shuffled] == group]
        rank[members] = (np.arange(len(members)) + rng.random()) / len(members)
    return tuple(train[i] for i in sorted(np.argsort(rank, kind="stable")[:count]))


def _bags(cohort: Cohort, listing: Listing) -> dict[str, Openable]:
    return dict(zip(cohort.ids, cohort.join_bags(listing), strict=True))


def _joined(population: Population, extra: Cohort, inputs: _Inputs, name: str) -> Population:
    """Population with an external cohort, which is tested in every fold."""
    patients, source = tuple(extra.patients.tolist()), extra.report.source
    if shared := sorted(set(population.patients) & set(patients)):
        raise InputError(
            f"{len(shared)} patients of the external cohort {name!r} are in the study itself, e.g. {shared[0]}; remove them."
        )
    notes = [*population.notes, *extra.report.sentences()]
    if isinstance(extra.target, Classes) and (only := extra.target.only_class()) is not None:
        notes.append(f"{source}: {about_one_class(len(extra), only)}.")
    if isinstance(population.target, Survival) and isinstance(extra.target, Survival):
        notes += about_times(population.target, extra.target, source)
    return replace(
        population,
        ids=(*population.ids, *extra.ids),
        patients=(*population.patients, *patients),
        sites=(*population.sites, *extra.sites.tolist()),
        target=population.target.followed_by(extra.target),  # type: ignore[arg-type]  # of one task
        table=pd.concat([population.table, extra.table]),
        splits=tuple(replace(s, test={**s.test, f"test_{name}": extra.ids}) for s in population.splits),
        bags={encoder: {**bags, **_bags(extra, inputs.listings[encoder])} for encoder, bags in population.bags.items()},
        notes=tuple(notes),
    )
