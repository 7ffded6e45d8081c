"""What a probe says that slides add to covariates, on cohorts where they add nothing and where they do.

`python benchmarks/covariates.py` draws cohorts of 150 patients with three covariates and an embedding of 60 numbers, and compares covariates alone
with both together over five folds: how large the gain in AUROC is, and how often its interval over patients says that there is one. Once with
covariates as the product treats them, once as one statistic of the embedding among others. `--quick` draws few.
"""

import argparse
from typing import NamedTuple

import numpy as np

import _harness as harness
from panther.cohort.covariates import COVARIATES
from panther.evaluation.intervals import Difference, Resampled, differences, resample
from panther.evaluation.metrics import classification_metrics
from panther.models.probe_search import Probe
from panther.models.probes import fit_logistic

PATIENTS, NUMBERS, FOLDS, RESAMPLES = 150, 60, 5, 500
EFFECTS = {"nothing": 0.0, "something": 0.5}  # of the slide, beside covariates of 1 and 0.5
TREATED = {"a place of their own": COVARIATES, "a statistic among others": "clinic"}


class Patients(NamedTuple):
    """A drawn cohort."""

    embedding: np.ndarray  # (n, D), of variance 1 in all
    clinic: np.ndarray  # (n, 3)
    labels: np.ndarray  # (n,)
    fold: np.ndarray  # (n,)


def drawn(seed: int, slide: float) -> Patients:
    """Patients whose odds depend on two covariates, and on five numbers of the embedding by ``slide``."""
    rng = np.random.default_rng(seed)
    clinic, embedding = rng.normal(size=(PATIENTS, 3)), rng.normal(size=(PATIENTS, NUMBERS))
    odds = clinic[:, 0] + 0.5 * clinic[:, 1] + slide * embedding[:, :5].sum(1)
    labels = (rng.random(PATIENTS) < 1 / (1 + np.exp(-odds))).astype(np.int64)
    return Patients(embedding / np.sqrt(NUMBERS), clinic, labels, rng.permutation(PATIENTS) % FOLDS)


def judged(patients: Patients, x: np.ndarray, blocks: np.ndarray | None = None) -> Resampled:
    """AUROC of a probe over the folds, on resamples of patients."""
    probabilities = np.zeros((PATIENTS, 2))
    for fold in range(FOLDS):
        test = patients.fold == fold
        probe: Probe = fit_logistic(x[~test], patients.labels[~test], 2, blocks=blocks)
        logits = probe.logits(x[test])
        odds = np.exp(logits - logits.max(1, keepdims=True))
        probabilities[test] = odds / odds.sum(1, keepdims=True)

    def measure(counts: np.ndarray) -> dict[str, np.ndarray]:
        rows = [patients.fold == fold for fold in range(FOLDS)]
        found = [classification_metrics(patients.labels[r], probabilities[r], counts[..., r])["auroc"] for r in rows]
        return {"auroc": np.nanmean(np.stack(found, -1), -1)}

    return resample(measure, np.arange(PATIENTS), RESAMPLES)


def gains(cohorts: int, slide: float, called: str) -> list[Difference]:
    """Gain of both together over covariates alone, of each cohort."""
    blocks = np.array(["embedding"] * NUMBERS + [called] * 3)
    found = []
    for seed in range(cohorts):
        patients = drawn(seed, slide)
        both = judged(patients, np.hstack([patients.embedding, patients.clinic]), blocks)
        found.append(differences(both, judged(patients, patients.clinic))["auroc"])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cohorts", type=int, default=200)
    parser.add_argument("--quick", action="store_true", help="4 cohorts")
    arguments = parser.parse_args()
    cohorts = 4 if arguments.quick else arguments.cohorts
    print(harness.machine("scikit-learn"))
    rows = []
    for adds, slide in EFFECTS.items():
        for treated, called in TREATED.items():
            found = gains(cohorts, slide, called)
            mean = np.mean([one.value for one in found])
            shares = [
                np.mean([holds(one) for one in found])
                for holds in (lambda d: d.low <= 0 <= d.high, lambda d: d.low > 0)
            ]
            rows.append([adds, treated, f"{mean:+.3f}", *(f"{share:.1%}" for share in shares)])
    header = ["the slide adds", "covariates have", "mean gain in AUROC", "interval covers 0", "interval above 0"]
    harness.table(f"{cohorts} cohorts of {PATIENTS} patients", header, rows)


if __name__ == "__main__":
    main()
