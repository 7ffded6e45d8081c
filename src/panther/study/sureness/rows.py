"""Rows of the tables about sureness, of one method on one test; intervals by resampling patients."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from panther.evaluation import calibration as cal
from panther.evaluation.decision_curves import THRESHOLDS, benefit_of_all, net_benefit
from panther.evaluation.intervals import Interval, intervals, resample
from panther.evaluation.metrics import ratio
from panther.evaluation.perfect_scores import exact_lower

PREDICTED = "predicted class"
Row = dict[str, Any]


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
    """Rows of each table."""
    tables = {"prediction_sets": list(_sets(pooled, number))}
    if pooled.names:
        tables["calibration"] = list(_calibration(pooled, number))
        tables["reliability"] = list(_reliability(pooled, number))
        tables["decision_curves"] = list(_decisions(pooled, number))
    return tables


def _calibration(pooled: Pooled, number: int) -> Iterator[Row]:
    patients = len(set(pooled.patients))
    for what, p in pooled.given.items():
        chance = cal.error_by_chance(p)
        by_chance = {"ece": (float(chance.mean()), float(np.quantile(chance, 0.95)))}
        found = _intervals(lambda counts, p=p: cal.calibration_metrics(pooled.truth, p, counts), pooled, number)
        for metric, interval in found.items():
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


def _reliability(pooled: Pooled, number: int) -> Iterator[Row]:
    for what, p in pooled.given.items():
        for name, (probability, came_true) in _promises(pooled, p).items():
            curve = cal.reliability(probability, came_true)

            def measure(counts: np.ndarray, p: np.ndarray = probability, y: np.ndarray = came_true) -> dict[str, Any]:
                observed = cal.reliability(p, y, counts).observed
                return {str(b): observed[..., b] for b in range(cal.BINS)}

            found = _intervals(measure, pooled, number)
            for b in np.flatnonzero(curve.weight > 0):
                member = cal.bin_of(probability) == b
                limits = _ends(_known(found[str(b)], len(set(pooled.patients[member]))), "observed")
                row = {"probabilities": what, "class": name, "bin": int(b), "predicted": float(curve.predicted[b])}
                yield {**row, **limits, "samples": int(curve.weight[b])}


def _promises(pooled: Pooled, p: np.ndarray) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Probabilities that may be kept or not: of the predicted class, and of each class (of two only the second)."""
    each = {pooled.names[k]: (p[:, k], pooled.truth == k) for k in _positive(pooled)}
    return {PREDICTED: cal.confidence(pooled.truth, p), **each}


def _positive(pooled: Pooled) -> Iterable[int]:
    return (1,) if len(pooled.names) == 2 else range(len(pooled.names))


def _decisions(pooled: Pooled, number: int) -> Iterator[Row]:
    what, p = list(pooled.given.items())[-1]  # calibrated where they are
    for k in _positive(pooled):
        positive = pooled.truth == k
        of_all = benefit_of_all(positive)

        def measure(counts: np.ndarray, k: int = k, positive: np.ndarray = positive) -> dict[str, np.ndarray]:
            found = net_benefit(positive, p[:, k], counts=counts)
            return {str(t): found[..., t] for t in range(len(THRESHOLDS))}

        for t, interval in enumerate(_intervals(measure, pooled, number).values()):
            row = {"probabilities": what, "class": pooled.names[k], "threshold": float(THRESHOLDS[t])}
            yield {**row, **_ends(interval, "net_benefit"), "act_on_all": float(of_all[t])}


def _sets(pooled: Pooled, number: int) -> Iterator[Row]:
    """Coverage of everybody, of each class and of each site."""
    if pooled.sets is None:
        return
    groups = {("all", ""): np.ones(len(pooled.truth), bool)}
    groups |= {("class", name): pooled.truth == k for k, name in enumerate(pooled.names)}
    groups |= {("site", site): pooled.sites == site for site in sorted(set(pooled.sites)) if site}
    covered, size = pooled.sets.T

    def measure(counts: np.ndarray) -> dict[str, np.ndarray]:
        mine = {"/".join(key): counts * own for key, own in groups.items()}
        return {name: ratio(own @ covered, own.sum(-1)) for name, own in mine.items()}

    found = _intervals(measure, pooled, number)
    for (by, value), own in groups.items():
        if own.any():
            patients = len(set(pooled.patients[own]))
            yield {
                "by": by,
                "value": value,
                "level": pooled.level,
                **_ends(_known(found[f"{by}/{value}"], patients), "coverage"),
                "size": float(size[own].mean()),
                "single": float((size[own] == 1).mean()) if pooled.names else np.nan,
                "samples": int(own.sum()),
                "patients": patients,
                "calibrated_on": pooled.source,
            }


def _intervals(measure: Any, pooled: Pooled, number: int) -> dict[str, Interval]:
    if number:
        return intervals(resample(measure, pooled.patients, number))
    whole = measure(np.ones((1, len(pooled.patients))))
    return {name: Interval(float(value[0]), np.nan, np.nan, 0) for name, value in whole.items()}


def _known(interval: Interval, patients: int) -> Interval:
    """A share with its interval; where all or none came true, resampling sees no error, and the exact binomial bound stands in."""
    if interval.value == 1:
        return replace(interval, low=exact_lower(patients))
    return replace(interval, high=1 - exact_lower(patients)) if interval.value == 0 else interval


def _ends(interval: Interval, name: str = "value") -> Row:
    return {name: interval.value, "ci_low": interval.low, "ci_high": interval.high}
