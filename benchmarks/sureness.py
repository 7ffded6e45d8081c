"""How often prediction sets hold the truth, over simulated cohorts; and what sureness costs a study.

`python benchmarks/sureness.py` needs no arguments. Coverage: calibration patients and new patients are drawn from one world, whose patients of
many slides are harder; a set is learned from the first and judged on one slide of each of the second. Counting slides instead of patients
is the usual shortcut. Cost: what `learn_sureness` adds to one model, and the tables of one method.
"""

import argparse
import time

import numpy as np

import _harness as harness
from panther.evaluation.calibration import fit_temperature, tempered
from panther.evaluation.conformal import hold_the_truth, prediction_sets, set_threshold
from panther.evaluation.outlying import fit_cloud
from panther.study.sureness.rows import Pooled, tables_of


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
        found.append([*(hold_the_truth(new[one], s).mean() for s in sets), sets[0].sum(1).mean()])
    mean = np.mean(found, 0)
    return [str(slides), str(patients), *(f"{value:.3f}" for value in mean[:2]), f"{mean[2]:.2f}"]


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
