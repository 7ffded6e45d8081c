"""Size and coverage of a study's intervals and p-values over cross-validation folds, simulated with models that learn.

`python benchmarks/intervals.py` needs no arguments. Target: the expected score of the method at the folds' training size, which is the mean over
all simulated cohorts. *size*: two equally good methods on the same cohort, share with p < 0.05 (5 % promised). *power*: the same against a method
without signal. *coverage*: share of the 95 % intervals of one method that hold the target. Three ways on the same cohorts: resampled patients
alone, resampled patients with the correction for folds (what studies do), and the corrected t-test over folds of Nadeau and Bengio (2003). Below:
the interval of the best of K rows.
"""

import argparse
from collections.abc import Callable, Iterator
from itertools import product

import numpy as np
from scipy import stats

import _harness as harness
from panther.evaluation.intervals import Resampled, best_of, differences, intervals, over_folds, resample
from panther.evaluation.metrics import balanced_accuracy, binary_auroc, confusion, mean_of_defined
from panther.evaluation.survival_metrics import comparable_pairs

METRICS = ("auroc", "balanced_accuracy", "c_index")
KINDS = ("independent", "shared")  # features of the two methods: of their own, or correlated by 0.8
SIGNALS = (0.0, 0.8)
SIZES = (60, 80, 200)
RESAMPLES = 200
Cohort = tuple[np.ndarray, np.ndarray, np.ndarray]  # features (K, n, d), classes or times (n,), events (n,)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cohorts", type=int, default=300, help="simulated cohorts in each row")
    cohorts = parser.parse_args().cohorts
    print(harness.machine("scipy"))
    rows = [summarise(*case, cohorts) for case in cases()]
    header = ["learner", "metric", "patients", "folds", "features", "signal", "target"]
    header += ["size", "coverage", "width", "power"]
    title = f"{cohorts} cohorts a row, {RESAMPLES} resamples; patients alone / corrected for folds / t over folds"
    harness.table(title, header, rows)
    spans = [[[float(row[k].split(" / ")[way]) for row in rows] for way in range(3)] for k in (7, 8)]
    print("largest size:", *(max(way) for way in spans[0]), "; smallest coverage:", *(min(way) for way in spans[1]))
    header = ["metric", "patients", "rows", "features", "target", "best", "corrected"]
    header += ["best's interval above the target", "corrected interval above the target", "coverage"]
    found = [selection(*case, max(cohorts // 2, 2)) for case in product(METRICS[:2], (60, 200), (5, 20), KINDS)]
    harness.table(f"Best of K rows without signal, {cohorts // 2} cohorts a row", header, found)


def cases() -> Iterator[tuple[Callable, str, int, int, str, float]]:
    """Learner, metric, patients, folds, features, signal."""
    for metric, patients, kind, signal in product(METRICS, SIZES, KINDS, SIGNALS):
        yield ridge, metric, patients, 5, kind, signal
    for metric, patients, signal in product(METRICS, (60, 200), SIGNALS):
        yield best_feature, metric, patients, 5, "shared", signal
    for metric, folds in product(METRICS[:2], (3, 10)):
        yield ridge, metric, 120, folds, "independent", 0.0


def ridge(x: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Coefficients (d,) of a strong ridge regression on standardised features."""
    return np.linalg.solve(x.T @ x + 3 * x.shape[1] * np.eye(x.shape[1]), x.T @ target)


def best_feature(x: np.ndarray, target: np.ndarray) -> np.ndarray:
    """The one feature that goes along with the target most: an unstable learner."""
    slope = x.T @ target
    return slope * (np.abs(slope) == np.abs(slope).max())


def cohort(rng: np.random.Generator, metric: str, patients: int, kind: str, signal: float, rows: int = 2) -> Cohort:
    """Features of several methods that carry the same signal, and the outcome."""
    label = np.arange(patients) % 2
    truth = rng.normal(size=patients) if metric == "c_index" else 2.0 * label - 1
    common, alone = rng.normal(size=(1, patients, 30)), rng.normal(size=(rows, patients, 30))
    x = np.sqrt(0.8) * common + np.sqrt(0.2) * alone if kind == "shared" else alone
    x[..., :7] += signal / np.sqrt(7) * truth[:, None]
    if metric != "c_index":
        return x, label, np.ones(patients, bool)
    dies, leaves = rng.exponential(np.exp(-truth)), rng.exponential(1.5, patients)
    return x, np.minimum(dies, leaves), dies <= leaves


def learned_from(outcome: np.ndarray, event: np.ndarray, metric: str) -> np.ndarray:
    """Regression target: the class, or the martingale residual (the first step of a Cox model)."""
    if metric != "c_index":
        return outcome - outcome.mean()
    order, residual = np.argsort(outcome), np.empty(len(outcome))
    residual[order] = event[order] - np.cumsum(event[order] / np.arange(len(outcome), 0, -1))
    return residual


def cross_validated(rng: np.random.Generator, data: Cohort, metric: str, folds: int, learner: Callable) -> Iterator:
    """Of every method: scores of its folds (J,), and its resamples as they are."""
    features, outcome, event = data
    patients = len(outcome)
    order = rng.permutation(patients)
    fold = np.empty(patients, int)
    strata = np.zeros(patients, int) if metric == "c_index" else outcome
    fold[order[np.argsort(strata[order], kind="stable")]] = np.arange(patients) % folds
    for x in features:
        scores = np.empty(patients)
        for test in (fold == k for k in range(folds)):
            mean, std = x[~test].mean(0), x[~test].std(0)
            way = learner((x[~test] - mean) / std, learned_from(outcome[~test], event[~test], metric))
            scores[test] = (x[test] - mean) / std @ way

        def by_fold(counts: np.ndarray, scores: np.ndarray = scores) -> np.ndarray:
            each = [
                judge(metric, outcome[t], event[t], scores[t], counts[..., t])
                for t in (fold == k for k in range(folds))
            ]
            return np.stack(each, -1)

        drawn = resample(lambda c, by_fold=by_fold: {"m": mean_of_defined(by_fold(c))}, np.arange(patients), RESAMPLES)
        yield by_fold(np.ones((1, patients)))[0], drawn


def judge(metric: str, outcome: np.ndarray, event: np.ndarray, score: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Metric (resamples,)."""
    if metric == "auroc":
        return binary_auroc(outcome == 1, score, counts)
    if metric == "c_index":
        return comparable_pairs(outcome, event, score, counts).concordance()
    return balanced_accuracy(confusion(outcome, (score > 0).astype(int), 2, counts))


def summarise(
    learner: Callable, metric: str, patients: int, folds: int, kind: str, signal: float, cohorts: int
) -> list[str]:
    """Size, coverage, mean width and power of the three ways; power against a method without signal."""
    rng = np.random.default_rng(0)
    limits, p, power, values = [], [], [], []
    for _ in range(cohorts):
        data = cohort(rng, metric, patients, kind, signal)
        one, two = cross_validated(rng, data, metric, folds, learner)
        p.append([way[1] for way in ways(one, two, patients, folds)])
        limits.append([way[0] for way in ways(one, None, patients, folds)])
        values += [one[1].whole["m"], two[1].whole["m"]]
        if signal:
            weak = (np.stack([data[0][0], rng.normal(size=data[0][1].shape)]), *data[1:])
            one, two = cross_validated(rng, weak, metric, folds, learner)
            power.append([way[1] for way in ways(one, two, patients, folds)])
    target, ends = np.mean(values), np.array(limits)
    size = (np.array(p) < 0.05).mean(0)
    coverage = ((ends[..., 0] <= target) & (target <= ends[..., 1])).mean(0)
    width = (ends[..., 1] - ends[..., 0]).mean(0)
    found = (np.array(power) < 0.05).mean(0) if power else np.full(3, np.nan)
    numbers = [" / ".join(f"{value:.3f}" for value in three) for three in (size, coverage, width, found)]
    numbers = [*numbers[:3], numbers[3] if power else "-"]
    return [learner.__name__, metric, str(patients), str(folds), kind, f"{signal:g}", f"{target:.3f}", *numbers]


def ways(one: tuple, two: tuple | None, patients: int, folds: int) -> list[tuple[tuple[float, float], float]]:
    """Ends of an interval and a p-value: of a mean, or of a difference of two."""
    found = []
    for spread in (lambda drawn: drawn, lambda drawn: over_folds(drawn, patients, patients / folds)):
        if two is None:
            i = intervals(spread(one[1]))["m"]
            found.append(((i.low, i.high), np.nan))
        else:
            d = differences(spread(one[1]), spread(two[1]))["m"]
            found.append(((d.low, d.high), d.p_value))
    values = one[0] - (0 if two is None else two[0])
    error = values.std(ddof=1) * np.sqrt(1 / folds + 1 / (folds - 1))
    half = stats.t.ppf(0.975, folds - 1) * error
    p = 2 * stats.t.sf(abs(values.mean()) / error, folds - 1) if error else 1.0
    return [*found, ((values.mean() - half, values.mean() + half), p)]


def selection(metric: str, patients: int, rows: int, kind: str, cohorts: int) -> list[str]:
    """How often intervals of the best of several equal rows lie above what each of them scores on average."""
    rng, found, values = np.random.default_rng(1), [], []
    for _ in range(cohorts):
        data = cohort(rng, metric, patients, kind, 0.0, rows)
        drawn: list[Resampled] = [
            over_folds(own, patients, patients / 5) for _, own in cross_validated(rng, data, metric, 5, ridge)
        ]
        best = max(drawn, key=lambda own: own.whole["m"])
        corrected = best_of(drawn, "m")
        found.append((best.whole["m"], corrected.value, intervals(best)["m"].low, corrected.low, corrected.high))
        values.append(np.mean([own.whole["m"] for own in drawn]))
    target, table = np.mean(values), np.array(found)
    shares = [table[:, 2] > target, table[:, 3] > target, (table[:, 3] <= target) & (target <= table[:, 4])]
    numbers = [target, *table[:, :2].mean(0), *np.mean(shares, axis=1)]
    return [metric, str(patients), str(rows), kind, *(f"{value:.3f}" for value in numbers)]


if __name__ == "__main__":
    main()
