"""Training, validation and test parts: schemes that divide a cohort by patients, splits by a column of its table, and checks of both."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from panther.cohort.load import Cohort
from panther.cohort.outcomes import natural_order
from panther.cohort.site_folds import imbalance, imbalance_by_row, site_preserving
from panther.cohort.spec import SplitSpec
from panther.cohort.targets import Target
from panther.errors import InputError, listed
from panther.storage.clinical import find_column
from panther.storage.tables import PART, is_missing, plain_labels, refuse_shared_patients


@dataclass(frozen=True)
class Split:
    """Names of the samples of each part; `test` holds "test" and external cohorts as "test_<cohort>"."""

    train: tuple[str, ...]
    val: tuple[str, ...] = ()
    test: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def parts(self) -> dict[str, tuple[str, ...]]:
        """Parts that are not empty, by name."""
        return {name: ids for name, ids in {"train": self.train, "val": self.val, **self.test}.items() if ids}

    @classmethod
    def from_parts(cls, parts: Mapping[str, tuple[str, ...]]) -> "Split":
        """Split of these parts, by name."""
        tests = {part: ids for part, ids in parts.items() if part.startswith("test")}
        return cls(parts.get("train", ()), parts.get("val", ()), tests)

    def among(self, names: Collection[str]) -> "Split":
        """The same split of these samples only."""
        return self.from_parts({part: tuple(n for n in ids if n in names) for part, ids in self.parts().items()})


def check(cohort: Cohort, split: Split, name: str) -> list[str]:
    """Refuse a split that cannot be trained on or tested; lesser problems are returned as notes."""
    patient = {sample.id: sample.patient for sample in cohort.samples}
    refuse_shared_patients(name, {part: [patient[sample] for sample in ids] for part, ids in split.parts().items()})
    notes = []
    for part, ids in split.parts().items():
        target = cohort.target.take(cohort.positions(ids))
        lack = target.lack("training" if part == "train" else part)
        fatal = part == "train" or (part.startswith("test") and target.kind == "survival")
        if lack and fatal:
            raise InputError(f"In {name}, {lack}; use fewer folds, or leave it out.")
        notes += [f"In {name}, {lack}."] if lack else []
    if not split.train:
        raise InputError(f"In {name}, no sample is left to train on.")
    return notes


def fold_notes(cohort: Cohort, splits: Sequence[Split]) -> list[str]:
    """Notes of :func:`check` on every fold; tables count folds from 0 and reports from 1."""
    last = len(splits) - 1
    names = [f"fold {number} (of 0 to {last})" for number in range(len(splits))] if last else ["the split"]
    return [note for split, name in zip(splits, names, strict=True) for note in check(cohort, split, name)]


def shared_sites(cohort: Cohort, split: Split) -> list[str]:
    """Sites that are in the training part and in a test part."""
    site = {sample.id: sample.site for sample in cohort.samples}
    tested = {site[name] for ids in split.test.values() for name in ids}
    return sorted(name for name in {site[name] for name in split.train} & tested if name is not None)


def sizes(cohort: Cohort, split: Split) -> dict[str, dict[str, Any]]:
    """Samples, classes or events, and sites of each part."""
    site = {sample.id: sample.site for sample in cohort.samples}
    return {
        part: {
            "samples": len(ids),
            "counts": cohort.target.take(cohort.positions(ids)).counts(),
            "sites": sorted({str(site[name]) for name in ids if site[name] is not None}),
        }
        for part, ids in split.parts().items()
    }


@dataclass(frozen=True)
class FoldBalance:
    """Balance of test folds: share of patients that would have to change their fold, 0 is perfect."""

    imbalance: float
    by_row: Mapping[str, float]
    bound: float | None = None  # no folds of this scheme can be better; None where it was not computed
    hit_time_limit: bool = False


def balance_of(target: Target, fold: np.ndarray, k: int) -> FoldBalance:
    """Balance of any folds, (n,) numbers, of samples with this target."""
    rows = target.indicators()
    counts = np.column_stack(list(rows.values()))
    by_row = dict(zip(rows, map(float, imbalance_by_row(counts, fold, k)), strict=True))
    return FoldBalance(imbalance(counts, fold, k), by_row)


def balance_of_tests(cohort: Cohort, splits: Sequence[Split]) -> FoldBalance | None:
    """Balance over folds whose tests do not overlap, else None; external cohorts do not count."""
    tests = [cohort.positions(split.test.get("test", ())) for split in splits]
    tested = np.concatenate(tests)
    if len(splits) < 2 or len(set(tested)) < len(tested):
        return None
    fold = np.repeat(np.arange(len(tests)), [len(test) for test in tests])
    return balance_of(cohort.target.take(tested), fold, len(splits))


def folds_of_sites(
    target: Target, sites: Sequence[Any] | np.ndarray, k: int, *, seed: int = 0, seconds: float = 30.0
) -> tuple[np.ndarray, FoldBalance]:
    """Fold (n,) of rows with this target, whole sites in one fold, and the balance of the folds."""
    names, site = np.unique([str(name) for name in sites], return_inverse=True)
    rows = target.indicators()
    counts = np.zeros((len(names), len(rows)))
    np.add.at(counts, site, np.column_stack(list(rows.values())))
    needed = np.array([row in ("samples", "events") for row in rows])
    folds, bound, hit_time_limit = site_preserving(counts, needed, k, seed=seed, seconds=seconds)
    fold = folds[site]
    return fold, replace(balance_of(target, fold, k), bound=bound, hit_time_limit=hit_time_limit)


def balanced_splits(cohort: Cohort, spec: SplitSpec) -> tuple[list[Split], FoldBalance | None]:
    """Splits, to be checked by :func:`fold_notes`, and the balance of their test folds (None for a holdout)."""
    return SCHEMES[spec.scheme](cohort, spec)


def deal(
    groups: np.ndarray, shares: Sequence[float], rng: np.random.Generator, *, first: int | None = None
) -> np.ndarray:
    """Deal units to parts, group by group, each to the part that lacks most: totals deviate by less than one.

    Parameters
    ----------
    groups
        (n,) stratum of each unit.
    shares
        Share of each part; they sum to 1.
    first
        Part that gets the first unit of every group, so that no class is without training samples.
    """
    part, dealt, wanted = np.empty(len(groups), dtype=np.int64), np.zeros(len(shares)), np.asarray(shares, dtype=float)
    done = 0
    for group in np.unique(groups):
        in_group = np.zeros(len(shares))
        for position, unit in enumerate(rng.permutation(np.flatnonzero(groups == group))):
            done += 1
            # within the group first, then over all: a class is spread evenly, and so is the remainder of all classes
            lacking = np.round(wanted * (position + 1) - in_group, 9) + 0.1 * np.round(wanted * done - dealt, 9)
            lacking[wanted == 0] = -np.inf
            choice = first if first is not None and position == 0 else int(lacking.argmax())
            part[unit] = choice
            in_group[choice] += 1
            dealt[choice] += 1
    return part


def _patients(cohort: Cohort) -> tuple[np.ndarray, np.ndarray]:
    """Patient of each sample (n,), and stratum of each patient: the commonest of its samples."""
    _, patient = np.unique([sample.patient for sample in cohort.samples], return_inverse=True)
    groups = cohort.target.strata()
    tally = np.zeros((patient.max() + 1, groups.max() + 1), dtype=int)
    np.add.at(tally, (patient, groups), 1)
    return patient, tally.argmax(1)


def _holdout(cohort: Cohort, spec: SplitSpec) -> tuple[list[Split], None]:
    shares = np.asarray(spec.shares, dtype=float)
    if shares.min() < 0 or not shares[0] or not shares[2] or not np.isfinite(shares).all():
        raise InputError(f"shares: {':'.join(f'{s:g}' for s in shares)}, expected e.g. 80:10:10")
    patient, groups = _patients(cohort)
    part = deal(groups, list(shares / shares.sum()), np.random.default_rng(spec.seed), first=0)[patient]
    train, val, test = (_ids(cohort.ids, part == k) for k in range(3))
    return [Split(train, val, {"test": test})], None


def _kfold(cohort: Cohort, spec: SplitSpec) -> tuple[list[Split], FoldBalance]:
    k = spec.k
    patient, groups = _patients(cohort)
    if len(groups) < k:
        raise InputError(f"{k} folds need at least {k} patients, but there are {len(groups)}; lower `k=`.")
    fold = deal(groups, [1 / k] * k, np.random.default_rng(spec.seed))[patient]
    return _rotate(cohort.ids, fold, k, spec.val), balance_of(cohort.target, fold, k)


def _site_kfold(cohort: Cohort, spec: SplitSpec) -> tuple[list[Split], FoldBalance]:
    without_site = [sample.patient for sample in cohort.samples if sample.site is None]
    if without_site:
        raise InputError(f"{len(without_site)} of {len(cohort)} samples lack a site, e.g. {without_site[0]}")
    fold, balance = folds_of_sites(cohort.target, cohort.sites, spec.k, seed=spec.seed, seconds=spec.seconds)
    return _rotate(cohort.ids, fold, spec.k, spec.val), balance


def _rotate(ids: Sequence[str], fold: np.ndarray, k: int, val: bool) -> list[Split]:
    """Every fold is tested once; with validation the next fold validates, so that sites stay apart there too."""
    if val and k < 3:
        raise InputError(f"{k} folds are too few; with a validation fold give at least `k=3`.")
    splits = []
    for i in range(k):
        validates = (fold == (i + 1) % k) & val
        chosen = ((fold != i) & ~validates, validates, fold == i)
        train, validation, test = (_ids(ids, rows) for rows in chosen)
        splits.append(Split(train, validation, {"test": test}))
    return splits


def _ids(ids: Sequence[str], chosen: np.ndarray) -> tuple[str, ...]:
    return tuple(ids[i] for i in np.flatnonzero(chosen).tolist())


SCHEMES: dict[str, Callable[[Cohort, SplitSpec], tuple[list[Split], FoldBalance | None]]] = {
    "holdout": _holdout,
    "kfold": _kfold,
    "site-kfold": _site_kfold,
}


PART_WORDS = {"training": "train", "valid": "val", "validation": "val", "testing": "test"}


def column_splits(cohort: Cohort, column: str, *, val: bool = False) -> tuple[list[Split], list[str]]:
    """Splits of a cohort by a column of its table, checked, and notes about them.

    A column of train and test (and val, test_<cohort>) is one split; other values are folds, each of which is tested once by models
    of the others. With ``val`` the next fold validates.
    """
    find_column(cohort.rows, column, (), "split")
    of_slides, cells = plain_labels(cohort.rows[column]).mask(is_missing(cohort.rows[column]), ""), {}
    for sample in cohort.samples:
        different = sorted(set(of_slides.loc[list(sample.slides)]))
        if len(different) > 1:
            raise InputError(f"{cohort.report.source}: {sample.id} has several {column} ({listed(different)})")
        cells[sample.id] = different[0]
    named = {name: value for name, value in cells.items() if value}
    values = sorted(set(named.values()), key=natural_order)
    parts = {value: PART_WORDS.get(value.lower(), value.lower()) for value in values}
    if "train" in parts.values() and all(PART.fullmatch(part) for part in parts.values()):
        if val:
            raise InputError(f"val: the column {column!r} has a validation part of its own, leave out `val`")
        groups: dict[str, list[str]] = {}
        for name, value in sorted(named.items()):
            groups.setdefault(parts[value], []).append(name)
        splits = [Split.from_parts({part: tuple(names) for part, names in groups.items()})]
    elif len(values) < 2 or len(values) > len(named) / 2:
        expected = f"{listed(values, 6)}; expected train and test, or folds"
        raise InputError(f"{cohort.report.source}: {column} says {expected}")
    else:
        fold = np.array([values.index(value) for value in named.values()])
        splits = _rotate(list(named), fold, len(values), val)
    notes = (
        [f"{len(cells) - len(named)} samples have no {column} and are used nowhere."] if len(named) < len(cells) else []
    )
    for number, split in enumerate(splits):
        where = f"fold {values[number]} of column {column!r}" if len(splits) > 1 else f"the column {column!r}"
        notes += check(cohort, split, where)
    return splits, notes
