"""One split: who is in which part, and the checks that keep it honest."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from panther.cohort.load import Cohort
from panther.cohort.targets import Classes, Survival
from panther.errors import InputError, listed


@dataclass(frozen=True)
class Split:
    """Names of the samples of each part; `test` holds "test" and external cohorts as "test_<cohort>"."""

    train: tuple[str, ...]
    val: tuple[str, ...] = ()
    test: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def parts(self) -> dict[str, tuple[str, ...]]:
        """Parts that hold anybody, by name."""
        return {name: ids for name, ids in {"train": self.train, "val": self.val, **self.test}.items() if ids}


def check(cohort: Cohort, split: Split, name: str) -> list[str]:
    """Refuse a split from which nothing can be learned or measured; what is only awkward comes back as notes."""
    _refuse_overlap(cohort, split, name)
    notes = []
    for part, ids in split.parts().items():
        target = cohort.target.take(cohort.positions(ids))
        absent = [name for name, n in target.counts().items() if n == 0] if isinstance(target, Classes) else []
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
            "counts": cohort.target.take(cohort.positions(ids)).counts(),
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
