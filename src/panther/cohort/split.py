"""One split: who is in which part, and the checks that keep it honest."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from panther.cohort.load import Cohort
from panther.cohort.targets import Classes, Kind, Labels, Survival, Values
from panther.errors import InputError, listed
from panther.storage.table_files.parts import refuse_shared_patients


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
        target: Any = cohort.target.take(cohort.positions(ids))
        lack = LACKS[target.kind](target, "training" if part == "train" else part)
        if lack is None:
            continue
        if part in lack.fatal or (part.startswith("test") and "test" in lack.fatal):
            raise InputError(f"In {name}, {lack.sentence}; {lack.remedy}.")
        notes.append(f"In {name}, {lack.sentence}.")
    if not split.train:
        raise InputError(f"In {name}, nobody is left to train on.")
    return notes


def fold_notes(cohort: Cohort, splits: Sequence[Split]) -> list[str]:
    """Notes of :func:`check` on every fold; tables count folds from 0 and reports from 1, so it is said."""
    last = len(splits) - 1
    names = [f"fold {number} (of 0 to {last})" for number in range(len(splits))] if last else ["the split"]
    return [note for split, name in zip(splits, names, strict=True) for note in check(cohort, split, name)]


class _Lack(NamedTuple):
    """What a part does not have."""

    sentence: str
    fatal: tuple[str, ...]  # parts that are worthless without it
    remedy: str


def _absent_classes(target: Classes, part: str) -> _Lack | None:
    absent = [name for name, n in target.counts().items() if n == 0]
    remedy = "merge or leave out the class, or use fewer folds"
    said = f"{'no training sample is' if part == 'training' else f'{part} has no sample'} of class {listed(absent)}"
    return _Lack(said, ("train",), remedy) if absent else None


def _no_events(target: Survival, part: str) -> _Lack | None:
    said = f"none of the {len(target)} samples of {'train' if part == 'training' else part} has the event"
    remedy = "use fewer folds, or an endpoint with more events"
    return None if target.event.any() else _Lack(said, ("train", "test"), remedy)


def _one_value(target: Values, part: str) -> _Lack | None:
    said = f"all {len(target)} {part} samples have the same value"
    return None if len(np.unique(target.values)) > 1 else _Lack(said, ("train",), "use fewer folds")


def _one_sided(target: Labels, part: str) -> _Lack | None:
    pairs = zip(target.names, target.positive, target.known, strict=True)
    sided = [name for name, has, known in pairs if has in (0, known)]
    said = f"{part} does not have both, samples with and without, of the label {listed(sided)}"
    return _Lack(said, ("train",), "leave out the label, or use fewer folds") if sided else None


LACKS: dict[Kind, Callable[[Any, str], _Lack | None]] = {
    "classification": _absent_classes,
    "survival": _no_events,
    "regression": _one_value,
    "labels": _one_sided,
}


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
    refuse_shared_patients(name, {part: [patient[sample] for sample in ids] for part, ids in split.parts().items()})
