"""Who trains, who validates, who tests: schemes at patient level, and the checks that keep them honest."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from panther.cohort.load import Cohort, absent_classes, counts_of
from panther.cohort.site_folds import Effort, imbalance, imbalance_by_row, site_preserving
from panther.cohort.targets import Survival, Target
from panther.errors import InputError, listed

TIME_BINS = 4


@dataclass(frozen=True)
class Split:
    """Names of the samples of each part; `test` holds "test" and external cohorts as "test_<cohort>"."""

    train: tuple[str, ...]
    val: tuple[str, ...] = ()
    test: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def parts(self) -> dict[str, tuple[str, ...]]:
        """Parts that hold anybody, by name."""
        return {name: ids for name, ids in {"train": self.train, "val": self.val, **self.test}.items() if ids}


@dataclass(frozen=True)
class SplitSettings:
    """How to divide."""

    k: int = 5
    seed: int = 0
    shares: tuple[float, float, float] = (0.8, 0.1, 0.1)  # train, val, test of a holdout
    val: bool = False  # the next fold of a k-fold validates
    effort: Effort = field(default_factory=Effort)


@dataclass(frozen=True)
class Balance:
    """How alike test folds are: share of patients that would have to change their fold, 0 is perfect."""

    imbalance: float
    by_row: Mapping[str, float]
    bound: float | None = None  # no folds of this scheme can be better; None where it was not computed
    hit_time_limit: bool = False


def make_splits(cohort: Cohort, scheme: str, settings: SplitSettings | None = None) -> list[Split]:
    """Splits of a cohort by one of the :data:`SCHEMES`; a patient is never in two parts."""
    return balanced_splits(cohort, scheme, settings)[0]


def balanced_splits(
    cohort: Cohort, scheme: str, settings: SplitSettings | None = None
) -> tuple[list[Split], Balance | None]:
    """Splits, and the balance of their test folds (None for a holdout)."""
    if scheme not in SCHEMES:
        raise InputError(f"There is no scheme {scheme!r}; choose {listed(sorted(SCHEMES))}.")
    splits, balance = SCHEMES[scheme](cohort, settings or SplitSettings())
    for number, split in enumerate(splits):
        check(cohort, split, f"fold {number}" if len(splits) > 1 else "the split")
    return splits, balance


def strata(target: Target, bins: int = TIME_BINS) -> np.ndarray:
    """Groups that every fold should hold alike: classes, or events and censored each cut at quantiles of their time; (n,) int64."""
    if not isinstance(target, Survival):
        return target.labels.copy()
    groups = np.zeros(len(target), dtype=np.int64)
    for event in (True, False):  # events first: dealt one after the other, every fold gets its share of them
        mine = target.event == event
        if mine.any():
            edges = np.quantile(target.time[mine], np.linspace(0, 1, bins + 1)[1:-1])
            groups[mine] = np.searchsorted(edges, target.time[mine], side="right") + (0 if event else bins)
    return groups


def deal(
    groups: np.ndarray, shares: Sequence[float], rng: np.random.Generator, *, first: int | None = None
) -> np.ndarray:
    """Deal units to parts, group by group, each to the part that lacks most: totals are off by less than one.

    Parameters
    ----------
    groups
        (n,) stratum of each unit.
    shares
        Share of each part; they sum to 1.
    first
        Part that gets the first unit of every group, so that no class is without training samples.
    """
    part, given, wanted = np.empty(len(groups), dtype=np.int64), np.zeros(len(shares)), np.asarray(shares, dtype=float)
    done = 0
    for group in np.unique(groups):
        mine = np.zeros(len(shares))
        for position, unit in enumerate(rng.permutation(np.flatnonzero(groups == group))):
            done += 1
            # within the group first, then over all: a class is spread evenly, and so is the remainder of all classes
            lacking = np.round(wanted * (position + 1) - mine, 9) + 0.1 * np.round(wanted * done - given, 9)
            lacking[wanted == 0] = -np.inf
            choice = first if first is not None and position == 0 else int(lacking.argmax())
            part[unit] = choice
            mine[choice] += 1
            given[choice] += 1
    return part


def balance_of(target: Target, fold: np.ndarray, k: int) -> Balance:
    """Balance of any folds, (n,) numbers, of samples with this target."""
    rows = _indicators(target)
    counts = np.column_stack(list(rows.values()))
    by_row = dict(zip(rows, map(float, imbalance_by_row(counts, fold, k)), strict=True))
    return Balance(imbalance(counts, fold, k), by_row)


def check(cohort: Cohort, split: Split, name: str) -> list[str]:
    """Refuse a split from which nothing can be learned or measured; what is only awkward comes back as notes."""
    _refuse_overlap(cohort, split, name)
    notes = []
    for part, ids in split.parts().items():
        target = cohort.target.take(cohort.positions(ids))
        absent = absent_classes(target)
        if isinstance(target, Survival) and not target.event.any():
            sentence = f"In {name}, none of the {len(ids)} samples of {part} has the event"
            if part != "val":
                raise InputError(f"{sentence}; use fewer folds, or an endpoint with more events.")
            notes.append(f"{sentence}.")
        if absent and part == "train":
            raise InputError(
                f"In {name}, no training sample is of class {listed(absent)}; merge or leave out the class, or use fewer folds."
            )
        if absent:
            notes.append(f"In {name}, {part} has no sample of class {listed(absent)}.")
    if not split.train:
        raise InputError(f"In {name}, nobody is left to train on.")
    return notes


def shared_sites(cohort: Cohort, split: Split) -> list[str]:
    """Sites that stand in the training part and in a test part."""
    site = {sample.id: sample.site for sample in cohort.samples}
    tested = {site[name] for ids in split.test.values() for name in ids}
    return sorted(name for name in {site[name] for name in split.train} & tested if name is not None)


def sizes(cohort: Cohort, split: Split) -> dict[str, dict[str, Any]]:
    """Samples, classes or events, and sites of each part."""
    site = {sample.id: sample.site for sample in cohort.samples}
    return {
        part: {
            "samples": len(ids),
            "counts": counts_of(cohort.target.take(cohort.positions(ids))),
            "sites": sorted({str(site[name]) for name in ids if site[name] is not None}),
        }
        for part, ids in split.parts().items()
    }


def _refuse_overlap(cohort: Cohort, split: Split, name: str) -> None:
    patient = {sample.id: sample.patient for sample in cohort.samples}
    seen: dict[str, str] = {}
    twice: dict[str, tuple[str, str]] = {}
    for part, ids in split.parts().items():
        for who in {patient[sample] for sample in ids}:
            if who in seen:
                twice[who] = (seen[who], part)
            seen[who] = part
    if twice:
        who, (one, other) = min(twice.items())
        raise InputError(
            f"In {name}, {len(twice)} patients are in two parts, e.g. {who} in {one} and {other}; a test would not be honest. Split by patient."
        )


def _indicators(target: Target) -> dict[str, np.ndarray]:
    """Rows to balance: everybody, events, and each stratum; (n,) zeros and ones."""
    groups = strata(target)
    rows = {"samples": np.ones(len(target))}
    if isinstance(target, Survival):
        rows["events"] = target.event.astype(float)
    return rows | {_stratum(target, g): (groups == g).astype(float) for g in np.unique(groups)}


def _stratum(target: Target, group: int) -> str:
    if not isinstance(target, Survival):
        return f"class {target.names[group]}"
    return f"{'event' if group < TIME_BINS else 'censored'}, time quarter {group % TIME_BINS + 1}"


def _patients(cohort: Cohort) -> tuple[np.ndarray, np.ndarray]:
    """Patient of each sample (n,), and stratum of each patient: the commonest of its samples."""
    _, patient = np.unique([sample.patient for sample in cohort.samples], return_inverse=True)
    groups = strata(cohort.target)
    tally = np.zeros((patient.max() + 1, groups.max() + 1), dtype=int)
    np.add.at(tally, (patient, groups), 1)
    return patient, tally.argmax(1)


def _holdout(cohort: Cohort, settings: SplitSettings) -> tuple[list[Split], None]:
    shares = np.asarray(settings.shares, dtype=float)
    if shares.min() < 0 or not shares[0] or not shares[2] or not np.isfinite(shares).all():
        raise InputError(
            f"Shares {':'.join(f'{s:g}' for s in shares)} leave nobody to train on or to test; give e.g. 80:10:10 or 80:0:20."
        )
    patient, groups = _patients(cohort)
    part = deal(groups, list(shares / shares.sum()), np.random.default_rng(settings.seed), first=0)[patient]
    return [Split(_ids(cohort, part == 0), _ids(cohort, part == 1), {"test": _ids(cohort, part == 2)})], None


def _kfold(cohort: Cohort, settings: SplitSettings) -> tuple[list[Split], Balance]:
    k = _checked_k(settings)
    patient, groups = _patients(cohort)
    if len(groups) < k:
        raise InputError(f"{k} folds need at least {k} patients, but there are {len(groups)}; lower -k.")
    fold = deal(groups, [1 / k] * k, np.random.default_rng(settings.seed))[patient]
    return _rotate(cohort, fold, settings), balance_of(cohort.target, fold, k)


def _site_kfold(cohort: Cohort, settings: SplitSettings) -> tuple[list[Split], Balance]:
    k = _checked_k(settings)
    without_site = [sample.patient for sample in cohort.samples if sample.site is None]
    if without_site:
        raise InputError(
            f"{len(without_site)} of {len(cohort)} samples have no site, or several, e.g. {without_site[0]}; "
            f"name the column with `columns.site`, or use the scheme kfold."
        )
    names, site = np.unique([str(sample.site) for sample in cohort.samples], return_inverse=True)
    rows = _indicators(cohort.target)
    counts = np.zeros((len(names), len(rows)))
    np.add.at(counts, site, np.column_stack(list(rows.values())))
    needed = np.array([row in ("samples", "events") for row in rows])
    found = site_preserving(counts, needed, k, seed=settings.seed, effort=settings.effort)
    fold = found.fold[site]
    return _rotate(cohort, fold, settings), replace(
        balance_of(cohort.target, fold, k), bound=found.bound, hit_time_limit=found.hit_time_limit
    )


def _checked_k(settings: SplitSettings) -> int:
    least = 3 if settings.val else 2
    if settings.k < least:
        raise InputError(
            f"{settings.k} folds are too few; {'with a validation fold ' if settings.val else ''}give at least -k {least}."
        )
    return settings.k


def _rotate(cohort: Cohort, fold: np.ndarray, settings: SplitSettings) -> list[Split]:
    """Every fold is tested once; with validation the next fold validates, so that sites stay apart there too."""
    splits = []
    for i in range(settings.k):
        val = (fold == (i + 1) % settings.k) if settings.val else np.zeros(len(fold), dtype=bool)
        splits.append(Split(_ids(cohort, (fold != i) & ~val), _ids(cohort, val), {"test": _ids(cohort, fold == i)}))
    return splits


def _ids(cohort: Cohort, chosen: np.ndarray) -> tuple[str, ...]:
    return tuple(sample.id for sample, mine in zip(cohort.samples, chosen, strict=True) if mine)


SCHEMES: dict[str, Callable[[Cohort, SplitSettings], tuple[list[Split], Balance | None]]] = {
    "holdout": _holdout,
    "kfold": _kfold,
    "site-kfold": _site_kfold,
}
