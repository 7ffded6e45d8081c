"""Everybody a study is about: samples with features and target, the splits, and external cohorts that are only tested on."""

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
from panther.cohort.spec import Level, SplitSpec, TaskSpec
from panther.cohort.split_files import SplitFiles, assign, read_splits
from panther.cohort.splits import Split, balanced_splits, column_splits, fold_notes
from panther.cohort.targets import Classes, Survival, Target
from panther.errors import InputError
from panther.evaluation.intervals import about_resamples
from panther.evaluation.verdicts import about_one_class
from panther.storage.bags import Listing, Reading, list_bags
from panther.storage.clinical import ClinicalTable, find_column, read_clinical, without_features
from panther.storage.names import without_suffix
from panther.storage.tables import as_table, with_points
from panther.study.file import ColumnSplits, Study
from panther.study.rows.given import Found, GivenRows, Key, read_given, rows_for, slides_with, title_of
from panther.study.rows.losses import untrained_losses
from panther.types import Openable


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
    given: Mapping[Key, GivenRows] = field(default_factory=dict)  # vectors of those who have one
    problems: Mapping[str, str] = field(default_factory=dict)  # feature sets that cannot be used -> sentence
    missing: Mapping[str, str] = field(
        default_factory=dict
    )  # slides that the tables name, but that cannot be used -> sentence

    @property
    def of_study(self) -> int:
        """Number of samples, without those of external cohorts."""
        return len({name for s in self.splits for name in (*s.train, *s.val, *s.test.get("test", ()))})

    @cached_property
    def permuted(self) -> Target:
        """Target of everybody, exchanged between the patients of the study once; those of external cohorts keep theirs."""
        own = {name for s in self.splits for name in (*s.train, *s.val, *s.test.get("test", ()))}
        rows: dict[str, list[int]] = {}
        for row, (name, patient) in enumerate(zip(self.ids, self.patients, strict=True)):
            if name in own:
                rows.setdefault(patient, []).append(row)
        source, members = np.arange(len(self.ids)), list(rows.values())
        for one, donor in zip(members, np.random.default_rng(0).permutation(len(members)), strict=True):
            source[one] = np.resize(members[donor], len(one))  # slides of a patient get those of one other
        return self.target.take(source)

    def rows(self, ids: Sequence[str]) -> np.ndarray:
        """Positions of samples."""
        where = {name: index for index, name in enumerate(self.ids)}
        return np.array([where[name] for name in ids], np.int64)


def gather(study: Study, without: Collection[str] = ()) -> Population:
    """Join tables, features, given vectors and splits.

    Every encoder must have the same samples, so that methods are compared on the same patients; given vectors may lack some.
    A feature set or a file of vectors that is there but holds nothing usable is left out and reported, and so are those named by ``without``.
    """
    reading = Reading(allow_mixed_resolution=study.allow_mixed_resolution)
    listings, problems = _listings({e: f for e, f in study.features.items() if e not in without}, reading)
    if study.features and not listings:
        raise InputError(next(iter(problems.values())))
    files = read_splits(_splits_path(study)) if isinstance(study.splits, Path) else None
    given = study.table if study.table is not None else files.table() if files is not None else None
    if given is None:
        raise InputError("The study names no table; give `table`, or a folder of split tables as `splits`.")
    table = read_clinical(given, columns=study.columns)
    vectors, unusable = read_given(study.embeddings, table.who, without)
    problems |= unusable
    if not listings and not vectors:
        raise InputError(next(iter(problems.values())))
    cohort = make_cohort(table, study.task, _usable_slides(listings, vectors, table))
    for column in study.by_columns:
        _check_subgroups(cohort, column)
    notes_on_covariates = check_covariates(cohort, study.covariates)
    splits, notes = _splits(study, cohort, files)
    rough = [said] if (said := about_resamples(study.bootstrap)) else []
    told = [*cohort.report.sentences(), *notes, *notes_on_covariates, *untrained_losses(study), *rough]
    population = _of(cohort, splits, listings, told)
    missing = _missing(cohort, listings)
    population = _with_given(population, cohort, vectors, study.task.level, missing)
    for name, external in study.external.items():
        others, unusable = _listings({encoder: external.features[encoder] for encoder in listings}, reading)
        rows = read_clinical(external.table, columns=external.columns or study.columns)
        theirs, faulty = read_given(external.embeddings, rows.who, set(problems) | set(without))
        unusable |= faulty
        if unusable:
            problems[f"external {name}"] = next(iter(unusable.values()))
            continue
        extra = make_cohort(rows, _as_trained(study.task, cohort.target), _usable_slides(others, theirs, rows))
        check_columns(extra, study.covariates)
        population = _joined(population, extra, others, f"test_{name}")
        missing |= _missing(extra, others)
        population = _with_given(population, extra, theirs, study.task.level, missing)
    folds = max(1, len(population.splits))
    if sum(1 for _ in islice(study.cells(), study.max_models // folds + 1)) * folds > study.max_models:
        raise InputError(
            f"The study is of more than {study.max_models:,} models in {folds} folds; list fewer methods, heads, losses or seeds, or raise "
            "`max_models`."
        )
    untested = next((number for number, split in enumerate(population.splits) if not split.test), None)
    if untested is not None:
        number = files.numbers[untested] if files is not None else untested
        raise InputError(f"splits: fold k={number} has no test part (test.csv); a study tests its models.")
    return replace(population, problems=problems, missing=missing)


def _usable_slides(listings: Mapping[str, Listing], vectors: Mapping[Key, Found], table: ClinicalTable) -> set[str]:
    """Slides that every encoder has; where the study has no features, those that any given vectors are of."""
    if listings:
        return _common_slides(listings, table)
    return set().union(*(slides_with(found, table.who) for found in vectors.values()))


def _with_given(
    population: Population, cohort: Cohort, vectors: Mapping[Key, Found], level: Level, missing: dict[str, str]
) -> Population:
    """Population with the given vectors of a cohort; who lacks one is added to ``missing``."""
    given, notes = dict(population.given), list(population.notes)
    for key, found in vectors.items():
        title = title_of(key)
        rows, said, lacking = rows_for(title, found, cohort.samples, level)
        given[key] = given[key].joined(rows, title) if key in given else rows
        notes += said
        missing |= {f"{title}: {name}": why for name, why in found.vectors.problems.items()}
        if lacking:
            missing[f"{title} ({cohort.report.source})"] = lacking
    return replace(population, given=given, notes=tuple(notes))


def _listings(features: Mapping[str, Path], reading: Reading) -> tuple[dict[str, Listing], dict[str, str]]:
    """Bags of every feature set, and a sentence for each that holds none; a folder that is not there is a mistake in the study."""
    listings, problems = {}, {}
    for encoder, folder in features.items():
        if not folder.exists():
            raise InputError(f"{folder}: there is no such folder; the study names it as features of {encoder!r}.")
        try:
            listings[encoder] = list_bags(folder, reading=reading)
        except InputError as error:
            problems[encoder] = str(error)
    return listings, problems


def _splits_path(study: Study) -> Path:
    """Where split tables are; a column's name in its place is a usual mistake."""
    assert isinstance(study.splits, Path)
    path = study.splits
    if not path.exists() and study.table is not None and path.name in as_table(study.table).columns:
        raise InputError(
            f"{path}: there is no such folder of splits; to split by the column of the table write splits: {{column: {path.name}}}."
        )
    return path


def _splits(study: Study, cohort: Cohort, files: SplitFiles | None) -> tuple[list[Split], list[str]]:
    """Splits as the study says, and notes about them."""
    if files is not None:
        splits, report = assign(files, cohort, study.columns)
        return splits, list(report.notes)
    spec = study.splits
    if isinstance(spec, ColumnSplits):
        return column_splits(cohort, spec.column, val=spec.val)
    assert isinstance(spec, SplitSpec)
    splits, balance = balanced_splits(cohort, spec)
    alike = [] if balance is None else [f"Folds by {spec.scheme}: imbalance {balance.imbalance:.3f}."]
    return splits, [*alike, *fold_notes(cohort, splits)]


def _check_subgroups(cohort: Cohort, column: str) -> None:
    """Refuse to judge by a column that is not there, that differs within a sample, or whose commas may be anything."""
    source = cohort.report.source
    if column in cohort.table.columns:
        with_points(cohort.table[column].astype(str), column, source)  # numbers of which nobody knows what they are
        return
    find_column(cohort.rows, column, (), "evaluate_by")
    raise InputError(
        f"{source}: {column} differs between slides of one patient, so patients cannot be judged by it; "
        "use another evaluate_by, or level: slide."
    )


def subset(train: Sequence[str], population: Population, size: float, seed: int) -> tuple[str, ...]:
    """Part of the training samples (a share, or a number), with classes or events in the same proportions."""
    if not 0 < size < 1e9 or (size > 1 and size != int(size)):
        raise InputError(f"The training size {size} is neither a share (0 to 1) nor a number of samples.")
    count = len(train) if size == 1 else round(size * len(train)) if size < 1 else int(size)
    if count >= len(train):
        return tuple(train)
    rng = np.random.default_rng([seed, count])
    groups = population.target.take(population.rows(train)).strata(bins=1)
    shuffled = rng.permutation(len(train))
    # take the same share of every stratum: order by the rank within the own stratum
    rank = np.empty(len(train))
    for group in np.unique(groups):
        mine = shuffled[groups[shuffled] == group]
        rank[mine] = (np.arange(len(mine)) + rng.random()) / len(mine)
    return tuple(train[i] for i in sorted(np.argsort(rank, kind="stable")[:count]))


def _common_slides(listings: Mapping[str, Listing], table: ClinicalTable) -> set[str]:
    """Slides that every encoder has; one that shares none with the table is named."""
    slides = set(table.who.slide)
    found = {encoder: {ref.sample for ref in listing.refs} for encoder, listing in listings.items()}
    for encoder, names in found.items():
        if len(listings) > 1 and not slides & {without_suffix(name) for name in names}:
            raise InputError(
                f"{table.source}: none of its slides has features of {encoder!r}: the table says e.g. {min(slides)!r}, "
                f"the features say {min(names)!r}."
            )
    return set.intersection(*found.values())


def _missing(cohort: Cohort, listings: Mapping[str, Listing]) -> dict[str, str]:
    """Slides that the table names but that one of the feature sets lacks, or has twice."""
    missing = {slide: without_features(slide, cohort.report.source) for slide in cohort.report.missing_features}
    return missing | {slide: why for listing in listings.values() for slide, why in listing.problems.items()}


def _bags(cohort: Cohort, listing: Listing) -> dict[str, Openable]:
    return dict(zip(cohort.ids, cohort.join_bags(listing), strict=True))


def _of(cohort: Cohort, splits: Sequence[Split], listings: Mapping[str, Listing], notes: list[str]) -> Population:
    return Population(
        cohort.ids,
        tuple(s.patient for s in cohort.samples),
        tuple(s.site for s in cohort.samples),
        cohort.target,
        cohort.table,
        tuple(splits),
        {encoder: _bags(cohort, listing) for encoder, listing in listings.items()},
        tuple(notes),
    )


def _as_trained(task: TaskSpec, target: Target) -> TaskSpec:
    """Labels of an external cohort mean the classes that were trained on."""
    return task.model_copy(update={"classes": target.names}) if isinstance(target, Classes) else task


def _joined(population: Population, extra: Cohort, listings: Mapping[str, Listing], part: str) -> Population:
    shared = sorted(set(population.patients) & {s.patient for s in extra.samples})
    if shared:
        raise InputError(
            f"{len(shared)} patients of the external cohort {part.removeprefix('test_')!r} are in the study itself, e.g. {shared[0]}; remove them."
        )
    bags = {encoder: {**mine, **_bags(extra, listings[encoder])} for encoder, mine in population.bags.items()}
    return replace(
        population,
        ids=(*population.ids, *extra.ids),
        patients=(*population.patients, *(s.patient for s in extra.samples)),
        sites=(*population.sites, *(s.site for s in extra.samples)),
        target=population.target.followed_by(extra.target),  # type: ignore[arg-type]  # of one task
        table=pd.concat([population.table, extra.table]),
        splits=tuple(replace(split, test={**split.test, part: extra.ids}) for split in population.splits),
        bags=bags,
        notes=(*population.notes, *extra.report.sentences(), *_one_class(extra), *_about_times(population, extra)),
    )


def _about_times(population: Population, extra: Cohort) -> list[str]:
    study, other = population.target, extra.target
    if not (isinstance(study, Survival) and isinstance(other, Survival)):
        return []
    return about_times(study, other, extra.report.source)


def _one_class(extra: Cohort) -> list[str]:
    only = extra.target.only_class() if isinstance(extra.target, Classes) else None
    return [] if only is None else [f"{extra.report.source}: {about_one_class(len(extra), only)}."]
