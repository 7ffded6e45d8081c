"""Rows of the tables about sureness, of one method on one test; intervals by resampling patients."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from panther.evaluation import calibration as cal
from panther.evaluation.intervals import Interval, Measure, exact_lower, intervals, resample
from panther.evaluation.metrics import ratio

PREDICTED = "predicted class"
Row = dict[str, Any]
Key = tuple[str, ...]
Found = Mapping[Key, Mapping[str, Interval]]


@dataclass(frozen=True, eq=False)
class Pooled:
    """Predictions of all folds and seeds of one method for one test."""

    names: tuple[str, ...]  # of the classes; none where values are predicted
    truth: np.ndarray  # (n,), classes or values
    raw: np.ndarray  # (n, K) probabilities, or (n,) values
    calibrated: np.ndarray | None  # the same, None where nobody could calibrate them
    sets: np.ndarray | None  # (n, 2): whether the set or interval holds the truth, and how large it is
    patients: np.ndarray  # (n,)
    sites: np.ndarray  # (n,), empty where not known
    source: str  # whom they were calibrated on
    level: float  # what the sets promise
    temperature: float  # mean over folds

    @property
    def given(self) -> dict[str, np.ndarray]:
        """Probabilities as the model gave them, and calibrated ones where there are any."""
        return {"raw": self.raw} | ({} if self.calibrated is None else {"calibrated": self.calibrated})


def tables_of(pooled: Pooled, number: int) -> dict[str, list[Row]]:
    """Rows of each table; everything is measured on the same resamples, which are drawn once."""
    found = _intervals(_measures(pooled), pooled.patients, number)
    tables = {"prediction_sets": list(_sets(pooled, found))}
    if pooled.names:
        tables["calibration"] = list(_calibration(pooled, found))
        tables["reliability"] = list(_reliability(pooled, found))
    return tables


def _measures(pooled: Pooled) -> dict[Key, Measure]:
    """What is measured: by table, and by what tells its measures apart."""
    measures: dict[Key, Measure] = {}
    if pooled.sets is not None:
        groups = {"/".join(key): own for key, own in _groups(pooled).items()}
        measures[("sets",)] = partial(_covered, covered=pooled.sets[:, 0], groups=groups)
    for what, p in pooled.given.items() if pooled.names else ():
        measures["scores", what] = partial(_scores, truth=pooled.truth, p=p)
        for name, (probability, came_true) in _promises(pooled, p).items():
            measures["reliability", what, name] = partial(_observed, probability=probability, came_true=came_true)
    return measures


def _covered(counts: np.ndarray, covered: np.ndarray, groups: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: ratio(counts @ (own * covered), counts @ own) for name, own in groups.items()}


def _scores(counts: np.ndarray, truth: np.ndarray, p: np.ndarray) -> dict[str, np.ndarray]:
    return cal.calibration_metrics(truth, p, counts)


def _observed(counts: np.ndarray, probability: np.ndarray, came_true: np.ndarray) -> dict[str, np.ndarray]:
    observed = cal.reliability(probability, came_true, counts).observed
    return {str(b): observed[..., b] for b in range(cal.BINS)}


def _calibration(pooled: Pooled, found: Found) -> Iterator[Row]:
    patients = len(set(pooled.patients))
    for what, p in pooled.given.items():
        chance = cal.error_by_chance(p)
        by_chance = {"ece": (float(chance.mean()), float(np.quantile(chance, 0.95)))}
        for metric, interval in found["scores", what].items():
            expected, highest = by_chance.get(metric, (np.nan, np.nan))
            yield {
                "probabilities": what,
                "metric": metric,
                **_ends(interval),
                "by_chance": expected,
                "by_chance_high": highest,
                "temperature": pooled.temperature if what == "calibrated" else np.nan,
                "calibrated_on": pooled.source if what == "calibrated" else "",
                "patients": patients,
            }


def _reliability(pooled: Pooled, found: Found) -> Iterator[Row]:
    for what, p in pooled.given.items():
        for name, (probability, came_true) in _promises(pooled, p).items():
            curve, member = cal.reliability(probability, came_true), cal.bin_of(probability)
            for b in np.flatnonzero(curve.weight > 0):
                patients = len(set(pooled.patients[member == b]))
                limits = _ends(_known(found["reliability", what, name][str(b)], patients), "observed")
                row = {"probabilities": what, "class": name, "bin": int(b), "predicted": float(curve.predicted[b])}
                yield {**row, **limits, "samples": int(curve.weight[b])}


def _promises(pooled: Pooled, p: np.ndarray) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Probabilities that may be kept or not: of the predicted class, and of each class (of two only the second)."""
    each = {pooled.names[k]: (p[:, k], pooled.truth == k) for k in _positive(pooled)}
    return {PREDICTED: cal.confidence(pooled.truth, p), **each}


def _positive(pooled: Pooled) -> Iterable[int]:
    return (1,) if len(pooled.names) == 2 else range(len(pooled.names))


def _groups(pooled: Pooled) -> dict[tuple[str, str], np.ndarray]:
    """Everybody, each class and each site."""
    groups = {("all", ""): np.ones(len(pooled.truth), bool)}
    groups |= {("class", name): pooled.truth == k for k, name in enumerate(pooled.names)}
    groups |= {("site", site): pooled.sites == site for site in sorted(set(pooled.sites)) if site}
    return {key: own for key, own in groups.items() if own.any()}


def _sets(pooled: Pooled, found: Found) -> Iterator[Row]:
    if pooled.sets is None:
        return
    for (by, value), own in _groups(pooled).items():
        size, patients = pooled.sets[own, 1], len(set(pooled.patients[own]))
        yield {
            "by": by,
            "value": value,
            "level": pooled.level,
            **_ends(_known(found[("sets",)][f"{by}/{value}"], patients), "coverage"),
            "size": float(size.mean()),
            "single": float((size == 1).mean()) if pooled.names else np.nan,
            "samples": int(own.sum()),
            "patients": patients,
            "calibrated_on": pooled.source,
        }


def _intervals(measures: Mapping[Key, Measure], patients: np.ndarray, number: int) -> Found:
    """Intervals of all measures; without resamples the values alone."""

    def together(counts: np.ndarray) -> dict[str, np.ndarray]:
        found = {key: measure(counts) for key, measure in measures.items()}
        return {f"{position}/{name}": own[name] for position, own in enumerate(found.values()) for name in own}

    if number:
        found = intervals(resample(together, patients, number))
    else:
        whole = together(np.ones((1, len(patients))))
        found = {name: Interval(float(value[0]), np.nan, np.nan, 0) for name, value in whole.items()}
    sorted_out: dict[Key, dict[str, Interval]] = {key: {} for key in measures}
    keys = list(measures)
    for name, interval in found.items():
        position, own = name.split("/", 1)
        sorted_out[keys[int(position)]][own] = interval
    return sorted_out


def _known(interval: Interval, patients: int) -> Interval:
    """A share with its interval; where all or none came true, resampling sees no error, and the exact binomial bound stands in."""
    if interval.value == 1:
        return replace(interval, low=exact_lower(patients))
    return replace(interval, high=1 - exact_lower(patients)) if interval.value == 0 else interval


def _ends(interval: Interval, name: str = "value") -> Row:
    return {name: interval.value, "ci_low": interval.low, "ci_high": interval.high}
