"""Everybody a study is about: samples with features and target, the splits, and external cohorts that are only tested on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from panther.errors import InputError
from panther.learning.cohort import Cohort, load_cohort
from panther.learning.outcomes import LabelOutcome, Outcome
from panther.learning.split_files import assign, read_splits
from panther.learning.splits import Split, SplitSettings, balanced_splits, strata
from panther.learning.study import SplitSpec, Study
from panther.learning.targets import Classes, Survival, Target
from panther.storage.bags import BagRef, Listing, Reading, join, list_bags


@dataclass(frozen=True, eq=False)
class Population:
    """Samples of a study, those of external cohorts last."""

    ids: tuple[str, ...]
    patients: tuple[str, ...]
    target: Target
    table: pd.DataFrame  # one row a sample
    splits: tuple[Split, ...]
    bags: Mapping[str, Mapping[str, BagRef]]  # encoder -> sample -> its slides
    notes: tuple[str, ...]

    def rows(self, ids: Sequence[str]) -> np.ndarray:
        """Positions of samples."""
        where = {name: index for index, name in enumerate(self.ids)}
        return np.array([where[name] for name in ids], np.int64)


def gather(study: Study) -> Population:
    """Join tables, features and splits; every encoder must have the same samples, so that methods are compared on the same patients."""
    reading = Reading(any_resolution=study.allow_mixed_resolution)
    listings = {encoder: list_bags(folder, reading=reading) for encoder, folder in study.features.items()}
    outcome = study.task.outcome()
    files = None if isinstance(study.splits, SplitSpec) else read_splits(study.splits)
    table = study.table if study.table is not None else files.table() if files is not None else None
    if table is None:
        raise InputError("The study names no table; give `table`, or a folder of split tables as `splits`.")
    cohort = load_cohort(table, outcome, _common_slides(listings), study.task.level)
    notes = [*cohort.report.sentences(), *_problems(listings)]
    if files is not None:
        splits, report = assign(files, cohort)
        notes += report.notes
    else:
        assert isinstance(study.splits, SplitSpec)
        spec = study.splits
        splits, balance = balanced_splits(cohort, spec.scheme, SplitSettings(spec.k, spec.seed, spec.shares, spec.val))
        if balance is not None:
            notes.append(f"Folds by {spec.scheme}: imbalance {balance.imbalance:.3f}.")
    population = _of(cohort, splits, listings, notes)
    for name, external in study.external.items():
        others = {encoder: list_bags(external.features[encoder], reading=reading) for encoder in study.features}
        known = _as_trained(outcome, cohort.target)
        extra = load_cohort(external.table, known, _common_slides(others), study.task.level)
        population = _joined(population, extra, others, f"test_{name}")
    return population


def subset(train: Sequence[str], population: Population, size: float, seed: int) -> tuple[str, ...]:
    """Part of the training samples (a share, or a number), with classes or events in the same proportions."""
    if size <= 0 or (size > 1 and size != int(size)):
        raise InputError(f"The training size {size} is neither a share (0 to 1) nor a number of samples.")
    count = len(train) if size == 1 else round(size * len(train)) if size < 1 else int(size)
    if count >= len(train):
        return tuple(train)
    rng = np.random.default_rng([seed, count])
    groups = strata(population.target.take(population.rows(train)), bins=1)
    shuffled = rng.permutation(len(train))
    # take the same share of every stratum: order by the rank within the own stratum
    rank = np.empty(len(train))
    for group in np.unique(groups):
        mine = shuffled[groups[shuffled] == group]
        rank[mine] = (np.arange(len(mine)) + rng.random()) / len(mine)
    return tuple(train[i] for i in sorted(np.argsort(rank, kind="stable")[:count]))


def concatenated(first: Target, second: Target) -> Target:
    """Targets one after the other."""
    if isinstance(first, Classes) and isinstance(second, Classes):
        return Classes(first.names, np.concatenate([first.labels, second.labels]))
    assert isinstance(first, Survival)
    assert isinstance(second, Survival)
    return Survival(np.concatenate([first.time, second.time]), np.concatenate([first.event, second.event]))


def _common_slides(listings: Mapping[str, Listing]) -> set[str]:
    return set.intersection(*({ref.sample for ref in listing.refs} for listing in listings.values()))


def _problems(listings: Mapping[str, Listing]) -> list[str]:
    return [f"{encoder}: {sentence}" for encoder, listing in listings.items() for sentence in listing.problems.values()]


def _bags(cohort: Cohort, listing: Listing) -> dict[str, BagRef]:
    refs = {ref.sample: ref for ref in listing.refs}
    return {s.id: join(s.id, [refs[slide] for slide in s.slides]) for s in cohort.samples}


def _of(cohort: Cohort, splits: Sequence[Split], listings: Mapping[str, Listing], notes: list[str]) -> Population:
    return Population(
        cohort.ids,
        tuple(s.patient for s in cohort.samples),
        cohort.target,
        cohort.table,
        tuple(splits),
        {encoder: _bags(cohort, listing) for encoder, listing in listings.items()},
        tuple(notes),
    )


def _as_trained(outcome: Outcome, target: Target) -> Outcome:
    """Labels of an external cohort mean the classes that were trained on."""
    return (
        replace(outcome, classes=target.names)
        if isinstance(outcome, LabelOutcome) and isinstance(target, Classes)
        else outcome
    )


def _joined(population: Population, extra: Cohort, listings: Mapping[str, Listing], part: str) -> Population:
    shared = sorted(set(population.patients) & {s.patient for s in extra.samples})
    if shared:
        raise InputError(
            f"{len(shared)} patients of the external cohort {part.removeprefix('test_')!r} are in the study itself, e.g. {shared[0]}; remove them."
        )
    bags = {encoder: {**mine, **_bags(extra, listings[encoder])} for encoder, mine in population.bags.items()}
    return Population(
        (*population.ids, *extra.ids),
        (*population.patients, *(s.patient for s in extra.samples)),
        concatenated(population.target, extra.target),
        pd.concat([population.table, extra.table]),
        tuple(replace(split, test={**split.test, part: extra.ids}) for split in population.splits),
        bags,
        (*population.notes, *extra.report.sentences()),
    )
