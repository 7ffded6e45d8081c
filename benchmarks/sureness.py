"""How often prediction sets hold the truth, over simulated cohorts; and what sureness costs a study.

`python benchmarks/sureness.py` needs no arguments. Coverage: calibration patients and new patients are drawn from one world, whose patients of
many slides are harder; a set is learned from the first and judged on one slide of each of the second. Counting slides instead of patients
is the usual shortcut. Then a study in which nothing is learnt: the patients of the other folds calibrate, whose models were trained on the test
patients. Then one threshold against one for each class. Cost: what `fit_sureness` adds to one model, and the tables of one method.
"""

import argparse
import time

import numpy as np

import _harness as harness
from panther.evaluation.calibration import (
    class_thresholds,
    covers,
    fit_temperature,
    prediction_sets,
    set_threshold,
    tempered,
)
from panther.evaluation.outlying import fit_cloud
from panther.models.probes import fit_logistic
from panther.study.sureness import Pooled, tables_of

STUDIED = 80


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cohorts", type=int, default=200)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    cohorts = 5 if given.quick else given.cohorts
    print(harness.machine("scipy"))
    rows = [coverage(slides, patients, cohorts) for slides in (1, 10) for patients in (30, 100, 300)]
    header = ["slides a patient", "calibration patients", "by patients", "by slides", "classes in a set"]
    harness.table(f"Truth in sets of 90 %, mean over {cohorts} cohorts of 500 new patients", header, rows)
    sizes = [(200, 1024)] if given.quick else [(200, 1024), (1000, 1024), (1000, 32_784)]
    rows = in_a_study(cohorts)
    header = ["calibrated on", "truth in sets of 90 %"]
    harness.table(
        f"A study of {STUDIED} patients, 5 folds, where nothing is learnt, mean over {cohorts} cohorts", header, rows
    )
    header = ["thresholds", "common class", "rare class (20 %)", "classes in a set"]
    harness.table(f"300 calibration patients, mean over {cohorts} cohorts", header, classwise(cohorts))
    costs = [[f"{n:,} x {dim:,}", *map(str, cost(n, dim))] for n, dim in sizes]
    harness.table("Seconds, one thread", ["embeddings", "cloud of one model", "tables of one method"], costs)


def world(rng: np.random.Generator, patients: int, slides: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels, probabilities of an overconfident model, and patients."""
    number = rng.integers(1, slides + 1, patients)
    member = np.repeat(np.arange(patients), number)
    truth = rng.integers(0, 3, patients)
    noise = rng.normal(0, 1 + (number[:, None] - 1) / 9, (patients, 3))
    logits = (1.5 * np.eye(3)[truth] + noise)[member] + rng.normal(0, 0.3, (len(member), 3))
    p = np.exp(2 * logits)
    return truth[member], p / p.sum(1, keepdims=True), member


def coverage(slides: int, patients: int, cohorts: int) -> list[str]:
    """Mean coverage by patients and by slides."""
    rng = np.random.default_rng(0)
    found = []
    for _ in range(cohorts):
        labels, p, owners = world(rng, patients, slides)
        new, q, others = world(rng, 500, slides)
        one = np.unique(others, return_index=True)[1]
        t = fit_temperature(labels, p, owners)
        p, q = tempered(p, t), tempered(q, t)
        sets = [prediction_sets(q[one], set_threshold(labels, p, who)) for who in (owners, None)]
        found.append([*(covers(new[one], s).mean() for s in sets), sets[0].sum(1).mean()])
    mean = np.mean(found, 0)
    return [str(slides), str(patients), *(f"{value:.3f}" for value in mean[:2]), f"{mean[2]:.2f}"]


def in_a_study(cohorts: int) -> list[list[str]]:
    """Coverage where labels are noise, by who calibrates a fold's probe."""
    found: dict[str, list[float]] = {}
    for seed in range(cohorts):
        rng = np.random.default_rng(seed)
        labels, new = np.arange(STUDIED) % 2, np.arange(200) % 2
        x, later = (rng.normal(size=(len(y), 20)) / np.sqrt(20) for y in (labels, new))
        fold = np.concatenate([rng.permutation(STUDIED // 2) % 5 for _ in range(2)])[
            np.argsort(np.argsort(labels, kind="stable"))
        ]

        def predicted(
            train: np.ndarray, rows: np.ndarray, x: np.ndarray = x, labels: np.ndarray = labels
        ) -> np.ndarray:
            logits = fit_logistic(x[train], labels[train], 2).logits(rows)
            return np.exp(logits) / np.exp(logits).sum(1, keepdims=True)

        tested = np.zeros((STUDIED, 2))
        for f in range(5):
            tested[fold == f] = predicted(fold != f, x[fold == f])
        for f in range(5):
            test, val = fold == f, fold == (f + 1) % 5
            part = predicted(~test & ~val, np.concatenate([x[val], x[test]]))
            cases = {
                "test patients of the other folds (the product)": (
                    labels[~test],
                    tested[~test],
                    labels[test],
                    tested[test],
                ),
                "the same, but new patients are predicted": (
                    labels[~test],
                    tested[~test],
                    new,
                    predicted(~test, later),
                ),
                "validation part": (labels[val], part[: val.sum()], labels[test], part[val.sum() :]),
            }
            for who, (y, p, truth, q) in cases.items():
                sets = prediction_sets(q, set_threshold(y, p))  # a temperature does not change sets of two classes
                found.setdefault(who, []).append(covers(truth, sets).mean())
    return [[who, f"{np.mean(values):.3f}"] for who, values in found.items()]


def classwise(cohorts: int) -> list[list[str]]:
    """Coverage of each of two classes, one of them rare."""
    rng, found = np.random.default_rng(0), dict[str, list[list[float]]]()
    for _ in range(cohorts):
        labels = (rng.random(1300) < 0.2).astype(int)
        odds = rng.normal(2 * labels - 1 + np.log(0.2 / 0.8), 1)
        p = 1 / (1 + np.exp(np.column_stack([2 * odds, -2 * odds])))
        for name, learn in {"one for all": set_threshold, "by-class": class_thresholds}.items():
            sets = prediction_sets(p[300:], learn(labels[:300], p[:300]))
            holds = covers(labels[300:], sets)
            by = [float(holds[labels[300:] == k].mean()) for k in (0, 1)]
            found.setdefault(name, []).append([*by, float(sets.sum(1).mean())])
    return [[name, *(f"{value:.3f}" for value in np.mean(rows, 0))] for name, rows in found.items()]


def cost(n: int, dim: int) -> tuple[str, str]:
    """Seconds of the cloud, and of all tables of one method with 1,000 resamples."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, dim)).astype("f4")
    labels, p, owners = world(rng, n, 1)
    names = np.array([f"P{i}" for i in owners])
    sets = np.column_stack([np.ones(n), np.ones(n)])
    pooled = Pooled(("a", "b", "c"), labels, p, p, sets, names, np.array(["A", "B"])[owners % 2], "", 0.9, 1.0)
    start = time.perf_counter()
    fit_cloud(x, names)
    middle = time.perf_counter()
    tables_of(pooled, 1000)
    return f"{middle - start:.2f}", f"{time.perf_counter() - middle:.2f}"


if __name__ == "__main__":
    main()
